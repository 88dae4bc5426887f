"""Random admitted candidates of every shipped machine: each lowers, assembles for its target, and is right in the
emulator.

The quick suite draws a few. The long run draws 2,000 per machine and target: pytest -m slow tests/machines.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case
from tinygpu.testing.bench import draw_problems
from tinygpu.testing.draws import DEVICES
from tinygpu.testing.judges import judge
from tinygpu.testing.workbench import Workbench

# Problems that share types, orders and options share traces, which take seconds for the larger machines.
CANDIDATES_PER_PROBLEM = 25
LONG_RUN = 2_000


def shipped(name: str) -> type[Machine]:
    (machine,) = family(name).machines
    return machine


def wrong(
    machine: type[Machine], problems: tuple[Problem, ...], on: str, each: int, seed: int
) -> tuple[int, list[str]]:
    """(how many candidates were judged, what is wrong with those that are)."""
    rng = np.random.default_rng(seed)
    bench = Workbench()
    judged, faults = 0, []
    for problem in problems:
        space = build_space(machine, problem, device(on))
        for point in space.space.sample(each, rng) if space.space.size else ():
            case = Case(machine, problem, space.device, point)
            found = judge(case, bench, seed=seed)
            judged += 1
            if found.stage != "right":
                faults.append(f"{case}\n{found.stage}: {found.sentence}\n{case.snippet('kernel')}")
    return judged, faults


def targets(machine: type[Machine]) -> list[str]:
    """The devices that have the machine's instructions: an easy problem has candidates there."""
    easy = machine.problem(**dict.fromkeys(machine.dim_names(), 64))
    return [on for on in DEVICES if build_space(machine, easy, device(on)).space.size]


def some_are_right(name: str, on: str, seed: int, least: int) -> None:
    judged = 0
    # Problems whose pitches or alignments the machine refuses have no candidates.
    for problem in draw_problems(shipped(name), 80, np.random.default_rng([1, seed])):
        count, faults = wrong(shipped(name), (problem,), on, min(least, 2), seed)
        assert not faults, faults[0]
        judged += count
        if judged >= least:
            return
    raise AssertionError(f"only {judged} candidates of {name} on {on}")


# A device for each machine: one that has its instructions, and another for many.
ON = {
    "softmax": "a100",
    "rms_norm": "rtx5090",
    "layer_norm": "h100",
    "axpby": "rtx3090",
    "bias_relu": "b200",
    "transpose": "a100",
    "matmul_simt": "a100",
    "matmul_ampere": "rtx4090",
    "matmul_skinny": "rtx5090",
    "matmul_hopper": "h100",
}


COSTLY = ("matmul_hopper", "matmul_skinny")
# Machines that ship later on have random candidates of their own, with their options, in tests named after them.
COMMON = [n for n in SHIPPED if n in ON]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in COSTLY else ()) for n in COMMON])
def test_a_random_candidate_is_right_on_one_target(name: str) -> None:
    some_are_right(name, ON[name], 0, 1 if name.startswith("matmul") else 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_few_random_candidates_are_right_on_some_targets(name: str) -> None:
    found = targets(shipped(name))
    assert found
    for seed, on in list(enumerate(found))[:: -(-len(found) // 3)]:
        some_are_right(name, on, seed, 1 if name.startswith("matmul") else 4)


def _share(work: tuple[str, str, int, int]) -> tuple[int, list[str]]:
    name, on, seed, count = work
    machine = shipped(name)
    problems = draw_problems(machine, 1, np.random.default_rng([2, seed]))
    return wrong(machine, problems, on, count, seed)


@pytest.mark.slow
@pytest.mark.parametrize("on", DEVICES)
@pytest.mark.parametrize("name", SHIPPED)
def test_two_thousand_random_candidates_are_right(name: str, on: str) -> None:
    """Drawn uniformly from whole spaces, with fresh problems for every few of them."""
    if on not in targets(shipped(name)):
        pytest.skip(f"{on} lacks instructions of {name}")
    judged, seed, faults = 0, 0, list[str]()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        while judged < LONG_RUN and not faults:
            work = [(name, on, seed + i, CANDIDATES_PER_PROBLEM) for i in range(8)]
            seed += len(work)
            for count, found in pool.map(_share, work):
                judged += count
                faults += found
    assert not faults, f"{len(faults)} of {judged} are wrong, the first:\n{faults[0]}"


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
@pytest.mark.parametrize("name", ["axpby", "bias_relu"])
def test_candidates_that_hypothesis_draws_are_right(name: str, data: st.DataObject) -> None:
    from tinygpu.testing import candidates, devices, problems

    machine = shipped(name)
    problem, on = data.draw(problems(machine)), data.draw(devices())
    point = data.draw(candidates(machine, problem, on))
    found = judge(Case(machine, problem, on, point), Workbench())
    assert found.stage == "right", found.sentence
