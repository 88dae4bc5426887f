"""The law of running programs: reference, program and emulated PTX agree, bit for bit where sums are exact.

For candidates of every machine that ships and of machines of users, on odd problems. The reference is the author's; the
program is run by the meanings of its instructions, without partitions, layouts or PTX; the emulator reads PTX alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rare_machines as rare
import right_machines as right
import ring_machines as rings
import row_machines as rows
import test_fix_up as fix_up
import test_wgmma_registers as groups
import tile_machines as tiles
from asynchronous_machines import MatmulPingpong, MatmulTwoCta
from attention_machine import Attention

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.language.posing import ProblemError
from tinygpu.machines import elementwise, matmul_ampere, matmul_hopper, matmul_simt, matmul_skinny
from tinygpu.program.program import Program
from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare_arrays
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.memory import arguments
from tinygpu.ptx.verification.trial import Trial, draw
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.draws import SeededDraw, draw_problem

SHIPPED: tuple[type[Machine], ...] = (
    elementwise.Axpby, elementwise.BiasRelu, matmul_simt.MatmulSimt, matmul_ampere.MatmulAmpere,
    matmul_skinny.MatmulSkinny, matmul_hopper.MatmulHopper,
)  # fmt: skip
OF_USERS: tuple[type[Machine], ...] = (
    rows.RmsOfRows, rows.NormOfRows, rows.OnlineSoftmax, rows.Gemv, rows.VectorSum, rows.IntMax, rows.ScaleRows,
    rows.BatchSum, rows.Choose, tiles.Transpose, tiles.TransposeColumns, tiles.ManyTiles, tiles.FewThreads,
    tiles.BatchedAdd, tiles.BatchedMatmul, tiles.PanelMatmul, fix_up.SharedRows, fix_up.SharedMatmul, groups.Quantised,
    Attention, right.Softmax, right.Transpose, right.Gram, right.Signs, right.Handed, right.Staged, right.Outer,
)  # fmt: skip
# Machines whose reference is of one problem.
OF_ONE_PROBLEM = {**rare.MACHINES, **rings.MACHINES}
SIZES = (5, 33, 40, 72)
OF_TENSOR_MAPS = (64, 80, 144)
# Problems that are drawn until one has candidates: TMA takes few of the odd ones.
TRIED = 60


def spaces(machine: type[Machine], seed: int) -> Iterator[MachineSpace]:
    """Spaces of problems that are drawn, those that are not empty."""
    if machine in OF_ONE_PROBLEM:
        yield build_space(machine, machine.problem(**OF_ONE_PROBLEM[machine]), device("h100"))
        return
    sizes = (64,) if machine is Attention else (16, 48, 64) if machine is matmul_skinny.MatmulSkinny else SIZES
    sizes = OF_TENSOR_MAPS if machine in (matmul_hopper.MatmulHopper, groups.Quantised) else sizes
    for number in range(TRIED):
        with contextlib.suppress(ProblemError):
            problem = draw_problem(machine, SeededDraw(np.random.default_rng([seed, number])), sizes)
            space = build_space(machine, problem, device("h100"))
            if space.space.size:
                yield space


def candidates(
    machine: type[Machine], seed: int, count: int
) -> Iterator[tuple[Program, Problem, dict[str, int | str]]]:
    space = next(spaces(machine, seed))
    for point in space.space.sample(count, np.random.default_rng(seed)):
        yield space.program(point), space.problem, point


def agrees(program: Program, trial: Trial, ctas: int | None = None) -> dict[str, Any]:
    got = program.run(trial.arrays, trial.scalars, sizes=trial.problem.dim, ctas=ctas)
    check = compare_arrays(trial, got, "late")
    assert check.passed, f"{trial.problem}\n{check}\n{program}"
    return got


def emulated(program: Program, trial: Trial, point: dict[str, int | str], ctas: int) -> dict[str, Any]:
    kernel, operands = build(program, trial.problem, point, SolverCache()).kernel, trial.operands()
    emulate(
        kernel.ptx, grid=kernel.grid(trial.problem, ctas * math.prod(kernel.clusters)), block=(kernel.threads, 1, 1),
        cluster=kernel.cluster, dynamic_smem=kernel.smem_bytes,
        args=arguments(kernel, trial.problem, operands, dict(trial.scalars)),
    )  # fmt: skip
    return {o.name: operands[o.name].array for o in trial.problem.operands if o.access != "in"}


def check(machine: type[Machine], seed: int, count: int, inputs: tuple[Inputs, ...], emulates: bool) -> int:
    """How many candidates agreed; nothing that is rounded may differ in any bit."""
    done = 0
    for program, problem, point in candidates(machine, seed, count):
        for kind in inputs:
            trial = draw(machine, problem, kind, seed)
            got = agrees(program, trial)
            if not emulates:
                continue
            voice = emulated(program, trial, point, 2)
            assert compare_arrays(trial, voice, "late").passed
            for name, answer in trial.answers.items():
                exact = np.broadcast_to(answer.low == answer.high, voice[name].shape)
                assert got[name][exact].tobytes() == voice[name][exact].tobytes(), f"{name}: {point} on {problem}"
        done += 1
    return done


@pytest.mark.sampled(8)
@pytest.mark.parametrize("machine", [*SHIPPED, *OF_USERS, *OF_ONE_PROBLEM])
def test_a_program_gives_what_the_reference_gives(machine: type[Machine]) -> None:
    assert check(machine, 1, 2, ("integers", "specials"), emulates=False)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*SHIPPED, *OF_USERS, *OF_ONE_PROBLEM])
def test_programs_give_what_the_reference_gives_on_many_problems(machine: type[Machine]) -> None:
    for seed in range(10, 20):
        assert check(machine, seed, 4, ("integers", "random", "specials"), emulates=False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("machine", [*SHIPPED[1:], *OF_USERS, *OF_ONE_PROBLEM])
def test_reference_program_and_emulated_ptx_agree(machine: type[Machine]) -> None:
    assert check(machine, 4, 1, ("integers",), emulates=True)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*SHIPPED, *OF_USERS, *OF_ONE_PROBLEM])
def test_all_three_agree_on_many_problems(machine: type[Machine]) -> None:
    for seed in range(30, 34):
        assert check(machine, seed, 2, ("integers", "random"), emulates=True)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "on"), [(MatmulPingpong, "h100_sxm"), (MatmulTwoCta, "b200")])
def test_programs_that_are_not_lowered_yet_run_too(machine: type[Machine], on: str) -> None:
    """Tensor memory, and products that two CTAs of a cluster make together."""
    space = build_space(machine, machine.problem(m=300, n=200, k=200), device(on))
    for point in space.space.sample(2, np.random.default_rng(0)):
        for ctas in (2, 4, 12):
            agrees(space.program(point), draw(machine, space.problem, "integers", 1), ctas)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("machine", [matmul_hopper.MatmulHopper, matmul_skinny.MatmulSkinny, fix_up.SharedMatmul])
def test_it_does_not_matter_how_many_ctas_share_the_tiles(machine: type[Machine]) -> None:
    """Sums are exact, so that parts and pieces of rounds do not show; each CTA has its own rings, turns and tiles."""
    seen = 0
    for seed in (0, 1):
        for program, problem, _ in candidates(machine, seed, 3):
            trial = draw(machine, problem, "integers", seed)
            for ctas in (1, 3, 7, 64):
                agrees(program, trial, ctas)
            seen += program.grid.scheduler.persistent or program.grid.scheduler.shares
    assert seen >= 3
