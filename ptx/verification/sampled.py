"""Runs some CTAs of the real problem: the first, the last and those at the edges, over sparsely backed tensors.

The derived problems show that a kernel is right; this shows that it still is where offsets are as large as the real
problem makes them. Only the windows that the chosen tiles need are backed (`tinygpu.ptx.verification.cut`). All CTAs
run that share a tile, and all chosen tiles in one launch. A kernel that touches what no window of its program has says
so by its fault, on a derived problem too, and is then left to these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.locality import raster
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import EmulationFault, PreparedKernel
from tinygpu.ptx.launching.emulated import Buffer, emulate_launch
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.backed import Backed, shape_of
from tinygpu.ptx.verification.comparison import Check, compare_arrays
from tinygpu.ptx.verification.cut import cut_of
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.memory import workspaces
from tinygpu.ptx.verification.trial import draw
from tinygpu.schedulers.run_time import Numbers

# CTAs whose windows hold more elements than this, or whose workspaces more bytes, are not run.
MOST_ELEMENTS = 1 << 23
MOST_WORKSPACE_BYTES = 1 << 28
# Grids beyond this are not searched for the CTAs at their corners; the first and the last are always known.
MOST_CTAS = 1 << 22
# What the emulator calls a byte of a tensor that no window has.
OUTSIDE = "outside backed windows"
# Clusters that are asked one after another what they work on, where it is not those that are likely.
MOST_SEARCHED = 1 << 12


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
        """What it costs to run it, in rounds (see `tinygpu.ptx.verification.plan.Run.rounds`)."""
        slots = sum(int(r.slots_of(problem.dim)) for r in kernel.rings)
        return len(self.ctas) * (1 + slots)


def chosen_clusters(kernel: Kernel, problem: Problem) -> list[Chosen]:
    """The tiles at the corners of the grid, the last first; none where they have no windows of their own.

    Of kernels with tensor maps the last and the first: offsets in a tensor are not computed, but given as coordinates.
    """
    dims = [d for d, _ in kernel.tiles]
    if len(set(dims)) < len(dims) or any(d.isdigit() for d in dims) or kernel.groups:
        return []
    size, total = math.prod(kernel.clusters), kernel.grid(problem)[0]
    found = []
    for number, tile in corners(kernel, problem)[::-1]:
        if clusters := _working_on(kernel, problem, number):
            found.append(Chosen(range(clusters[0] * size, (clusters[-1] + 1) * size), total, tile))
    return [found[0], *found[1:][-1:]] if kernel.maps and found else found


def _working_on(kernel: Kernel, problem: Problem, tile: int) -> range:
    """The clusters that work on a tile and on no other, where as many are launched as there is work for; or none."""
    counts = kernel.counts(problem)
    total, rounds = kernel.grid(problem)[0] // math.prod(kernel.clusters), kernel.rounds_of(problem)

    def tiles(cluster: int) -> set[int]:
        run = Numbers(cluster, total, counts, rounds)
        walk = kernel.scheduler.walk(run, (0, 1))
        return {walk.work(run, item).tile for item in walk.items()}

    likely = range(tile * kernel.slices, (tile + 1) * kernel.slices)
    for clusters in (likely, range(total) if total <= MOST_SEARCHED else ()):
        taken = {cluster: tiles(cluster) for cluster in clusters if cluster < total}
        found = [cluster for cluster, those in taken.items() if tile in those]
        alone = all(taken[cluster] == {tile} for cluster in found)
        if found and alone and found == list(range(found[0], found[-1] + 1)):
            return range(found[0], found[-1] + 1)
    return range(0)


def corners(kernel: Kernel, problem: Problem) -> list[tuple[int, tuple[int, ...]]]:
    """(number, numbers along the axes) of the tiles, or clusters of them, at the corners of the grid."""
    counts = list(kernel.counts(problem))
    total = int(np.prod(counts))
    at_corners = set(itertools.product(*[{0, c - 1} for c in counts]))
    numbers = np.arange(total) if total <= MOST_CTAS else np.array([0, total - 1])
    tiles = _tiles(kernel, counts, numbers)
    found = {}
    for number, tile in zip(numbers.tolist(), zip(*[t.tolist() for t in tiles], strict=True), strict=True):
        if tile in at_corners:
            found[tile] = number
    return sorted((number, tile) for tile, number in found.items())


def why_not_judged(kernel: Kernel, machine: type[Machine], problem: Problem, chosen: Sequence[Chosen]) -> str:
    """Why no tile of the problem itself is judged; "" where some are."""
    dims = [d for d, _ in kernel.tiles]
    divided = {*dims}
    if kernel.groups:
        return "data say where tiles of groups lie"
    if number := next((d for d in dims if d.isdigit()), ""):
        return f"an axis of the grid has {number} tiles of no dim"
    if len(divided) < len(dims):
        return f"two axes of the grid go along {next(d for d in dims if dims.count(d) > 1)}"
    if not chosen:
        return "each works on several tiles"
    for d in machine.following_dims():
        by = next((name for name in d.reads if name in divided and d.name not in divided), "")
        of = [o.name for o in problem.operands if o.access != "in" and d.name in dict(kernel.shapes)[o.name]]
        if by and of:
            return f"what each has of {of[0]} is not known, whose {d.name} follows from {by}, which tiles divide"
    return cut_of(kernel, machine, problem, [one.tile for one in chosen]).unknown


def why_not_run(kernel: Kernel, machine: type[Machine], problem: Problem, chosen: Sequence[Chosen]) -> str:
    """Why chosen tiles are not run together; "" where they are."""
    tiles = [one.tile for one in chosen]
    cut = cut_of(kernel, machine, problem, tiles)
    if (elements := cut.elements(tiles)) > MOST_ELEMENTS:
        anywhere = " and ".join(f"those of {name} all along {dim}" for dim, name in cut.whole.items() if name)
        whole = f", {anywhere}" if anywhere else ""
        return f"their windows hold {elements:,} elements > {MOST_ELEMENTS:,}{whole}"
    size = sum(kernel.workspace_bytes(problem, chosen[0].total).values())
    if size > MOST_WORKSPACE_BYTES:
        return f"their workspaces have {size:,} bytes > {MOST_WORKSPACE_BYTES:,}"
    return ""


def _tiles(kernel: Kernel, counts: list[int], numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Tile numbers per axis of tiles in their order: the last axis runs fastest, the last two in groups of rows."""
    if len(counts) == 1:
        return [numbers]
    inner = counts[-2] * counts[-1]
    rows, columns = raster(numbers % inner, counts[-2], counts[-1], kernel.raster)
    outer, rest = [], numbers // inner
    for count in reversed(counts[:-2]):
        outer.append(rest % count)
        rest = rest // count
    return [*reversed(outer), rows, columns]


def sampled_checks(
    kernel: Kernel,
    code: PreparedKernel,
    machine: type[Machine],
    problem: Problem,
    chosen: Sequence[Chosen],
    seed: int,
    lines: LineInfo | None = None,
    at_most: int | None = None,
    small: Problem | None = None,
) -> list[Check]:
    """The checks of chosen tiles, which run in one launch; none where they touch more than the program's windows.

    at_most  largest whole numbers that are tried as inputs (see `tinygpu.ptx.verification.trial.draw`)
    small    a derived problem: of a kernel whose tiles need no more there, it is a mistake that they do here
    """
    tiles = [one.tile for one in chosen]
    cut = cut_of(kernel, machine, problem, tiles)
    windows = {o.name: cut.window(o, tiles) for o in problem.operands}
    shapes = {name: shape_of(window) for name, window in windows.items()}
    trial = draw(machine, cut.posed(tiles), "integers", seed, shapes, dict(kernel.point), at_most)
    held = {name: cut.renamed(name, array, tiles) for name, array in trial.arrays.items()}
    backed = {o.name: Backed(o, windows[o.name], held.get(o.name)) for o in problem.operands}
    total = chosen[0].total
    buffers: dict[str, Buffer] = {name: b.buffer() for name, b in backed.items()}
    buffers.update(workspaces(kernel, problem, total))
    try:
        ctas = [cta for one in chosen for cta in one.ctas]
        report = emulate_launch(kernel, code, problem, total, buffers, trial.scalars, seed=seed, ctas=ctas)
    except EmulationFault as fault:
        if fault.kind == OUTSIDE and (small is None or _reads_beyond(kernel, code, machine, small, seed)):
            return []
        where = "; ".join(map(str, chosen))
        said = str(fault) if lines is None else lines.fault(fault)
        return [Check("integers", "late", float("nan"), 0.0, 0, 0, said, where)]
    outputs = {o.name: (o, backed[o.name].array()) for o in problem.operands if o.access != "in"}
    checks = []
    for one in chosen:
        parts = {n: cut.part(o, tiles, one.tile) for n, (o, _) in outputs.items()}
        got = {n: array[parts[n]] for n, (_, array) in outputs.items()}
        check = compare_arrays(trial.part(parts, shapes), got, "late", str(one))
        checks.append(replace(check, executed=report.executed))
    return checks


def _reads_beyond(kernel: Kernel, code: PreparedKernel, machine: type[Machine], problem: Problem, seed: int) -> bool:
    """Whether a tile of a problem needs more than its own windows."""
    alone = ([one] for one in chosen_clusters(kernel, problem))
    return any(not sampled_checks(kernel, code, machine, problem, one, seed) for one in alone)
