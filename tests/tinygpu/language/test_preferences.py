"""An option of an ordered choice is left exactly where the option before it is not legal."""

from __future__ import annotations

import itertools

import pytest

from tinygpu.constraints import Constraint
from tinygpu.expressions import symbol
from tinygpu.language import Choice
from tinygpu.language.dominance import preferred

A, B = symbol("a"), symbol("b")
RULES = (
    Constraint("even", A % 2 == 0, "a is even"),
    Constraint("small", A + B <= 4, "small together"),
    Constraint("order", A <= B, "a comes first"),
    Constraint("wide", B >= 2, "b is wide", kind="dominance"),
)


@pytest.mark.parametrize("mine", list(itertools.product((False, True), repeat=4)))
def test_what_the_option_before_can_do_is_not_looked_for_again(mine: tuple[bool, ...]) -> None:
    way = Choice("first", "second", ordered="the first is never slower")
    way.bind_name("way")
    own = [rule for rule, kept in zip(RULES, mine, strict=True) if kept]
    for kept in itertools.product((False, True), repeat=4):
        earlier = [rule for rule, there in zip(RULES, kept, strict=True) if there]
        found = preferred(way, own, earlier, "first")
        assert (found.name, found.kind, found.sentence) == ("way prefers first", "dominance", "first is not legal here")
        for a, b in itertools.product(range(5), repeat=2):
            legal = [bool(rule.condition.substitute({"a": a, "b": b}).sympy) for rule in RULES]
            if all(
                holds
                for holds, there, rule in zip(legal, mine, RULES, strict=True)
                if there and rule.kind == "legality"
            ):
                before = all(
                    holds
                    for holds, there, rule in zip(legal, kept, RULES, strict=True)
                    if there and rule.kind == "legality"
                )
                assert bool(found.condition.substitute({"a": a, "b": b}).sympy) == (not before)
