"""`tinygpu predict`, `timeline` and `roofline`: where time goes, by the models of a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, POINT, SHAPE


def predict_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    launch: Annotated[str, typer.Option(help="graph (launches follow each other), or stream")] = "graph",
    as_json: JSON = False,
) -> None:
    """Predict one candidate's time: closed form and simulation, by unit and role, down from the roofline.

    Parameters that are left out are chosen by the predictor. Nothing is measured.

    Example: `tinygpu predict matmul_ampere --shape m=4096,n=4096,k=4096 --device a100 bm=128 bn=128 stages=3`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.predict import predict_point
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.cli.emulation import one_of
    from tinygpu.cli.predicting import predicted_report
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = predict_point(
        family(machine),
        given,
        find(device),
        read_point(point),
        launch=one_of("--launch", launch, ("graph", "stream")),
    )
    print(json.dumps(found.to_json(), indent=2)) if as_json else predicted_report(found)


def timeline_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="file.json (Chrome trace) or file.svg")],
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
) -> None:
    """Write the simulated timeline of one candidate: who does what on an SM, and who waits for whom.

    A .json opens in ui.perfetto.dev and chrome://tracing; an .svg is a drawing of the beginning. The kernels of a plan
    come one behind the other.

    Example: `tinygpu timeline matmul_hopper --shape m=4096,n=4096,k=4096 --device h100 -o timeline.json`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.timeline import write_timeline
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = write_timeline(family(machine), given, find(device), read_point(point), out)
    print(f"{found.title}: {found.simulated_bottleneck}")
    print(f"wrote {out}")


def roofline_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    out: Annotated[Path, typer.Option("--out", "-o", help="file.svg")],
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
) -> None:
    """Draw the best candidate below the ceilings of a GPU, others drawn at random behind it; of a plan each kernel.

    Example: `tinygpu roofline matmul --shape m=4096,n=4096,k=4096 --device a100 -o roofline.svg`
    """
    from tinygpu.api.machines import family
    from tinygpu.api.roofline import write_roofline
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    given = asked(shape, dtype, major, ld, align, option)
    found = write_roofline(family(machine), given, find(device), read_point(point), out)
    print(f"{found.title}: {found.bottleneck}")
    print(f"wrote {out}")
