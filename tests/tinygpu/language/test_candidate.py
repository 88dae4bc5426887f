"""Candidates print, compare, save and load."""

import json
import re
from typing import Any

import pytest

from tinygpu.language.candidate import Candidate
from tinygpu.machines.matmul_ampere import MatmulAmpere

PROBLEM = MatmulAmpere.problem(m=64, n=96, k=32, dtypes={"a": "bf16"}, options={"with_bias": True}, lds={"a": 40})
CANDIDATE = Candidate.of("MatmulAmpere", PROBLEM, "a100", {"stages": 3, "bm": 64, "copy_a": "cp.async"})


def test_a_candidate_comes_back_from_text() -> None:
    loaded = Candidate.from_json(json.loads(json.dumps(CANDIDATE.to_json())))
    assert loaded == CANDIDATE
    assert hash(loaded) == hash(CANDIDATE)
    assert loaded.problem == PROBLEM


def test_the_order_of_a_point_does_not_matter() -> None:
    forth, back = (("a", 2), ("b", 1)), (("b", 1), ("a", 2))
    assert Candidate("M", PROBLEM, "a100", forth) == Candidate("M", PROBLEM, "a100", back)
    assert CANDIDATE.values == {"bm": 64, "copy_a": "cp.async", "stages": 3}


def test_a_candidate_prints_on_one_line() -> None:
    assert str(CANDIDATE) == (
        "MatmulAmpere m=64,n=96,k=32 a:bf16 b:bf16 bias:f32 c:bf16 "
        "with_bias=True activation=none scaling=none with_residual=False on a100: bm=64 copy_a=cp.async stages=3"
    )


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        ((("a", 1), ("a", 2)), "M: a point gives each parameter one value, and this one is (('a', 1), ('a', 2))"),
        ((("a", 1.5),), "M: a of a point is an integer or a label, not 1.5"),
        ((("a", True),), "M: a of a point is an integer or a label, not True"),
    ],
)
def test_other_points_are_refused(point: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Candidate("M", PROBLEM, "a100", point)


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^this version reads candidates of schema 1, not 2$"):
        Candidate.from_json({**CANDIDATE.to_json(), "schema": 2})
