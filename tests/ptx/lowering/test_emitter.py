"""The emitter: what it writes computes what was asked, once, as far out as it can, and without known operands."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from straight_line import Machine

from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg

M32 = (1 << 32) - 1
# name -> (emitter's method, meaning on unsigned 32-bit numbers)
OPERATIONS: dict[str, Any] = {
    "add": lambda a, b: (a + b) & M32,
    "mul": lambda a, b: (a * b) & M32,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "minimum": min,
    "xor": lambda a, b: a ^ b,
    "less": lambda a, b: int(a < b),
}

Step = tuple[str, int, int]
leaves = st.sampled_from(["%tid.x", "p", "q", 0, 1, 2, 3, 5, 8, 12, 64])
steps = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 30), st.integers(0, 30)), max_size=12)


def build(listed: list[Any], program: list[Step]) -> tuple[Emitter, list[tuple[Number, Any]]]:
    """(emitter, [(what it returned, meaning as a function of tid, p and q)])."""
    emit = Emitter()
    arguments = {name: emit.new("r", 0) for name in ("p", "q")}
    for name, register in arguments.items():
        emit.block.head.append(f"  mov.u32 {register}, {name};")
    values: list[tuple[Number, Any]] = []
    for leaf in listed:
        if leaf == "%tid.x":
            values.append((emit.computed("r", "mov.u32 {d}, %tid.x;"), lambda t, p, q: t))
        elif leaf == "p":
            values.append((arguments["p"], lambda t, p, q: p))
        elif leaf == "q":
            values.append((arguments["q"], lambda t, p, q: q))
        else:
            values.append((leaf, lambda t, p, q, n=leaf: n))
    for name, i, j in program:
        (a, mean_a), (b, mean_b) = values[i % len(values)], values[j % len(values)]
        if (isinstance(a, Reg) and a.kind == "p") or (isinstance(b, Reg) and b.kind == "p"):
            continue
        if name in ("div", "rem") and not (isinstance(b, int) and b > 0):
            continue  # divisors in kernels are known and positive, or dims
        made = getattr(emit, name)(a, b)
        if isinstance(made, int) and not 0 <= made <= M32:
            continue
        values.append((made, lambda t, p, q, f=OPERATIONS[name], x=mean_a, y=mean_b: f(x(t, p, q), y(t, p, q))))
    return emit, values


@settings(max_examples=150)
@given(st.lists(leaves, min_size=2, max_size=6), steps, st.integers(0, 1 << 20), st.integers(1, 1 << 12))
def test_what_is_written_computes_what_was_asked(listed: list[Any], program: list[Step], p: int, q: int) -> None:
    emit, values = build(listed, program)
    machine = Machine(32, {"p": p, "q": q})
    machine.run(emit.block.lines())
    for made, meaning in values:
        expected = [meaning(t, p, q) for t in range(32)]
        if isinstance(made, int):
            assert [made] * 32 == expected
        else:
            assert machine.registers[str(made)].tolist() == expected


@settings(max_examples=150)
@given(st.lists(leaves, min_size=2, max_size=6), steps)
def test_nothing_is_computed_twice_or_from_numbers_alone(listed: list[Any], program: list[Step]) -> None:
    emit, _ = build(listed, program)
    computed = [line.split(",", 1) for line in emit.block.lines() if "mov.u32" not in line]
    pairs = [(head.split()[0], rest) for head, rest in computed]
    assert len(set(pairs)) == len(pairs)
    assert all(re.search(r"%[rp]\d", rest) for _, rest in pairs)


def test_a_value_is_computed_in_the_outermost_block_that_knows_its_operands() -> None:
    emit = Emitter()
    outside = emit.computed("r", "mov.u32 {d}, %tid.x;")
    block = emit.open()
    inside = emit.new("r")
    free = emit.mul(outside, 12)
    bound = emit.add(free, inside)
    assert isinstance(free, Reg)
    assert isinstance(bound, Reg)
    assert (free.depth, bound.depth) == (0, 1)
    assert any(f"mul.lo.u32 {free}" in line for line in emit.blocks[0].head)
    assert any(f"add.u32 {bound}" in line for line in block.head)


@given(st.integers(0, M32), st.integers(0, 31), st.integers(1, 8), st.integers(0, 24))
def test_bits_are_moved(value: int, low: int, count: int, to: int) -> None:
    emit = Emitter()
    register = emit.new("r", 0)
    emit.block.head.append(f"  mov.u32 {register}, v;")
    made = emit.bits(register, low, count, to)
    machine = Machine(1, {"v": value})
    machine.run(emit.block.lines())
    expected = ((value >> low & ((1 << count) - 1)) << to) & M32
    assert machine.registers[str(made)][0] == np.uint64(expected)
    assert emit.bits(value, low, count, to) == (value >> low & ((1 << count) - 1)) << to
