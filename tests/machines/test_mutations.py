"""Random edits of a kernel's PTX are caught by verification, or the edited kernel is the same one.

An edited kernel counts as caught where the assembler refuses it, or where the emulator finds a fault or a wrong result
on the derived problem or on one of its siblings: problems with the same facts, every remainder of the tiles, and loops
of few rounds. It is the same kernel where the assembler makes the same machine code of it, or for a reason that is
checked in its text.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.elementwise import Axpby, BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.assembler import AssemblerError, assemble
from tinygpu.ptx.build import build
from tinygpu.ptx.comparison import compare
from tinygpu.ptx.derived import derive
from tinygpu.ptx.emulator import EmulationFault, LaunchError, UnsupportedInstruction, emulate
from tinygpu.ptx.inputs import arguments, make_inputs
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.kernel import LaunchError as FactBroken
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.case import resize

sys.path.insert(0, str(Path(__file__).parent))
from ptx_edits import EDITORS, GUARD, Edit

# Blocks that a batch of CTAs may run; the kernels here need some hundred. An edited loop may have no end.
STEP_LIMIT = 3_000
REMAINDERS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A kernel that is right, its machine code, and the problems on which it is judged, the derived one first."""

    machine: type[Machine]
    kernel: Kernel
    cubin: bytes
    problems: tuple[Problem, ...]


@cache
def subject(machine: type[Machine], dims: tuple[tuple[str, int], ...], values: tuple[tuple[str, Any], ...]) -> Subject:
    problem = machine.problem(**dict(dims))
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict(dict(values)).sample(1, np.random.default_rng(0))
    kernel = build(space.fill(point), problem, point, SolverCache()).kernel
    problems = (derive(kernel, problem), *siblings(kernel, machine, problem))
    return Subject(machine, kernel, assemble(kernel.ptx, "sm_80").cubin, problems)


def siblings(kernel: Kernel, machine: type[Machine], problem: Problem) -> Iterator[Problem]:
    """Problems with the kernel's facts: a second group of tiles, loops of few rounds, and remainders of all kinds."""
    tiles = dict(kernel.tiles)
    loops = {dim: (step, stages) for dim, step, stages in kernel.steps}
    most = max([*tiles.values(), *(step for step, _ in loops.values())])
    rng = np.random.default_rng(0)
    wanted = range(most) if most <= REMAINDERS else [0, *rng.permutation(np.arange(1, most))[:REMAINDERS].tolist()]
    few = [(0, rounds) for rounds in range(1, 1 + max([stages for _, stages in loops.values()], default=0))]
    for number, (remainder, rounds) in enumerate([(0, 0), *few, *((r, 0) for r in wanted)]):
        dims = {}
        for name, size in problem.dims:
            if name in tiles:
                many = kernel.group + 1 if number == 0 and len(tiles) > 1 else 2
                dims[name] = many * tiles[name] + remainder % tiles[name]
            elif name in loops:
                step, stages = loops[name]
                dims[name] = (rounds or 2 * stages + 1) * step + remainder % step
            else:
                dims[name] = size
        made = resize(machine, problem, dims)
        try:
            kernel.check(made)
        except FactBroken:
            continue
        yield made


def verdict(of: Subject, text: str) -> str:
    """How an edited kernel was caught; "" where it was not."""
    for number, problem in enumerate(of.problems):
        orders: tuple[Any, ...] = ("late", "early") if number == 0 else ("random",)
        for order in orders:
            operands, scalars = make_inputs(of.machine, problem, "integers", 0)
            try:
                emulate(
                    text,
                    grid=of.kernel.grid(problem),
                    block=(of.kernel.threads, 1, 1),
                    args=arguments(of.kernel, problem, operands, scalars),
                    dynamic_smem=of.kernel.smem_bytes,
                    order=order,
                    step_limit=STEP_LIMIT,
                )
            except EmulationFault:
                return "fault"
            except (LaunchError, UnsupportedInstruction):
                return "refused by the emulator"
            terms = of.kernel.terms(problem)
            if not compare(of.machine, problem, operands, scalars, "integers", order, 0, terms).passed:
                return "wrong result"
    return ""


def judge(of: Subject, edit: Edit) -> str:
    try:
        made = assemble(edit.text, "sm_80").cubin
    except AssemblerError:
        return "refused by the assembler"
    if made == of.cubin:
        return "same machine code"
    return verdict(of, edit.text) or same_by_text(of.kernel.ptx, edit)


def same_by_text(ptx: str, edit: Edit) -> str:
    """Why an edit changes nothing, where the text around it shows that; "" where it does not."""
    masks = [re.fullmatch(r"and\.b32 %r\d+, (%r\d+), (\d+);", side) for side in (edit.before, edit.after)]
    if masks[0] and masks[1] and masks[0][1] == masks[1][1]:
        shifted = re.search(rf"shl\.b32 {masks[0][1]}, %r\d+, (\d+);", ptx)
        if shifted and int(masks[0][2]) ^ int(masks[1][2]) < 1 << int(shifted[1]):
            return "the bits that the mask gained or lost are zero after a shift"
    moved = re.fullmatch(r"@%p\d+ mov\.b32 (%r\d+), (%r\d+);", edit.before)
    if moved and edit.after == GUARD.sub("", edit.before):
        inserted = re.search(rf"bfi\.b32 {moved[2]}, (%r\d+), {moved[1]}, ", ptx)
        if inserted and f"mov.b32 {moved[1]}, 0;" in ptx and _zero_unless_loaded(ptx, inserted[1]):
            return "where the guard is false, the zero that is inserted stands there already"
    return ""


def _zero_unless_loaded(ptx: str, piece: str) -> bool:
    half = re.search(rf"cvt\.u32\.u16 {piece}, (%h\d+);", ptx)
    return f"mov.b32 {piece}, 0;" in ptx or (half is not None and f"mov.b16 {half[1]}, 0;" in ptx)


SUBJECTS = {
    "axpby": (Axpby, (("n", 333),), (("warps", 1), ("vector", 4), ("rows", 2))),
    "bias_relu": (BiasRelu, (("m", 37), ("n", 101)), (("warps", 2), ("rows", 2))),
    "simt": (
        MatmulSimt,
        (("m", 70), ("n", 61), ("k", 45)),
        (("bm", 32), ("bn", 32), ("bk", 8), ("tall", 8), ("wide", 8), ("stages", 2), ("group", 4)),
    ),
    "ampere edges": (
        MatmulAmpere,
        (("m", 70), ("n", 90), ("k", 136)),
        (("bm", 32), ("bn", 32), ("bk", 32), ("wm", 2), ("stages", 3), ("group", 4)),
    ),
    "ampere whole": (
        MatmulAmpere,
        (("m", 128), ("n", 128), ("k", 128)),
        (("bm", 32), ("bn", 64), ("bk", 32), ("wm", 2), ("wn", 2), ("stages", 3), ("group", 4), ("put", "staged")),
    ),
}


def survivors(name: str, each: int, seed: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """(how many edits of each kind ended how, those that nothing caught)."""
    of = subject(*SUBJECTS[name])
    assert verdict(of, of.kernel.ptx) == ""
    tally: Counter[tuple[str, str]] = Counter()
    alive = []
    for number, (kind, editor) in enumerate(EDITORS.items()):
        rng = np.random.default_rng([seed, number])
        for _ in range(each):
            edit = editor(of.kernel.ptx, rng)
            if edit is not None:
                end = judge(of, edit)
                tally[kind, end or "not caught"] += 1
                if not end:
                    alive.append(f"{kind}: {edit}")
    return tally, alive


@pytest.mark.parametrize("name", SUBJECTS)
def test_edits_of_a_kernel_are_caught(name: str) -> None:
    _, alive = survivors(name, 3, 0)
    assert not alive, "\n".join(alive)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_edits_of_a_kernel_are_caught(name: str) -> None:
    tally, alive = survivors(name, 60, 1)
    print(name, dict(tally))
    assert not alive, "\n".join(alive)
