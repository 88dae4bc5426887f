"""Quotients that say the same, by brute force over the values of their names."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.expressions import Expr, ceil_div, compile_scalars, maximum, symbol
from tinygpu.expressions.quotients import same_quotients

N, B = symbol("n"), symbol("b")
STEPS: list[Expr | int] = [B, 2 * B, 4, 8]


def rounds(size: Expr, step: Expr | int) -> Expr:
    """How often a loop over a size is carried out."""
    return ceil_div(maximum(size, 0), step)


def same_everywhere(a: Expr, b: Expr, least: int) -> bool:
    function = compile_scalars(a, b)
    values = [function({"n": n, "b": step}) for n, step in itertools.product(range(least, 40), range(1, 12))]
    return all(one == other for one, other in values)


@st.composite
def counts(draw: st.DrawFn) -> Expr:
    step = draw(st.sampled_from(STEPS))
    size = N + draw(st.integers(-2, 2)) * step + draw(st.integers(-1, 1))
    once = draw(st.sampled_from([rounds(size, step), size // step if draw(st.booleans()) else rounds(N, step)]))
    return once + draw(st.integers(-1, 2))


@given(counts(), counts(), st.booleans())
def test_what_is_called_the_same_is_the_same(a: Expr, b: Expr, positive: bool) -> None:
    if same_quotients(a, b, {"n"} if positive else ()):
        assert same_everywhere(a, b, 1 if positive else 0)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_round_that_stands_behind_its_loop_is_one_of_it(step: Expr | int) -> None:
    """Of at least one element: of none there is no round."""
    assert same_quotients(rounds(N - step, step) + 1, rounds(N, step), {"n"})
    assert not same_quotients(rounds(N - step, step) + 1, rounds(N, step), ())
    assert not same_quotients(rounds(N - 2 * step, step) + 2, rounds(N, step), {"n"})  # two, of short ones too
    assert not same_quotients(rounds(N - step, step), rounds(N, step), {"n"})
    assert not same_quotients(rounds(N - 1, step) + 1, rounds(N, step), {"n"})
    assert not same_quotients((N - step) // step + 1, N // step, {"n"})  # of what is below zero nothing is said
