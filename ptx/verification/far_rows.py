"""Rows far apart: a small problem on tables as long as the real one's, of which memory holds the rows that are named.

A kernel that multiplies the number of a row by its pitch in 32 bits is right on every small table. So the small
problem runs once more: its tables have as many rows as the real problem's, and their pitches; the few rows that the
small table has lie among them, from the first to the last, and the tensors that name rows name these. All else stays
small, and so the reference need not know: what it says of the small table holds, wherever its rows lie. An access to
any other row is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.tensors import extent_of
from tinygpu.ptx.emulator import EmulationFault, PreparedKernel
from tinygpu.ptx.launching.emulated import Buffer, emulate_launch
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.backed import Backed, Window, joined
from tinygpu.ptx.verification.comparison import Check, compare_arrays
from tinygpu.ptx.verification.derived import legality
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.memory import buffers_of, workspaces
from tinygpu.ptx.verification.named_rows import Naming, namings
from tinygpu.ptx.verification.trial import Trial


@dataclass(frozen=True, slots=True, eq=False)
class FarRows:
    """A small problem whose rows lie far apart.

    problem  the small one with the real one's tables
    named    the dims along which rows are named
    small    how many numbers, of rows or of blocks of them, the small table has along each
    """

    problem: Problem
    named: tuple[Naming, ...]
    small: Mapping[str, int]

    def __str__(self) -> str:
        sizes = ", ".join(f"{one.dim}={self.problem.dim[one.dim]}" for one in self.named)
        return f"rows far apart ({sizes})"

    @property
    def by(self) -> dict[str, str]:
        """Which dim the elements of a tensor are numbers of rows along, or of blocks of rows."""
        return {name: one.dim for one in self.named for name in one.by}

    def blocks(self, one: Naming, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Where each of the small table's rows lies, or block of them: those that are named, and the first, from the
        first to the last, and all others before the last.
        """
        used = np.unique([0, *(int(x) for name in one.by for x in np.unique(arrays[name]))])
        out = np.full(self.small[one.dim], -1, np.int64)
        out[used] = spread(len(used), self.problem.dim[one.of])
        taken = {*out[used].tolist()}
        free = (row for row in range(self.problem.dim[one.of] - 1, -1, -1) if row not in taken)
        out[out < 0] = [next(free) for _ in range(len(out) - len(used))]
        return out


def spread(rows: int, size: int) -> NDArray[np.int64]:
    """Numbers of some of `size` rows, ascending: half of them evenly apart, from the first to the last, the others the
    last that there are, for which offsets are largest.
    """
    evenly = np.linspace(0, size - 1, (rows + 1) // 2).round().astype(np.int64).tolist() if rows > 1 else []
    found = {*evenly, size - 1}
    last = (row for row in range(size - 1, -1, -1) if row not in found)
    return np.array(sorted([*found, *(next(last) for _ in range(rows - len(found)))]), np.int64)


def far_rows(kernel: Kernel, machine: type[Machine], problem: Problem, small: Problem) -> FarRows | str | None:
    """How a small problem runs on the tables of the real one; why it does not; None where its tables are the same."""
    shapes, named = dict(kernel.shapes), namings(kernel, machine, problem)
    dims = small.dim | {d: problem.dim[d] for one in named for d in (one.dim, one.of)}
    tables = {o.name: _as_long(o, shapes[o.name], dims) for o in problem.operands}
    longer = {t for t, o in tables.items() if o.extent_elems > small.operand(t).extent_elems}
    named = tuple(one for one in named if any(one.dim in shapes[t] for t in longer))
    if not named:
        return None
    moved = {t: o for t, o in tables.items() if {one.dim for one in named} & {*shapes[t]}}
    sizes = ", ".join(f"{one.dim}={dims[one.dim]}" for one in named)
    if more := [", ".join(one.by) for one in named if not one.purely]:
        return f"rows far apart ({sizes}): what {' and '.join(more)} hold is more than numbers of rows"
    if torn := [t for t, o in moved.items() if o.dtype.bits < 8 and not _in_bytes(o, small.operand(t).shape)]:
        return f"rows far apart ({sizes}): two of {' and '.join(torn)} share a byte"
    if not legality(kernel, machine, problem)(dims):
        return f"rows far apart ({sizes}): so many are illegal beside small sizes of other dims"
    far = replace(small, dims=tuple(dims.items()), operands=tuple(moved.get(o.name, o) for o in small.operands))
    kernel.check(far)
    return FarRows(far, named, {one.dim: small.dim[one.of] for one in named})


def _rows_of(blocks: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    """The rows of blocks of so many."""
    return (blocks[:, None] * unit + np.arange(unit)).reshape(-1)


def _as_long(o: Operand, names: Sequence[str], dims: Mapping[str, int]) -> Operand:
    """An operand of the real problem with other extents: its elements lie where they lay."""
    order, strides = o.memory_order, o.strides()
    shape = tuple(extent_of(d, dims) for d in names)
    ld = strides[order[1]] if len(order) > 1 else shape[0]
    return replace(o, shape=shape, ld=ld, outer=tuple(strides[axis] for axis in order[2:]))


def _in_bytes(o: Operand, line: Sequence[int]) -> bool:
    """Whether each stretch of elements of less than a byte that is backed begins and ends with one."""
    each = 8 // o.dtype.bits
    steps = [step for axis, step in enumerate(o.strides()) if axis != o.contiguous_axis]
    return line[o.contiguous_axis] == o.shape[o.contiguous_axis] and not any(n % each for n in steps)


def far_check(
    far: FarRows,
    kernel: Kernel,
    code: PreparedKernel,
    trial: Trial,
    ctas: int,
    seed: int,
    lines: LineInfo | None = None,
) -> Check:
    """The check of a kernel on rows far apart.

    trial  of the small problem
    ctas   CTAs at most that are launched of a persistent kernel
    """
    shapes, operands = dict(kernel.shapes), trial.operands()
    blocks = {one.dim: far.blocks(one, trial.arrays) for one in far.named}
    for name, dim in far.by.items():
        near = operands[name].array
        operands[name].write(blocks[dim][near.astype(np.int64)].astype(near.dtype))
    places = {one.dim: _rows_of(blocks[one.dim], one.unit) for one in far.named}
    ascending = {dim: np.argsort(rows) for dim, rows in places.items()}
    back = {dim: np.argsort(order) for dim, order in ascending.items()}
    held = {name: _taken(trial.arrays, name, shapes, ascending) for name in trial.arrays}
    backed = {
        o.name: Backed(o, _window(o, shapes[o.name], places), held.get(o.name))
        for o in far.problem.operands
        if places.keys() & {*shapes[o.name]}
    }
    grid = kernel.grid(far.problem, ctas)
    buffers: dict[str, Buffer] = {**buffers_of(operands), **workspaces(kernel, far.problem, grid[0])}
    buffers |= {name: b.buffer() for name, b in backed.items()}
    try:
        report = emulate_launch(kernel, code, far.problem, grid, buffers, trial.scalars, seed=seed)
    except EmulationFault as fault:
        told = _in_words(fault)
        said = str(told) if lines is None else lines.fault(told)
        return Check(trial.inputs, "late", float("nan"), 0.0, 0, 0, said, str(far))
    outputs = [o.name for o in far.problem.operands if o.access != "in"]
    left = {name: backed[name].array() for name in outputs if name in backed}
    got = {name: left[name] if name in left else operands[name].array for name in outputs}
    check = compare_arrays(trial, {name: _taken(got, name, shapes, back) for name in got}, "late", str(far))
    return replace(check, executed=report.executed)


def _taken(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    shapes: Mapping[str, Sequence[str]],
    order: Mapping[str, NDArray[np.int64]],
) -> NDArray[Any]:
    """An array with its rows in another order along dims."""
    array = arrays[name]
    for axis, dim in enumerate(shapes[name]):
        array = array.take(order[dim], axis) if dim in order else array
    return array


def _in_words(fault: EmulationFault) -> EmulationFault:
    """The fault, where it is an access to what is not in memory, as one about rows."""
    if fault.kind != "outside backed windows":
        return fault
    access, _, _ = fault.sentence.partition(", which is inside")
    sentence = f"{access}, where no row lies that a number names: its offset is wrong in a table as long as this"
    return EmulationFault(replace(fault.fault, sentence=sentence), fault.registers)


def _window(o: Operand, names: Sequence[str], places: Mapping[str, NDArray[np.int64]]) -> Window:
    """The rows of a table that lie in memory, each whole."""
    return tuple(
        joined((row, row + 1) for row in places[d].tolist()) if d in places else ((0, size),)
        for d, size in zip(names, o.shape, strict=True)
    )
