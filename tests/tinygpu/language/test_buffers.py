"""Bytes that buffers and their barriers take at once, windows that begin at vectors, and what roles and buffers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from negation import refused, thing

from tinygpu.dtypes import dtype
from tinygpu.language import blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.buffer_space import barrier_bytes, buffer_bytes, shared_bytes
from tinygpu.language.declared import Declared
from tinygpu.language.memories import SMEM, TMEM
from tinygpu.language.partition import expr
from tinygpu.language.roles import Pipeline, role
from tinygpu.language.tracing.blocks import Blocks
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx import isa


def pipeline(name: str, stages: int, rows: int, completion: str = "barrier", swizzle: int | None = None) -> Pipeline:
    """Of buffers t and u of rows of 64 f16 elements, 128 bytes, in SMEM, and one in TMEM of as many columns."""
    shape, width = (expr(rows), expr(64)), expr(swizzle) if swizzle else None
    two = [Buffer(f"{name}.{b}", SMEM, dtype("f16"), shape, 1, expr(0), "", expr(stages), width) for b in "tu"]
    there = Buffer(f"{name}.c", TMEM, dtype("f32"), (expr(128), expr(rows)), 1, expr(0), "", expr(stages))
    return Pipeline(name, expr(stages), (*two, there), completion)


def program(roles: int, pipelines: Sequence[Pipeline], *body: n.Statement) -> Program:
    made = tuple(role(f"r{i}", 1, i) for i in range(roles))
    return Program("M", (), (), (), n.Grid((), expr(1), expr(1)), made, tuple(pipelines), body)


A, B, C = pipeline("a", 2, 3), pipeline("b", 1, 5), pipeline("c", 3, 1)
BYTES = {"a": 2 * 2 * 3 * 128, "b": 2 * 5 * 128, "c": 3 * 2 * 128}
COLUMNS = {"a": 2 * 3 * 512, "b": 5 * 512, "c": 3 * 512}


def scope(name: str, *body: n.Statement) -> n.Scope:
    return n.Scope((name,), body)


def test_scopes_that_follow_each_other_share_and_those_inside_take_more() -> None:
    nested = scope("a", n.InRole("r0", (n.Loop("i", expr(2), False, (scope("b"),)),)))
    fixed_up = n.FixUp("g", *[Any] * 5, (scope("c"),))  # type: ignore[arg-type]
    cases: list[tuple[tuple[n.Statement, ...], list[set[str]]]] = [
        ((), [set()]),
        ((scope("b"),), [{"b"}]),
        ((scope("b"), scope("a"), scope("c")), [{"a"}, {"b"}, {"c"}]),
        ((nested, scope("c")), [{"a", "b"}, {"c"}]),
        ((n.Produce("x", (scope("c"),)), n.Consume("x", (scope("b"),)), fixed_up), [{"c"}, {"b"}, {"c"}]),
        ((n.Scope(("a", "c"), (scope("b"),)),), [{"a", "b", "c"}]),
    ]
    for body, together in cases:
        for sizes, memory in ((BYTES, SMEM), (COLUMNS, TMEM)):
            alone, beside = (program(roles, (A, B, C), *body) for roles in (1, 2))
            at_once = [sum(sizes[name] for name in names) for names in together]
            assert int(buffer_bytes(alone, body, memory)) == max(at_once)
            # roles do not wait for each other where a scope ends
            assert int(buffer_bytes(beside, body, memory)) == sum(at_once)


@pytest.mark.parametrize(("swizzle", "align"), [(None, 128), (64, 1024)])
def test_buffers_begin_at_rows_of_banks_or_at_patterns_barriers_lie_side_by_side(
    swizzle: int | None, align: int
) -> None:
    def whole(size: int) -> int:
        return -(-size // align) * align

    for completion, stages, roles, taken in (
        ("mbarrier", 3, 1, 56),  # with the address of what is allocated of tensor memory
        ("mbarrier", 9, 1, 152),
        ("tcgen05 commit", 65, 1, 1048),
        ("turn", 1, 1, 8),
        ("turn", 1, 16, 128),
        ("turn", 1, 17, 136),
        ("turn", 1, 0, 8),
        ("barrier", 3, 1, 0),
        ("commit group", 3, 1, 0),
    ):
        ring = pipeline("a", stages, 3, completion, swizzle)
        made = program(roles, (ring,), scope("a"))
        assert int(barrier_bytes(made, ring)) == taken
        buffers = 2 * whole(stages * 3 * 128)
        assert int(buffer_bytes(made, made.body, SMEM)) == buffers
        rounding_up = align if align > 128 else 0
        assert int(shared_bytes(made)) == buffers + taken + rounding_up
        other = pipeline("b", stages, 3, completion, swizzle)
        both = program(roles, (ring, other), n.Scope(("a", "b"), ()))
        assert int(shared_bytes(both)) == 2 * (buffers + taken) + rounding_up


@pytest.mark.parametrize("vector", [1, 2, 4])
@pytest.mark.parametrize("away", [0, 1, 2, 4, 6])
def test_a_window_begins_at_a_whole_number_of_vectors(vector: int, away: int) -> None:
    def program(self: Any, p: Any) -> None:
        shape = (32 * vector,)
        who = blocked(shape, threads=32, vector=vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=1):
            for there in (i + away, i - away):
                p.store(self.st, self.y.tile(there, shape=shape), p.load(self.ld, self.x.tile(there, shape=shape), who))

    def make() -> Any:
        return thing(program, ld=isa.LdGlobal(vector), st=isa.StGlobal(vector))

    if away % vector == 0:
        assert make().dim_names() == ("n",)
    else:
        sentence = "the windows of x begin at multiples of the vectors that ld.global moves"
        refused(make, f"Thing.program: it can never work, whatever the parameters: {sentence}")


def test_a_role_is_all_of_the_first_warps_and_takes_every_tile() -> None:
    made = role("all", 4)
    assert (int(made.warps), int(made.first), int(made.threads)) == (4, 0, 128)
    assert (made.registers, made.share) == (0, (0, 1))


def test_the_last_axis_of_a_buffer_is_contiguous() -> None:
    blocks = Blocks(Declared())
    for made in (blocks.smem("f32", (2, 3, 4)), blocks.buffer(SMEM, "f32", (2, 3, 4))):
        assert (made.contiguous, int(made.pad), made.layout, made.swizzle_bytes) == (2, 0, "", None)
    for axis in (0, 1):
        assert blocks.smem("f32", (8, 4), contiguous=axis).contiguous == axis
        swizzled = blocks.smem("f32", (8, 16), contiguous=axis, swizzle=32)
        assert (swizzled.contiguous, swizzled.swizzle_bytes is not None and int(swizzled.swizzle_bytes)) == (axis, 32)
