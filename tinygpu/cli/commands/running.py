"""`tinygpu run`: the program of one candidate, as it is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tinygpu.cli.options import ALIGN, DEVICE, DTYPE, JSON, LD, MACHINE, MAJOR, OPTION, POINT, SHAPE

if TYPE_CHECKING:
    from tinygpu.ptx.verification.inputs import Inputs


def run_command(
    machine: MACHINE,
    shape: SHAPE,
    device: DEVICE,
    point: POINT = [],
    dtype: DTYPE = [],
    major: MAJOR = [],
    ld: LD = [],
    align: ALIGN = [],
    option: OPTION = [],
    given: Annotated[list[str], typer.Option("--input", help="a=a.npy: an array; one for every input, or none")] = [],
    scalar: Annotated[list[str], typer.Option("--scalar", help="a=2.5: a number, beside --input")] = [],
    drawn: Annotated[
        str, typer.Option("--inputs", help="what is drawn without --input: integers, random or specials")
    ] = "integers",
    seed: Annotated[int, typer.Option(help="of the inputs that are drawn")] = 0,
    save: Annotated[list[str], typer.Option(help="c=out.npy: write a tensor, a result or what was drawn")] = [],
    as_json: JSON = False,
) -> None:
    """Run the program of one candidate in NumPy, by what its instructions mean, and compare with the reference.

    Whole tiles are moved and computed, the roles of a CTA side by side, CTA after CTA; no PTX decides a value. What the
    kernel of the same candidate does is what `verify` looks at. Ends with 1 where a result is not what the reference
    makes.

    Examples:

    `tinygpu run matmul_hopper --shape m=200,n=136,k=264 --device h100 schedule=pingpong`

    `tinygpu run saxpy.py:Saxpy --shape n=9 --device a100 --input x=x.npy --input y=y.npy --scalar a=2 --save y=out.npy`
    """
    from tinygpu.api.arguments import ArgumentError
    from tinygpu.api.run import load_inputs, run_drawn, run_given
    from tinygpu.cli.commands.kernels import point_of
    from tinygpu.cli.emulation import named_files, one_of, save_array
    from tinygpu.cli.running import numbers, ran_json, ran_report

    files, targets = named_files("--input", given), named_files("--save", save)
    kind: Inputs = one_of("--inputs", drawn, ("integers", "random", "specials"))
    values = numbers(scalar)
    if values and not files:
        raise ArgumentError("--scalar goes with --input: what is drawn has numbers of its own")
    made = point_of(machine, shape, device, point, dtype, major, ld, align, option)
    tensors = [o.name for o in made.space.problem.operands]
    for name in targets:
        if name not in tensors:
            title, known = made.space.machine.__name__, ", ".join(tensors)
            raise ArgumentError(f"--save: {title} has no tensor {name!r}; it has {known}")
    ran = run_given(made, load_inputs(files), values) if files else run_drawn(made, kind, seed)
    for name, path in targets.items():
        save_array(path, ran.array(name))
    if as_json:
        print(json.dumps(ran_json(ran, tuple(targets.values())), indent=2))
    else:
        ran_report(ran, tuple(targets.values()), "the arrays that were given" if files else f"{kind}, seed {seed}")
    if not ran.passed:
        raise typer.Exit(1)
