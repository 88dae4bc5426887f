"""One condition, four evaluations: exact, NumPy, intervals and Z3 agree on every point."""

import itertools
import operator

import numpy as np
import pytest
import z3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_expressions import build, conditions, integers, meaning

from tinygpu.constraints.condition import Condition, DivisorNotPositive, conjuncts
from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.constraints.z3_terms import Z3Terms
from tinygpu.expressions import Expr, FloorDiv, compile_with, expr, maximum, minimum, symbol, where

NAMES = ("a", "b", "c")
POINTS = [dict(zip(NAMES, v, strict=True)) for v in itertools.product((0, 1, 2, 5, 9), repeat=3)]
COLUMNS = {n: np.array([p[n] for p in POINTS]) for n in NAMES}


def as_array(mask):
    return np.broadcast_to(np.asarray(mask, dtype=bool), (len(POINTS),))


# sympy solves the inner condition for a and writes a = b/3 + 1/3: fractions, which no engine may see.
THIRDS = ("==", ("*", ("symbol", "a"), ("number", 3)), ("+", ("symbol", "b"), ("number", 1)))
FRACTION = ("!=", ("symbol", "a"), ("where", THIRDS, ("symbol", "a"), ("symbol", "c")))


@settings(max_examples=150)
@example(tree=FRACTION)
@given(tree=conditions(NAMES))
def test_exact_numpy_and_plain_python_agree_on_every_point(tree):
    condition = Condition(build(tree).sympy)
    expected = [bool(meaning(tree, p)) for p in POINTS]
    assert [condition.holds(p) for p in POINTS] == expected
    assert as_array(condition.mask(COLUMNS)).tolist() == expected
    assert as_array(condition.exact_mask(COLUMNS)).tolist() == expected


@settings(max_examples=100)
@given(tree=conditions(NAMES))
def test_conjuncts_hold_together_exactly_where_the_condition_holds(tree):
    parts = conjuncts(build(tree))
    for point in POINTS[::3]:
        assert all(c.holds(point) for c in parts) == bool(meaning(tree, point))


@settings(max_examples=100)
@example(tree=FRACTION, points=POINTS)
@given(tree=conditions(NAMES), points=st.lists(st.sampled_from(POINTS), min_size=3, max_size=3))
def test_the_z3_term_agrees_on_points(tree, points):
    terms = Z3Terms(z3.Context())
    term = terms.term(build(tree))
    for point in points:
        numbers = [(s, z3.IntVal(point[n], ctx=terms.context)) for n, s in terms.symbols.items()]
        value = z3.simplify(z3.substitute(term, *numbers)) if numbers else z3.simplify(term)
        assert z3.is_true(value) == bool(meaning(tree, point))
        for assumption in terms.assumptions():
            assert z3.is_true(z3.simplify(z3.substitute(assumption, *numbers)))


@settings(max_examples=40)
@given(tree=conditions(NAMES), point=st.sampled_from(POINTS))
def test_numbers_put_in_before_translation_give_the_same_z3_value(tree, point):
    terms = Z3Terms(z3.Context(), point)
    assert z3.is_true(z3.simplify(terms.term(build(tree)))) == bool(meaning(tree, point))
    assert terms.symbols == {}


@settings(max_examples=150)
@given(
    tree=conditions(NAMES),
    ends=st.tuples(*[st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted) for _ in NAMES]),
)
def test_intervals_contain_every_value(tree, ends):
    ranges = {n: Interval(lo, hi) for n, (lo, hi) in zip(NAMES, ends, strict=True)}
    bounds = Condition(build(tree).sympy).bounds(ranges)
    corners = [sorted({lo, (lo + hi) // 2, hi}) for lo, hi in ends]
    for values in itertools.product(*corners):
        value = bool(meaning(tree, dict(zip(NAMES, values, strict=True))))
        assert bounds.lo <= value <= bounds.hi
    if bounds.always:
        assert bounds.lo == 1


@settings(max_examples=250)
@given(
    tree=integers(NAMES),
    ends=st.tuples(*[st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted) for _ in NAMES]),
)
def test_intervals_contain_every_integer(tree, ends):
    ranges = {n: Interval(lo, hi) for n, (lo, hi) in zip(NAMES, ends, strict=True)}
    bounds = compile_with(INTERVAL_NAMES, build(tree))(ranges)[0]
    if isinstance(bounds, int):
        bounds = Interval(bounds, bounds)
    inside = [sorted({lo, (2 * lo + hi) // 3, (lo + hi) // 2, hi}) for lo, hi in ends]
    for values in itertools.product(*inside):
        value = meaning(tree, dict(zip(NAMES, values, strict=True)))
        assert bounds.lo <= value <= bounds.hi
        assert abs(value) <= bounds.peak


def test_the_interval_of_a_remainder_that_wraps_around():
    assert (Interval(3, 11) % Interval(5, 5)).lo == 0
    assert (Interval(3, 11) % Interval(5, 5)).hi == 4
    assert (Interval(6, 8) % Interval(5, 5)).lo == 1
    assert (Interval(6, 8) % Interval(5, 5)).hi == 3


def test_large_numbers_are_exact_where_64_bits_are_not():
    a, b = symbol("a"), symbol("b")
    condition = Condition((a * b == 2**66 + 2**33).sympy)
    values = {"a": np.array([2**33, 2**33]), "b": np.array([2**33 + 1, 2**33])}
    bounds = condition.bounds({"a": Interval(2**33, 2**33), "b": Interval(2**33, 2**33 + 1)})
    assert not condition.fits_64_bits(bounds)
    assert condition.exact_mask(values).tolist() == [True, False]
    assert condition.holds({"a": 2**33, "b": 2**33 + 1})


def test_a_divisor_that_can_be_zero_is_seen_before_any_point():
    condition = Condition((symbol("a") % symbol("b") == 0).sympy)
    assert not condition.bounds({"a": Interval(0, 9), "b": Interval(0, 3)}).safe
    assert condition.bounds({"a": Interval(0, 9), "b": Interval(1, 3)}).safe


@pytest.mark.parametrize("divisor", [0, -3])
def test_a_divisor_that_is_not_positive_is_refused(divisor):
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    condition = Condition((a // (b - c) >= 1).sympy)
    with pytest.raises(DivisorNotPositive) as caught:
        condition.holds({"a": 4, "b": 3 + divisor, "c": 3})
    assert str(caught.value) == f"a divisor is {divisor}; divisors are positive integers"
    with pytest.raises(DivisorNotPositive) as caught:
        condition.exact_mask({"a": np.array([4, 4]), "b": np.array([4, 3 + divisor]), "c": 3})
    assert str(caught.value) == f"a divisor is {divisor}; divisors are positive integers"


@given(values=st.lists(st.tuples(st.integers(-4, 9), st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=9))
def test_a_condition_fails_where_a_divisor_is_not_positive_if_that_is_asked_for(values):
    a, b, c = (np.array(column) for column in zip(*values, strict=True))
    condition = Condition(((symbol("a") // symbol("b") >= 1) | (symbol("a") % symbol("c") == 1)).sympy)
    expected = [y > 0 and z > 0 and (x // y >= 1 or x % z == 1) for x, y, z in values]
    columns = {"a": a, "b": b, "c": c}
    assert condition.exact_mask(columns, strict=False).tolist() == expected
    single = {"a": a[:1], "b": b, "c": int(c[0])}  # shapes that only the divisors have
    wanted = [y > 0 and c[0] > 0 and (a[0] // y >= 1 or a[0] % c[0] == 1) for y in b]
    assert condition.exact_mask(single, strict=False).tolist() == wanted


@pytest.mark.parametrize("peak", [2**61, 2**62 - 1, 2**62, 2**62 + 1, 2**63, 2**64])
def test_64_bits_are_used_below_their_last_but_one_power(peak):
    condition = Condition((symbol("a") + 0 >= 1).sympy)
    assert condition.fits_64_bits(Interval(0, 1, peak)) == (peak < 2**62)
    assert not condition.fits_64_bits(Interval(0, 1, peak, False))


def test_z3_never_divides_by_what_is_not_positive():
    terms = Z3Terms(z3.Context())
    term = terms.term(symbol("a") // (symbol("b") - symbol("c")) >= 1)
    solver = z3.Solver(ctx=terms.context)
    solver.add(term, *terms.assumptions(), terms.symbol("b") <= terms.symbol("c"))
    assert solver.check() == z3.unsat


@pytest.mark.parametrize("power", [2, 3, 5])
def test_a_power_is_its_base_times_itself(power):
    a, b = symbol("a"), symbol("b")
    product = (a + b) * a
    for _ in range(power - 1):
        product = product * (a + b)  # sympy writes powers
    for point in POINTS[::7]:
        terms = Z3Terms(z3.Context(), point)
        wanted = (point["a"] + point["b"]) ** power * point["a"]
        assert z3.simplify(terms.term(product == wanted)).eq(z3.BoolVal(True, ctx=terms.context))
        free = Z3Terms(z3.Context())
        term = free.term(product == wanted)
        numbers = [(s, z3.IntVal(point[n], ctx=free.context)) for n, s in free.symbols.items()]
        assert z3.is_true(z3.simplify(z3.substitute(term, *numbers)))
        wrong = free.term(product == wanted + 1)
        assert z3.is_false(z3.simplify(z3.substitute(wrong, *numbers)))


def test_what_is_not_in_the_language_has_no_term():
    import sympy

    with pytest.raises(TypeError) as caught:
        Z3Terms(z3.Context()).term(Expr(sympy.sin(sympy.Symbol("x"))))
    assert str(caught.value) == "sin(x) has no Z3 term: sin is not part of the expression language"
    a = sympy.Symbol("a")
    with pytest.raises(TypeError) as caught:
        Z3Terms(z3.Context()).term(Expr(sympy.Piecewise((a, a > 1))))
    assert str(caught.value) == "a if a > 1 has a case that is not covered"
    with pytest.raises(TypeError) as caught:
        Z3Terms(z3.Context()).term(Expr(FloorDiv(a, sympy.Integer(-2))))
    assert str(caught.value) == "a // (-2) divides by -2; divisors are positive integers"


def test_symbols_are_assumed_to_be_from_zero_on_and_no_more():
    terms = Z3Terms(z3.Context())
    terms.symbol("a")
    for number, verdict in ((-1, z3.unsat), (0, z3.sat), (1, z3.sat)):
        solver = z3.Solver(ctx=terms.context)
        solver.add(*terms.assumptions(), terms.symbols["a"] == number)
        assert solver.check() == verdict


RELATIONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
OPERATIONS = [
    *RELATIONS,
    lambda a, b: maximum(a, b) == a,
    lambda a, b: maximum(3, b, a) != b,
    lambda a, b: minimum(a, b) == a,
    lambda a, b: minimum(b, 1, a) != b,
    lambda a, b: a + 2 * b - 3 == b,
    lambda a, b: a // (b + 1) == 1,
    lambda a, b: a % (b + 1) == 1,
    lambda a, b: a // maximum(b, 1) >= 2,
    lambda a, b: where(a < b, a, 2) == 2,
    lambda a, b: ~((a < 2) & (b < 2)),
    lambda a, b: (a < 2) | (b < 2),
]


@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
def test_an_operation_of_two_symbols_means_the_same_to_numpy_and_to_z3(operation):
    """Equal, neighbouring and far sides."""
    condition = OPERATIONS[operation](symbol("a"), symbol("b"))
    for a, b in itertools.product(range(4), repeat=2):
        values = {"a": np.array([a]), "b": np.array([b])}
        (expected,) = Condition(condition.sympy).exact_mask(values)
        if operation < len(RELATIONS):
            assert expected == OPERATIONS[operation](a, b)
        terms = Z3Terms(z3.Context(), {"a": a, "b": b})
        assert z3.is_true(z3.simplify(terms.term(condition))) == expected
        free = Z3Terms(z3.Context())
        solver = z3.Solver(ctx=free.context)
        solver.add(free.term(condition), *free.assumptions(), free.symbol("a") == a, free.symbol("b") == b)
        assert (solver.check() == z3.sat) == expected


@pytest.mark.parametrize("divisor", [1, 2, 3])
def test_a_divisor_that_is_known_may_be_any_positive_number(divisor):
    for a in range(7):
        terms = Z3Terms(z3.Context(), {"a": a, "b": divisor})
        assert z3.is_true(z3.simplify(terms.term(symbol("a") // symbol("b") == a // divisor)))
        assert z3.is_true(z3.simplify(terms.term(symbol("a") % symbol("b") == a % divisor)))
        assert terms.assumptions() == []


@pytest.mark.parametrize("values", [(), (0,), (2, 5), (1, 2, 3)])
def test_a_symbol_that_is_one_of_some_values_is_no_other(values):
    for number in range(7):
        terms = Z3Terms(z3.Context(), {"a": number})
        assert z3.is_true(z3.simplify(terms.one_of("a", values))) == (number in values)
        terms = Z3Terms(z3.Context())
        solver = z3.Solver(ctx=terms.context)
        solver.add(terms.one_of("a", values), terms.symbol("a") == number)
        assert (solver.check() == z3.sat) == (number in values)


def test_nested_cases_of_any_depth_evaluate():
    a = symbol("a")
    steps = where(a < 2, 10, where(a < 4, 20, where(a < 6, 30, 40)))
    condition = Condition((steps >= maximum(20, a)).sympy)
    assert [condition.holds({"a": v}) for v in range(8)] == [False, False] + [True] * 6
    assert condition.mask({"a": np.arange(8)}).tolist() == [False, False] + [True] * 6


def test_a_condition_is_compiled_once_for_equal_expressions():
    first = conjuncts((symbol("a") + symbol("b") <= 3) & (symbol("c") > expr(1)))
    again = conjuncts((symbol("b") + symbol("a") <= 3) & (symbol("c") > expr(1)))
    assert len(first) == 2
    assert all(x is y for x, y in zip(first, again, strict=True))
