"""Divisions and products in both libraries, and the rules under which they may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pycute
from pycute_laws import divided, divisible, multipliable, multiplied, offsets, whole
from pycute_rules import Operation, Outcome, Rule, agree, needless, neither, no_modes, sizes

from tinygpu.layouts import (
    blocked_product,
    logical_divide,
    logical_product,
    raked_product,
    tiled_divide,
    zipped_divide,
)


def _divides(outcome: Outcome) -> bool:
    """Whether pycute's result holds A o T in mode 0, and all elements of A."""
    layout, tile = outcome.arguments
    found = outcome.their_values
    if found is None or tile.cosize > layout.size or sorted(found) != sorted(offsets(layout)):
        return False
    return sizes(outcome.theirs)[0] == tile.size and list(found[: tile.size]) == [layout(t) for t in offsets(tile)]


LOGICAL_DIVIDE = Operation(
    "logical_divide",
    logical_divide,
    pycute.logical_divide,
    (
        agree(divided, "(4,2,3):(2,1,8)", "4:2"),
        neither(lambda o: not divisible(o), "T has no complement, or A is not cut that way.", "(2,2):(2,1)", "4:3"),
        no_modes(divided, "4:2", "():()"),
        needless(divided, "(3,2):(0,2)", "1:4"),
        Rule(
            "no complement",
            "T has no complement in size(A), and ours refuses; pycute's complement is wrong, and so is its result: "
            "mode 0 is not A ∘ T, or the whole has not the elements of A.",
            lambda o: o.only_theirs and divided(o) is None and not _divides(o),
            ("4:3", "4:4"),
        ),
    ),
)

LOGICAL_PRODUCT = Operation(
    "logical_product",
    logical_product,
    pycute.logical_product,
    (
        agree(multiplied, "(2,2):(4,1)", "(4,2):(2,1)"),
        neither(
            lambda o: not multipliable(o), "A has no complement, or it is not cut as T asks.", "(2,5):(2,1)", "3:1"
        ),
        no_modes(multiplied, "2:1", "():()"),
        needless(multiplied, "(4,2):(2,16)", "2:3"),
        Rule(
            "no complement",
            "A repeats offsets or has strides that are no multiples, so that it has no complement, and ours refuses; "
            "in pycute's result copies fall on each other, leave gaps or are fewer.",
            lambda o: o.only_theirs and multiplied(o) is None,
            ("(4,2):(1,0)", "3:1"),
        ),
        Rule(
            "not cut",
            "no layout in the modes of T is A* ∘ T, and ours refuses; pycute's is shorter, or another function.",
            lambda o: (
                o.only_theirs and multiplied(o) is not None and not multipliable(o) and multiplied(o) != o.their_values
            ),
            ("4:2", "3:1"),
        ),
    ),
)

# -- operations mode by mode, which do as the operation on each mode does ----------------------------------------------


def _by_mode(outcome: Outcome) -> list[Rule]:
    """The rule of logical_divide for each mode and its tile."""
    layout, parts = outcome.arguments
    return [LOGICAL_DIVIDE.rule(mode, tile) for mode, tile in zip(layout.modes, parts, strict=False)]


def _inherits(outcome: Outcome) -> bool:
    layout, parts = outcome.arguments
    if len(parts) > layout.rank:
        return outcome.neither
    pairs = [LOGICAL_DIVIDE.outcome(mode, tile) for mode, tile in zip(layout.modes, parts, strict=False)]
    ours = bool(outcome.refusal) == any(pair.refusal for pair in pairs)
    theirs = bool(outcome.raised) == any(pair.raised for pair in pairs)
    return ours and (theirs or outcome.without_modes) and any(rule.name != "same" for rule in _by_mode(outcome))


def _divide_by_modes(name: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> Operation:
    def divided_alike(outcome: Outcome) -> bool:
        inner = all(rule.name == "same" for rule in _by_mode(outcome)) and len(outcome.arguments[1]) <= len(
            outcome.arguments[0]
        )
        return outcome.same and inner and sorted(outcome.our_values) == sorted(offsets(outcome.arguments[0]))

    return Operation(
        name,
        lambda layout, parts: ours(layout, parts),
        lambda layout, parts: theirs(layout, parts),
        (
            Rule(
                "same",
                "where every mode and its tile agree in `logical_divide`, the whole does too.",
                divided_alike,
                ("(8,12):(12,1)", "[4:1 3:2]"),
            ),
            Rule(
                "as its modes",
                "where modes differ in `logical_divide`, each library gives or refuses the whole as it does the modes.",
                lambda o: _inherits(o) and bool(o.arguments[1]),
                ("(4,3):(1,10)", "[3:1]"),
            ),
            Rule(
                "no tiles",
                "without tiles ours leaves every mode in the rest; pycute cannot make a layout of no layouts.",
                lambda o: o.only_ours and o.arguments[1] == () and o.our_values == whole(o),
                ("(4,3):(1,10)", "[]"),
            ),
        ),
    )


ZIPPED_DIVIDE = _divide_by_modes("zipped_divide", zipped_divide, pycute.zipped_divide)
TILED_DIVIDE = _divide_by_modes("tiled_divide", tiled_divide, pycute.tiled_divide)


def _paired(blocked: bool) -> Callable[[Any, Any], Any]:
    """CuTe's blocked_product and raked_product, which pycute lacks, from its logical_product."""

    def product(layout: Any, tiling: Any) -> Any:
        assert len(layout) == len(tiling)
        found = pycute.logical_product(layout, tiling)
        if not isinstance(tiling.shape, tuple):  # one mode, which composition may have cut
            return pycute.make_layout(pycute.make_layout(*(found if blocked else reversed(list(found)))))
        pairs = [(found[0][k], found[1][k]) for k in range(len(layout))]
        return pycute.make_layout(*(pycute.make_layout(*(pair if blocked else pair[::-1])) for pair in pairs))

    return product


def _product_by_modes(name: str, ours: Callable[..., Any], blocked: bool) -> Operation:
    def inner(outcome: Outcome) -> str:
        return LOGICAL_PRODUCT.rule(*outcome.arguments).name

    return Operation(
        name,
        ours,
        _paired(blocked),
        (
            Rule(
                "same",
                "where `logical_product` agrees, so do its modes in pairs.",
                lambda o: o.same and inner(o) == "same" and sorted(o.our_values) == sorted(multiplied(o) or ()),
                ("(2,2):(2,1)", "(3,2):(1,3)"),
            ),
            neither(
                lambda o: o.arguments[0].rank != o.arguments[1].rank,
                "the numbers of modes differ.",
                "4:1",
                "(2,2):(1,2)",
            ),
            Rule(
                "as the product",
                "elsewhere ours gives or refuses as `logical_product` does.",
                lambda o: (
                    o.arguments[0].rank == o.arguments[1].rank
                    and inner(o) != "same"
                    and bool(o.refusal) == bool(LOGICAL_PRODUCT.outcome(*o.arguments).refusal)
                    and (bool(o.refusal) or sorted(o.our_values) == sorted(multiplied(o) or ()))
                ),
                ("(4,2):(1,0)", "(3,1):(1,0)"),
            ),
        ),
    )


BLOCKED_PRODUCT = _product_by_modes("blocked_product", blocked_product, True)
RAKED_PRODUCT = _product_by_modes("raked_product", raked_product, False)
