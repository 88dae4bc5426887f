"""Random edits of a kernel's PTX are caught by verification, or the edited kernel is the same one.

An edited kernel counts as caught where the assembler refuses it, or where the emulator finds a fault or a wrong result
on the derived problem or on one of its siblings: problems with the same facts, every remainder of the tiles, and loops
of few rounds. It is the same kernel where the assembler makes the same machine code of it, or for a reason that is
checked in its text or stated here (HARMLESS).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ptx_edits import EDITORS, GUARD, Edit

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.elementwise import Axpby, BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.assembling.assembler import AssemblerError, assemble
from tinygpu.ptx.emulator import EmulationFault, LaunchError, UnsupportedInstruction, emulate
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.memory import arguments
from tinygpu.ptx.verification.trial import draw
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.case import resize

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

    @property
    def whole(self) -> bool:
        """Whether the kernel is made for sizes that tiles and loops divide."""
        facts = {(f.name, f.divisor) for f in self.kernel.facts}
        return {*self.kernel.tiles, *self.kernel.steps} <= facts


@cache
def subject(machine: type[Machine], dims: tuple[tuple[str, int], ...], values: tuple[tuple[str, Any], ...]) -> Subject:
    problem = machine.problem(**dict(dims))
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict(dict(values)).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    problems = (derive(kernel, machine, problem), *siblings(kernel, machine, problem))
    return Subject(machine, kernel, assemble(kernel.ptx, "sm_80").cubin, problems)


def siblings(kernel: Kernel, machine: type[Machine], problem: Problem) -> Iterator[Problem]:
    """Problems with the kernel's facts: remainders of all kinds, loops of few and many rounds, gaps between rows.

    The first has so many tiles that a second group of them begins.
    """
    divisors: dict[str, int] = {}
    for fact in kernel.facts:
        divisors[fact.name] = math.lcm(divisors.get(fact.name, 1), fact.divisor)
    tiles = dict(kernel.tiles)
    depth = max([r.stages for r in kernel.rings], default=1)
    loops = {dim: (step, depth) for dim, step in kernel.steps}
    most = max([*tiles.values(), *(step for step, _ in loops.values())])
    rng = np.random.default_rng(0)
    wanted = range(most) if most <= REMAINDERS else [0, *rng.permutation(np.arange(1, most))[:REMAINDERS].tolist()]
    for number, remainder in enumerate(wanted):
        dims = {}
        for name, size in problem.dims:
            whole, rest = size, 0
            if name in tiles:
                whole = (kernel.raster + 1 if number == 0 and len(tiles) > 1 else 2) * tiles[name]
                rest = remainder % tiles[name]
            elif name in loops:
                step, stages = loops[name]
                whole, rest = (2 * stages + 1 - number % (2 * stages + 2)) * step, remainder % step
            unit = divisors.get(name, 1)
            dims[name] = max(whole + rest // unit * unit, unit)
        made = resize(machine, problem, dims)
        operands = []
        for o in made.operands:
            unit = divisors.get(f"{o.name}.ld", 1)
            ld = -(-o.ld // unit) * unit + number % 2 * unit
            operands.append(replace(o, ld=ld) if len(o.shape) > 1 else o)
        made = replace(made, operands=tuple(operands))
        kernel.check(made)
        yield made


def verdict(of: Subject, text: str) -> str:
    """How an edited kernel was caught; "" where it was not."""
    for number, problem in enumerate(of.problems):
        runs: tuple[Any, ...] = (("random", "random"),) if number else (("integers", "late"), ("integers", "early"))
        for inputs, order in runs:
            trial = draw(of.machine, problem, inputs, 0)
            operands = trial.operands()
            try:
                emulate(
                    text,
                    grid=of.kernel.grid(problem),
                    block=(of.kernel.threads, 1, 1),
                    args=arguments(of.kernel, problem, operands, dict(trial.scalars)),
                    dynamic_smem=of.kernel.smem_bytes,
                    order=order,
                    step_limit=STEP_LIMIT,
                )
            except EmulationFault:
                return "fault"
            except (LaunchError, UnsupportedInstruction):
                return "refused by the emulator"
            if not compare(trial, operands, order).passed:
                return "wrong result"
    return ""


def judge(of: Subject, edit: Edit) -> str:
    try:
        made = assemble(edit.text, "sm_80").cubin
    except AssemblerError:
        return "refused by the assembler"
    if made == of.cubin:
        return "same machine code"
    found = verdict(of, edit.text) or same_by_text(of.kernel.ptx, edit)
    known = (*HARMLESS, *(HARMLESS_FOR_WHOLE_TILES if of.whole else ()))
    return found or next((reason for pattern, reason in known if re.fullmatch(pattern, str(edit))), "")


# Edits that change a kernel's text and nothing that it computes, for any problem with its facts.
HARMLESS = (
    (
        r"@!?%p\d+ bra \$whole(\d+);  ->  @!?%p\d+ bra \$whole\1;",
        "where a vector was moved whole, moving its elements again one by one changes nothing",
    ),
    (
        r"mov\.b(16|32) %[rh]\d+, 0;  ->  mov\.b\1 %[rh]\d+, 0;",
        "what lies beyond the edge of an element-wise tile is never stored, whatever it was filled with",
    ),
    (
        r"selp\.b32 (%r\d+), (\d+), 0, (%p\d+);  ->  selp\.b32 \1, \2, 1, \3;",
        "of what lies beyond the edge one byte is copied: it is multiplied by zeros, or its sum is never stored",
    ),
    (
        r"add\.u32 (%r\d+), (%r\d+), 1;  ->  add\.u32 \1, \2, 0;",
        "the second element of a pair exists where the first does, because the kernel is made for even sizes",
    ),
    (
        r"bfi\.b32 (%r\d+, %r\d+, %r\d+, (0|16)), 16;  ->  bfi\.b32 \1, 17;",
        "the bit too many is written again by the upper half, or lies beyond the register",
    ),
    (
        r"cp\.async\.wait_group 1;  ->  cp\.async\.wait_group 0;",
        "it waits for more than it needs",
    ),
)
# The same where the facts say that tiles divide every dim, so that what lies beyond an edge is never asked for.
HARMLESS_FOR_WHOLE_TILES = (
    (
        r"add\.u32 (%r\d+), (%r\d+), 31;  ->  add\.u32 \1, \2, 30;",
        "a multiple of 32 is rounded up to itself by 30 as by 31",
    ),
    (
        r"add\.u32 (%r\d+), (%r\d+), 16;  ->  add\.u32 \1, \2, 15;",
        "rows 15 and 16 further exist together where k is a multiple of 32",
    ),
    (
        r"selp\.b32 (%r\d+), (\d+), 0, %p\d+;  ->  selp\.b32 \1, \2, 0, %p\d+;",
        "every row of a slot that is filled exists where k is a multiple of 32",
    ),
)


def same_by_text(ptx: str, edit: Edit) -> str:
    """Why an edit changes nothing, where the text around it shows that; "" where it does not."""
    masks = [re.fullmatch(r"and\.b32 %r\d+, (%r\d+), (\d+);", side) for side in (edit.before, edit.after)]
    if masks[0] and masks[1] and masks[0][1] == masks[1][1]:
        shifted = re.search(rf"shl\.b32 {masks[0][1]}, %r\d+, (\d+);", ptx)
        if shifted and int(masks[0][2]) ^ int(masks[1][2]) < 1 << int(shifted[1]):
            return "the bits that the mask gained or lost are zero after a shift"
    moved = re.fullmatch(r"@%p\d+ mov\.b32 (%r\d+), (%r\d+);", edit.before)
    if moved and GUARD.sub("", edit.after) == GUARD.sub("", edit.before):
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
        (("bm", 32), ("bn", 32), ("bk", 8), ("threads_m", 8), ("threads_n", 8), ("stages", 2), ("raster", 4)),
    ),
    "ampere edges": (
        MatmulAmpere,
        (("m", 70), ("n", 90), ("k", 136)),
        (("bm", 32), ("bn", 32), ("bk", 32), ("warps_m", 2), ("stages", 3), ("raster", 4)),
    ),
    "ampere whole": (
        MatmulAmpere,
        (("m", 128), ("n", 128), ("k", 128)),
        (
            ("bm", 32), ("bn", 64), ("bk", 32), ("warps_m", 2), ("warps_n", 2), ("stages", 3), ("raster", 4),
            ("store", "staged"),
        ),
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


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["axpby", pytest.param("simt", marks=pytest.mark.slow)])
def test_edits_of_a_kernel_are_caught(name: str) -> None:
    _, alive = survivors(name, 1, 0)
    assert not alive, "\n".join(alive)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_edits_of_a_kernel_are_caught(name: str) -> None:
    tally, alive = survivors(name, 60, 1)
    print(name, dict(tally))
    assert not alive, "\n".join(alive)
