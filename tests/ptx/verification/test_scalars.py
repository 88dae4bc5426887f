"""Scalars of which nothing is said differ from one another in whole-number runs, too: one in another's place shows."""

from __future__ import annotations

from typing import Any

import pytest

from tinygpu.language import Dim, Input, Machine, Output, Scalar
from tinygpu.ptx import isa
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.trial import draw


class Weighed(Machine):
    """y = a x + b z + c + d"""

    n = Dim()
    a, b, c, d = Scalar("f32"), Scalar("f32"), Scalar("s32"), Scalar("u32")
    x, z, y = Input("f32", n), Input("f32", n), Output("f32", n)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    @staticmethod
    def reference(a: Any, b: Any, c: Any, d: Any, x: Any, z: Any) -> Any:
        return a * x + b * z + c + d


@pytest.mark.parametrize("inputs", ["integers", "signs", "other signs"])
def test_no_two_scalars_are_the_same(inputs: Inputs) -> None:
    scalars = draw(Weighed, Weighed.problem(n=7), inputs, 0).scalars
    assert sorted(scalars) == ["a", "b", "c", "d"]
    assert len({float(v) for v in scalars.values()}) == 4
    assert all(v != 0 for v in scalars.values())
