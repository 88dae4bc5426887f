"""`tinygpu emulate`: a PTX kernel of any compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tinygpu.cli.options import JSON


def emulate_command(
    files: Annotated[list[Path], typer.Argument(help="PTX of any compiler")],
    grid: Annotated[str, typer.Option(help="CTAs: 64 or 64,64 or 64,64,1")],
    block: Annotated[str, typer.Option(help="threads of a CTA: 256 or 16,16")],
    arg: Annotated[list[str], typer.Option(help="name=value, one per parameter, in order or by its name")] = [],
    cluster: Annotated[str, typer.Option(help="CTAs of a cluster: 2,1,1")] = "1",
    entry: Annotated[str | None, typer.Option(help="name of the kernel (default: the only one)")] = None,
    smem: Annotated[int, typer.Option(help="bytes of dynamic shared memory")] = 0,
    check: Annotated[str, typer.Option(help="collect all faults, raise the first, or off")] = "collect",
    order: Annotated[str, typer.Option(help="when asynchronous work lands: late, early, random or spurious")] = "late",
    seed: Annotated[int, typer.Option(help="of random contents, and of --order random and spurious")] = 0,
    ctas: Annotated[str, typer.Option(help="run only these: first,last,17")] = "",
    lines: Annotated[bool, typer.Option("--lines", help="count every line of the PTX")] = False,
    device: Annotated[str, typer.Option("--device", "-d", help="a GPU: what its L1, L2 and DRAM move")] = "",
    ctas_per_sm: Annotated[int, typer.Option(help="CTAs resident on one of its SMs")] = 1,
    save: Annotated[list[str], typer.Option(help="c=out.npy: write an array that the kernel left")] = [],
    compare: Annotated[list[str], typer.Option(help="c=want.npy: compare an array with a file")] = [],
    rtol: Annotated[float | None, typer.Option(help="relative error that --compare allows (by type)")] = None,
    atol: Annotated[float | None, typer.Option(help="absolute error that --compare allows (as --rtol)")] = None,
    as_json: JSON = False,
) -> None:
    """Run a PTX kernel on the CPU, check every access of it, and count what it does.

    Contents of arrays are random, zeros, ones, arange, integers:f16[256][-3..3] or empty (uninitialised). Other
    arguments: 1024, f32:0.5, x.npy, null, pointer:a+256, bytes:00ff, sparse:f32[4294967296] windows=0..64,-64.., and
    tensormap:a box=64,128 swizzle=128B over the argument a, fastest dimension first.

    Ends with 0 where all is well, 1 where there are faults or wrong values, 2 where the input cannot be run.

    Examples:

    `tinygpu emulate add.ptx --grid 4 --block 256 --arg x=random:f32[1000] --arg y=zeros:f32[1000] --arg n=1000`

    `tinygpu emulate mm.ptx --grid 4,4 --block 256 --arg a.npy --arg b.npy --arg c=empty:f32[99,99] --compare c=ab.npy`
    """
    from tinygpu.api.emulate import emulate_files
    from tinygpu.cli.emulation import (
        compared,
        emulated_json,
        emulated_report,
        named_files,
        numbers,
        one_of,
        refusing,
        saved,
    )
    from tinygpu.ptx.emulator import ORDERS

    with refusing():
        wanted, targets = named_files("--compare", compare), named_files("--save", save)
        done = emulate_files(
            files,
            arguments=arg,
            grid=numbers("--grid", grid),
            block=numbers("--block", block),
            cluster=numbers("--cluster", cluster),
            entry=entry,
            dynamic_smem=smem,
            check=one_of("--check", check, ("raise", "collect", "off")),
            order=one_of("--order", order, ORDERS),
            seed=seed,
            ctas=ctas,
            results=[*wanted, *targets],
            device=device,
            ctas_per_sm=ctas_per_sm,
        )
        comparisons = compared(done, wanted, rtol, atol)
        written = saved(done, targets)
    if as_json:
        print(json.dumps(emulated_json(done, comparisons, written), indent=2))
    else:
        emulated_report(done, comparisons, written, every_line=lines)
    if done.faults or not all(c.ok for c in comparisons):
        raise typer.Exit(1)
