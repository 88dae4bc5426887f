"""What lowering writes for drawn points of many machines, and how it refuses points that are not admitted.

golden/drawn.txt has a line for each: machine, draw of a problem, point, then how often every opcode stands in the text
and two hashes, of the text and of the rest of the kernel; or the sentence of the refusal. A change of lowering changes
them, and the difference is looked at: `python tests/ptx/lowering/test_drawn_kernels.py` writes the file anew, with
points drawn anew; with `--again`, the same points. That kernels are right is shown elsewhere; what changes without
being wrong is noticed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
import golden_kernels as small
import rare_machines as rare
import ring_machines as rings
import row_machines as rows
import test_constants as constants
import test_fix_up as fix_up
import test_matrix_stores as matrices
import test_rounds as rounds
import test_turns as turns
import test_wgmma_registers as groups
import tile_machines as tiles
from attention_machine import Attention
from nested_blocks import block
from nested_blocks import machine as nested

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Machine, Problem
from tinygpu.language.posing import ProblemError
from tinygpu.language.trace import trace
from tinygpu.layouts import LayoutError
from tinygpu.machines import elementwise, matmul_ampere, matmul_hopper, matmul_simt, matmul_skinny
from tinygpu.program.fill import Filler, filler
from tinygpu.ptx import lowering
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces import Space
from tinygpu.spaces.build import build_space
from tinygpu.testing.draws import SeededDraw, draw_problem

FILE = small.GOLDEN / "drawn.txt"
LOWERING = str(Path(lowering.__file__).parent)
SHIPPED = (
    elementwise.Axpby, elementwise.BiasRelu, matmul_simt.MatmulSimt, matmul_ampere.MatmulAmpere,
    matmul_skinny.MatmulSkinny, matmul_hopper.MatmulHopper,
)  # fmt: skip
OF_USERS = (
    rows.RmsOfRows, rows.NormOfRows, rows.OnlineSoftmax, rows.Gemv, rows.VectorSum, rows.IntMax, rows.ScaleRows,
    rows.BatchSum, rows.Choose, tiles.Transpose, tiles.TransposeColumns, tiles.ManyTiles, tiles.FewThreads,
    tiles.BatchedAdd, tiles.BatchedMatmul, tiles.PanelMatmul, fix_up.SharedRows, fix_up.SharedMatmul,
    matrices.Fragments, matrices.Shared, matrices.AcrossSpans, rounds.Rows, rounds.RowsAhead, rounds.RowsBetweenRoles,
    rounds.Swizzled, groups.Quantised, Attention, *rare.MACHINES, *rings.MACHINES,
)  # fmt: skip
# Of these more are drawn, from so many problems that tensor maps and vectors allow.
OF_TENSOR_CORES = {
    matmul_ampere.MatmulAmpere: 6, matmul_skinny.MatmulSkinny: 20, matmul_hopper.MatmulHopper: 40, groups.Quantised: 12,
}  # fmt: skip
ALIGNED = 100
FEW = 8  # points, of which all are taken
DEAR = 0.03  # seconds
OLDER = {matmul_ampere.MatmulAmpere: "rtx4090", matmul_simt.MatmulSimt: "a100"}
PLAIN = {
    matmul_skinny.MatmulSkinny: {"m": 8, "n": 256, "k": 512}, Attention: {"d": 64},
    rings.NarrowProducts: {"m": 128, "n": 128, "k": 128},
}  # fmt: skip
OPCODE = re.compile(r"^\s*(?:@!?%\w+ )?([a-z][a-z0-9]*)[.;]", re.MULTILINE)


def machines() -> dict[str, type[Machine]]:
    """The machines by name; those of blocks nested at random have the name of their seed."""
    found: dict[str, type[Machine]] = {m.__name__: m for m in (*SHIPPED, *OF_USERS)}
    for kind, numbers in constants.VALUES.items():
        found |= {f"{kind}-{way}": constants.machine(kind, numbers[1], way == "tile") for way in ("tile", "operand")}
    found |= {f"turns{'-'.join(map(str, w))}": turns.machine(w) for w in ((1, 1), (2, 1, 4))}
    for seed in range(0, 60, 4):
        rng = np.random.default_rng(seed)
        with contextlib.suppress(DeclarationError):
            found[f"nested{seed}"] = nested(block(rng, int(rng.integers(1, 4)), "ring"), bool(rng.integers(2)))
    return found


MACHINES = machines()


@cache
def traced(
    machine: type[Machine], problem: Problem, structure: tuple[tuple[str, int | str], ...]
) -> tuple[Filler, tuple[str, ...]]:
    """What fills the program of a structure in, and the axes that it needs."""
    found = trace(machine, problem, structure)
    return filler(found.program, frozenset(found.axes)), tuple(found.axes)


def written(machine: type[Machine], problem: Problem, point: dict[str, int | str], cache: SolverCache) -> str:
    """What lowering makes of a point, admitted or not."""
    fill, axes = traced(machine, problem, tuple((c.name, point[c.name]) for c in machine.choices()))
    try:
        program = fill.fill({a: int(point[a]) for a in axes})
        kernel = build(program, problem, point, cache).kernel
    except (LoweringError, LayoutError) as refused:
        return f"refused: {refused}"
    opcodes = Counter(OPCODE.findall(kernel.ptx))
    rest = repr(replace(kernel, ptx=""))
    hashes = (hashlib.sha256(text.encode()).hexdigest()[:12] for text in (kernel.ptx, rest))
    return " ".join([*(f"{opcode}:{opcodes[opcode]}" for opcode in sorted(opcodes)), *hashes])


def posed(machine: type[Machine], number: int) -> Problem:
    """A problem by the number of its draw; that of number 0 is a plain one, those from ALIGNED on have even sizes."""
    if number == 0:
        return machine.problem(**({n: 96 + 16 * i for i, n in enumerate(machine.dim_names())} | PLAIN.get(machine, {})))
    sizes = (33, 64, 100, 128, 160) if number < ALIGNED else (64, 192, 256, 512)
    return draw_problem(machine, SeededDraw(np.random.default_rng(number)), sizes=sizes)


def lines() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", MACHINES)
def test_lowering_writes_what_it_wrote(name: str) -> None:
    for line in lines():
        of, number, point, expected = line.split("|")
        if of == name:
            found = written(MACHINES[of], posed(MACHINES[of], int(number)), json.loads(point), SolverCache())
            assert found == expected, f"{of} {number} {point}\nto accept it: python {Path(__file__).name}"


def test_every_machine_has_kernels_and_some_points_are_refused() -> None:
    kept = [line.split("|") for line in lines()]
    assert {of for of, _, _, said in kept if not said.startswith("refused")} == set(MACHINES)
    assert len({said for *_, said in kept if said.startswith("refused")}) >= 5


# --- what writes the file anew ------------------------------------------------------------------------------------


def drawn(name: str, machine: type[Machine], number: int, count: int) -> Iterator[tuple[str, float]]:
    """Lines, with the processor time of each, for admitted points of a draw, and for refusals among as many others.

    None where Z3 was asked for a layout, since its answers differ from version to version.
    """
    try:
        problem = posed(machine, number)
    except ProblemError:
        return
    rng = np.random.default_rng([number, 1])
    space = build_space(machine, problem, device(OLDER.get(machine, "h100"))).space
    listed = list(space) if 0 < space.size <= FEW else list(space.sample(count, rng)) if space.size else []
    points = [dict(point) for point in listed]
    for point in points + [anywhere(space, rng) for _ in range(count)]:
        cache, start, said = SolverCache(), time.process_time(), ""
        with contextlib.suppress(ValueError, KeyError, IndexError, ZeroDivisionError, AssertionError):
            said = written(machine, problem, point, cache)
        seconds = time.process_time() - start
        if seconds < 0.2 and not cache.notebook.record and (point in points or said.startswith("refused")):
            yield f"{name}|{number}|{json.dumps(point)}|{said}", seconds


def anywhere(space: Space, rng: np.random.Generator) -> dict[str, int | str]:
    """A point of the axes, admitted or not."""
    part = space.parts[int(rng.integers(len(space.parts)))]
    return dict(part.fixed) | {axis.name: axis.values[int(rng.integers(len(axis.values)))] for axis in part.axes}


def steps(line: str) -> set[tuple[str, int, int]]:
    """(file, line, next line) for every step of lowering on the way to what a line of the list says."""
    of, number, point, _ = line.split("|")
    machine, found = MACHINES[of], set[tuple[str, int, int]]()

    def called(frame: FrameType, event: str, _: object) -> Any:
        before = 0

        def went(frame: FrameType, event: str, _: object) -> Any:
            nonlocal before
            if event == "line":
                found.add((frame.f_code.co_filename, before, frame.f_lineno))
                before = frame.f_lineno
            return went

        return went if frame.f_code.co_filename.startswith(LOWERING) else None

    problem = posed(machine, int(number))
    sys.settrace(called)
    written(machine, problem, json.loads(point), SolverCache())
    sys.settrace(None)
    return found


def cheap(found: Iterable[tuple[str, float]]) -> list[str]:
    """Lines with the processor time that each took: one stays where it shows what less than two cheaper ones show.

    That is, its machine, a step of lowering, a value of a parameter, or a refusal, whatever the names in it. A dear
    line stays for a machine or a step that no cheaper one shows.
    """
    took: dict[str, float] = {}
    for line, seconds in found:
        took.setdefault(line, seconds)
    kept: set[str] = set()
    shown: Counter[tuple[object, ...]] = Counter()
    for line in sorted(took, key=took.__getitem__):
        of, _, point, said = line.split("|")
        dear = took[line] > DEAR
        shows: set[tuple[object, ...]] = set()
        if said.startswith("refused"):
            shows.add((re.sub(r"\b\w*\d\w*\b|^refused: \w+", "", said),))
        else:
            shows |= {(of,), *steps(line), *(() if dear else ((of, *v) for v in json.loads(point).items()))}
        if any(shown[one] < (1 if dear else 2) for one in shows):
            kept.add(line)
            shown.update(shows)
    return [line for line in took if line in kept]


def write() -> None:
    found: list[tuple[str, float]] = []
    for name, machine in MACHINES.items():
        for number in range(6 if machine in SHIPPED else 4 if machine in OF_USERS else 2):
            found += drawn(name, machine, number, 2)
        for number in (ALIGNED, ALIGNED + 1) if machine in OF_USERS and machine not in OF_TENSOR_CORES else ():
            found += drawn(name, machine, number, 1)
        if machine in OF_TENSOR_CORES:
            found += drawn(name, machine, 0, 8)
            for number in range(ALIGNED, ALIGNED + OF_TENSOR_CORES[machine]):
                found += drawn(name, machine, number, 1)
    FILE.write_text("\n".join(cheap(found)) + "\n", encoding="utf-8")


def again() -> None:
    """The same points once more, where words of a kernel or of a refusal changed."""
    out = []
    for line in lines():
        of, number, point, _ = line.split("|")
        said = written(MACHINES[of], posed(MACHINES[of], int(number)), json.loads(point), SolverCache())
        out.append(f"{of}|{number}|{point}|{said}")
    FILE.write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    again() if "--again" in sys.argv else write()
