"""The tree of choices: every admitted point of a list is a path, parameter after parameter, to a leaf.

A choice between values of which one only is left is none, and has no node. What a policy sees of a value is a summary
of the points that are left once it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.searchable import Point, Value

Array = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes are choices; an edge is one legal value of a choice. Leaves are the points, in the tree's own order.

    names         the parameters, in the order in which they are chosen
    values        per parameter: its values, by code; None for points that do not have the parameter
    codes         (leaves, names) the code of each value
    depth         (nodes,) which parameter is chosen; node 0 is the root, and parents come before their children
    first, count  (nodes,) the edges of a node: first .. first + count - 1, in the order of their codes
    low, high     (edges,) the leaves below
    below         (edges,) the node that comes next, or -1 where a single leaf is left
    parent        (nodes,) the edge that leads here; -1 for the root
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value | None, ...], ...]
    codes: NDArray[np.int32]
    depth: Indices
    first: Indices
    count: Indices
    low: Indices
    high: Indices
    below: Indices
    parent: Indices

    @property
    def leaves(self) -> int:
        return len(self.codes)

    @property
    def nodes(self) -> int:
        return len(self.depth)

    @property
    def edges(self) -> int:
        return len(self.low)

    def point(self, leaf: int) -> dict[str, Value]:
        """The point of a leaf."""
        found = ((n, v[c]) for n, v, c in zip(self.names, self.values, self.codes[leaf].tolist(), strict=True))
        return {name: value for name, value in found if value is not None}

    def owner(self) -> Indices:
        """(edges,) the node of each edge."""
        return np.repeat(np.arange(self.nodes), self.count)

    def edge_codes(self) -> Indices:
        """(edges,) the code of the value that each edge stands for."""
        return self.codes[self.low, self.depth[self.owner()]].astype(np.int64)

    def path(self, leaf: int) -> list[int]:
        """The edges from the root to a leaf."""
        out: list[int] = []
        node = 0 if self.nodes else -1
        while node >= 0:
            first = int(self.first[node])
            edges = self.low[first : first + int(self.count[node])]
            out.append(first + int(np.searchsorted(edges, leaf, side="right")) - 1)
            node = int(self.below[out[-1]])
        return out

    def summaries(self, figures: Array) -> Array:
        """(edges, 3 x figures) mean, least and greatest figures over the leaves below each edge."""
        width = figures.shape[1]
        out = np.empty((self.edges, 3 * width), dtype=np.float32)
        levels = self.depth[self.owner()]
        for level in np.unique(levels).tolist():
            mine = np.flatnonzero(levels == level)
            # The edges of a level lie side by side, with gaps; reduceat reads [low, high, low, high ...].
            bounds = np.stack([self.low[mine], self.high[mine]], axis=1).ravel()
            bounds = bounds[:-1] if bounds[-1] == len(figures) else bounds
            sums = np.add.reduceat(figures, bounds, axis=0, dtype=np.float64)[::2]
            out[mine, :width] = sums / (self.high[mine] - self.low[mine])[:, np.newaxis]
            out[mine, width : 2 * width] = np.minimum.reduceat(figures, bounds, axis=0)[::2]
            out[mine, 2 * width :] = np.maximum.reduceat(figures, bounds, axis=0)[::2]
        return out


def grow(points: Sequence[Point], names: Sequence[str]) -> tuple[Tree, Indices]:
    """The tree of `points`, and (leaves,) which of the points each leaf is; of equal points the first.

    names  every parameter that a point has, in the order in which they are chosen
    """
    order: list[tuple[Value | None, ...]] = []
    codes = np.empty((len(points), len(names)), dtype=np.int32)
    for column, name in enumerate(names):
        found = [point.get(name) for point in points]
        distinct = sorted(set(found), key=_rank)
        number = {value: code for code, value in enumerate(distinct)}
        codes[:, column] = [number[value] for value in found]
        order.append(tuple(distinct))
    kept = np.lexsort((np.arange(len(points)), *codes.T[::-1])) if len(names) else np.zeros(min(len(points), 1), int)
    codes = codes[kept]
    # (leaves,) the first parameter in which a point differs from the one before it
    differs = codes[1:] != codes[:-1]
    new = np.concatenate([np.ones(min(len(codes), 1), dtype=bool), differs.any(axis=1)])
    kept, codes = kept[new], codes[new]
    at = np.argmax(codes[1:] != codes[:-1], axis=1) if len(codes) > 1 else np.zeros(0, dtype=np.int64)
    return _connect(tuple(names), tuple(order), codes, at), kept.astype(np.int64)


def _rank(value: Value | None) -> tuple[int, int, str]:
    """Nothing first, then numbers, then words."""
    if isinstance(value, str):
        return (2, 0, value)
    return (0, 0, "") if value is None else (1, int(value), "")


def _connect(
    names: tuple[str, ...], values: tuple[tuple[Value | None, ...], ...], codes: NDArray[np.int32], at: Indices
) -> Tree:
    leaves = len(codes)
    depth: list[Indices] = []
    count: list[Indices] = []
    low: list[Indices] = []
    high: list[Indices] = []
    above: list[Indices] = []
    owner = np.full(leaves, -1, dtype=np.int64)  # the edge that leads to the group of leaves that begins here
    edges = 0
    for level in range(len(names)):
        starts = np.concatenate([[0], np.flatnonzero(at < level) + 1])
        parts = np.concatenate([[0], np.flatnonzero(at <= level) + 1])
        group = np.searchsorted(starts, parts, side="right") - 1
        counts = np.bincount(group, minlength=len(starts))
        branching = counts > 1
        if not branching.any():
            continue
        chosen = branching[group]
        ends = np.append(parts[1:], leaves)
        depth.append(np.full(int(branching.sum()), level, dtype=np.int64))
        count.append(counts[branching])
        above.append(owner[starts[branching]])
        low.append(parts[chosen])
        high.append(ends[chosen])
        owner[parts[chosen]] = edges + np.arange(int(chosen.sum()))
        edges += int(chosen.sum())

    def joined(pieces: list[Indices]) -> Indices:
        return np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, dtype=np.int64)

    counts, parent = joined(count), joined(above)
    below = np.full(edges, -1, dtype=np.int64)
    below[parent[1:]] = np.arange(1, len(parent))
    return Tree(
        names,
        values,
        codes,
        joined(depth),
        np.cumsum(counts) - counts,
        counts,
        joined(low),
        joined(high),
        below,
        parent,
    )
