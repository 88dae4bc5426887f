"""Empty spaces: the conflicting set is minimal, the nearest point is nearest, and each change lets a point in."""

import math
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_spaces import Rule, admitted, combinations, number_of, parts

from tinygpu.constraints import Constraint
from tinygpu.constraints.condition import conjuncts
from tinygpu.constraints.query import Notebook
from tinygpu.expressions import Expr, all_of, any_of, compile_arrays, symbol
from tinygpu.spaces import Axis, Part, Space, SpaceError, TooLarge, analysis, conflict
from tinygpu.spaces import nearest as nearest_point
from tinygpu.spaces.analysis import is_implied
from tinygpu.spaces.conflict import find_point, told

STAGES, BM, BN, BK, M, CAP = (symbol(n) for n in ("stages", "bm", "bn", "bk", "m", "device.smem"))
SMEM = Constraint("smem capacity", STAGES * (BM * BK + BK * BN) * 2 <= CAP, "the stages must fit", source="SMEM")
WHOLE = Constraint("whole tiles", M % BM == 0, "tiles divide m")
LARGE = Constraint("large tiles", BM * BN >= 128 * 64, "small tiles never win", kind="dominance", source="Matmul")
AXES = (Axis("bm", (64, 128)), Axis("bn", (64, 128)), Axis("bk", (32, 64)), Axis("stages", (2, 3, 4)))


def matmul(smem, m=4096, schedule="direct"):
    return Part({"schedule": schedule}, AXES, (SMEM, WHOLE, LARGE), {"m": m, "device.smem": smem})


@st.composite
def empty_parts(draw):
    """A part whose points all break a rule: a random one, and the rule that its survivors do not exist."""
    part = draw(parts({"way": "w"}, 4))
    left = [p for p in combinations(part) if admitted(part, p)]
    assume(len(left) <= 12)
    first = part.axes[0]
    if left and isinstance(first.values[0], int):
        gone = sorted({p[first.name] for p in left})
        shut = Rule(
            "shut",
            all_of([symbol(first.name) != v for v in gone]),
            "what is left is shut",
            meaning=lambda values: values[first.name] not in gone,
        )
        part = replace(part, constraints=(*part.constraints, shut))
    assume(not any(admitted(part, p) for p in combinations(part)))
    return part


@settings(max_examples=40)
@given(part=empty_parts())
def test_a_conflict_cannot_hold_and_nothing_can_be_dropped_from_it(part):
    space = Space("empty", (part,))
    (conflict,) = space.conflict()
    points = list(combinations(part))
    assert not any(admitted(part, p, conflict.constraints) for p in points)
    for member, witness in zip(conflict.constraints, conflict.witnesses, strict=True):
        others = [c for c in conflict.constraints if c is not member]
        assert any(admitted(part, p, others) for p in points)
        assert witness in points
        assert admitted(part, witness, others)
        assert not admitted(part, witness, [member])
    rejecting = {id(c) for _, c, _, removed in space.solutions[0].rows if removed}
    legal = [c for c in part.constraints if id(c) in rejecting and c.kind == "legality"]
    if not any(admitted(part, p, legal) for p in points):  # what only never wins is not what is in the way
        assert {c.kind for c in conflict.constraints} == {"legality"}


@settings(max_examples=40)
@given(part=empty_parts())
def test_the_nearest_point_breaks_the_fewest_conditions_by_the_least(part):
    conditions = [c for r in part.constraints for c in conjuncts(r.condition)]
    relations = [(c, c.node.is_Relational and compile_arrays(Expr(c.node.lhs), Expr(c.node.rhs))) for c in conditions]

    def broken(point):
        values = number_of(part, point)
        excesses = []
        for condition, sides in relations:
            if not condition.holds(values):
                left, right = sides(values) if sides else (1, 0)
                excess = abs(left - right) / max(1, abs(right))
                excesses.append(excess / (1 + excess) if sides else 1)
        return len(excesses), sum(excesses)

    nearest = Space("empty", (part,)).nearest()
    points = list(combinations(part))
    assert nearest.point in points
    fewest, least = min(broken(p) for p in points)
    assert broken(nearest.point) == (fewest, pytest.approx(least))
    assert [v.constraint for v in nearest.violations] == [
        c for c in part.constraints if not admitted(part, nearest.point, [c])
    ]
    for change in nearest.changes:
        if change.adds:
            wider = {a.name: (*a.values, change.needed) if a.name == change.name else a.values for a in part.axes}
            opened = replace(part, axes=tuple(Axis(*item) for item in wider.items()))
        else:
            opened = replace(part, environment={**part.environment, change.name: change.needed})
        assert change.point in list(combinations(opened))
        assert admitted(opened, change.point)


@settings(max_examples=20)
@given(part=parts({"way": "w"}, 5))
def test_z3_finds_a_point_exactly_where_elimination_does(part):
    by_elimination = find_point(part, part.constraints, row_budget=10**6)
    by_z3 = find_point(part, part.constraints, row_budget=0, notebook=Notebook())
    assert (by_elimination is None) == (by_z3 is None)
    if by_z3 is not None:
        assert by_z3 in list(combinations(part))
        assert admitted(part, by_z3)
        read = {s for c in part.constraints for s in c.condition.symbols}
        for axis in part.axes:
            if axis.name not in read:
                assert by_z3[axis.name] == by_elimination[axis.name] == axis.values[0]


@settings(max_examples=30)
@given(part=empty_parts())
def test_every_change_of_one_number_or_one_more_value_that_opens_a_space_is_found(part):
    """Against trying all: numbers up to 20 away with the point as it is; more values with all others free."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_point, "_WINDOW", 20)
        patch.setattr(nearest_point, "_MOST_CHANGES", 99)
        nearest = Space("empty", (part,)).nearest()
    found = {change.name: change for change in nearest.changes}
    for name, now in part.environment.items():
        near = sorted(range(max(0, now - 20), now + 21), key=lambda n: (abs(n - now), n))
        opening = (n for n in near if admitted(replace(part, environment={**part.environment, name: n}), nearest.point))
        needed = next(opening, None)
        if needed is not None:
            assert (found[name].now, found[name].needed, found[name].adds) == (now, needed, False)
        elif name in found:
            assert abs(found[name].needed - now) > 20
    for place, axis in enumerate(part.axes):
        if not axis.numeric:
            continue
        step = max(1, math.gcd(*axis.values))
        more = {n for n in range(1, 1 + 2 * max(axis.values)) if n % step == 0}
        more |= {v * 2**i for v in axis.values for i in range(5)} | {v // 2**i for v in axis.values for i in range(5)}

        def opens(value, place=place, axis=axis):
            others = (*part.axes[:place], Axis(axis.name, (value,)), *part.axes[place + 1 :])
            opened = replace(part, axes=others)
            return any(admitted(opened, p) for p in combinations(opened))

        closest = {
            v: min(axis.values, key=lambda o, v=v: (abs(o - v), o)) for v in more - set(axis.values) - {0} if opens(v)
        }
        if closest:
            needed = min(closest, key=lambda v: (abs(v - closest[v]) / max(1, closest[v]), v))
            change = found[axis.name]
            assert (change.now, change.needed, change.adds) == (closest[needed], needed, True)
            assert change.point == first_of(
                replace(part, axes=(*part.axes[:place], Axis(axis.name, (needed,)), *part.axes[place + 1 :]))
            )
        else:
            assert axis.name not in found
    changes = [(abs(c.needed - c.now) / max(1, c.now), c.name) for c in nearest.changes]
    assert changes == sorted(changes)


def first_of(part):
    return next(iter(Space("opened", (part,), strict=False)))


def test_the_six_smallest_changes_are_shown():
    numbers = dict(zip("abcdefgh", (7, 0, 1, 1, 40, 12, 2, 3), strict=True))
    total = reduce(lambda x, y: x + y, [symbol(name) for name in numbers])
    space = Space("six", (Part({}, (Axis("x", (1,)),), (Constraint("more", total == 70, "more"),), numbers),))
    (missing,) = {70 - sum(numbers.values())}
    smallest = sorted((missing / max(1, now), name) for name, now in numbers.items())[:6]
    assert [(c.name, c.needed - c.now) for c in space.nearest().changes] == [(name, missing) for _, name in smallest]


@pytest.mark.parametrize(("away", "found"), [(-4097, False), (-4096, True), (4096, True), (4097, False)])
def test_numbers_are_tried_up_to_4096_away(away, found):
    m = symbol("m")
    rule = Constraint("either", any_of([m == 9_000 + away, m == 90_000]), "one of two")
    space = Space("far", (Part({}, (Axis("x", (1,)),), (rule,), {"m": 9_000}),))
    assert [c.needed for c in space.nearest().changes] == ([9_000 + away] if found else [])


def test_a_number_beyond_64_bits_can_be_what_is_needed():
    a, n = symbol("a"), symbol("n")
    rule = Constraint("wide", a * n >= 2**70, "it is wide")
    space = Space("wide", (Part({}, (Axis("a", (1,)),), (rule,), {"n": 2**62}),))
    assert [(c.name, c.needed) for c in space.nearest().changes if not c.adds] == [("n", 2**70)]


def test_a_number_far_away_is_one_step_beyond_a_limit_and_not_below_zero():
    for x, condition, needed in (
        (5_000_000, symbol("d") > symbol("x"), [5_000_001]),
        (5_000_000, symbol("d") >= symbol("x"), [5_000_000]),
        (0, symbol("d") < symbol("x"), []),
    ):
        part = Part({}, (Axis("x", (x,)),), (Constraint("far", condition, "far"),), {"d": 7})
        assert [c.needed for c in Space("far", (part,)).nearest().changes if c.name == "d"] == needed


def test_a_number_opens_nothing_where_the_point_divides_by_zero_elsewhere():
    rules = (
        Constraint("whole", symbol("n") % symbol("a") == 0, "a divides n"),
        Constraint("few", M <= 2, "few"),
    )
    for offered, found in ((0, []), (1, [2])):
        space = Space("zero", (Part({}, (Axis("a", (offered,)),), rules, {"m": 5, "n": 6}),), strict=False)
        assert [c.needed for c in space.nearest().changes if c.name == "m"] == found


@pytest.mark.parametrize("rule", [symbol("k") >= 16, symbol("k") >= symbol("x") * 16])
def test_of_points_that_are_equally_near_the_first_part_has_the_nearest(rule):
    parts = [Part({"way": way}, (Axis("x", (1, 2)),), (Constraint("depth", rule, "deep"),), {"k": 8}) for way in "pqr"]
    for order in (parts, parts[::-1]):
        nearest = Space("equals", tuple(order)).nearest()
        assert nearest.point == {"way": order[0].fixed["way"], "x": 1}


def test_a_point_without_completion_names_the_first_constraint_of_the_conflict():
    x, y = symbol("x"), symbol("y")
    rules = (Constraint("low", x + y <= 4, "low"), Constraint("high", x + 2 * y >= 9, "high"))
    space = Space("two", (Part({}, (Axis("x", (1, 2, 3)), Axis("y", (1, 2, 3, 4))), rules),))
    (violation,) = space.explain({"x": 3})
    assert violation.constraint is rules[0]
    assert "(1) low" in violation.sentence
    assert "(2) high" in violation.sentence


def test_an_empty_space_says_why_and_what_would_open_it():
    space = Space("matmul on tiny", (matmul(12000),))
    (conflict,) = space.conflict()
    assert str(conflict) == (
        "this cannot hold for bm in {64, 128} and bn in {64, 128} and bk in {32, 64} and stages in {2, 3, 4}: "
        "smem capacity (SMEM): the stages must fit; stages x (bm x bk + bn x bk) x 2 <= 12,000 (device.smem)"
    )
    assert str(space.nearest()) == (
        "the nearest point is schedule=direct, bm=64, bn=128, bk=32, stages=2: smem capacity (SMEM): the stages must "
        "fit; 2 x (64 x 32 + 128 x 32) x 2 = 24,576 > 12,000 (device.smem). It would take bk=8 on offer, or "
        "device.smem = 24,576 instead of 12,000"
    )


def test_two_constraints_that_conflict_are_both_named():
    odd = matmul(90000, m=1000, schedule="odd")
    space = Space("matmul on small", (matmul(20000), matmul(20000, schedule="staged"), odd))
    assert [str(c) for c in Space("s", space.parts[:2]).conflict()] == [
        "these cannot hold together for bm in {64, 128} and bn in {64, 128} and bk in {32, 64} and stages in "
        "{2, 3, 4}: (1) smem capacity (SMEM): the stages must fit; stages x (bm x bk + bn x bk) x 2 <= "
        "20,000 (device.smem); (2) large tiles (Matmul): small tiles never win; bm x bn >= 8,192"
    ]
    assert [len(c.parts) for c in Space("s", space.parts[:2]).conflict()] == [2]
    (whole,) = Space("s", space.parts[2:]).conflict()
    assert str(whole) == (
        "this cannot hold for bm in {64, 128}: whole tiles: tiles divide m; m mod bm = 0 with m = 1,000"
    )
    nearest = Space("s", space.parts[2:]).nearest()
    assert str(nearest.changes[0]) == "m = 1,024 instead of 1,000"


def test_a_constraint_over_dims_alone_is_a_conflict_of_its_own():
    rule = Constraint("depth", symbol("k") >= 16, "k has at least one step")
    space = Space("s", (Part({}, AXES, (SMEM, rule), {"k": 8, "device.smem": 10**6}),))
    assert str(space.conflict()[0]) == "this cannot hold: depth: k has at least one step; 8 (k) >= 16"
    assert [str(c) for c in space.nearest().changes] == ["k = 16 instead of 8"]


def test_a_space_with_points_has_no_conflict_and_no_nearest_change():
    space = Space("full", (matmul(10**6),))
    for question in (space.conflict, space.nearest):
        with pytest.raises(SpaceError) as caught:
            question()
        assert str(caught.value) == "[full] the space is not empty: 18 points satisfy every constraint"


def test_a_partial_point_without_completion_is_explained_by_a_conflict():
    space = Space("matmul on small", (matmul(40000),))
    assert space.explain({"bm": 64}) == ()
    (violation,) = space.explain({"bm": 128, "stages": 4})
    assert violation.sentence == (
        "bm=128, stages=4 has no completion: this cannot hold for bm in {128} and bn in {64, 128} and bk in {32, 64} "
        "and stages in {4}: smem capacity (SMEM): the stages must fit; stages x (bm x bk + bn x bk) x 2 <= "
        "40,000 (device.smem)"
    )


def test_what_several_instructions_refuse_alike_is_told_once():
    def part(how: str, rule: str) -> Part:
        broken = Constraint(f"{how} {rule}", symbol("k") > 100, f"{rule} holds", source=how)
        return Part({"how": how}, (Axis("bm", (64, 128)),), (broken,), {"k": 8})

    space = Space("four", tuple(part(*one) for one in (("one", "a"), ("pair", "a"), ("half", "a"), ("other", "b"))))
    assert told(space.conflict()) == (
        "this cannot hold: one a (one): a holds; 8 (k) > 100 (and so for pair, half); "
        "this cannot hold: other b (other): b holds; 8 (k) > 100"
    )
    assert told(()) == ""


def test_a_partial_point_is_judged_in_a_structure_that_has_points():
    """What empties a structure by itself is not what is wrong with the point."""
    shut = Constraint("shut", symbol("k") > 100, "this structure is for long k")
    narrow = Constraint("narrow", symbol("bm") <= 64, "tiles are narrow")
    axes = (Axis("bm", (64, 128)), Axis("bn", (64, 128)))
    parts = (Part({"how": "long"}, axes, (shut,), {"k": 8}), Part({"how": "short"}, axes, (narrow,), {"k": 8}))
    (violation,) = Space("two", parts).explain({"bm": 128, "bn": 64})
    assert violation.constraint is narrow
    assert Space("none", ()).explain({}) == ()


def test_unknown_is_an_answer_when_both_engines_give_up():
    names = [f"x{i}" for i in range(5)]
    squares = sum((symbol(n) * symbol(n) for n in names[1:]), symbol("x0"))
    rule = Constraint("sum of squares", squares * symbol("x0") % 9973 == 4321, "a hard one")
    small = Constraint("small", symbol("x0") <= 31, "one is small")
    part = Part({}, tuple(Axis(n, tuple(range(1, 60, 2))) for n in names), (rule, small))
    with pytest.raises(TooLarge) as caught:
        find_point(part, part.constraints, row_budget=0, rlimit=1000)
    assert str(caught.value) == (
        "[space] whether a point satisfies all 2 constraints at once is unknown: elimination needs more rows than "
        "the budget allows, and Z3 gave up after 1,000 units (max. resource limit exceeded)"
    )


def test_implication_is_proved_refuted_or_unknown():
    a, b = symbol("a"), symbol("b")
    small = Constraint("small", (a <= 4) & (b <= 4), "both small")
    total = Constraint("total", a + b <= 8, "small together")
    tight = Constraint("tight", a + b <= 7, "smaller together")
    assert is_implied(total, [small]).verdict == "yes"
    refuted = is_implied(tight, [small])
    assert refuted.verdict == "no"
    assert refuted.counterexample == {"a": 4, "b": 4}
    assert is_implied(tight, [small], domains={"a": (1, 2, 3)}).verdict == "yes"
    cubes = Constraint("cubes", ~(a * a * a + b * b * b == symbol("c") * symbol("c") * symbol("c")), "Fermat")
    positive = Constraint("positive", all_of([a >= 1, b >= 1, symbol("c") >= 1]), "positive")
    assert is_implied(cubes, [positive], rlimit=200_000).verdict == "unknown"


def test_alternatives_imply_their_union():
    a = symbol("a")
    either = Constraint("either", any_of([a % 4 == 0, a % 6 == 0]), "a multiple")
    even = Constraint("even", a % 2 == 0, "even")
    assert is_implied(even, [either]).verdict == "yes"
    assert is_implied(either, [even]).verdict == "no"


@pytest.mark.parametrize("times", [16, 8, 4, 2, 1 / 2, 1 / 4, 1 / 8, 1 / 16])
def test_halves_and_doubles_of_what_is_on_offer_are_suggested(times):
    """Up to four times over, far beyond the multiples of the common divisor that are tried."""
    needed = int(160_000 * times)
    space = Space(
        "apart", (Part({}, (Axis("a", (1, 160_000)),), (Constraint("one", symbol("a") == needed, "it is the one"),)),)
    )
    assert [str(c) for c in space.nearest().changes] == [f"a={needed:,} on offer"]
    further = int(needed * 2 if times > 1 else needed / 2) if times in (16, 1 / 16) else needed + 1
    space = Space(
        "apart", (Part({}, (Axis("a", (1, 160_000)),), (Constraint("one", symbol("a") == further, "it is the one"),)),)
    )
    assert space.nearest().changes == ()


@pytest.mark.parametrize("number", [1, 5, 255, 256])
def test_multiples_of_the_common_divisor_are_suggested(number):
    space = Space(
        "apart", (Part({}, (Axis("a", (6, 9, 6_000)),), (Constraint("one", symbol("a") == 3 * number, "it is"),)),)
    )
    assert [str(c) for c in space.nearest().changes] == [f"a={3 * number:,} on offer"]


def test_the_nearest_number_can_be_zero_however_far_it_is():
    few = Constraint("few", symbol("d") < symbol("x"), "fewer than x")
    space = Space("far", (Part({}, (Axis("x", (1,)),), (few,), {"d": 5_000_000}),))
    assert "d = 0 instead of 5,000,000" in str(space.nearest())


def test_a_model_counts_only_where_it_keeps_every_premise_and_breaks_the_constraint(monkeypatch):
    a, b = symbol("a"), symbol("b")
    premises = [Constraint("a", a <= 4, "a is small"), Constraint("b", b <= 4, "b is small")]
    asked = []
    kept = analysis.ask
    monkeypatch.setattr(analysis, "ask", lambda query, notebook: asked.append(query) or kept(query, notebook))
    is_implied(Constraint("tight", a + b <= 7, "smaller together"), premises)
    models = [{"a": i, "b": j} for i in range(7) for j in range(7)]
    assert [m for m in models if asked[0].check(m)] == [{"a": 4, "b": 4}]


def test_values_that_no_part_offers_together_name_no_point():
    axes = (Axis("a", (1, 2)),)
    parts = (Part({"way": "x"}, axes), Part({"way": "y"}, (Axis("a", (3,)),)))
    (violation,) = Space("two", parts).explain({"way": "x", "a": 3})
    assert violation.constraint is None
    assert "3" in violation.sentence


def test_a_witness_that_breaks_more_than_what_was_dropped_is_a_fault_that_asks_for_a_report(monkeypatch):
    rules = (Constraint("large", BM + BN >= 256, "both large"), Constraint("small", BM + BN <= 128, "both small"))
    kept = conflict.find_point

    def wrong(part, rules, *rest):
        return None if kept(part, rules, *rest) is None else {"bm": 64, "bn": 128}

    monkeypatch.setattr(conflict, "find_point", wrong)
    part = Part({}, (Axis("bm", (64, 128)), Axis("bn", (64, 128))), rules)
    with pytest.raises(conflict.ContradictoryAnswer) as caught:
        Space("empty", (part,)).conflict()
    assert str(caught.value) == (
        "[space] dropping 'large' was found to admit {'bm': 64, 'bn': 128}, which breaks another constraint; please "
        "report this"
    )


def test_a_point_that_divides_by_zero_can_be_the_nearest():
    whole = Constraint("whole", M % symbol("a") == 0, "a divides m")
    for few in ((), (Constraint("few", M <= 2, "few"),)):
        space = Space("undefined", (Part({}, (Axis("a", (0,)),), (whole, *few), {"m": 5}),), strict=False)
        assert space.size == 0
        nearest = space.nearest()
        assert nearest.point == {"a": 0}
        assert [v.constraint for v in nearest.violations] == [whole, *few]


def test_a_long_formula_is_told_by_what_it_comes_to_where_it_alone_is_broken():
    long = reduce(lambda total, n: total + (BM * BK + n) // (BN + n) * STAGES, range(2, 40), STAGES)
    part = Part({}, AXES, (Constraint("long", long <= CAP, "all fits", source="SMEM"), LARGE), {"device.smem": 1000})
    (found,) = Space("empty", (part,)).conflict()
    numbers = {name: int(value) for name, value in found.witnesses[0].items()}
    comes_to = int(compile_arrays(long)(numbers | {"device.smem": 1000})[0])
    at = ", ".join(f"{axis.name} = {numbers[axis.name]}" for axis in AXES)
    assert comes_to > 1000
    assert found.sentences[0] == f"long (SMEM): all fits; {comes_to:,} > 1,000 (device.smem) with {at}"
