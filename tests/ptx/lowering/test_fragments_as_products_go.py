"""Fragments are loaded as products go: never more of them live in a kernel's text than are counted; probes see all."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import live_registers
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.program.fragments import fed, goes_on
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.matrix import _order
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

LOAD = re.compile(r"ldmatrix\S* \{([^}]*)\}")
POSED: tuple[tuple[Any, Any], ...] = (
    (MatmulAmpere, MatmulAmpere.problem(m=512, n=512, k=512)),
    (AttentionAmpere, AttentionAmpere.problem(b=1, h=2, g=1, s=256, t=256, d=96)),
)


def most_alive(ptx: str) -> int:
    """Registers between an ldmatrix that fills them and the last line that reads them, at the worst line."""
    lines = ptx.splitlines()
    ends = {name: number for number, line in enumerate(lines) for name in re.findall(r"%r\d+", line)}
    changes = [0] * (len(lines) + 1)
    for number, line in enumerate(lines):
        if (found := LOAD.search(line)) is not None:
            for name in found[1].split(", "):
                changes[number] += 1
                changes[ends[name]] -= 1
    return int(np.cumsum(changes).max())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("machine", "problem"), POSED)
@pytest.mark.sampled(4)
def test_as_many_fragments_live_as_are_counted(machine: Any, problem: Any, seed: int) -> None:
    space = build_space(machine, problem, device("a100"))
    drawn = space.space.sample(40, np.random.default_rng(seed))
    # not those of which threads load fragments one by one, nor a step of the next round ahead
    loads = ("fragment_a", "fragment_b")
    asked = [p for p in drawn if {p.get(name, "ldmatrix") for name in loads} == {"ldmatrix"}]
    point = next(p for p in asked if not p.get("prefetch", 0))
    program = space.program(point)
    written, counted = [0], list[int]()
    found = live_registers.fragments_as_products_go(program.body)
    for tiles in fed(program.body):
        sizes = sorted(int(live_registers.tile_registers(t)) for t in tiles)
        written.append(min(sum(sizes), sum(sizes[:-1]) + 4))
        counted.append(sum(int(found[t.name]) for t in tiles))
        assert counted[-1] == min(sum(sizes), sum(sizes[:-1]) + 8)  # the next load is under way
    assert most_alive(build(program, problem, point, SolverCache()).kernel.ptx) == max(written) > 0, point


def test_only_loads_and_products_of_registers_stand_between() -> None:
    machine, problem = POSED[1]
    space = build_space(machine, problem, device("a100"))
    body = space.program(next(iter(space.space))).body
    assert [len(tiles) for tiles in fed(body)] == [2, 1]  # of the second product one operand is in registers already
    assert {type(s).__name__ for s in walk(body) if goes_on(s)} == {"Load", "Multiply"}


@pytest.mark.parametrize("along_a", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (4, 1), (3, 4), (5, 2)])
def test_products_go_along_one_operand_and_to_and_fro_along_the_other(rows: int, columns: int, along_a: bool) -> None:
    order = list(_order(rows, columns, along_a))
    assert sorted(order) == [(i, j) for i in range(rows) for j in range(columns)]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(order))
    leading = [pair[0 if along_a else 1] for pair in order]
    assert leading == sorted(leading)
