"""Inputs that are positive definite: draws have the condition number that is stated, in every type that holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from negation import Later, refused, thing
from numpy.typing import NDArray

import tinygpu as tg
from tinygpu.distributions import Distribution
from tinygpu.dtypes import dtype
from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Plan,
    Scalar,
    Step,
    blocked,
    positive_definite,
    sqrt,
)
from tinygpu.ptx import isa
from tinygpu.ptx.measuring.subject import draw as draw_on_gpu
from tinygpu.ptx.verification.values import declared_values

# What a type holds, and what rounding does to the condition number of such a matrix.
MOST = {"f64": 2.0**40, "f32": 2.0**22, "tf32": 512.0, "f16": 512.0, "bf16": 64.0, "e4m3": 4.0, "e5m2": 2.0}
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 64, 127)


def drawn(condition: float, kind: str, shape: tuple[int, ...], seed: int, whole: bool = False) -> NDArray[Any]:
    made = positive_definite(condition).at({})
    found = declared_values(np.random.default_rng(seed), made, dtype(kind), shape, whole)
    assert found.dtype == dtype(kind).numpy
    assert found.shape == shape
    return found.astype(np.float64)


@pytest.mark.parametrize("kind", MOST)
@pytest.mark.parametrize("small", [False, True])
def test_what_is_drawn_has_the_stated_condition_number_after_rounding(kind: str, small: bool) -> None:
    condition = MOST[kind] ** 0.5 if small else MOST[kind]
    assert positive_definite(condition).misfit(dtype(kind)) == ""
    for size in SIZES:
        for seed in range(1 + 40 // size):
            matrix = drawn(condition, kind, (size, size), seed)
            assert np.array_equal(matrix, matrix.T)
            values = np.linalg.eigvalsh(matrix)
            assert values[0] > 0
            if size > 1:
                assert 0.8 * condition < values[-1] / values[0] < 1.25 * condition, (size, seed)
                assert 0.8 < values[-1] / condition**0.5 < 1.25, (size, seed)


def test_matrices_are_dense_and_differ() -> None:
    matrix = drawn(16, "f32", (200, 200), 1)
    assert np.mean(np.abs(matrix) > 1e-3) > 0.9
    assert not np.array_equal(matrix, drawn(16, "f32", (200, 200), 2))
    assert np.array_equal(matrix, drawn(16, "f32", (200, 200), 1))
    apart = np.abs(np.diff(np.sort(matrix[np.triu_indices(200)])))
    assert np.mean(apart == 0) < 0.01  # no element stands again elsewhere: a wrong place shows
    two = drawn(16, "f32", (2, 2), 1)
    assert two[0, 1] != 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("condition", "coupled"), [(16.0, True), (6.8, False), (1.0, False)])
def test_whole_matrices_have_whole_factors(size: int, condition: float, coupled: bool) -> None:
    for kind in ("f32", "bf16", "f16"):
        matrix = drawn(condition, kind, (size, size), 3, whole=True)
        factor = np.linalg.cholesky(matrix)
        assert np.array_equal(factor, np.rint(factor))
        assert np.array_equal(factor @ factor.T, matrix)
        assert np.linalg.cond(matrix) <= condition
        assert (np.count_nonzero(matrix) > size) == (coupled and size > 1)


def test_batches_have_a_matrix_each_and_windows_the_first_rows_and_columns() -> None:
    for of_whole in (False, True):
        many = drawn(64, "f32", (2, 3, 6, 6), 5, of_whole).reshape(-1, 6, 6)
        assert all(np.linalg.eigvalsh(one)[0] > 0 for one in many)
        assert len({one.tobytes() for one in many}) == 6
        wide, tall, whole = (drawn(64, "f32", shape, 5, of_whole) for shape in ((3, 6), (6, 3), (6, 6)))
        assert np.array_equal(wide, whole[:3])
        assert np.array_equal(tall, whole[:, :3])


def test_there_is_no_matrix_of_one_axis_nor_a_mean_of_one_number() -> None:
    made = positive_definite(64).at({})
    with pytest.raises(ValueError, match=r"^positive definite matrices have two axes at least, not 1$"):
        made.draw(np.random.default_rng(0), (5,))
    told = "the numbers of a matrix depend on their places: one alone has no mean of its own"
    with pytest.raises(ValueError, match=f"^{told}$"):
        made.expectation()
    with pytest.raises(ValueError, match=r"^matrices with numbers from -2 to 2 have no condition number of 64$"):
        Distribution("definite", -2, 2, condition=64)


class Cholesky(Machine):
    """x = y y^T for many 2 x 2 matrices"""

    b = Dim()
    x = Input(("f32", "bf16", "f16"), b, 2, 2, values=positive_definite(64))
    y = Output("f32", b, 2, 2)
    warps = Param(1, 2)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")
    compute, exact = "f32", False

    def program(self, p: Any) -> None:
        shape = (32 * self.warps, 1, 1)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.b, shape[0])) as (i,), p.role("all", warps=self.warps):
            a, b, c = (
                p.cast(p.load(self.ld, self.x.tile(i, *at, shape=shape), who, fill=fill), "f32")
                for at, fill in (((0, 0), 1.0), ((1, 0), 0.0), ((1, 1), 1.0))
            )
            top = sqrt(a)
            low = b / top
            corner = sqrt(self.rest(c, low))
            for at, part in (((0, 0), top), ((0, 1), p.full(who, "f32")), ((1, 0), low), ((1, 1), corner)):
                p.store(self.st, self.y.tile(i, *at, shape=shape), part)

    def rest(self, corner: Any, low: Any) -> Any:
        return corner - low * low

    @staticmethod
    def reference(x: Any) -> Any:
        x = x.astype(np.float32)
        y = np.zeros_like(x)
        y[:, 0, 0] = np.sqrt(x[:, 0, 0])
        y[:, 1, 0] = x[:, 1, 0] / y[:, 0, 0]
        y[:, 1, 1] = np.sqrt(x[:, 1, 1] - y[:, 1, 0] * y[:, 1, 0])
        return y


class Forgotten(Cholesky):
    """the same, and the second root is taken of what is there before the first row is gone"""

    def rest(self, corner: Any, low: Any) -> Any:
        return corner


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("count", [1, 65])
@pytest.mark.end_to_end
def test_a_factorisation_is_verified_on_such_matrices(kind: str, count: int) -> None:
    space = tg.space(Cholesky, {"b": count}, dtypes={"x": kind, "y": "f32"}, device="a100")
    assert tg.verify(tg.emit(space, warps=1)).passed
    wrong = tg.space(Forgotten, {"b": count}, dtypes={"x": kind, "y": "f32"}, device="a100")
    assert not tg.verify(tg.emit(wrong, warps=1)).passed


def test_a_bundles_question_draws_them_too() -> None:
    from tinygpu.api.bundle import question

    class Recorded(Cholesky):
        """the same, with an answer that a bundle can carry: nothing is stored into arrays"""

        @staticmethod
        def reference(x: Any) -> Any:
            return x * 1.0

    asked = question(Recorded, Recorded.problem(b=9))
    bits, _ = draw_on_gpu(asked, "random", 1)
    matrices = bits["x"].view(np.float32).reshape(9, 2, 2)
    assert np.allclose([np.linalg.cond(one) for one in matrices], 64, rtol=1e-3)


# --- mistakes -----------------------------------------------------------------------------------------------------

SPD = "positive_definite(condition=16.0)"
SENTENCES: list[tuple[Callable[[Dim], Any], str]] = [
    (
        lambda n: Input("f32", n, values=positive_definite()),
        f"{SPD} is a matrix of the last two dims, and there is one, n",
    ),
    (
        lambda n: Input("f32", n, 4, values=positive_definite()),
        f"{SPD} is a matrix of n x n elements, and the last two dims are n and 4",
    ),
    (
        lambda n: Input(("f32", "bf16"), n, n, values=positive_definite(100)),
        "bf16 holds matrices up to a condition number of 64, and positive_definite(condition=100) has 100",
    ),
    (
        lambda n: Input("s8", n, n, values=positive_definite()),
        f"s8 is no type of real numbers, and {SPD} has such",
    ),
    (
        lambda n: Input("f32", n, n, values=positive_definite(0.5)),
        "positive_definite(condition=0.5): a condition number is a number from 1 to 2^40",
    ),
    (
        lambda n: Input("f32", n, n, values=positive_definite(float("inf"))),
        "positive_definite(condition=inf): a condition number is a number from 1 to 2^40",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), SENTENCES, ids=[s[:40] for _, s in SENTENCES])
def test_a_mistake_is_told_with_the_class(make: Callable[[Dim], Any], sentence: str) -> None:
    refused(lambda: thing(x=Later(make)), f"Thing.x: {sentence}")


def test_a_scalar_is_no_matrix() -> None:
    refused(
        lambda: thing(a=Scalar("f32", values=positive_definite()), reference=staticmethod(lambda x, a: -x)),
        f"Thing.a: {SPD} is a matrix, and a scalar is one number",
    )


def test_a_plan_says_it_of_its_own_tensors() -> None:
    def declared() -> type[Plan]:
        class Both(Plan):
            """y = x"""

            b = Dim()
            x, y = Input("f32", b, 2, 3, values=positive_definite()), Output("f32", b, 2, 2)
            first = Step(Cholesky, x=x, y=y)

            @staticmethod
            def reference(x: Any) -> Any:
                return x

        return Both

    refused(declared, f"Both.x: {SPD} is a matrix of n x n elements, and the last two dims are 2 and 3")
