"""Runs some CTAs of the real problem: the first, the last and those at the edges, over sparsely backed tensors.

The derived problems show that a kernel is right; this shows that it still is where offsets are as large as the real
problem makes them. Only the windows that the chosen tiles need are backed: along the grid's dims the tile, or those of
a whole cluster, along all others everything. All CTAs run that share a tile. A kernel that reads beyond (a stencil)
says so by its fault, and is then left to the derived problems.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.locality import raster
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.comparison import Check, compare_arrays
from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, PreparedKernel, SparseBuffer, emulate
from tinygpu.ptx.inputs import workspaces
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.maps import emulated_map
from tinygpu.ptx.operands import POISON
from tinygpu.ptx.trial import draw

# CTAs whose windows hold more elements than this, or whose workspaces more bytes, are not run.
MOST_ELEMENTS = 1 << 25
MOST_WORKSPACE_BYTES = 1 << 28
# Grids beyond this are not searched for the CTAs at their corners; the first and the last are always known.
MOST_CTAS = 1 << 22


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tile of the real problem, or those of a cluster, and who works on them.

    ctas   numbers of the CTAs
    total  CTAs of the grid
    tile   numbers of the tile along the axes, in clusters of them
    """

    ctas: range
    total: int
    tile: tuple[int, ...]

    def __str__(self) -> str:
        first, last = self.ctas[0], self.ctas[-1]
        name = f"CTA {first:,}" if first == last else f"CTAs {first:,} to {last:,}"
        return f"{name} of {self.total:,}"

    def rounds(self, kernel: Kernel, problem: Problem) -> int:
        """What it costs to run it, in rounds (see `tinygpu.ptx.plan.Run.rounds`)."""
        slots = sum(int(r.slots_of(problem.dim)) for r in kernel.rings)
        return len(self.ctas) * (1 + slots)


def chosen_clusters(kernel: Kernel, problem: Problem) -> list[Chosen]:
    """The tiles at the corners of the grid, the last first; none where they have no windows of their own.

    Of kernels with tensor maps the last and the first: offsets in a tensor are not computed, but given as coordinates.
    """
    if len({d for d, _ in kernel.tiles}) < len(kernel.tiles):
        return []  # two axes run along one dim: no window of it is the tile's own
    together = math.prod(kernel.clusters) * kernel.parts
    total = kernel.grid(problem)[0]
    found = corners(kernel, problem)[::-1]
    if kernel.maps:
        found = [found[0], *found[1:][-1:]]
    return [Chosen(range(n * together, (n + 1) * together), total, tile) for n, tile in found]


def corners(kernel: Kernel, problem: Problem) -> list[tuple[int, tuple[int, ...]]]:
    """(number, numbers along the axes) of the tiles, or clusters of them, at the corners of the grid."""
    counts = [-(-problem.dim[d] // (e * c)) for d, e, c in _extents(kernel)]
    total = int(np.prod(counts))
    at_corners = set(itertools.product(*[{0, c - 1} for c in counts]))
    numbers = np.arange(total) if total <= MOST_CTAS else np.array([0, total - 1])
    tiles = _tiles(kernel, counts, numbers)
    found = {}
    for number, tile in zip(numbers.tolist(), zip(*[t.tolist() for t in tiles], strict=True), strict=True):
        if tile in at_corners:
            found[tile] = number
    return sorted((number, tile) for tile, number in found.items())


def too_large(kernel: Kernel, problem: Problem, chosen: Chosen) -> str:
    """Why a chosen tile is not run; "" where it is."""
    elements = sum(_elements(_window(kernel, problem, o, chosen.tile)) for o in problem.operands)
    if elements > MOST_ELEMENTS:
        return f"their windows hold {elements:,} elements > {MOST_ELEMENTS:,}"
    size = sum(kernel.workspace_bytes(problem, chosen.total).values())
    if size > MOST_WORKSPACE_BYTES:
        return f"their workspaces have {size:,} bytes > {MOST_WORKSPACE_BYTES:,}"
    return ""


def _extents(kernel: Kernel) -> list[tuple[str, int, int]]:
    """(dim, elements of a tile, tiles of a cluster) per axis of the grid."""
    clusters = kernel.clusters or (1,) * len(kernel.tiles)
    return [(d, e, c) for (d, e), c in zip(kernel.tiles, clusters, strict=True)]


def _tiles(kernel: Kernel, counts: list[int], numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Tile numbers per axis of tiles in their order: the last axis runs fastest, the last two in groups of rows."""
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
    place = {
        d: (t * e * c, min((t + 1) * e * c, problem.dim[d]))
        for (d, e, c), t in zip(_extents(kernel), tile, strict=True)
    }
    names = dict(kernel.shapes)[operand.name]
    return tuple(place.get(d, (0, size)) for d, size in zip(names, operand.shape, strict=True))


def _elements(window: Window) -> int:
    return int(np.prod([b - a for a, b in window]))


def sampled_check(
    kernel: Kernel, code: PreparedKernel, machine: type[Machine], problem: Problem, chosen: Chosen, seed: int
) -> list[Check]:
    """The check of a chosen tile; none where it needs more than its own windows."""
    windows = {o.name: _window(kernel, problem, o, chosen.tile) for o in problem.operands}
    shapes = {name: tuple(b - a for a, b in window) for name, window in windows.items()}
    trial = draw(machine, problem, "integers", seed + chosen.ctas[0], shapes)
    pieces, buffers = {}, {}
    for o in problem.operands:
        array = np.full(shapes[o.name], 0, dtype=o.dtype.numpy)
        array.view(np.uint8)[...] = POISON
        pieces[o.name] = _lines(o, windows[o.name], trial.arrays.get(o.name, array))
        buffers[o.name] = _buffer(o, pieces[o.name])
    spaces = workspaces(kernel, problem, chosen.total)
    try:
        emulate(
            code,
            grid=chosen.total,
            block=(kernel.threads, 1, 1),
            cluster=kernel.cluster,
            args=_arguments(kernel, problem, buffers, dict(trial.scalars), spaces),
            dynamic_smem=kernel.smem_bytes,
            seed=seed,
            ctas=chosen.ctas,
        )
    except EmulationFault as fault:
        if fault.kind == "outside backed windows":
            return []
        return [Check("integers", "late", float("nan"), 0.0, 0, 0, str(fault), str(chosen))]
    got = {o.name: _gather(o, pieces[o.name], shapes[o.name]) for o in problem.operands if o.access != "in"}
    return [compare_arrays(trial, got, "late", str(chosen))]


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
    kernel: Kernel,
    problem: Problem,
    buffers: dict[str, SparseBuffer],
    scalars: dict[str, Any],
    spaces: dict[str, DeviceBuffer],
) -> list[Any]:
    maps = {m.name: m for m in kernel.maps}
    out: list[Any] = []
    for p in kernel.parameters:
        if p.kind == "pointer":
            out.append(buffers[p.name])
        elif p.kind == "map":
            spec = maps[p.name]
            out.append(emulated_map(spec, problem.operand(spec.tensor), buffers[spec.tensor]))
        elif p.kind == "workspace":
            out.append(spaces[p.name])
        elif p.kind == "ld":
            out.append(np.uint32(problem.operand(p.name).ld))
        elif p.kind == "dim":
            out.append(np.uint32(problem.dim[p.name]))
        else:
            out.append(scalars[p.name])
    return out
