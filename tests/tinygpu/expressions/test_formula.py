"""Expressions as text: reading gives back what was written, and everything else is refused with a sentence."""

import re
from itertools import product
from typing import Any

import pytest
import sympy
from hypothesis import example, given, settings
from random_expressions import Tree, build, conditions, integers, meaning

from tinygpu.expressions import Expr, evaluate, expr, maximum, minimum, symbol, where
from tinygpu.expressions.formula import FormulaError, read, write

NAMES = ("a", "b.ld", "device.cc")


A_IS_0 = ("==", ("symbol", "a"), ("number", 0))
TWICE = ("!=", ("symbol", "a"), ("+", ("symbol", "a"), ("symbol", "a")))


@settings(max_examples=250)
@given(integers(NAMES) | conditions(NAMES))
@example(("or", ("or", A_IS_0, TWICE), ("not", A_IS_0)))
def test_reading_what_was_written_gives_the_same_expression(tree: Tree) -> None:
    original = build(tree)
    text = write(original)
    again = read(text)
    if original.same(Expr(taken_together(original.sympy))):
        assert again.same(original), text
        assert write(again) == text
        assert str(again) == str(original)
    else:  # sympy itself simplifies it once its parts stand side by side
        assert again.same(Expr(taken_together(original.sympy))), text


def taken_together(node: Any) -> Any:
    """A sympy node made once more from its parts."""
    return node.func(*map(taken_together, node.args)) if node.args else node


@settings(max_examples=150)
@given(integers(NAMES) | conditions(NAMES))
def test_the_text_means_what_the_expression_means(tree: Tree) -> None:
    """Python's own evaluation of the text agrees, with dots in names replaced."""
    text = write(build(tree)).replace(".", "_")
    code = compile(text, "formula", "eval")
    for values in product((0, 1, 5), repeat=len(NAMES)):
        named = dict(zip(NAMES, values, strict=True))
        plain = {k.replace(".", "_"): v for k, v in named.items()}
        assert eval(code, {"max": max, "min": min}, plain) == meaning(tree, named)


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (symbol("a.ld") * 2 // 16 % 3, "2 * a.ld // 16 % 3"),
        (where(symbol("s") == 1, 2, symbol("s")), "2 if s == 1 else s"),
        (maximum(symbol("a"), 3) - minimum(symbol("b"), symbol("c")), "-1 * min(b, c) + max(3, a)"),
        ((symbol("a") < 3) & ~(symbol("b") == 1), "b != 1 and a < 3"),
        (symbol("a") * symbol("a"), "a ** 2"),
    ],
)
def test_the_text_is_short(formula: Expr, text: str) -> None:
    twos = dict.fromkeys(formula.symbols, 2)
    assert evaluate(formula, twos) == evaluate(read(text), twos)
    assert sorted(write(formula)) == sorted(text)  # the order of terms is sympy's own


def test_a_product_with_a_sum_is_read_as_a_whole() -> None:
    """2 * (y + 1) alone is multiplied out, and 2 * x * (y + 1) is not."""
    x, y = symbol("x"), symbol("y")
    for e in (expr(2) * x * (y + 1), (y + 1) * 2, x * (y + 1)):
        assert read(write(e)).same(e)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a +", "'a +' is not an expression in Python's syntax"),
        ("sin(a)", "'sin(a)' is not an expression of the language: 'sin(a)' is not part of it"),
        ("max()", "'max()' is not an expression of the language: 'max()' is not part of it"),
        ("a < b < c", "'a < b < c' is not an expression of the language: 'a < b < c' is not part of it"),
        ("a / 0", "'a / 0' is not an expression of the language: 'a / 0' is not part of it"),
        ("a / True", "'a / True' is not an expression of the language: 'a / True' is not part of it"),
        ("a ** True", "'a ** True' is not an expression of the language: an exponent is a number from 0 to 16"),
        ("a ** 17", "'a ** 17' is not an expression of the language: an exponent is a number from 0 to 16"),
        ("a if 1 else b", "'a if 1 else b' is not an expression of the language: a number stands for a condition"),
        ("max(a, b=1)", "'max(a, b=1)' is not an expression of the language: 'max(a, b=1)' is not part of it"),
        ("0 and a < 1", "'0 and a < 1' is not an expression of the language: a number stands for a condition"),
        ("a / b", "'a / b' is not an expression of the language: 'a / b' is not part of it"),
        ("1.5 * a", "'1.5 * a' is not an expression of the language: '1.5' is not part of it"),
        ("f(x).y", "'f(x).y' is not an expression of the language: 'f(x)' is not a name"),
        ("[a][0]", "'[a][0]' is not an expression of the language: '[a][0]' is not part of it"),
        ("10**10**10", "'10**10**10' is not an expression of the language: an exponent is a number from 0 to 16"),
        ("a ** b", "'a ** b' is not an expression of the language: an exponent is a number from 0 to 16"),
        ("((9**16)**16)**16", "'((9**16)**16)**16' has a number of more than 512 bits"),
        ("7 // 0", "'7 // 0' divides by zero"),
        ("min(4 % (7/2), a)", "'min(4 % (7/2), a)' has no value among the integers"),
        ("a // 0", "'a // 0' divides by zero"),
        ("a % 0", "'a % 0' divides by zero"),
        ("3 % (b // (a - a))", "'3 % (b // (a - a))' divides by zero"),
        ("-True", "'-True' is not an expression of the language: a condition stands for a number"),
        ("not 3", "'not 3' is not an expression of the language: a number stands for a condition"),
        ("a\0", r"'a\x00' is not an expression in Python's syntax"),
        ("x" * 4001, "an expression has at most 4,000 characters, not 4,001"),
        ("-" * 600 + "1", f"'{'-' * 77}...' has more than 500 parts"),
        (f"{'-' * 250}a", f"'{'-' * 77}...' has more than 500 parts"),
        (f"{2**512} + a", f"'{str(2**512)[:77]}...' has a number of more than 512 bits"),
        (f"a / {2**512}", f"'a / {str(2**512)[:73]}...' has a number of more than 512 bits"),
        (
            "+".join(["min(a, b)"] * 41),
            f"'{'+'.join(['min(a, b)'] * 8)[:77]}...' has more than 40 of max and min, or one with more than 16 "
            "operands",
        ),
        (
            f"max({', '.join('abcdefghijklmnopq')})",
            "'max(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)' has more than 40 of max and min, or one with "
            "more than 16 operands",
        ),
        ("(" * 3000 + "1" + ")" * 900, f"'{'(' * 77}...' is not an expression in Python's syntax"),
        ("open(a)", "'open(a)' is not an expression of the language: 'open(a)' is not part of it"),
    ],
)
def test_other_text_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(FormulaError, match=f"^{re.escape(sentence)}$"):
        read(text)


def test_limits_are_reached_and_not_passed() -> None:
    a = symbol("a").sympy
    assert read("a**0").same(1)
    assert read("a**16").same(Expr(a**16))
    assert read("a/3 + 1").same(Expr(a / 3 + 1))
    assert read("a/1").same(symbol("a"))
    assert read(str(2**512 - 1)).same(2**512 - 1)
    assert read("-" * 249 + "a").same(0 - symbol("a"))
    assert read("+".join(["min(a, b)"] * 40)).same(minimum(symbol("a"), symbol("b")) * 40)
    sixteen = "abcdefghijklmnop"
    assert read(f"max({', '.join(sixteen)})").same(maximum(*map(symbol, sixteen)))
    assert read("a" * 4000).same(symbol("a" * 4000))
    for length in (80, 81):
        text = "a+" * 39 + "?" * (length - 78)
        with pytest.raises(FormulaError) as refused:
            read(text)
        shown = repr(text) if length == 80 else repr(text[:77] + "...")
        assert str(refused.value) == f"{shown} is not an expression in Python's syntax"


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (sympy.sin(sympy.Symbol("a")), "sin(a) cannot be written: sin is not part of the expression language"),
        (
            sympy.Piecewise((1, sympy.Symbol("a") > 0)),
            "1 if a > 0 has a case that is not covered",
        ),
    ],
)
def test_what_the_language_has_no_word_for_is_not_written(node: Any, sentence: str) -> None:
    with pytest.raises(FormulaError) as refused:
        write(Expr(node))
    assert str(refused.value) == sentence
