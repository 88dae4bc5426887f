"""Whole numbers with lines of one sign: what they are, and what they show of products that random ones do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.language import Dim, Input, Machine, Output, integers, uniform
from tinygpu.ptx.verification.inputs import Inputs, drawn


class Products(Machine):
    """y = a @ b + c"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k), Input("f16", k, n, values=integers(-8, 8))
    c, y = Input("f32", n), Output("f32", m, n)
    beside = Input("u8", n)
    small = Input("f32", n, values=uniform(0, 1))


class OfOne(Machine):
    """y = x"""

    m, n = Dim(), Dim()
    x, y = Input("s32", m, n), Output("s32", m, n)


def arrays(machine: type[Machine], inputs: Inputs, amplitude: int = 3, **dims: int) -> dict[str, np.ndarray]:
    problem = machine.problem(**dims)
    found, _ = drawn(machine, problem, inputs, 0, {o.name: o.shape for o in problem.operands}, amplitude)
    return {name: array.astype(np.float64) for name, array in found.items()}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.sampled_from((3, 64)))
def test_lines_of_one_tensor_have_both_signs_and_all_others_are_above(m: int, n: int, k: int, amplitude: int) -> None:
    for inputs, turned, lines in (("signs", "a", m), ("other signs", "b", k)):
        found = arrays(Products, inputs, amplitude, m=m, n=n, k=k)
        sign = np.where(np.arange(lines) % 2 == 0, -1, 1)[:, None]
        assert (np.sign(found[turned]) == sign).all()
        for name in {"a", "b", "c"} - {turned}:
            assert (found[name] > 0).all()
        for name, most in {"a": amplitude, "b": 8, "c": amplitude}.items():
            assert (np.abs(found[name]) <= most).all()
            assert (found[name] == np.rint(found[name])).all()
        assert (found["b"] <= 7).all()  # what is declared stays so
        plain = arrays(Products, "integers", amplitude, m=m, n=n, k=k)
        assert all((found[name] == plain[name]).all() for name in ("beside", "small"))  # no number of theirs is below 0


@pytest.mark.parametrize(("inputs", "first"), [("signs", -1), ("other signs", 1)])
def test_of_one_tensor_either_sign_comes_first(inputs: Inputs, first: int) -> None:
    x = arrays(OfOne, inputs, m=5, n=7)["x"]
    assert (np.sign(x[::2]) == first).all()
    assert (np.sign(x[1::2]) == -first).all()
