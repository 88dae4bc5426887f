"""`tinygpu check`: property tests of a machine."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from tinygpu.cli.options import ALIGN, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION


def check_command(
    machine: MACHINE,
    shape: Annotated[str, typer.Option("--shape", help="one problem to check on (default: random ones)")] = "",
    device: Annotated[str, typer.Option("--device", "-d", help="one GPU (default: several)")] = "",
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    problems: Annotated[int, typer.Option(help="how many random problems, without --shape")] = 8,
    candidates: Annotated[int, typer.Option(help="how many candidates each check draws")] = 16,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="no limit of CPU time; four times the problems and candidates")
    ] = False,
    tiers: Annotated[str, typer.Option(help="which tiers, as in 1,2,5 (default: all)")] = "",
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
    as_json: JSON = False,
) -> None:
    """Property-test a machine: declaration, partitions, heuristics, legality, kernels, and what constraints are worth.

    Also an instruction that an installed package offers by itself: whether its meaning is what its text does.

    Examples: `tinygpu check my_machine.py:Softplus`, `tinygpu check matmul_simt --shape m=64,n=33,k=20 --tiers 1,2,5`
    """
    from tinygpu.api.machines import MachineNotFound, family
    from tinygpu.api.problems import problems as problems_of
    from tinygpu.cli.arguments import asked
    from tinygpu.cli.arguments import tiers as read_tiers
    from tinygpu.extensions import extension
    from tinygpu.testing import run_check
    from tinygpu.testing.offered import check_instruction

    ok = True
    reports = []
    chosen = read_tiers(tiers)
    settings: dict[str, Any] = {"candidates": candidates, "seed": seed} | ({"tiers": chosen} if chosen else {})
    if thorough:
        problems *= 4
        settings |= {"candidates": 4 * candidates, "seconds": math.inf}
    if device:
        settings["devices"] = (device,)
    try:
        given = family(machine)
    except MachineNotFound:
        instruction = extension("instructions", machine)
        if instruction is None:
            raise
        fault = check_instruction(instruction, seed=seed)
        print(fault or f"{instruction}: its meaning is what its text does")
        if fault:
            raise typer.Exit(1) from None
        return
    known = {}
    if shape:
        accepted, _ = problems_of(given, asked(shape, dtype, major, ld, align, option))
        known = {m: (p,) for m, p in accepted}
    for m in known or given.machines:
        report = run_check(m, problems=known.get(m, problems), **settings)
        ok = ok and report.ok
        reports.append(report)
        if not as_json:
            print(report)
    if as_json:
        print(json.dumps([r.to_json() for r in reports], indent=2))
    if not ok:
        raise typer.Exit(1)
