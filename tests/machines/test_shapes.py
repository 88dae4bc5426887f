"""Machines of many dims are right on odd shapes: 1, primes, one more than a tile, padding larger than the filter."""

from __future__ import annotations

from typing import Any

import pytest
import shaped_machines as shaped

import tinygpu as tg
from tinygpu.language import Machine

TINY: dict[str, Any] = {"n": 1, "h": 1, "w": 1, "c": 8, "r": 1, "s": 1}
FILTER = {"n": 2, "h": 9, "w": 11, "c": 24, "r": 3, "s": 2}

# (machine, device, problem)
CASES: dict[str, tuple[type[Machine], str, dict[str, Any]]] = {
    "permutation": (shaped.Permute, "a100", {"a": 2, "b": 33, "c": 3, "d": 5, "e": 9}),
    "permutation with strides": (
        shaped.Permute, "rtx4090",
        {"a": 3, "b": 8, "c": 2, "d": 1, "e": 7, "strides": {"x": {0: 8, 1: 24, 2: 192, 3: 400}}},
    ),
    "depthwise": (
        shaped.Depthwise, "a100", {**FILTER, "options": {"pad": 4, "stride": 2, "dilation": 3}},
    ),
    "depthwise of one pixel": (shaped.Depthwise, "h100", {**TINY, "c": 1, "options": {"pad": 4}}),
    "batched": (
        shaped.BatchedAmpere, "a100", {"z": 3, "m": 65, "n": 72, "k": 40, "strides": {"a": {0: 4096, 1: 48}}},
    ),
    "batched by TMA": (
        shaped.BatchedHopper, "h100",
        {"z": 3, "m": 65, "n": 72, "k": 40, "majors": {"a": "m.z.k"}, "strides": {"b": {0: 8192}}},
    ),
    "convolution by TMA": (shaped.ConvHopper, "h100", {**FILTER, "k": 40, "options": {"pad": 5, "dilation": 2}}),
    "convolution by TMA of one pixel": (shaped.ConvHopper, "h100", {**TINY, "k": 8, "options": {"pad": 5}}),
}
QUICK = ("convolution by TMA of one pixel",)


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_a_kernel_is_right(case: str) -> None:
    machine, device, given = CASES[case]
    found = tg.verify(tg.emit(tg.space(machine, machine.problem(**given), device=device)))
    assert found.passed, str(found)
