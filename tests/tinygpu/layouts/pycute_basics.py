"""Values, composition, complement and inverses in both libraries, and the rules under which they may differ."""

from __future__ import annotations

import itertools

import pycute
from pycute.swizzle import Swizzle as TheirSwizzle
from pycute_laws import (
    complemented,
    composable,
    composed,
    gone_on,
    inverts_left,
    inverts_right,
    offsets,
    one_to_one,
    repeats,
    whole,
)
from pycute_rules import Operation, Outcome, Rule, agree, exact, needless, neither, no_modes

from tinygpu.layouts import (
    Layout,
    Swizzle,
    coalesce,
    coalesce_modes,
    complement,
    compose,
    concatenate,
    is_tractable,
    left_inverse,
    right_inverse,
)

EVALUATE = Operation(
    "A(i)",
    lambda layout, i: Layout(1, layout(i)),
    lambda layout, i: pycute.Layout(1, layout(i)),
    (
        Rule(
            "same",
            "inside the domain both give the offset.",
            lambda o: o.both and o.ours.stride == o.theirs.stride and 0 <= o.arguments[1] < o.arguments[0].size,
            ("(4,8):(8,1)", "9"),
        ),
        Rule(
            "outside",
            "the index is outside the domain; in pycute the last mode goes on for ever, below 0 too.",
            lambda o: o.only_theirs and not 0 <= o.arguments[1] < o.arguments[0].size,
            ("(4,8):(8,1)", "32"),
        ),
        Rule(
            "no modes",
            "`()` has one coordinate, 0; pycute cannot evaluate it, or any layout that ends in it.",
            lambda o: bool(o.raised) and o.without_modes and bool(o.refusal) == (o.arguments[1] != 0),
            ("():()", "0"),
        ),
    ),
)

COALESCE = Operation(
    "coalesce",
    coalesce,
    pycute.coalesce,
    (
        Rule(
            "same",
            "equal sizes and strides, and the function is kept.",
            lambda o: exact(o) and o.our_values == whole(o),
            ("(2,(1,6)):(1,(7,2))",),
        ),
    ),
)

COALESCE_MODES = Operation(
    "coalesce_modes",
    coalesce_modes,
    lambda layout: (
        pycute.coalesce(layout, (1,) * len(layout))
        if isinstance(layout.shape, tuple)
        else pycute.make_layout(pycute.coalesce(layout))
    ),
    (
        Rule(
            "same",
            "equal sizes and strides, each mode by itself.",
            lambda o: exact(o) and o.our_values == whole(o),
            ("(4,(2,3)):(1,(4,8))",),
        ),
        no_modes(whole, "():()"),
    ),
)

CONCATENATE = Operation(
    "concatenate",
    lambda layouts: concatenate(*layouts),
    lambda layouts: pycute.make_layout(*layouts),
    (
        Rule(
            "same",
            "equal sizes and strides.",
            lambda o: exact(o) and o.our_values == whole(o),
            ("[4:2 (2,3):(1,8)]",),
        ),
        no_modes(whole, "[]"),
    ),
)

COMPOSE = Operation(
    "compose",
    compose,
    pycute.composition,
    (
        agree(composed, "(4,8):(8,1)", "(8,2):(2,16)"),
        neither(
            lambda o: not composable(o) and not o.without_modes,
            "no layout in B's modes is A ∘ B.",
            "(5,8):(4,1)",
            "4:2",
        ),
        no_modes(composed, "8:2", "():()"),
        needless(composed, "(4,2):(1,10)", "2:3"),
        Rule(
            "goes on",
            "B leaves the domain of A, and ours refuses; in pycute the last mode of A, coalesced, goes on.",
            lambda o: o.only_theirs and composed(o) is None and o.their_values == gone_on(o),
            ("4:1", "5:1"),
        ),
        Rule(
            "goes on, wrong",
            "B leaves the domain of A; pycute's result is not even that of an A whose last mode goes on.",
            lambda o: o.only_theirs and composed(o) is None and o.their_values != gone_on(o),
            ("(2,2):(0,2)", "5:1"),
        ),
        Rule(
            "shorter",
            "no layout in B's modes is A ∘ B, and ours refuses; pycute's result has a shorter domain than B.",
            lambda o: (
                o.only_theirs
                and composed(o) is not None
                and not composable(o)
                and pycute.size(o.theirs) < o.arguments[1].size
            ),
            ("(2,2):(1,1)", "3:1"),
        ),
        Rule(
            "carries",
            "modes of B carry into each other in A's digits, no layout is A ∘ B, and ours refuses; pycute composes "
            "mode by mode and gives another function.",
            lambda o: (
                o.only_theirs
                and not composable(o)
                and pycute.size(o.theirs) == o.arguments[1].size
                and composed(o) not in (None, o.their_values)
            ),
            ("(2,2):(1,10)", "(2,2):(1,1)"),
        ),
    ),
)

COMPLEMENT = Operation(
    "complement",
    complement,
    pycute.complement,
    (
        agree(complemented, "4:2", "24"),
        neither(lambda o: complemented(o) is None, "offsets overlap, and there is no complement.", "(2,5):(2,1)", "5"),
        Rule(
            "repeats",
            "a mode of stride 0 repeats offsets, there is no complement, and ours refuses; pycute leaves the mode out.",
            lambda o: o.only_theirs and complemented(o) is None and repeats(o.arguments[0]),
            ("(4,2):(1,0)", "8"),
        ),
        Rule(
            "rounds up",
            "the codomain is no multiple of the extent, and ours refuses; pycute rounds it up and leaves the codomain.",
            lambda o: (
                o.only_theirs
                and complemented(o) is None
                and not repeats(o.arguments[0])
                and is_tractable(o.arguments[0])
                and pycute.size(o.theirs) * o.arguments[0].size > o.arguments[1]
            ),
            ("4:2", "12"),
        ),
        Rule(
            "no factor",
            "strides are no multiples of the extents below them, there is no complement, and ours refuses; pycute "
            "rounds their quotient down, at times to a mode of size 0.",
            lambda o: (
                o.only_theirs
                and complemented(o) is None
                and not repeats(o.arguments[0])
                and not is_tractable(o.arguments[0])
            ),
            ("(2,2):(1,3)", "12"),
        ),
    ),
)


def _reaches_all(outcome: Outcome) -> bool:
    (layout,) = outcome.arguments
    return set(offsets(layout)) == set(range(layout.cosize))


def _stops(outcome: Outcome) -> bool:
    """pycute inverts a part [0, n) that is shorter than the cosize."""
    (layout,) = outcome.arguments
    return inverts_right(outcome, outcome.their_values) and len(outcome.their_values or ()) < layout.cosize


RIGHT_INVERSE = Operation(
    "right_inverse",
    right_inverse,
    pycute.right_inverse,
    (
        Rule(
            "same",
            "both give A(R(i)) = i for every i below the cosize.",
            lambda o: o.same and inverts_right(o, o.our_values) and len(o.our_values) == o.arguments[0].cosize,
            ("(4,8):(8,1)",),
        ),
        Rule(
            "gaps",
            "some offset is not reached, so there is none, and ours refuses; pycute inverts what lies before it.",
            lambda o: o.only_theirs and not _reaches_all(o) and _stops(o),
            ("(4,2):(1,8)",),
        ),
        Rule(
            "stops at 0",
            "ours inverts the whole; pycute stops at the first mode of stride 0.",
            lambda o: (
                o.both and repeats(o.arguments[0]) and _reaches_all(o) and inverts_right(o, o.our_values) and _stops(o)
            ),
            ("(2,4):(0,1)",),
        ),
        Rule(
            "stops at overlap",
            "modes overlap; ours inverts the whole, since each stride divides what was reached; pycute stops there.",
            lambda o: o.both and not repeats(o.arguments[0]) and inverts_right(o, o.our_values) and _stops(o),
            ("(4,3):(1,2)",),
        ),
        Rule(
            "both fall short",
            "every offset is reached, by modes that overlap with strides that do not divide; ours refuses, and pycute "
            "inverts a part.",
            lambda o: o.only_theirs and _reaches_all(o) and _stops(o),
            ("(3,5):(1,2)",),
        ),
    ),
)


def _leaves_free(outcome: Outcome) -> bool:
    """Both are left inverses, and they differ, on offsets that the layout does not reach."""
    layout = outcome.arguments[0]
    ours = [outcome.ours(o) for o in offsets(layout)]
    return outcome.both and not outcome.same and inverts_left(outcome) and ours == list(range(layout.size))


def _strides_divide(layout: Layout) -> bool:
    strides = sorted(d for s, d in layout.leaves if s > 1 and d)
    return all(high % low == 0 for low, high in itertools.pairwise(strides))


LEFT_INVERSE = Operation(
    "left_inverse",
    left_inverse,
    pycute.left_inverse,
    (
        Rule(
            "same",
            "both give L(A(x)) = x, and the same elsewhere.",
            lambda o: o.same and inverts_left(o),
            ("(4,8):(8,1)",),
        ),
        Rule(
            "free elsewhere",
            "both are left inverses; they differ on offsets that A does not reach, where nothing is asked of them.",
            lambda o: o.both and _leaves_free(o),
            ("8:2",),
        ),
        neither(
            lambda o: not one_to_one(o) or not _strides_divide(o.arguments[0]),
            "A is not one to one, or strides do not divide one another.",
            "(2,8):(4,2)",
        ),
        Rule(
            "not one to one",
            "A is not one to one, and ours refuses; pycute gives a layout that is no inverse.",
            lambda o: o.only_theirs and not one_to_one(o) and not inverts_left(o),
            ("(4,2):(2,4)",),
        ),
        Rule(
            "no divisor",
            "A is one to one, but its strides do not divide one another, and ours refuses; pycute's L is wrong.",
            lambda o: o.only_theirs and one_to_one(o) and not _strides_divide(o.arguments[0]) and not inverts_left(o),
            ("(2,3):(2,5)",),
        ),
        Rule(
            "padding",
            "A is padded, and ours inverts it; pycute's L is wrong beyond the first gap.",
            lambda o: o.both and one_to_one(o) and not inverts_left(o),
            ("(4,8):(1,5)",),
        ),
    ),
)


def _swizzled(bits: int, base: int, shift: int, offset: int) -> Layout:
    return Layout(1, Swizzle(bits, base, shift)(offset))


def _xored(bits: int, base: int, shift: int, offset: int) -> int:
    return offset ^ (offset >> base + shift) % 2**bits << base


SWIZZLE = Operation(
    "Swizzle",
    _swizzled,
    lambda bits, base, shift, offset: pycute.Layout(1, TheirSwizzle(bits, base, shift)(offset)),
    (
        Rule(
            "same",
            "bits, base, shift and an offset: the same offset.",
            lambda o: o.both and o.ours.stride == o.theirs.stride == _xored(*o.arguments),
            ("3", "4", "3", "200"),
        ),
        neither(
            lambda o: abs(o.arguments[2]) < o.arguments[0] or min(o.arguments[:2]) < 0,
            "it would read bits that it changes.",
            "3",
            "0",
            "2",
            "9",
        ),
        Rule(
            "no shift",
            "no bits and no shift are the identity; pycute calls itself until Python stops it.",
            lambda o: o.only_ours and o.raised == "RecursionError" and o.arguments[2] == 0 == o.arguments[0],
            ("0", "4", "0", "200"),
        ),
        Rule(
            "negative shift",
            "ours has no shift to the left, which hardware does not offer; pycute reads lower bits.",
            lambda o: o.only_theirs and o.arguments[2] < 0,
            ("2", "0", "-2", "3"),
        ),
    ),
)
