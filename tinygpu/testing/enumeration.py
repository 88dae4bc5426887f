"""What one CTA asks of the memories, counted lane by lane: the brute force against which counts are held.

The CTA's tile lies inside every tensor. Nothing here uses the counts of `tinygpu.cost`: each access of each round of
each loop is listed with the addresses of its lanes, and sectors and banks are counted as sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.memories import GMEM, SMEM
from tinygpu.language.problem import Operand, Problem
from tinygpu.program import nodes as n
from tinygpu.program.access import Access, accesses
from tinygpu.program.exchanged import LookedBack, all_exchanged
from tinygpu.program.placement import BufferPlace, place
from tinygpu.program.program import Program
from tinygpu.program.tree import executions, walk
from tinygpu.solver.buffers import SolvedLayouts
from tinygpu.testing.coverage import value

SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4
# Between rows that values give: whole sectors of elements of every type.
FAR_ELEMENTS = 1 << 17


@dataclass(slots=True)
class Asked:
    """Amounts of one CTA.

    sectors     32-byte sectors of GMEM, summed over warp requests
    wavefronts  of shared memory, summed over warp requests
    ideal       the same without bank conflicts
    tensor_flops, idle_flops  of matrix instructions, and what of them is of lanes without rows
    """

    sectors_read: float = 0
    sectors_written: float = 0
    wavefronts_read: float = 0
    wavefronts_written: float = 0
    ideal_read: float = 0
    ideal_written: float = 0
    tensor_flops: float = 0
    idle_flops: float = 0


def enumerate_cta(
    program: Program,
    problem: Problem,
    layouts: SolvedLayouts,
    rounds: Mapping[str, int],
    *,
    threads_only: bool = False,
    told: bool = True,
) -> Asked:
    """What a CTA asks for one tile, whose numbers are `rounds` (0 where they are not named).

    Of roles that take turns at tiles the first takes this one.

    threads_only  leave out what copy engines move by themselves
    told          with what CTAs tell each other in global memory
    """
    places = place(program, layouts.swizzles).places
    known = {**problem.environment(), n.PART: 0, **{a.index: rounds.get(a.index, 0) for a in program.grid.axes}}
    asked = Asked()
    cached: dict[int, list[Access]] = {}
    idle = frozenset(r.name for r in program.roles if r.share[0])
    for s, at in executions(program.body, known, value, idle):
        if isinstance(s, n.Copy) and isinstance(s.instruction, BulkTransfer) and not threads_only:
            _count_bulk(asked, s, at, problem, program)
        if isinstance(s, n.Multiply):
            flops = 2 * int(s.accumulator.shape[0]) * int(s.accumulator.shape[1]) * int(s.a.shape[1])
            asked.tensor_flops += flops * s.instruction.share
            asked.idle_flops += flops * (s.instruction.share - 1)
        if isinstance(s, n.Combining):
            _count_exchanged(asked, s, program, told)
        if id(s) not in cached:
            cached[id(s)] = list(accesses(s))
        for access in cached[id(s)]:
            _count(asked, access, at, problem, places)
    return asked


def _count(
    asked: Asked, access: Access, known: Mapping[str, int], problem: Problem, places: Mapping[str, BufferPlace]
) -> None:
    out_of_play = access.lanes[..., 0] < 0
    if access.tile.memory is GMEM:
        operand, at = problem.operand(access.tile.name), _coordinates(access, known)
        out_of_play = out_of_play | ((at < 0) | (at >= np.array(operand.shape))).any(axis=-1)
        # The pointer is as badly aligned as the problem says, and no better.
        elements = at @ np.array(operand.strides()) + _far(access, operand)
        address = elements * operand.dtype.bits // 8 + operand.align_bytes % 256
        sectors = count_sectors(address, out_of_play, access.width_bytes)
        if access.writes:
            asked.sectors_written += sectors
        else:
            asked.sectors_read += sectors
    elif access.tile.memory is SMEM and access.tile.buffer is not None:
        start = [value(o, known) for o in access.tile.offset]
        address = access.addresses(places[access.tile.buffer.name].layout, (*start, 0))
        found, ideal = count_wavefronts(address, out_of_play, access.width_bytes)
        if access.writes:
            asked.wavefronts_written += found
            asked.ideal_written += ideal
        else:
            asked.wavefronts_read += found
            asked.ideal_read += ideal


def _count_exchanged(asked: Asked, s: n.Combining, program: Program, told: bool) -> None:
    """What the warps of a role leave for each other and take, request by request; and what CTAs tell each other."""
    roles = [b.role for b in walk(program.body) if isinstance(b, n.InRole) and any(i is s for i in walk(b.body))]
    warps = next(int(r.warps) for r in program.roles if r.name in roles)
    for by in all_exchanged(s):
        for writes, sectors in by.told() if told and isinstance(by, LookedBack) else ():
            count = len(np.unique(sectors // SECTOR_BYTES))
            asked.sectors_read += 0 if writes else count
            asked.sectors_written += count if writes else 0
    requests = (request for by in all_exchanged(s) for request in by.requests(warps))
    for writes, width_bytes, address, out_of_play in requests:
        found, ideal = count_wavefronts(address, out_of_play, width_bytes)
        if writes:
            asked.wavefronts_written += found
            asked.ideal_written += ideal
        else:
            asked.wavefronts_read += found
            asked.ideal_read += ideal


def _count_bulk(asked: Asked, s: n.Copy, known: Mapping[str, int], problem: Problem, program: Program) -> None:
    """The sectors of a whole tile, box by box; of one that is multicast each CTA brings its share."""
    tile, writes = (s.target, True) if s.target.memory is GMEM else (s.source, False)
    buffer = s.source.buffer if writes else s.target.buffer
    operand, tile = problem.operand(tile.name), tile.finest
    strides = operand.strides()
    fixed = sum(value(begin, known) * strides[h] for h, begin in enumerate(tile.begins) if h not in tile.axes)
    rows, line = np.array([fixed], dtype=np.int64), np.zeros(1, dtype=np.int64)
    for axis, home in enumerate(tile.axes):
        if home is not None:
            along = value(tile.begins[home], known) + np.arange(int(tile.shape[axis]), dtype=np.int64)
            if axis == tile.contiguous:
                line = along * operand.strides()[home]
            else:
                rows = (rows[:, None] + along * operand.strides()[home]).reshape(-1)
    wide = len(line)
    if buffer is not None and buffer.swizzle_bytes is not None:
        wide = int(buffer.swizzle_bytes) * 8 // buffer.element_bits
    by_rows = isinstance(s.instruction, BulkTransfer) and s.instruction.by_rows
    sectors = 0
    for first in range(0, len(line), wide):
        box = (rows[:, None] + line[first : first + wide]) * operand.dtype.bits // (8 * SECTOR_BYTES)
        sectors += sum(len(np.unique(one)) for one in (box if by_rows else [box]))
    if writes:
        asked.sectors_written += sectors
    else:
        asked.sectors_read += -(-sectors // int(s.shared_by(program.grid.axes)))


def _coordinates(access: Access, known: Mapping[str, int]) -> NDArray[np.int64]:
    """(instructions, lanes, axes of the tensor) of each lane's first element."""
    out = []
    for home, begin in enumerate(access.tile.begins):
        at = np.full(access.lanes.shape[:-1], value(begin, known), dtype=np.int64)
        for axis, step in access.tile.along(home):
            at += access.lanes[..., axis] * int(step)
        out.append(at)
    return np.stack(out, axis=-1)


def _far(access: Access, operand: Operand) -> NDArray[np.int64]:
    """Elements to rows that values give: they lie anywhere, and none beside another."""
    number = np.zeros(access.lanes.shape[:-1], dtype=np.int64)
    if access.tile.pick is None:
        return number
    for axis in access.tile.pick.along:
        number = number * int(access.tile.shape[axis]) + access.lanes[..., axis]
    return number * (operand.strides()[access.tile.pick.home] + FAR_ELEMENTS)


def count_sectors(address: NDArray[np.int64], out_of_play: NDArray[np.bool_], width_bytes: int) -> int:
    """Sectors that requests access: (requests, lanes) byte addresses of `width_bytes` each."""
    total = 0
    for request, idle in zip(address, out_of_play, strict=True):
        begun = request[~idle]
        touched = begun[:, None] + np.arange(0, width_bytes, min(width_bytes, 4))
        total += len(np.unique(touched // SECTOR_BYTES))
    return total


def count_wavefronts(
    address: NDArray[np.int64], out_of_play: NDArray[np.bool_], width_bytes: int
) -> tuple[int, int]:
    """(wavefronts, wavefronts without conflicts) of (requests, lanes) byte addresses of `width_bytes` each.

    A wavefront serves each of the 32 banks once, with one word. Requests of 8 and 16 bytes are served in halves and
    quarters of a warp; an 8x8 matrix of ldmatrix is one quarter of eight rows. Lanes with the same word share it.
    """
    found = ideal = 0
    for request, idle in zip(address, out_of_play, strict=True):
        lanes = len(request)
        phase = lanes if lanes == 8 else 32 // max(1, width_bytes // WORD_BYTES)
        for first in range(0, lanes, phase):
            begun = request[first : first + phase][~idle[first : first + phase]]
            if not len(begun):
                continue
            words = np.unique((begun[:, None] + np.arange(0, max(width_bytes, 1), WORD_BYTES)) // WORD_BYTES)
            found += int(np.bincount(words % BANKS, minlength=BANKS).max())
            ideal += 1
    return found, ideal
