"""`tinygpu bundle`: candidates for a GPU elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, SHAPE


def bundle_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="the file to write")],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    count: Annotated[int, typer.Option("--count", "-n", help="how many kernels")] = 500,
    choose: Annotated[str, typer.Option(help="best (by prediction), random, or mixed: half of each")] = "mixed",
    seconds: Annotated[float, typer.Option(help="how long each machine's best are searched at most")] = 60.0,
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
    cubins: Annotated[bool, typer.Option(help="machine code for the device, beside the PTX")] = True,
    as_json: JSON = False,
) -> None:
    """Write candidates as kernels into one file, to be timed on a GPU elsewhere.

    There, `python -m tinygpu.ptx.measuring FILE` verifies and times them; it needs NumPy and cuda-bindings alone. What
    it writes, `tinygpu tune --results` takes in.

    Example: `tinygpu bundle matmul --shape m=4096,n=4096,k=4096 --dtype bf16 --device h200 -n 500 -o mm.bundle`
    """
    from tinygpu.api.bundle import CHOOSE, bundle
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.emulation import one_of
    from tinygpu.cli.live import watching
    from tinygpu.cli.measuring import bundled_json, bundled_report
    from tinygpu.cli.printing import console
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    with watching(console, quiet=as_json) as watcher:
        made = bundle(
            family(machine),
            given,
            find(device),
            out,
            count=count,
            choose=one_of("--choose", choose, CHOOSE),
            seconds=seconds,
            seed=seed,
            cubins=cubins,
            watcher=watcher,
        )
    if as_json:
        print(json.dumps(bundled_json(made), indent=2))
    else:
        bundled_report(made)
