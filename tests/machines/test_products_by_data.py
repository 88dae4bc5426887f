"""Sums in tensor memory to which no product was added have no value: in programs, in kernels, and in what is told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from products_by_data import Chosen, Stored

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.located import follow, with_probes
from tinygpu.ptx.verification.lockstep import Lockstep
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.verify import verify
from tinygpu.ptx.verification.voices import who_is_wrong
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WAYS = [(0, 1), (0, 2), (1, 1), (1, 2)]  # (launch control, tiles whose sums are in tensor memory)


def made(machine: type[Machine], launch_control: int, tiles: int) -> tuple[Any, ...]:
    problem = machine.problem(m=384, n=64, k=48)
    point = {"launch_control": launch_control, "tiles": tiles}
    program = build_space(machine, problem, device("b200")).program(point)
    return program, problem, build(program, problem, point, SolverCache())


def beside(machine: type[Machine], launch_control: int, tiles: int, ctas: int) -> Lockstep:
    """The program beside its probed kernel, where tiles without rounds follow others."""
    program, problem, built = made(machine, launch_control, tiles)
    trial = draw(machine, problem, "random", 3)
    assert 0 in np.asarray(trial.arrays["depths"]) // 16
    probed = with_probes(program, built.layouts.swizzles, built.kernel, trial, ctas)
    return follow(probed, machine, trial)


@pytest.mark.parametrize(("launch_control", "tiles"), WAYS)
@pytest.mark.end_to_end
def test_zeros_that_are_stored_in_their_place_are_right(launch_control: int, tiles: int) -> None:
    _, problem, built = made(Chosen, launch_control, tiles)
    found = verify(built.kernel, Chosen, problem)
    assert found.passed, str(found)


@pytest.mark.parametrize(("launch_control", "tiles"), WAYS)
@pytest.mark.parametrize("machine", [Chosen, Stored])
@pytest.mark.sampled(3)
def test_what_the_columns_held_before_is_no_parting(machine: type[Machine], launch_control: int, tiles: int) -> None:
    """One CTA has all tiles, or takes some over: its columns hold sums of earlier ones, unknown to the program."""
    steps = beside(machine, launch_control, tiles, 1)
    assert ([str(parting) for parting in steps.partings], steps.fault) == ([], "")
    assert {"single", "ld", "st"} <= {getattr(s, "name", "") for s in steps.judged.values()}


def test_where_sums_have_a_value_a_parting_is_found_beside_tiles_that_have_none(monkeypatch: Any) -> None:
    from tinygpu.ptx import isa

    meaning = isa.Tcgen05Ld.meaning
    monkeypatch.setattr(isa.Tcgen05Ld, "meaning", lambda self, values: meaning(self, values) + 1)
    steps = beside(Chosen, 1, 2, 1)
    assert steps.partings
    assert {getattr(parting.statement, "name", "") for parting in steps.partings} == {"ld"}


@pytest.mark.parametrize(("launch_control", "tiles"), [(0, 1), (1, 2)])
@pytest.mark.end_to_end
def test_stored_as_they_are_they_are_refused_and_the_load_is_told(launch_control: int, tiles: int) -> None:
    program, problem, built = made(Stored, launch_control, tiles)
    assert not verify(built.kernel, Stored, problem).passed
    wrong, load = who_is_wrong(program, built.layouts.swizzles, built.kernel, Stored, problem).splitlines()
    assert re.fullmatch(
        r"the program itself is wrong, run as it is written on m=\d+,.*: c\[\d+, \d+\] is nan, wanted .*",
        wrong,
    ), wrong
    assert re.fullmatch(
        r"sums\.c is loaded \(\S*products_by_data\.py:\d+\), tile \(\d+, \d+\), where no product was added to it "
        r"behind p\.clear: the first product overwrites what is in the columns, and without one they stay as they "
        r"were; where a loop may have no rounds, store what it added up in `with p\.when\(\.\.\.\)` "
        r"that there are some",
        load,
    ), load
    right, problem, built = made(Chosen, launch_control, tiles)
    assert who_is_wrong(right, built.layouts.swizzles, built.kernel, Chosen, problem) == ""
