"""Interval arithmetic against listing: every operation over every pair of small intervals, and all that they hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval

RANGES = [(lo, hi) for lo in range(-3, 4) for hi in range(lo, 4)]
NAMES = INTERVAL_NAMES
# name -> (over intervals, over integers); intervals say exactly what can come out
EXACT: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (lambda a, b: a + b, lambda x, y: x + y),
    "*": (lambda a, b: a * b, lambda x, y: x * y),
    "//": (lambda a, b: a // b, lambda x, y: x // y),
    "<": (lambda a, b: a < b, lambda x, y: x < y),
    "<=": (lambda a, b: a <= b, lambda x, y: x <= y),
    ">": (lambda a, b: a > b, lambda x, y: x > y),
    ">=": (lambda a, b: a >= b, lambda x, y: x >= y),
    "==": (lambda a, b: a == b, lambda x, y: x == y),
    "!=": (lambda a, b: a != b, lambda x, y: x != y),
    "max": (NAMES["_max"], max),
    "min": (NAMES["_min"], min),
}
DIVIDES = ("//", "%")


def outcomes(operation: Callable[[int, int], int], name: str, one: tuple[int, int], two: tuple[int, int]) -> list[int]:
    """All results; divisors that are not positive are refused elsewhere, and count for nothing."""
    left, right = range(one[0], one[1] + 1), range(two[0], two[1] + 1)
    return [int(operation(x, y)) for x in left for y in right if name not in DIVIDES or y > 0]


@pytest.mark.parametrize("name", EXACT)
def test_an_operation_on_two_intervals_gives_the_least_one_that_holds_all_results(name: str) -> None:
    over_intervals, over_integers = EXACT[name]
    for one, two in itertools.product(RANGES, repeat=2):
        found = over_intervals(Interval(*one), Interval(*two))
        results = outcomes(over_integers, name, one, two)
        assert found.safe == (name not in DIVIDES or two[0] > 0)
        if results and found.safe:
            assert (found.lo, found.hi) == (min(results), max(results)), (one, two)
        assert found.peak >= max(map(abs, [*one, *two, *(results if found.safe else ())]))


@pytest.mark.parametrize("name", [*EXACT, "%"])
def test_a_number_stands_for_an_interval_of_one_on_either_side(name: str) -> None:
    over_intervals = EXACT[name][0] if name in EXACT else lambda a, b: a % b
    for (lo, hi), number in itertools.product(RANGES, range(-2, 4)):
        pairs = ((Interval(lo, hi), number), (number, Interval(lo, hi)))
        for a, b in pairs:
            as_intervals = [x if isinstance(x, Interval) else Interval(x, x) for x in (a, b)]
            found, wanted = over_intervals(a, b), over_intervals(*as_intervals)
            assert (found.lo, found.hi, found.safe) == (wanted.lo, wanted.hi, wanted.safe)


def test_a_remainder_holds_all_results_and_is_exact_where_nothing_wraps_around() -> None:
    for one, two in itertools.product(RANGES, repeat=2):
        found = Interval(*one) % Interval(*two)
        assert found.safe == (two[0] > 0)
        results = outcomes(lambda x, y: x % y, "%", one, two)
        if not found.safe:
            continue
        assert 0 <= found.lo <= min(results) <= max(results) <= found.hi <= two[1] - 1, (one, two)
        same_round = two[0] == two[1] and one[0] // two[0] == one[1] // two[0]
        if same_round or (one[0] >= 0 and one[1] < two[0]):
            assert (found.lo, found.hi) == (min(results), max(results)), (one, two)
        if one[0] >= 0:
            assert found.hi <= one[1]


@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_power_holds_all_results_with_its_peak(power: int) -> None:
    for lo, hi in RANGES:
        found, results = Interval(lo, hi) ** power, [x**power for x in range(lo, hi + 1)]
        assert found.lo <= min(results) <= max(results) <= found.hi <= max(abs(lo), abs(hi)) ** power
        if lo >= 0:
            assert (found.lo, found.hi) == (min(results), max(results))


def test_conditions_combine_as_their_values_do() -> None:
    conditions = [Interval(0, 0), Interval(0, 1), Interval(1, 1)]
    for a, b in itertools.product(conditions, repeat=2):
        values = [(x, y) for x in range(a.lo, a.hi + 1) for y in range(b.lo, b.hi + 1)]
        both, either, no = NAMES["_and"](a, b), NAMES["_or"](a, b), NAMES["_not"](a)
        assert (both.lo, both.hi) == (min(x & y for x, y in values), max(x & y for x, y in values))
        assert (either.lo, either.hi) == (min(x | y for x, y in values), max(x | y for x, y in values))
        assert (no.lo, no.hi) == (1 - a.hi, 1 - a.lo)
        assert (a.always, a.never) == ((a.lo, a.hi) == (1, 1), (a.lo, a.hi) == (0, 0))
    for number in (Interval(lo, hi) for lo, hi in RANGES if lo >= 0):  # as Python has it: what is not 0 holds
        found = NAMES["_not"](number)
        assert (found.lo, found.hi) == (int(not number.hi), int(not number.lo))
    for condition, one, two in itertools.product(conditions, RANGES[::3], RANGES[::4]):
        found = NAMES["_where"](condition, Interval(*one), Interval(*two))
        branches = [*((one,) if condition.hi else ()), *((two,) if not condition.lo else ())]
        assert (found.lo, found.hi) == (min(lo for lo, _ in branches), max(hi for _, hi in branches))
        # both branches are computed, whichever is taken
        assert found.peak >= max(map(abs, (*one, *two)))


def test_a_peak_is_the_greatest_step_on_the_way_and_what_is_unsafe_stays_so() -> None:
    small, large, risky = Interval(0, 2), Interval(-90, 5), Interval(1, 4) // Interval(0, 2)
    for name, (over_intervals, _) in EXACT.items():
        assert over_intervals(over_intervals(small, large), small).peak >= 90
        assert not over_intervals(small, risky).safe, name
        assert not over_intervals(risky, Interval(1, 2)).safe, name
    assert not (risky % 3).safe
    for arguments in itertools.permutations([risky, small, Interval(0, 1)]):
        assert not NAMES["_where"](*arguments).safe
    assert not NAMES["_not"](risky).safe
    assert [Interval(lo, hi).peak for lo, hi in RANGES] == [max(-lo, hi) for lo, hi in RANGES]
    assert [Interval(-7, 3).peak, Interval(-3, 7).peak, Interval(2, 5, peak=9).peak] == [7, 7, 9]
    assert repr(Interval(-7, 3)) == "Interval(-7, 3)"
