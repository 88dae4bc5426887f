"""What an expression prints is what a machine's author writes: it is read back, and means the same to Python."""

import ast
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_expressions import Tree, build, conditions, integers, meaning

from tinygpu.expressions import (
    Expr,
    Table,
    all_of,
    any_of,
    beside,
    ceil_div,
    expr,
    implies,
    joined,
    maximum,
    minimum,
    symbol,
    tabulated,
    where,
)
from tinygpu.expressions.formula import read

ROOT = Path(__file__).parents[3]
NAMES = ("bm", "x.ld", "device.cc")
WORDS = ("FloorDiv", "Remainder", "Mod", "Max", "Min", "Piecewise", "Eq", "Ne", "floor", "&", "|", "~")


def taken_together(node: Any) -> Any:
    """A sympy node made once more from its parts."""
    return node.func(*map(taken_together, node.args)) if node.args else node


A_IS_0 = ("==", ("symbol", "bm"), ("number", 0))
TWICE = ("!=", ("symbol", "bm"), ("+", ("symbol", "bm"), ("symbol", "bm")))


@settings(max_examples=300)
@given(integers(NAMES) | conditions(NAMES))
@example(("or", ("or", A_IS_0, TWICE), ("not", A_IS_0)))
def test_what_is_printed_is_read_as_the_same_expression(tree: Tree) -> None:
    original = build(tree)
    again = read(str(original))
    if original.same(Expr(taken_together(original.sympy))):
        assert again.same(original), str(original)
        assert str(again) == str(original)
    else:  # sympy itself simplifies it once its parts stand side by side
        assert again.same(Expr(taken_together(original.sympy))), str(original)


@settings(max_examples=200)
@given(integers(NAMES) | conditions(NAMES))
def test_what_is_printed_means_in_python_what_the_expression_means(tree: Tree) -> None:
    text = str(build(tree)).replace(".", "_")
    assert not any(word in text for word in WORDS), text
    code = compile(text, "printed", "eval")
    for values in product((0, 1, 5), repeat=len(NAMES)):
        named = dict(zip(NAMES, values, strict=True))
        plain = {k.replace(".", "_"): v for k, v in named.items()}
        assert eval(code, {"max": max, "min": min}, plain) == meaning(tree, named)


OPERATORS = {
    "+": (lambda a, b: a + b), "-": (lambda a, b: a - b), "*": (lambda a, b: a * b), "//": (lambda a, b: a // b),
    "%": (lambda a, b: a % b), "ceil": ceil_div,
}  # fmt: skip


@settings(max_examples=150)
@given(st.data())
def test_divisions_by_anything_are_read_as_the_same_expression(data: st.DataObject) -> None:
    """Quotients, remainders and products in each other, whose divisors are sums, products and quotients too."""
    found: list[Expr] = [symbol(name) for name in NAMES] + [expr(n) for n in (1, 2, 3)]
    for _ in range(data.draw(st.integers(1, 5))):
        a, b = (data.draw(st.sampled_from(found)) for _ in range(2))
        if b.same(0):
            continue
        found.append(OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))](a, b))
    made = found[-1]
    if made.same(Expr(taken_together(made.sympy))):
        assert read(str(made)).same(made), str(made)


@pytest.mark.end_to_end
def test_no_message_holds_a_node_as_sympy_prints_it() -> None:
    """Sympy has its own words for // % == min max: only `Expr` and `written` print what an author writes."""
    rooms = [ROOT / room for room in ("tinygpu", "ptx", "search", "machines")]
    found = []
    for path in (path for room in rooms for path in sorted(room.rglob("*.py"))):
        for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(part, ast.FormattedValue) and re.fullmatch(r"node|.*\.(sympy|node)", ast.unparse(part.value)):
                found.append(f"{path.relative_to(ROOT)}:{part.lineno}")
    assert found == []


BM, BN, BK, M, N, K, WARPS = (symbol(name) for name in ("bm", "bn", "bk", "m", "n", "k", "warps_m"))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (BM // WARPS, "bm // warps_m"),
        (ceil_div(M, BM), "(m + bm - 1) // bm"),
        (ceil_div(N, 32), "(n + 31) // 32"),
        (ceil_div(K + N, BK), "(k + n + bk - 1) // bk"),
        (ceil_div(ceil_div(K, BK), symbol("parts")), "((k + bk - 1) // bk + parts - 1) // parts"),
        (BM % 8, "bm % 8"),
        (minimum(symbol("a"), symbol("b")), "min(a, b)"),
        (maximum(WARPS // 4, 1), "max(warps_m // 4, 1)"),
        (M - 16 * N, "m - 16*n"),
        (1 - M, "1 - m"),
        (expr(0) - M * BM, "-bm*m"),
        (2 * (BM // 2), "2*(bm // 2)"),
        (2 * BM // BN, "2*bm // bn"),
        (BM // (2 * BN), "bm // (2*bn)"),
        (BM // BN // BK, "(bm // bn) // bk"),
        (BM // BN % BK, "bm // bn % bk"),
        (BM % BN // BK, "(bm % bn) // bk"),
        ((M + 1) // 2 % 3, "(m + 1) // 2 % 3"),
        ((M + 1) * BM * 2, "2*bm*(m + 1)"),
        (M * M, "m**2"),
        (expr(-3) + 0 * M, "-3"),
        (where(M < 3, BM + 1, 2) + 1, "(bm + 1 if m < 3 else 2) + 1"),
        (K % BK == 0, "k % bk == 0"),
        (all_of([M >= 64, any_of([N < 8, N % 2 == 0])]), "(n % 2 == 0 or n < 8) and m >= 64"),
        (implies(M > 8, symbol("x.ld") % 8 == 0), "m <= 8 or x.ld % 8 == 0"),
        (~(K % BK == 0), "k % bk != 0"),
        (all_of([]), "True"),
        (Expr(sympy.Rational(1, 2) * M.sympy), "m / 2"),
        (0 - M // BM, "-(m // bm)"),
        (K - 2 * (M // BM), "k - 2*(m // bm)"),
        (tabulated(Table("ones", int.bit_count), M + 1), "ones(m + 1)"),
        (Expr(sympy.Piecewise((M.sympy, (M > 1).sympy))), "m if m > 1"),
    ],
)
def test_an_expression_is_printed_as_it_is_written(made: Expr, text: str) -> None:
    assert str(made) == text
    assert repr(made) == f"Expr({text})"


@settings(max_examples=150)
@given(integers(NAMES), integers(NAMES))
def test_what_stands_beside_a_sign_keeps_together(first: Tree, second: Tree) -> None:
    """Extents, quotients and steps stand beside signs of the text around them: `n/(2*bn)`, `(bm // 2) x bn`."""
    a, b = build(first), build(second)
    assert read(joined((a, b), "*")).same(a * b)
    assert read(joined((a, b), " - ")).same(a - b)
    if not b.same(0):
        assert read(joined((a, b), " // ")).same(a // b)
    assert joined((a,), " x ") == str(a)
    assert beside(a) in (str(a), f"({a})")
