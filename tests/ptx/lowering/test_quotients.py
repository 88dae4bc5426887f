"""Quotients by what is known before a loop: equal to those of numbers, for all of 32 bits, without a division in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from straight_line import Machine

from tinygpu.ptx.lowering.emitter import Emitter, Number
from tinygpu.ptx.lowering.quotients import quotient, remainder

LARGEST = 2**32 - 1
NEAR_POWERS = [2**k + e for k in range(1, 32) for e in (-1, 0, 1)]
numbers = st.one_of(st.integers(1, 70), st.integers(1, LARGEST), st.sampled_from(NEAR_POWERS))


def computed(a: list[int], b: int, other: int, chosen: bool) -> tuple[list[int], list[int], list[str]]:
    """(quotients, remainders, the loop's lines); b is known before it, or one of two that are is chosen in it."""
    emit = Emitter()
    before, second = emit.parameter("r"), emit.parameter("r")
    emit.open()
    within, first = emit.new("r"), emit.new("p")
    divisor: Number = emit.select(before, second, first) if chosen else before
    results = [str(quotient(emit, within, divisor)), str(remainder(emit, within, divisor))]
    block = emit.close()
    values = {
        str(before): np.full(len(a), b, np.uint64), str(second): np.full(len(a), other, np.uint64),
        str(within): np.array(a, np.uint64), str(first): np.ones(len(a), np.uint64),
    }  # fmt: skip
    machine = Machine(len(a), {}, values)
    machine.run([*emit.block.lines(), *block.lines()])
    found = [machine.registers[name].astype(int).tolist() for name in results]
    return found[0], found[1], block.lines()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(b=numbers, other=numbers, more=st.lists(st.integers(0, LARGEST), max_size=20), chosen=st.booleans())
@example(b=1, other=1, more=[0, LARGEST], chosen=False)
@example(b=LARGEST, other=7, more=[LARGEST - 1, LARGEST], chosen=True)
def test_a_quotient_in_a_loop_is_that_of_the_numbers(b: int, other: int, more: list[int], chosen: bool) -> None:
    near = [b * times + offset for times in (1, 2, 3, LARGEST // b) for offset in (-1, 0, 1)]
    a = [0, 1, LARGEST, *more, *(n for n in near if 0 <= n <= LARGEST)]
    quotients, remainders, lines = computed(a, b, other, chosen)
    assert quotients == [n // b for n in a]
    assert remainders == [n % b for n in a]
    assert not any("div." in line or "rem." in line for line in lines)


@pytest.mark.parametrize("constant", [True, False])
def test_what_the_loop_itself_finds_is_divided_by(constant: bool) -> None:
    emit = Emitter()
    emit.open()
    a, b = emit.new("r"), emit.new("r")
    quotient(emit, a, 6 if constant else b)
    assert [line.split()[0] for line in emit.close().lines()] == ["div.u32"]
