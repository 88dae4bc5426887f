"""An instruction whose meaning and text differ is found, and the statement that uses it is named, with the element."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_instructions import MEANINGS, TEXTS, Faulty

from tinygpu.devices import device
from tinygpu.ptx.lowering.build import Built, build
from tinygpu.ptx.verification.voices import who_is_wrong
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing import run_check
from tinygpu.testing.case import Case
from tinygpu.testing.statements import mean_what_they_do, recorded_words, wrong_statements
from tinygpu.testing.workbench import Workbench

FAULTY = MEANINGS | TEXTS


def smallest(faulty: Faulty) -> tuple[MachineSpace, Case]:
    """A candidate of the machine that writes little."""
    machine, on = faulty.machine(), device(faulty.device)
    space = build_space(machine, machine.problem(**faulty.asked), on)
    points = space.space.restrict(faulty.values).sample(8, np.random.default_rng(0))
    point = min(points, key=lambda p: recorded_words(space.program(p)))
    return space, Case(machine, space.problem, on, point)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("what", FAULTY)
@pytest.mark.end_to_end
def test_the_instruction_is_named_and_no_other(what: str) -> None:
    _, case = smallest(FAULTY[what])
    wrong, tried = wrong_statements(case, Workbench())
    assert {name for name, _ in wrong} == {FAULTY[what].says}, wrong
    assert len(tried) > len(wrong)
    (sentence,) = set(wrong.values())
    assert sentence.startswith(f"{FAULTY[what].says} (")
    assert " in the program, " in sentence
    assert mean_what_they_do(case, Workbench()).fault == sentence


@pytest.mark.sampled(8)
@pytest.mark.parametrize("what", TEXTS)
def test_a_kernel_that_is_wrong_parts_from_its_program_at_that_statement(what: str) -> None:
    faulty = TEXTS[what]
    space, case = smallest(faulty)
    program = space.program(case.point or {})
    built: Built = build(program, space.problem, case.point or {}, SolverCache())
    said = who_is_wrong(program, built.layouts.swizzles, built.kernel, case.machine, space.problem)
    assert said.startswith("the program is right, and its kernel parts from it after `"), said
    statement = said.split("`")[1]
    assert f"{faulty.says} " in statement, said




CHEAP = ["a store that negates", "a shuffle that keeps the first", "a load that gives neighbours backwards"]


def check_names(what: str) -> None:
    report = run_check(FAULTY[what].machine(), tiers=(1,))
    (row,) = [r for r in report.rows if r.name == "instructions do what they say"]
    assert row.failures, str(report)
    assert all(f.sentence.startswith(f"{FAULTY[what].says} (") for f in row.failures), str(report)


@pytest.mark.parametrize("what", CHEAP)
def test_a_check_names_the_instruction(what: str) -> None:
    check_names(what)


@pytest.mark.slow
@pytest.mark.parametrize("what", [what for what in FAULTY if what not in CHEAP])
def test_a_check_names_every_instruction(what: str) -> None:
    check_names(what)
