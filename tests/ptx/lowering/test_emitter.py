"""The emitter: what it writes computes what was asked, once, as far out as it can, and without known operands."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from straight_line import Machine

from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
# name -> (kinds of operands, kind of the result, meaning), of unsigned numbers of 32 bits (r) and 64 (d), and of
# predicates (p)
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    "add": ("rr", "r", lambda a, b: (a + b) & M32),
    "sub": ("rr", "r", lambda a, b: (a - b) & M32),
    "mul": ("rr", "r", lambda a, b: (a * b) & M32),
    "div": ("rr", "r", lambda a, b: a // b),
    "rem": ("rr", "r", lambda a, b: a % b),
    "minimum": ("rr", "r", min),
    "xor": ("rr", "r", lambda a, b: a ^ b),
    "select": ("rrp", "r", lambda a, b, p: a if p else b),
    "less": ("rr", "p", lambda a, b: a < b),
    "both": ("pp", "p", lambda a, b: a and b),
    "wide": ("rr", "d", lambda a, b: a * b),
    "widen": ("r", "d", lambda a: a),
    "add64": ("dd", "d", lambda a, b: (a + b) & M64),
    "mul64": ("dd", "d", lambda a, b: (a * b) & M64),
}

Step = tuple[str, int, int, int]
Value = tuple[Number, Any]  # (what the emitter returned, meaning as a function of tid, p and q)
SMALL = (0, 1, 2, 3, 5, 8, 12, 64)
leaves = st.sampled_from(["%tid.x", "p", "q", *SMALL])
place = st.integers(0, 30)
steps = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), place, place, place), max_size=14)


def build(listed: list[Any], program: list[Step]) -> tuple[Emitter, list[Value]]:
    """What a program of steps makes of some leaves."""
    emit = Emitter()
    arguments = {name: emit.parameter("r") for name in ("p", "q")}
    for name, register in arguments.items():
        emit.block.head.append(f"  mov.u32 {register}, {name};")
    values: dict[str, list[Value]] = {
        "r": [],
        "p": [(True, lambda t, p, q: True), (False, lambda t, p, q: False)],
        "d": [(n, lambda t, p, q, n=n: n) for n in (0, 1, 3, 8, 1 << 33)],
    }
    for leaf in listed:
        if leaf == "%tid.x":
            values["r"].append((emit.computed("r", "mov.u32 {d}, %tid.x;"), lambda t, p, q: t))
        elif leaf in arguments:
            values["r"].append((arguments[leaf], lambda t, p, q, leaf=leaf: p if leaf == "p" else q))
        else:
            values["r"].append((leaf, lambda t, p, q, n=leaf: n))
    for name, *places in program:
        kinds, kind, function = OPERATIONS[name]
        taken = [values[k][at % len(values[k])] for k, at in zip(kinds, places, strict=False)]
        if name in ("div", "rem") and not (isinstance(taken[1][0], int) and taken[1][0] > 0):
            continue  # divisors in kernels are known and positive, or dims
        made = getattr(emit, name)(*(value for value, _ in taken))
        if isinstance(made, int) and not 0 <= made <= (M64 if kind == "d" else M32):
            continue

        def meaning(t: int, p: int, q: int, f: Any = function, of: Any = tuple(m for _, m in taken)) -> Any:
            return f(*(mean(t, p, q) for mean in of))

        values[kind].append((made, meaning))
    return emit, [value for of_kind in values.values() for value in of_kind]


@settings(max_examples=200)
@given(st.lists(leaves, min_size=2, max_size=6), steps, st.integers(0, 1 << 20), st.integers(1, 1 << 12))
def test_what_is_written_computes_what_was_asked(listed: list[Any], program: list[Step], p: int, q: int) -> None:
    emit, values = build(listed, program)
    machine = Machine(32, {"p": p, "q": q})
    machine.run(emit.block.lines())
    for made, meaning in values:
        expected = [meaning(t, p, q) for t in range(32)]
        if isinstance(made, int):
            assert [made] * 32 == expected
            assert isinstance(made, bool) == isinstance(expected[0], bool)
        else:
            assert machine.registers[str(made)].tolist() == expected


def test_every_operation_on_every_kind_of_operand() -> None:
    """Numbers and registers in every place: zero, one, powers of two and others; what is known and what is not."""
    emit = Emitter()
    tid, q = emit.computed("r", "mov.u32 {d}, %tid.x;"), emit.parameter("r")
    emit.block.head.append(f"  mov.u32 {q}, q;")
    operands: dict[str, list[Value]] = {
        "r": [(n, lambda t, p, q, n=n: n) for n in (0, 1, 2, 8, 12)],
        "p": [(n, lambda t, p, q, n=n: n) for n in (True, False)],
        "d": [(n, lambda t, p, q, n=n: n) for n in (0, 1, 8, 12, 1 << 33)],
    }
    operands["r"] += [(tid, lambda t, p, q: t), (q, lambda t, p, q: q)]
    operands["p"] += [(emit.less(tid, 9), lambda t, p, q: t < 9), (emit.less(q, tid), lambda t, p, q: q < t)]
    operands["d"] += [(emit.widen(tid), lambda t, p, q: t), (emit.wide(q, q), lambda t, p, q: q * q)]
    made = []
    for name, (kinds, _, function) in OPERATIONS.items():
        for taken in itertools.product(*(operands[kind] for kind in kinds)):
            numbers = [value for value, _ in taken]
            if name not in ("div", "rem") or (isinstance(numbers[1], int) and numbers[1]):
                made.append((name, numbers, getattr(emit, name)(*numbers), function, [mean for _, mean in taken]))
    machine = Machine(32, {"q": 5})
    machine.run(emit.block.lines())
    for name, numbers, result, function, meanings in made:
        expected = [function(*(mean(t, 0, 5) for mean in meanings)) for t in range(32)]
        known = isinstance(result, int)
        found = [result % (M64 + 1) if name.endswith("64") else result & M32] * 32 if known else None
        assert (found or machine.registers[str(result)].tolist()) == expected, (name, numbers)


@given(st.integers(-(1 << 30), -1), st.integers(0, M32 >> 1))
def test_a_signed_product_keeps_its_sign(rows: int, pitch: int) -> None:
    emit = Emitter()
    register = emit.parameter("r")
    emit.block.head.append(f"  mov.u32 {register}, v;")
    made = emit.wide(register, rows, signed=True)
    machine = Machine(1, {"v": pitch})
    machine.run(emit.block.lines())
    assert machine.registers[str(made)][0] == np.uint64(rows * pitch & M64)


@settings(max_examples=150)
@given(st.lists(leaves, min_size=2, max_size=6), steps)
def test_nothing_is_computed_twice_or_from_numbers_alone(listed: list[Any], program: list[Step]) -> None:
    emit, _ = build(listed, program)
    computed = [line.split(",", 1) for line in emit.block.lines() if "mov.u32" not in line]
    pairs = [(head.split()[0], rest) for head, rest in computed]
    assert len(set(pairs)) == len(pairs)
    assert all(re.search(r"%[rpd]\d", rest) for _, rest in pairs)
    # nor with an operand that leaves the other as it is, or that makes zero of it
    for opcode, rest in pairs:
        *_, last = rest.strip(" ;").split(", ")
        assert last != "0" or opcode.startswith(("min", "setp")), (opcode, rest)
        assert last != "1" or not opcode.startswith(("mul.lo", "div", "rem")), (opcode, rest)


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


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_bits_are_moved(count: int) -> None:
    """From every place to every place, of numbers and of registers."""
    emit = Emitter()
    register = emit.mul(emit.computed("r", "mov.u32 {d}, %tid.x;"), 0x9E3779B1)
    values = [t * 0x9E3779B1 & M32 for t in range(32)]
    places = list(itertools.product(range(33 - count), repeat=2))
    made = [str(emit.bits(register, low, count, to)) for low, to in places]
    machine = Machine(32, {})
    machine.run(emit.block.lines())
    for (low, to), name in zip(places, made, strict=True):
        expected = [(value >> low & ((1 << count) - 1)) << to for value in values]
        assert machine.registers[name].tolist() == expected
        assert [emit.bits(value, low, count, to) for value in values[:3]] == expected[:3]
