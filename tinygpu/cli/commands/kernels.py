"""`tinygpu emit` and `verify`: one candidate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, POINT, SHAPE

if TYPE_CHECKING:
    from tinygpu.api.choosing import Chosen


def emit_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder to write to (default: print the PTX)")] = None,
    verified: Annotated[
        bool, typer.Option("--verify", help="run it in the emulator first, and write it if it is right")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Write the PTX of one candidate; parameters that are left out are chosen by the predictor.

    On standard error, in launch.json and in the summary it says whether the kernel was verified.

    Example: `tinygpu emit matmul_ampere --shape m=4096,n=4096,k=4096 --device a100 bm=128 bn=128 bk=32 stages=4`
    """
    from tinygpu.api.on_arrays import lines_of
    from tinygpu.api.output import check_output, verdict, write_kernel
    from tinygpu.ptx.verification.whole import verify_kernels

    if out is not None:
        check_output(out)
    made = point_of(machine, shape, device, point, dtype, major, ld, align, option)
    result = verify_kernels(made.kernels, thorough=True, lines=lines_of(made)) if verified else None
    if result is not None and not result.passed:
        print(result, file=sys.stderr)
        raise typer.Exit(1)
    if out is not None:
        for f in write_kernel(out, made, result):
            print(f"wrote {f}")
    elif as_json:
        print(json.dumps(made.kernels.launch_json() | {"verified": verified or None, "ptx": made.ptx}, indent=2))
    else:
        print(made.ptx, end="")
    print(verdict(result), file=sys.stderr)


def verify_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    seed: Annotated[int, typer.Option(help="of the inputs")] = 0,
    as_json: JSON = False,
) -> None:
    """Run the kernel of one candidate in the emulator and compare it with the machine's reference.

    Example: `tinygpu verify matmul_simt --shape m=100,n=77,k=50 --device a100 bm=64 bn=64`
    """
    from tinygpu.api.on_arrays import lines_of
    from tinygpu.cli.printing import verification_report
    from tinygpu.ptx.verification.voices import who_is_wrong
    from tinygpu.ptx.verification.whole import verify_kernels

    made = point_of(machine, shape, device, point, dtype, major, ld, align, option)
    result = verify_kernels(made.kernels, seed=seed, thorough=True, lines=lines_of(made))
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        print("candidate " + " ".join(f"{k}={v}" for k, v in made.point.items()))
        verification_report(result)
    if not as_json and any(not check.passed and not check.fault for check in result.checks):
        for stage, part in zip(made.kernels.stages, made.parts, strict=True):
            built = part.built
            found = who_is_wrong(
                built.program, built.layouts.swizzles, built.kernel, part.space.machine, stage.problem, seed=seed
            )
            of = f"step {stage.name}: " if stage.name else ""
            alike = "program and kernel do not differ on small problems: what is wrong shows in other runs alone"
            print(of + (found or alike))
    if not result.passed:
        raise typer.Exit(1)


def point_of(machine: str, shape: str, device: str, point: list[str], *words: list[str]) -> Chosen:
    """The kernel of the best candidate of a family that has these values."""
    from tinygpu.api.choosing import choose_among
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    return choose_among(family(machine), asked(shape, *words), find(device), read_point(point))
