"""Constraints in words and numbers: the full sentences."""

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_expressions import build, conditions, meaning

from tinygpu.constraints import Constraint, constraint_table, describe, find_violation, state
from tinygpu.expressions import Expr, ceil_div, expr, implies, maximum, minimum, symbol, where

STAGES, BM, BN, BK, M, CAP = (symbol(n) for n in ("stages", "bm", "bn", "bk", "m", "device.max_smem_per_block_optin"))
ORDER = ("stages", "bm", "bn", "bk")
VALUES = {"stages": 3, "bm": 128, "bn": 256, "bk": 64, "m": 4096, "device.max_smem_per_block_optin": 101376}
SMEM = Constraint(
    "smem capacity",
    STAGES * (BM * BK + BK * BN) * 2 <= CAP,
    "the stages must fit into shared memory",
    source="SMEM",
    judge="launch",
    why="CUDA C++ Programming Guide | compute capabilities",
)


def test_a_violation_reads_as_a_sentence_with_its_numbers():
    assert str(find_violation(SMEM, VALUES, ORDER)) == (
        "smem capacity (SMEM): the stages must fit into shared memory; 3 x (128 x 64 + 256 x 64) x 2 = 147,456 > "
        "101,376 (device.max_smem_per_block_optin)"
    )
    assert find_violation(SMEM, {**VALUES, "stages": 2}, ORDER) is None


def test_a_constraint_is_stated_with_the_numbers_that_are_known():
    assert state(SMEM, {"device.max_smem_per_block_optin": 101376}, ORDER) == (
        "smem capacity (SMEM): the stages must fit into shared memory; stages x (bm x bk + bn x bk) x 2 <= "
        "101,376 (device.max_smem_per_block_optin)"
    )
    whole = Constraint("whole tiles", M % BM == 0, "tiles divide m")
    assert state(whole, {"m": 1000}) == "whole tiles: tiles divide m; m mod bm = 0 with m = 1,000"


@pytest.mark.parametrize(
    ("condition", "formula", "numbers"),
    [
        (M % 96 == 0, "m mod 96 = 0", "4,096 mod 96 = 64 != 0"),
        (M % BM == 1, "m mod bm = 1", "4,096 mod 128 = 0 != 1"),
        (M % BM != 0, "m mod bm != 0", "4,096 mod 128 = 0"),
        (BM != 128, "bm != 128", "bm = 128"),
        (BM < STAGES, "bm < stages", "bm = 128 >= 3 (stages)"),
        (expr(5) >= BM, "5 >= bm", "5 < 128 (bm)"),
        (ceil_div(M, BM) < 3, "ceil(m / bm) < 3", "ceil(4,096 / 128) = 32 >= 3"),
        (ceil_div(BM * BK, STAGES * 8) < 3, "ceil(bm x bk / (stages x 8)) < 3", "ceil(128 x 64 / (3 x 8)) = 342 >= 3"),
        ((M + BM - 2) // BM < 3, "(m + bm - 2) // bm < 3", "(4,096 + 128 - 2) // 128 = 32 >= 3"),
        ((BM + BN - 1) // (BM + BN) > 3, "(bm + bn - 1) // (bm + bn) > 3", "(128 + 256 - 1) // (128 + 256) = 0 <= 3"),
        ((M + 95) // 96 * 96 < 3, "ceil(m / 96) x 96 < 3", "ceil(4,096 / 96) x 96 = 4,128 >= 3"),
        (M // 96 * 96 < 3, "(m // 96) x 96 < 3", "(4,096 // 96) x 96 = 4,032 >= 3"),
        (maximum(BM, BN) * 2 <= BK, "max(bm, bn) x 2 <= bk", "max(128, 256) x 2 = 512 > 64 (bk)"),
        (minimum(BM, BN) > M, "min(bm, bn) > m", "min(128, 256) = 128 <= 4,096 (m)"),
        (BM - BN >= 0, "bm - bn >= 0", "128 - 256 = -128 < 0"),
        (BM * BM <= M, "bm^2 <= m", "128^2 = 16,384 > 4,096 (m)"),
        (BM * 2 <= BK * 3, "bm x 2 <= bk x 3", "128 x 2 = 256 > 192 = 64 x 3"),
        (where(BM > 3, BN, BK) < 7, "(bn if bm > 3, else bk) < 7", "256 >= 7"),
        (where(BM > 300, BN, BK) < 7, "(bn if bm > 300, else bk) < 7", "64 >= 7"),
        (
            where(BM > 300, BN, where(BK < 9, BM, STAGES)) < 2,
            "(bn if bm > 300, else (bm if bk < 9, else stages)) < 2",
            "3 >= 2",
        ),
        (
            ((BN < 4) & (BK > 1)) | (BM < 4) | (M % 96 == 0),
            "bm < 4 or m mod 96 = 0 or (bn < 4 and bk > 1)",
            "none of these holds: bm = 128 >= 4, 4,096 mod 96 = 64 != 0, (bn = 256 >= 4)",
        ),
        (maximum(3 - BM, 0 - BN) > 4, "max(-bn, 3 - bm) > 4", "max(-256, 3 - 128) = -125 <= 4"),
        (BN * (BM + 1) < 3, "bn x (bm + 1) < 3", "256 x (128 + 1) = 33,024 >= 3"),
        (M // (BM % 96) == 2, "m // (bm mod 96) = 2", "4,096 // (128 mod 96) = 128 != 2"),
        (
            (M % 96 == 0) & (BM <= STAGES) & (BM > 3),
            "bm <= stages and bm > 3 and m mod 96 = 0",
            "bm = 128 > 3 (stages); 4,096 mod 96 = 64 != 0",
        ),
        (
            (BM < STAGES) | (BN < STAGES),
            "bm < stages or bn < stages",
            "none of these holds: bm = 128 >= 3 (stages), bn = 256 >= 3 (stages)",
        ),
        (implies(BM > 3, BN < 4), "bm <= 3 or bn < 4", "none of these holds: bm = 128 > 3, bn = 256 >= 4"),
        (
            (BM < 4) | ((BN < 4) & (BK > 1)),
            "bm < 4 or (bn < 4 and bk > 1)",
            "none of these holds: bm = 128 >= 4, (bn = 256 >= 4)",
        ),
        (~((BM > 3) & (BN > 4)), "not (bm > 3 and bn > 4)", "this holds: 128 > 3 and 256 > 4"),
        (expr(1) == 2, "never", "it never holds"),
    ],
)
def test_every_operator_is_rendered_as_a_formula_and_with_numbers(condition, formula, numbers):
    order = (*ORDER, "m")
    if formula.startswith("(m + bm"):
        order = ("m", *ORDER)
    assert describe(condition, order=order) == formula
    assert str(find_violation(Constraint("rule", condition, "it must hold"), VALUES, order)) == (
        f"rule: it must hold; {numbers}"
    )


THREE = Expr(sympy.Piecewise((BN.sympy, M.sympy > 3), (BK.sympy, BM.sympy > 3), (STAGES.sympy, True)))


@pytest.mark.parametrize(
    ("values", "number"), [({"m": 4}, "256 >= 2"), ({"m": 3}, "64 >= 2"), ({"m": 3, "bm": 3}, "3 >= 2")]
)
def test_of_cases_only_the_one_that_holds_is_shown_with_numbers(values, number):
    rule = Constraint("rule", THREE < 2, "it must hold")
    assert describe(rule.condition) == "(bn if m > 3, bk if bm > 3, else stages) < 2"
    assert str(find_violation(rule, VALUES | values, ORDER)) == f"rule: it must hold; {number}"


@pytest.mark.parametrize(
    ("values", "formula"),
    [
        ({"bm": 4}, "(bn if m > 3, else bk) < 2"),
        ({"bm": 3}, "(bn if m > 3, else stages) < 2"),
        ({"bm": 4, "bk": 64}, "(bn if m > 3, else 64) < 2"),
        ({"m": 3}, "(bk if bm > 3, else stages) < 2"),
        ({"m": 3, "bm": 4}, "bk < 2"),
        ({"m": 4, "bm": 4}, "bn < 2"),
    ],
)
def test_of_cases_that_numbers_decide_those_that_are_left_are_shown(values, formula):
    assert describe(THREE < 2, values) == formula


def test_what_is_no_part_of_the_language_cannot_be_explained():
    with pytest.raises(TypeError) as refused:
        describe(Expr(sympy.sin(BM.sympy) > 0))
    assert str(refused.value) == "sin(bm) cannot be explained: sin is not part of the expression language"


def test_a_divisor_of_zero_is_a_violation_that_says_so():
    rule = Constraint("rule", M % (BM - 128) == 0, "it must hold")
    assert str(find_violation(rule, VALUES)) == (
        "rule: it must hold; m mod (bm - 128) = 0 cannot be judged here: a divisor is 0; divisors are positive integers"
    )


@settings(max_examples=150)
@given(tree=conditions(("a", "b", "c")), values=st.tuples(*[st.integers(0, 9)] * 3))
def test_exactly_the_false_conditions_have_a_violation_and_all_can_be_described(tree, values):
    point = dict(zip("abc", values, strict=True))
    condition = build(tree)
    violation = find_violation(Constraint("rule", condition, "it must hold"), point)
    assert (violation is None) == bool(meaning(tree, point))
    assert describe(condition)
    if violation is not None:
        assert str(violation).startswith("rule: it must hold; ")


def test_the_table_has_one_row_per_constraint():
    assert constraint_table([SMEM], ORDER) == (
        "| constraint | what must hold | condition | kind | brought by | judge | why |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| smem capacity | the stages must fit into shared memory | "
        "`stages x (bm x bk + bn x bk) x 2 <= device.max_smem_per_block_optin` | legality | SMEM | launch | "
        "CUDA C++ Programming Guide \\| compute capabilities |"
    )
