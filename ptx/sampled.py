"""Runs some CTAs of the real problem: the first, the last and those at the edges, over sparsely backed tensors.

The derived problem shows that a kernel is right; this shows that it still is where offsets are as large as the real
problem makes them. Only the windows that a CTA's own tile needs are backed: along the grid's dims the tile, along all
others everything. A kernel that reads beyond (a stencil) says so by its fault, and is then left to the derived problem.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.locality import raster
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.comparison import Check, compare_arrays
from tinygpu.ptx.emulator import EmulationFault, SparseBuffer, emulate
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.operands import POISON
from tinygpu.ptx.trial import draw

# A CTA whose windows hold more elements than this is not run.
MOST_ELEMENTS = 1 << 25
# Grids beyond this are not searched for the CTAs at their corners; the first and the last are always known.
MOST_CTAS = 1 << 22


def sampled_checks(kernel: Kernel, machine: type[Machine], problem: Problem, seed: int) -> list[Check]:
    """One check per chosen CTA of the real problem; none where its windows are too large or not its own tile's."""
    checks: list[Check] = []
    if kernel.clusters or kernel.maps or kernel.workspaces:
        return checks  # clusters and shared tiles run whole, maps describe whole tensors: left to the derived problem
    if len({d for d, _ in kernel.tiles}) < len(kernel.tiles):
        return checks  # two axes run along one dim: no window of it is the tile's own
    for cta, tile in chosen_ctas(kernel, problem):
        windows = {o.name: _window(kernel, problem, o, tile) for o in problem.operands}
        if sum(_elements(w) for w in windows.values()) > MOST_ELEMENTS:
            continue
        check = _run(kernel, machine, problem, cta, windows, seed)
        if check is not None:
            checks.append(check)
    return checks


def chosen_ctas(kernel: Kernel, problem: Problem) -> list[tuple[int, tuple[int, ...]]]:
    """(CTA number, tile numbers) of the corners of the grid."""
    counts = [-(-problem.dim[d] // e) for d, e in kernel.tiles]
    total = int(np.prod(counts))
    corners = set(itertools.product(*[{0, c - 1} for c in counts]))
    numbers = np.arange(total) if total <= MOST_CTAS else np.array([0, total - 1])
    tiles = _tiles(kernel, counts, numbers)
    found = {}
    for number, tile in zip(numbers.tolist(), zip(*[t.tolist() for t in tiles], strict=True), strict=True):
        if tile in corners:
            found[tile] = number
    return sorted((number, tile) for tile, number in found.items())


def _tiles(kernel: Kernel, counts: list[int], numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Tile numbers per axis of CTA numbers: the last axis runs fastest, the last two in groups of rows."""
    if len(counts) == 1:
        return [numbers]
    inner = counts[-2] * counts[-1]
    rows, columns = raster(numbers % inner, counts[-2], counts[-1], kernel.group)
    outer, rest = [], numbers // inner
    for count in reversed(counts[:-2]):
        outer.append(rest % count)
        rest = rest // count
    return [*reversed(outer), rows, columns]


Window = tuple[tuple[int, int], ...]  # per axis: first element, one past the last


def _window(kernel: Kernel, problem: Problem, operand: Operand, tile: tuple[int, ...]) -> Window:
    place = {d: (t * e, min((t + 1) * e, problem.dim[d])) for (d, e), t in zip(kernel.tiles, tile, strict=True)}
    names = dict(kernel.shapes)[operand.name]
    return tuple(place.get(d, (0, size)) for d, size in zip(names, operand.shape, strict=True))


def _elements(window: Window) -> int:
    return int(np.prod([b - a for a, b in window]))


def _run(
    kernel: Kernel, machine: type[Machine], problem: Problem, cta: int, windows: dict[str, Window], seed: int
) -> Check | None:
    shapes = {name: tuple(b - a for a, b in window) for name, window in windows.items()}
    trial = draw(machine, problem, "integers", seed + cta, shapes)
    pieces, buffers = {}, {}
    for o in problem.operands:
        array = np.full(shapes[o.name], 0, dtype=o.dtype.numpy)
        array.view(np.uint8)[...] = POISON
        pieces[o.name] = _lines(o, windows[o.name], trial.arrays.get(o.name, array))
        buffers[o.name] = _buffer(o, pieces[o.name])
    where = f"CTA {cta:,} of {kernel.grid(problem)[0]:,}"
    try:
        emulate(
            kernel.ptx,
            grid=kernel.grid(problem),
            block=(kernel.threads, 1, 1),
            args=_arguments(kernel, problem, buffers, dict(trial.scalars)),
            dynamic_smem=kernel.smem_bytes,
            seed=seed,
            ctas=[cta],
        )
    except EmulationFault as fault:
        if fault.kind == "outside backed windows":
            return None
        return Check("integers", "late", float("nan"), 0.0, 0, 0, str(fault), where)
    got = {o.name: _gather(o, pieces[o.name], shapes[o.name]) for o in problem.operands if o.access != "in"}
    return compare_arrays(trial, got, "late", where)


def _lines(operand: Operand, window: Window, array: NDArray[Any]) -> dict[int, NDArray[Any]]:
    """The window as contiguous lines by byte offset, in the order of the other axes."""
    contiguous = operand.contiguous_axis
    strides = operand.strides()
    others = [a for a in range(len(window)) if a != contiguous]
    moved = np.moveaxis(array, contiguous, -1)
    start = window[contiguous][0]
    out = {}
    for index in itertools.product(*[range(window[a][1] - window[a][0]) for a in others]):
        elements = start + sum((window[a][0] + i) * strides[a] for a, i in zip(others, index, strict=True))
        out[elements * operand.dtype.bytes] = np.array(moved[index])
    return out


def _gather(operand: Operand, lines: dict[int, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    contiguous = operand.contiguous_axis
    rest = tuple(s for a, s in enumerate(shape) if a != contiguous)
    stacked = np.stack(list(lines.values())).reshape(*rest, shape[contiguous])
    return np.moveaxis(stacked, -1, contiguous)


def _buffer(operand: Operand, lines: dict[int, NDArray[Any]]) -> SparseBuffer:
    offset = operand.align_bytes if operand.align_bytes < 256 else 0
    size = offset + operand.extent_elems * operand.dtype.bytes
    return SparseBuffer(size, {offset + k: v for k, v in lines.items()}, offset=offset, name=operand.name)


def _arguments(
    kernel: Kernel, problem: Problem, buffers: dict[str, SparseBuffer], scalars: dict[str, Any]
) -> list[Any]:
    out: list[Any] = []
    for p in kernel.parameters:
        if p.kind == "pointer":
            out.append(buffers[p.name])
        elif p.kind == "ld":
            out.append(np.uint32(problem.operand(p.name).ld))
        elif p.kind == "dim":
            out.append(np.uint32(problem.dim[p.name]))
        else:
            out.append(scalars[p.name])
    return out
