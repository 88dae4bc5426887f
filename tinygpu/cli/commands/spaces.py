"""`tinygpu space` and `explain`: what may be chosen, and why the rest may not."""

from __future__ import annotations

import json
from typing import Any

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, POINT, SHAPE


def space_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    as_json: JSON = False,
) -> None:
    """Build the space: its raw size, what each constraint removes, and how many candidates are left.

    Example: `tinygpu space matmul --shape m=4096,n=4096,k=4096 --device a100`
    """
    from tinygpu.api.choosing import spaces
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.printing import console, space_report
    from tinygpu.devices import device as find

    empty = True
    out: list[dict[str, Any]] = []
    for s in spaces(family(machine), asked(shape, dtype, major, ld, align, option), find(device)):
        empty = empty and not s.space.size
        if as_json:
            rows = [
                {"constraint": r.name, "kind": r.kind, "source": r.source, "removed": r.removed}
                for r in s.space.funnel
            ]
            out.append(
                {"machine": s.machine.__name__, "raw": s.space.raw_size, "funnel": rows, "candidates": s.space.size}
            )
            continue
        space_report(s)
        if not s.space.size:
            for conflict in s.space.conflict():
                console.print(f"no candidate: {conflict}")
                for line in s.written(conflict.constraints):
                    console.print(line)
            console.print(str(s.space.nearest()))
    if as_json:
        print(json.dumps(out, indent=2))
    if empty:
        raise typer.Exit(1)


def explain_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    as_json: JSON = False,
) -> None:
    """Say which constraints a point breaks, with the numbers. Parameters that are left out may take any value.

    Example: `tinygpu explain matmul_ampere --shape m=4096,n=4096,k=4096 --device rtx4090 bm=256 bn=256 stages=6`
    """
    from tinygpu.api.choosing import spaces
    from tinygpu.api.explain import explain
    from tinygpu.api.machines import family
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import point as read_point
    from tinygpu.devices import device as find

    chosen = read_point(point)
    admitted = False
    verdicts: list[tuple[str, list[str]]] = []
    for s in spaces(family(machine), asked(shape, dtype, major, ld, align, option), find(device)):
        broken = explain(s, chosen)
        admitted = admitted or not broken
        verdicts.append((s.machine.__name__, list(broken)))
    if as_json:
        out = [{"machine": name, "admitted": not breaks, "breaks": breaks} for name, breaks in verdicts]
        print(json.dumps(out, indent=2))
    else:
        for name, breaks in verdicts:
            if not breaks:
                count = "" if len(chosen) else " (no parameter was given)"
                print(f"{name}: admitted{count}")
            else:
                print(f"{name}: out")
                for sentence in breaks:
                    print(f"  {sentence}")
    if not admitted:
        raise typer.Exit(1)
