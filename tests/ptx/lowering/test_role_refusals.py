"""What roles, rings and tiles that CTAs share cannot be is refused in a sentence, when the language has let it through.

Programs are those of machines with one field exchanged; the language refuses most of these where they are declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.append(str(Path(__file__).parent))
from test_misfits import CONVERT, exchanged, programs

from tinygpu.expressions import expr, symbol
from tinygpu.language import blocked
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import compute, fix_up, handover, moves, release, roles, warpgroup
from tinygpu.ptx.lowering import lower as lowering
from tinygpu.ptx.lowering.context import Context, Facts, LoweringError
from tinygpu.schedulers.sliced import StaticPersistent
from tinygpu.schedulers.stream_k import StreamK


def of(name: str, **point: object) -> Program:
    """The first program of a machine with these values of its parameters."""
    return next(p for p, _, at, _ in programs(name) if all(at[k] == v for k, v in point.items()))


def statement(program: Program, kind: type, number: int = 0) -> Any:
    return [s for s in walk(program.body) if isinstance(s, kind)][number]


def context(program: Program, **fields: Any) -> Context:
    made = Context(program, Facts({}), cast(Any, None))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def with_roles(program: Program, *changes: dict[str, Any]) -> Program:
    return replace(program, roles=tuple(replace(r, **c) for r, c in zip(program.roles, changes, strict=True)))


def completed(program: Program, completion: str) -> Program:
    return replace(program, pipelines=tuple(replace(p, completion=completion) for p in program.pipelines))


def in_one_role(program: Program) -> Program:
    """The same with everything in the last role."""
    body: Any = program.body
    for s in walk(program.body):
        if isinstance(s, n.InRole):
            body = exchanged(body, s, replace(s, role=program.roles[-1].name))
    return replace(program, body=body)


def two_sizes() -> Program:
    program = of("MatmulHopper", schedule="pingpong")
    second = statement(program, n.FixUp, 1)
    other = replace(second, value=replace(second.value, partition=blocked((8, 32), threads=128, across=32)))
    return replace(program, body=exchanged(program.body, second, other))


def over_two_dims() -> Program:
    program = of("SharedRows")
    loop = statement(program, n.Loop)
    body = exchanged(program.body, loop, replace(loop, trips=symbol("m") + symbol("n")))
    return replace(program, body=body, grid=replace(program.grid, scheduler=StreamK(expr(1), StaticPersistent())))


def other_product(c: Context) -> None:
    warpgroup.multiply(c, replace(statement(c.program, n.Multiply), instruction=CONVERT))


def odd_copy(c: Context) -> None:
    moves.start_copy(c, replace(statement(c.program, n.Copy), instruction=CONVERT))


NO_ROOM = "must be whole warpgroups"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: handover.empty_arrivals(
                with_roles(of("MatmulHopper", schedule="pingpong"), {}, {"share": (0, 2)}, {"share": (1, 3)}), "ring"
            ),
            "the roles that consume ring share the tiles in different ways",
        ),
        (
            lambda: handover.empty_arrivals(
                with_roles(of("MatmulHopper", schedule="pingpong"), {}, {"warps": expr(4)}, {"warps": expr(8)}), "ring"
            ),
            "the roles that take turns at consuming ring have different numbers of warps",
        ),
        (lambda: fix_up._area_bytes(two_sizes()), "the roles that take turns at tiles fix up tiles of different sizes"),
        (
            lambda: fix_up._threads(of("SharedRows"), statement(of("SharedMatmul"), n.FixUp)),
            f"{statement(of('SharedMatmul'), n.FixUp).name} fixes up a tile outside a role",
        ),
        (
            lambda: lowering._dealt(over_two_dims()),
            "stream-K deals out the rounds of a loop over one dim, and this one has m + n",
        ),
        (
            lambda: compute.broadcast(
                blocked((2, 32), threads=32, across=32), blocked((4, 32), threads=32, across=32), "v1"
            ),
            "%v1 is held by other threads than the values that it is combined with",
        ),
        (
            lambda: compute.broadcast(
                blocked((4, 64), threads=64, across=64), blocked((4, 64), threads=32, across=32), "v1"
            ),
            "%v1 is held by other threads than the values that it is combined with",
        ),
        (
            lambda: compute.broadcast(
                blocked((4, 32), threads=32, across=8), blocked((4, 32), threads=32, across=32), "v1"
            ),
            "%v1 is held by other threads than the values that it is combined with",
        ),
        (
            lambda: roles._registers(context(of("OneSlot")), replace(of("OneSlot").roles[0], warps=expr(3))),
            f"role consumer has a register budget: its 3 warps from warp 0 on {NO_ROOM}",
        ),
        (
            lambda: roles._registers(context(of("OneSlot")), replace(of("OneSlot").roles[0], first=expr(2))),
            f"role consumer has a register budget: its 4 warps from warp 2 on {NO_ROOM}",
        ),
        (
            lambda: other_product(context(of("OneSlot"))),
            f"wgmma ({CONVERT}) cannot be written here: no warpgroups multiply",
        ),
        (
            lambda: warpgroup.multiply(context(of("OneSlot")), statement(of("OneSlot"), n.Multiply)),
            "wgmma (wgmma) cannot be written here: no warpgroups multiply",
        ),
        (
            lambda: odd_copy(context(of("SharedMatmul"))),
            f"copy: {CONVERT} is not an instruction that lowering can write",
        ),
    ],
)  # fmt: skip
def test_roles_and_tiles_that_do_not_fit_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(LoweringError) as refused:
        call()
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("budgets", "warps", "verbs"),
    [((40, 232), (4, 4), "dec inc"), ((40, 168, 168), (4, 4, 8), "dec inc inc"), ((104, 104), (4, 8), "dec dec"),
     ((96, 128, 160), (4, 4, 4), "dec dec inc"), ((96, 128, 160), (8, 4, 4), "dec inc inc")],
)  # fmt: skip
def test_a_role_asks_for_registers_where_it_has_more_than_the_average(
    budgets: tuple[int, ...], warps: tuple[int, ...], verbs: str
) -> None:
    """Who asks for more waits until others have given theirs back: a role that has enough does not."""
    program = of("OneSlot")
    made = tuple(
        replace(program.roles[0], registers=registers, warps=expr(count))
        for registers, count in zip(budgets, warps, strict=True)
    )
    c = context(replace(program, roles=made))
    for role in made:
        roles._registers(c, role)
    wanted = [f"setmaxnreg.{v}.sync.aligned.u32 {b};" for v, b in zip(verbs.split(), budgets, strict=True)]
    assert [line.strip() for line in c.emit.block.lines()] == wanted


def refused_whole(program: Program, name: str, **point: object) -> str:
    """What lowering says of a program in the place of one of a machine."""
    _, problem, at, swizzles = next(found for found in programs(name) if found[2].items() >= point.items())
    with pytest.raises(LoweringError) as refused:
        lowering.lower(program, problem, at, swizzles)
    return str(refused.value)


def test_a_role_does_not_drain_what_it_fills() -> None:
    assert refused_whole(in_one_role(of("OneTileRoles")), "OneTileRoles") == (
        "role producer fills ring and consumes it itself; give one to another role"
    )


@pytest.mark.parametrize(("side", "axis"), [("a", 0), ("a", 1), ("b", 0), ("b", 1)])
def test_operands_of_wgmma_do_not_move_at_run_time(side: str, axis: int) -> None:
    """An index of a loop at run time, in either axis of either operand."""
    program = of("OneSlot")
    loop, product = statement(program, n.Loop), statement(program, n.Multiply)
    tile = getattr(product, side)
    offset = tuple(symbol(loop.index) if at == axis else o for at, o in enumerate(tile.offset))
    moving = replace(product, **{side: replace(tile, offset=offset)})
    assert refused_whole(replace(program, body=exchanged(program.body, product, moving)), "OneSlot") == (
        f"the window of {tile.name} moves at run time, and descriptors are made for fixed windows"
    )


def test_registers_are_multiplied_by_what_another_role_fills() -> None:
    program = of("Quantised")
    product = statement(program, n.Multiply)
    own = replace(product, b=replace(product.b, name="own.b"))
    assert refused_whole(replace(program, body=exchanged(program.body, product, own)), "Quantised") == (
        "wgmma multiplies own.b, which its own role produces; another role produces it by TMA"
    )


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [("MatmulAmpere", "ring"), ("ReadTwice", "ring"), ("MatmulHopper", "ring"), ("SharedMatmul", "ring")],
)
def test_what_threads_touch_is_told_from_what_tma_and_wgmma_do(name: str, pipeline: str) -> None:
    """Every statement, by its own tiles and by those of other pipelines."""
    program = of(name)
    buffers = {b.name for b in program.pipeline(pipeline).buffers}
    seen = set()
    for s in walk(program.body):
        tiles = [getattr(s, field, None) for field in ("source", "target", "a", "b")]
        names = {getattr(tile, "name", "") for tile in tiles}
        by_agents = isinstance(getattr(s, "instruction", None), (isa.TmaLoad, isa.TmaStore, isa.Wgmma))
        moves_data = isinstance(s, (n.Load, n.Store, n.Copy, n.Multiply))
        expected = moves_data and not by_agents and bool(names & buffers)
        assert release._touches_by_threads(s, buffers) == expected, s
        assert not release._touches_by_threads(s, {"another.x"})
        seen.add((type(s).__name__, expected))
    assert len(seen) >= 4
