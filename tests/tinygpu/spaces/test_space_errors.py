"""What a space refuses, and in which words."""

from inspect import Parameter, signature

import numpy as np
import pytest

from tinygpu.constraints import Constraint
from tinygpu.expressions import symbol
from tinygpu.spaces import Axis, Part, Space, SpaceError, TooLarge
from tinygpu.spaces import space as space_module
from tinygpu.spaces.analysis import is_vacuous
from tinygpu.spaces.space import _uniform

A, B = symbol("a"), symbol("b")
AXES = (Axis("a", (1, 2, 4)), Axis("b", (0, 1, 2)), Axis("mode", ("row", "column")))


def rule(condition):
    return Constraint("rule", condition, "it must hold")


def space(*conditions, **environment):
    return Space("small", (Part({"way": "w"}, AXES, tuple(rule(c) for c in conditions), environment),))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Axis("a", ()), "[a] a parameter needs at least one value"),
        (
            lambda: Axis("a", (1, -2)),
            "[a] -2 is not a value of a parameter; values are non-negative integers or words",
        ),
        (
            lambda: Axis("a", (1, True)),
            "[a] True is not a value of a parameter; values are non-negative integers or words",
        ),
        (
            lambda: Axis("a", (1, 2.0)),
            "[a] 2.0 is not a value of a parameter; values are non-negative integers or words",
        ),
        (lambda: Axis("a", (3, 2, 1, 2)), "[a] the value 2 is listed twice; list each value once"),
        (
            lambda: Axis("a", (1, -1)),
            "[a] -1 is not a value of a parameter; values are non-negative integers or words",
        ),
        (
            lambda: Part({"way": "w"}, AXES, environment={"a": 3}),
            "[way=w] the name 'a' stands for two things; names are unique within a part",
        ),
        (
            lambda: Part({}, AXES, environment={"m": -1}),
            "[space] m is -1; it must be a non-negative integer",
        ),
        (
            lambda: space(symbol("n") > A),
            "[way=w] the constraint 'rule' reads 'n', which is not a parameter, a dim, a tensor fact or a device "
            "figure here",
        ),
        (
            lambda: space(symbol("mode") > A),
            "[way=w] the constraint 'rule' reads 'mode', whose values are words; constraints are over integers",
        ),
        (
            lambda: space(symbol("way") > A),
            "[way=w] the constraint 'rule' reads 'way', whose values are words; constraints are over integers",
        ),
        (
            lambda: Space("s", (Part({"w": 1}, AXES), Part({"w": 2}, AXES), Part({"w": 2}, AXES[::-1]))),
            "[s] the parts 'w=2' and 'w=2' share points; give them different structural choices",
        ),
        (
            lambda: space(A % B == 0).size,
            "[small] [rule] a mod b = 0 cannot be judged for every point: a divisor is 0; divisors are positive "
            "integers",
        ),
        (
            lambda: space(symbol("m") % symbol("n") == 0, m=3, n=0).size,
            "[small] [way=w] the constraint 'rule' cannot be judged: a divisor is 0; divisors are positive integers",
        ),
        (
            lambda: space(A > 4).sample(1, np.random.default_rng(0)),
            "[small] no point satisfies every constraint, so that none can be drawn",
        ),
        (lambda: space().at(18), "[small] there is no point 18; indices go from 0 to 17"),
        (lambda: space().at(-1), "[small] there is no point -1; indices go from 0 to 17"),
        (
            lambda: space().columns(limit=17),
            "[small] 18 points are too many to list (the limit is 17); sample them instead",
        ),
        (
            lambda: Part({}, AXES, environment={"m": True}),
            "[space] m is True; it must be a non-negative integer",
        ),
        (
            lambda: Part({}, AXES, environment={"m": 1.5}),
            "[space] m is 1.5; it must be a non-negative integer",
        ),
        (
            lambda: space().legal_values({}, "c"),
            "[small] there is no parameter 'c'; there are way, a, b, mode",
        ),
        (lambda: space().explain({"c": 1}), "[small] there is no parameter 'c'; there are way, a, b, mode"),
        (lambda: space().restrict({"c": 1}), "[small] there is no parameter 'c'; there are way, a, b, mode"),
        (
            lambda: space(A > B).index({"way": "w", "a": 1, "b": 2, "mode": "row"}),
            "[small] way=w, a=1, b=2, mode=row is not in the space: rule: it must hold; a = 1 <= 2 (b)",
        ),
        (
            lambda: space(A > B).index({"a": 1, "b": 0}),
            "[small] a=1, b=0 is not in the space: it does not name every parameter, and only those",
        ),
        (
            lambda: Space("s", (Part({"w": 1}, AXES), Part({"w": 2}, AXES[:2]))).columns(),
            "[s] the parts of this space have different parameters; ask for the columns by part",
        ),
        (lambda: Space("s", ()).nearest(), "[s] the space has no part, so that no point is near"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(SpaceError) as caught:
        make()
    assert str(caught.value) == text


def test_a_zero_divisor_is_no_fault_where_an_earlier_constraint_excludes_it():
    guarded = space(B >= 1, A % B == 0)
    assert {(p["a"], p["b"]) for p in guarded.points()} == {(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)}
    assert {"way": "w", "a": 1, "b": 0, "mode": "row"} not in guarded
    assert [str(v) for v in guarded.explain({"way": "w", "a": 1, "b": 0, "mode": "row"})] == [
        "rule: it must hold; b = 0 < 1",
        "rule: it must hold; a mod b = 0 cannot be judged here: a divisor is 0; divisors are positive integers",
    ]


def test_a_zero_divisor_can_be_a_rejection_instead_of_an_error():
    part = space(A % B == 0).parts[0]
    lenient = Space("lenient", (part,), strict=False)
    assert {(p["a"], p["b"]) for p in lenient.points()} == {(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)}
    guard = Constraint("guard", B >= 1, "b divides")
    assert is_vacuous(Space("guarded", (Part({}, AXES, (guard, rule(A % B == 0))),)), guard) is False
    nowhere = space(symbol("m") % symbol("n") == 0, m=3, n=0).parts
    assert Space("lenient", nowhere, strict=False).size == 0


def test_a_guard_keeps_its_place_when_the_rest_of_its_constraint_waits():
    guarded = space((B >= 1) & (A + B <= 5), A % B == 0, B % A >= 0)
    assert guarded.raw_size - guarded.size == sum(r.removed for r in guarded.funnel)


def test_a_point_is_explained_with_values_that_are_not_on_offer():
    assert [str(v) for v in space(A > B).explain({"a": 3, "b": 6})] == [
        "a: 3 is not on offer; choose from 1, 2, 4",
        "b: 6 is not on offer; choose from 0, 1, 2",
        "rule: it must hold; a = 3 <= 6 (b)",
    ]


def test_a_structure_that_there_is_not_is_told_with_all_that_there_are():
    parted = Space("parted", tuple(Part({"way": way}, AXES) for way in ("v", "w", "x")))
    assert [str(v) for v in parted.explain({"way": "z"})] == ["way: 'z' is not on offer; choose from v, w, x"]


def test_a_space_prints_what_it_is():
    assert repr(space()) == "Space('small', 1 parts, 18 points before constraints)"
    assert str(space(A > B).funnel[0]) == "rule, legality: removed 6"
    assert space(A > B).funnel[0].formula == "a > b"


def test_spaces_without_axes_or_parts_have_one_point_or_none():
    assert list(Space("s", (Part(),))) == [{}]
    assert list(Space("s", (Part({"way": "w"}),))) == [{"way": "w"}]
    assert list(Space("s", ())) == []
    assert Space("s", ()).size == 0


def test_what_is_given_in_any_sequence_is_kept_as_it_was() -> None:
    """A list that its owner goes on to change changes no axis, part or space."""
    assert Axis("a", [1, 2]) == Axis("a", (1, 2))
    assert hash(Axis("a", [1, 2])) == hash(Axis("a", (1, 2)))
    axes, rules = list(AXES), [rule(A > B)]
    parts = [Part({}, axes, rules)]
    made = Space("small", parts)
    for given in (axes, rules, parts):
        given.clear()
    (part,) = made.parts
    assert (part.axes, len(part.constraints)) == (AXES, 1)
    assert made.size == space(A > B).size


def test_as_many_points_as_the_limit_are_listed() -> None:
    assert {len(column) for column in space().columns(limit=18).values()} == {18}


def test_columns_are_named_in_the_order_of_the_first_part() -> None:
    for order in ((0, 1, 2), (2, 1, 0)):
        axes = [tuple(AXES[i] for i in order), AXES]
        space = Space("two", tuple(Part({"w": w}, some) for w, some in enumerate(axes)))
        assert tuple(space.columns()) == space.parts[0].names


def test_a_list_of_points_is_the_same_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = list(space(A > B))
    for batch in (1, 3, 4, 100):
        monkeypatch.setattr(space_module, "_CHUNK", batch)
        assert list(space(A > B)) == listed


def test_parts_without_a_name_have_no_point_with_a_value_for_it() -> None:
    both = Space("both", (Part({"w": 1}, AXES[:1]), Part({"w": 2}, AXES[:2])))
    assert both.count({"b": 0}) == both.count({"b": 0, "w": 2}) == 3
    assert both.count({"b": 0, "w": 1}) == 0
    assert both.legal_values({"b": 0}, "w") == (2,)
    assert [both.count({"w": w}) for w in (1, 2, 3)] == [3, 9, 0]


def test_what_reads_no_parameter_is_judged_first() -> None:
    conditions = {"later": A > B, "last": A + B <= 5, "none": symbol("m") >= 1}
    rules = tuple(Constraint(name, condition, "it must hold") for name, condition in conditions.items())
    part = Part({}, AXES, rules, {"m": 1})
    assert [row.name for row in Space("s", (part,)).funnel] == ["none", "later", "last"]


def test_of_equally_good_parts_the_first_explains_a_point() -> None:
    rules = [Constraint("low", A <= 1, "it is low"), Constraint("high", A >= 4, "it is high")]
    for order in (rules, rules[::-1]):
        parts = tuple(Part({"way": way}, AXES[:1], (rule,)) for way, rule in zip("xy", order, strict=True))
        assert [v.constraint for v in Space("two", parts).explain({"a": 2})] == [order[0]]


def test_a_point_is_explained_by_a_part_that_has_all_of_its_names() -> None:
    few = Part({"way": "few"}, AXES[:1], (Constraint("odd", A % 2 == 1, "it is odd"),))
    more = Part({"way": "more"}, AXES[:2], (Constraint("small", A + B <= 2, "it is small"),))
    for parts in ((few, more), (more, few)):
        both = Space("both", parts)
        assert [v.constraint.name for v in both.explain({"a": 4, "b": 1})] == ["small"]
        assert both.explain({"a": 1, "b": 1}) == ()
        assert [v.constraint.name for v in both.explain({"a": 4, "way": "few"})] == ["odd"]


def test_vacuity_that_takes_too_many_rows_is_not_guessed() -> None:
    narrow = Constraint("narrow", (A == 1) & (B == 1), "one of each")
    tight = Space("tight", (Part({}, AXES[:2], (narrow, rule(A + B <= 9))),), row_budget=2)
    assert tight.size == 1
    with pytest.raises(TooLarge):
        is_vacuous(tight, narrow)


@pytest.mark.parametrize("bits", range(64, 74))
def test_numbers_beyond_64_bits_are_drawn_from_as_few_bytes_as_hold_them(bits: int) -> None:
    """A number that is too large is drawn again, and no other: all below the bound are equally likely."""
    below = (1 << bits) - (1 << bits - 2) + 1
    taken = []
    edge = [(number << -bits % 8).to_bytes(-(-bits // 8), "little") for number in (below, below - 1, 0)]

    class Bytes:
        def bytes(self, count: int) -> bytes:
            taken.append(edge[len(taken)] if len(taken) < len(edge) else np.random.default_rng(len(taken)).bytes(count))
            return taken[-1]

    drawn = _uniform(below, 12, Bytes())  # type: ignore[arg-type]
    assert {len(some) for some in taken} == {-(-bits // 8)}
    numbers = [int.from_bytes(some, "little") >> -bits % 8 for some in taken]
    assert drawn == [number for number in numbers if number < below]
    assert len(drawn) == 12


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_partial_point_is_in_where_any_completion_is(left: int) -> None:
    most = 3 + left
    small = Space("small", (Part({}, AXES[:2], (rule(most >= A + B),)),))
    completions = [b for b in (0, 1, 2) if 4 + b <= most]
    assert len(completions) == left
    assert (small.explain({"a": 4}) == ()) == bool(left)


def test_what_a_space_counts_with_is_said_by_name() -> None:
    parameters = signature(Space).parameters
    named = [name for name, one in parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    assert named == ["row_budget", "strict", "origin", "place"]
    with pytest.raises(TypeError, match="positional arguments"):
        Space("few", (), 40)  # type: ignore[misc]
