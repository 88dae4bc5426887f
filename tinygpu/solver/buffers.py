"""Solves the unknown layouts of a filled-in program: one question per buffer, asked with all its accesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import SMEM
from tinygpu.program.access import Access, AccessKind, accesses
from tinygpu.program.placement import buffer_layout
from tinygpu.program.program import Program
from tinygpu.program.windows import offsets, unrolled_statements
from tinygpu.solver.smem import SolverCache, solve_smem
from tinygpu.solver.smem_layout import SmemLayout
from tinygpu.solver.solution import AccessResult, Solution, results_of
from tinygpu.solver.tile_access import TileAccess


@dataclass(frozen=True, slots=True, eq=False)
class SolvedLayouts:
    """The layouts of a program's buffers.

    solutions  per buffer with an unknown layout
    given      of every other buffer that threads touch each access under the layout that the machine gave it
    """

    solutions: Mapping[str, Solution]
    given: Mapping[str, tuple[AccessResult, ...]]

    @property
    def swizzles(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Per buffer: (row bit, mask over the byte within the row)."""
        return {name: s.layout.xor for name, s in self.solutions.items()}

    @property
    def conflicts(self) -> dict[str, int]:
        """Per buffer: wavefronts beyond those that no bank conflict would leave, over all its accesses once."""
        results = {name: s.accesses for name, s in self.solutions.items()} | dict(self.given)
        return {name: sum(one.wavefronts - one.ideal for one in found) for name, found in results.items()}


def solve_buffers(program: Program, cache: SolverCache) -> SolvedLayouts:
    """The best layout of every buffer that the machine left open; padding is a parameter, so the pitch is given."""
    accesses = buffer_accesses(program)
    solutions: dict[str, Solution] = {}
    given: dict[str, tuple[AccessResult, ...]] = {}
    for pipeline in program.pipelines:
        for buffer in pipeline.buffers:
            if buffer.memory is not SMEM or buffer.name not in accesses:
                continue
            rows, pitch = int(buffer.rows), int(buffer.pitch_bytes)
            if not buffer.layout:
                given[buffer.name] = results_of(SmemLayout(rows, pitch, pitch), accesses[buffer.name])
            else:
                found = solve_smem(rows, pitch, accesses[buffer.name], allow_padding=False, cache=cache)
                if found.layout.pitch_bytes != pitch:  # the solver lengthens rows to whole words; the pitch is given
                    found = _as_it_is(rows, pitch, accesses[buffer.name])
                solutions[buffer.name] = found
    return SolvedLayouts(solutions, given)


def _as_it_is(rows: int, pitch: int, accesses: list[TileAccess]) -> Solution:
    """Plain rows whose pitch is no whole number of words, counted lane by lane."""
    layout = SmemLayout(rows, pitch, pitch)
    results = results_of(layout, tuple(accesses))
    sentence = f"rows of {pitch} B are not whole words, so that no XOR keeps them apart; counted lane by lane"
    return Solution(layout, results, "unknown", "none", f"rows of {pitch} B", sentence, 0)


def buffer_accesses(program: Program) -> dict[str, list[TileAccess]]:
    """Per buffer: who touches which row and byte column (of what the hardware swizzles: which swizzled byte)."""
    collected: dict[str, dict[tuple[str, int, AccessKind, bool], list[NDArray[np.int64]]]] = {}
    known: dict[int, list[Access]] = {}
    for placed in unrolled_statements(program.body):
        if id(placed.statement) not in known:
            known[id(placed.statement)] = list(accesses(placed.statement))
        for access in known[id(placed.statement)]:
            buffer = access.tile.buffer
            if buffer is None or buffer.memory is not SMEM:
                continue
            lanes = rows_and_bytes(access, buffer, offsets(access.tile, placed.indices))
            key = (access.name, access.width_bytes, access.kind, access.writes)
            collected.setdefault(buffer.name, {}).setdefault(key, []).append(lanes)
    return {
        name: [
            TileAccess(f"{'write' if writes else 'read'} by {who}", np.concatenate(lanes), width, kind)
            for (who, width, kind, writes), lanes in found.items()
        ]
        for name, found in collected.items()
    }


def rows_and_bytes(access: Access, buffer: Buffer, offset: tuple[int, ...]) -> NDArray[np.int64]:
    """(instances, lanes, 2): row and byte column of every lane; -1 where a lane stays out."""
    addresses = access.addresses(buffer_layout(buffer), (*offset, 0))
    pair = np.stack(np.divmod(addresses, int(buffer.pitch_bytes)), axis=-1)
    pair[addresses < 0] = -1
    return pair
