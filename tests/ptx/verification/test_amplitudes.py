"""How large whole numbers of inputs are: as large as fits, found in few tries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx
from tinygpu.ptx.verification import trial
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.values import SMALL


@given(st.sets(st.integers(1, 10**6), min_size=1, max_size=12), st.integers(0, 10**6))
def test_the_largest_that_fits_is_found_in_few_tries(numbers: set[int], most: int) -> None:
    amplitudes, tries = sorted(numbers, reverse=True), list[int]()

    def tried(amplitude: int) -> tuple[int, bool]:
        tries.append(amplitude)
        return amplitude, amplitude <= most

    found = trial.largest(amplitudes, tried)
    assert found == next((a for a in amplitudes if a <= most), amplitudes[-1])
    assert len(tries) == len(set(tries)) <= 2 + math.ceil(math.log2(len(amplitudes)))
    if amplitudes[0] <= most:
        assert tries == amplitudes[:1]
    if amplitudes[-1] > most:
        assert len(tries) <= 2


@pytest.mark.parametrize(
    ("machine", "problem", "inputs"),
    [
        (MatmulAmpere, MatmulAmpere.problem(m=16, n=16, k=16), "integers"),
        (MatmulAmpere, MatmulAmpere.problem(m=16, n=16, k=32768), "integers"),
        (MatmulBlackwellMx, MatmulBlackwellMx.problem(m=16, n=16, k=128), "integers"),
    ],
)
def test_draws_are_those_of_trying_one_after_another(
    machine: type[Machine], problem: Problem, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trial.draw(machine, problem, inputs, 5)
    monkeypatch.setattr(trial, "largest", lambda amplitudes, tried: tried(amplitudes[0])[0])
    alone = [trial.draw(machine, problem, inputs, 5, at_most=a) for a in (64, 32, 16, 8, SMALL)]
    rounding = trial.rounding_of(machine, problem)
    fits = [all(trial._holds(problem, n, a, rounding) for n, a in t.answers.items()) for t in alone]
    wanted = alone[fits.index(True) if any(fits) else -1]
    assert found.amplitude == wanted.amplitude
    assert all((found.arrays[name] == wanted.arrays[name]).all() for name in wanted.arrays)
