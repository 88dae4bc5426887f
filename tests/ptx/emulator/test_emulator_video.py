"""Video instructions against the manual's scalar procedure in Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import run_instruction

EXAMPLES = settings(max_examples=8, deadline=None)
Words = st.lists(st.sampled_from([0, 1, 2, 31, 32, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000,
                                  0xFFFFFFFF, 0x12345678, 0x80FF7F01]) | st.integers(0, 2**32 - 1),
                 min_size=32, max_size=32)  # fmt: skip
TYPES = [("u32", "u32", "u32"), ("s32", "s32", "s32"), ("s32", "u32", "s32"), ("u32", "s32", "u32")]
BINARY: dict[str, Callable[[int, int], int]] = {
    "vadd": operator.add, "vsub": operator.sub, "vabsdiff": lambda x, y: abs(x - y), "vmin": min, "vmax": max
}  # fmt: skip


def average(x: int, y: int) -> int:
    return (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1


def field(word: int, start: int, width: int, signed: bool) -> int:
    part = word >> start & ((1 << width) - 1)
    return part - (1 << width) if signed and part >> (width - 1) else part


def part_of(word: int, part: str, signed: bool) -> int:
    if not part:
        return field(word, 0, 32, signed)
    width = 8 if part[0] == "b" else 16
    return field(word, int(part[1]) * width, width, signed)


def limit(value: int, width: int, signed: bool) -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return min(max(value, low), high)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", BINARY)
@EXAMPLES
@given(Words, Words, Words, st.data())
def test_scalar_video_instructions(
    name: str, types: tuple[str, str, str], x: list[int], y: list[int], z: list[int], data: st.DataObject
) -> None:
    part = st.sampled_from(["", "b0", "b1", "b2", "b3", "h0", "h1"])
    into, part_x, part_y = data.draw(part), data.draw(part), data.draw(part)
    sat = data.draw(st.sampled_from(["", ".sat"]))
    second = "" if into else data.draw(st.sampled_from(["", ".add", ".min", ".max"]))
    dot = [f".{p}" if p else "" for p in (into, part_x, part_y)]
    rest = ", %a2" if into or second else ""
    inputs = [np.array(v, np.uint32) for v in (x, y, z)]
    # A merged result must be a register with a value before.
    text = f"{name}.{'.'.join(types)}{sat}{second} %d0{dot[0]}, %a0{dot[1]}, %a1{dot[2]}{rest};"
    (d,) = run_instruction(text, inputs, [np.uint32])
    signed, signed_x, signed_y = (t == "s32" for t in types)
    width = 32 if not into else 8 if into[0] == "b" else 16
    for k in range(32):
        value = BINARY[name](part_of(x[k], part_x, signed_x), part_of(y[k], part_y, signed_y))
        if sat:
            value = limit(value, width, signed)
        if into:
            start = int(into[1]) * width
            mask = ((1 << width) - 1) << start
            value = value << start & mask | z[k] & ~mask
        elif second:
            a, c = field(value & 0xFFFFFFFF, 0, 32, signed), field(z[k], 0, 32, signed)
            value = {".add": a + c, ".min": min(a, c), ".max": max(a, c)}[second]
        assert int(d[k]) == value & 0xFFFFFFFF


@EXAMPLES
@given(Words, Words, st.sampled_from(["vshl", "vshr"]), st.sampled_from(["u32", "s32"]),
       st.sampled_from(["clamp", "wrap"]), st.sampled_from(["", ".sat"]))  # fmt: skip
def test_video_shifts(x: list[int], y: list[int], name: str, kind: str, mode: str, sat: str) -> None:
    text = f"{name}.{kind}.{kind}.u32{sat}.{mode} %d0, %a0, %a1;"
    (d,) = run_instruction(text, [np.array(x, np.uint32), np.array(y, np.uint32)], [np.uint32])
    for k in range(32):
        value, by = field(x[k], 0, 32, kind == "s32"), min(y[k], 32) if mode == "clamp" else y[k] & 31
        value = value << by if name == "vshl" else value >> by
        assert int(d[k]) == (limit(value, 32, kind == "s32") if sat else value) & 0xFFFFFFFF


@EXAMPLES
@given(Words, Words, Words, st.sampled_from(TYPES), st.sampled_from(["", ".shr7", ".shr15"]),
       st.sampled_from(["", ".sat"]), st.sampled_from(["", "a", "c", "po"]))  # fmt: skip
def test_video_multiply_add(
    x: list[int], y: list[int], z: list[int], types: tuple[str, str, str], scale: str, sat: str, sign: str
) -> None:
    minus = {"a": "-", "": "", "c": "", "po": ""}[sign]
    text = (
        f"vmad.{'.'.join(types)}{'.po' if sign == 'po' else ''}{sat}{scale} %d0, {minus}%a0.h1, %a1, "
        f"{'-' if sign == 'c' else ''}%a2;"
    )
    (d,) = run_instruction(text, [np.array(v, np.uint32) for v in (x, y, z)], [np.uint32])
    signed_x, signed_y = types[1] == "s32", types[2] == "s32"
    final = signed_x or signed_y or sign in ("a", "c")
    for k in range(32):
        product = field(x[k], 16, 16, signed_x) * field(y[k], 0, 32, signed_y)
        extra = field(z[k], 0, 32, final)
        value = (-product if sign == "a" else product) + (-extra if sign == "c" else extra) + (sign == "po")
        value >>= int(scale[4:] or 0)
        assert int(d[k]) == (limit(value, 32, final) if sat else value) & 0xFFFFFFFF


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", [*BINARY, "vavrg"])
@EXAMPLES
@given(Words, Words, Words, st.sampled_from(TYPES), st.data())
def test_video_lanes(
    count: int, name: str, x: list[int], y: list[int], z: list[int], types: tuple[str, str, str], data: st.DataObject
) -> None:
    letter, width = ("h", 16) if count == 2 else ("b", 8)
    digits = st.lists(st.integers(0, 2 * count - 1), min_size=count, max_size=count)
    from_x, from_y = data.draw(digits), data.draw(digits)
    mask = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    tail = data.draw(st.sampled_from(["", ".sat", ".add", ".sat.add"]))
    lanes = "".join(str(v) for v in sorted(mask, reverse=True))
    # Masks of one, two or all lanes have a spelling.
    if len(mask) == 3:
        mask, lanes = set(range(count)), ""
    suffix = f".{letter}{lanes}" if lanes and len(mask) < count else ""
    text = (
        f"{name}{count}.{'.'.join(types)}{tail} %d0{suffix}, %a0.{letter}{''.join(map(str, reversed(from_x)))}, "
        f"%a1.{letter}{''.join(map(str, reversed(from_y)))}, %a2;"
    )
    (d,) = run_instruction(text, [np.array(v, np.uint32) for v in (x, y, z)], [np.uint32])
    signed, signed_x, signed_y = (t == "s32" for t in types)
    compute = average if name == "vavrg" else BINARY[name]
    for k in range(32):
        words = x[k] | y[k] << 32
        result = z[k] if ".add" in tail else 0
        for lane in range(count):
            value = compute(
                field(words, from_x[lane] * width, width, signed_x), field(words, from_y[lane] * width, width, signed_y)
            )
            if ".sat" in tail:
                value = limit(value, width, signed)
            if ".add" in tail:
                result += value if lane in mask else 0
            else:
                kept = value if lane in mask else field(z[k], lane * width, width, False)
                result |= (kept & ((1 << width) - 1)) << (lane * width)
        assert int(d[k]) == result & 0xFFFFFFFF


@EXAMPLES
@given(Words, Words, Words, st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), st.sampled_from(["u32", "s32"]))
def test_video_comparisons(x: list[int], y: list[int], z: list[int], name: str, kind: str) -> None:
    inputs = [np.array(v, np.uint32) for v in (x, y, z)]
    text = (
        f"vset.{kind}.{kind}.{name} %d0, %a0.b2, %a1.b1; vset2.{kind}.{kind}.{name} %d1, %a0, %a1, %a2;"
        f"vset4.{kind}.{kind}.{name}.add %d2, %a0, %a1, %a2;"
    )
    d, e, f = run_instruction(text, inputs, [np.uint32] * 3)
    compare, signed = getattr(operator, name), kind == "s32"
    for k in range(32):
        assert int(d[k]) == compare(field(x[k], 16, 8, signed), field(y[k], 8, 8, signed))
        halves = [compare(field(x[k], s, 16, signed), field(y[k], s, 16, signed)) for s in (0, 16)]
        assert int(e[k]) == halves[0] | halves[1] << 16
        count = sum(compare(field(x[k], s, 8, signed), field(y[k], s, 8, signed)) for s in range(0, 32, 8))
        assert int(f[k]) == (z[k] + count) & 0xFFFFFFFF
