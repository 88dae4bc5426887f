"""A decision diagram: the survivors of some axes, held without listing them.

Layer by layer, an edge is a value of one axis; a node is what the choices so far mean for the choices to come. Each
path from the root to the end is one survivor. With the number of completions at every node, counting, ranking,
uniform sampling and masking are walks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.spaces.exact import exact_type


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The edges of one axis.

    axis    its name
    width   number of values of the axis
    first   (nodes + 1,) the edges of node i are first[i] .. first[i + 1]
    choice  (edges,) index of the axis value; ascending within a node
    target  (edges,) node of the next layer
    """

    axis: str
    width: int
    first: NDArray[np.int64]
    choice: NDArray[Any]
    target: NDArray[Any]

    @property
    def nodes(self) -> int:
        return len(self.first) - 1

    def sources(self) -> NDArray[np.int64]:
        """(edges,) the node that each edge leaves."""
        return np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.first))


@dataclass(frozen=True, eq=False)
class Diagram:
    """The survivors of a product of axes, as layers; every edge lies on a path from the one root to the one end.

    layers  one per axis, in the order in which paths choose; at least one
    raw     number of combinations before filtering, exact
    """

    layers: tuple[Layer, ...]
    raw: int

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(layer.axis for layer in self.layers)

    @cached_property
    def _cumulative(self) -> tuple[NDArray[Any], ...]:
        """Per layer (edges + 1,): the number of completions of all edges before each."""
        out: list[NDArray[Any]] = []
        counts: NDArray[Any] = np.ones(1, dtype=exact_type(self.raw))
        for layer in reversed(self.layers):
            out.append(_running(counts[layer.target]))
            counts = out[-1][layer.first[1:]] - out[-1][layer.first[:-1]]
        return tuple(reversed(out))

    @cached_property
    def size(self) -> int:
        """Number of survivors, exact."""
        return int(self._cumulative[0][-1])

    def choices(self, ranks: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
        """The value indices of the survivors with these ranks, per axis; ranks are below `size`.

        Ranks go through the survivors in lexicographic order of value indices, first layer first.
        """
        out: dict[str, NDArray[np.int64]] = {}
        node = np.zeros(len(ranks), dtype=np.int64)
        rest = np.asarray(ranks, dtype=exact_type(self.raw))
        for layer, cumulative in zip(self.layers, self._cumulative, strict=True):
            position = cumulative[layer.first[node]] + rest
            edge = np.searchsorted(cumulative, position, side="right") - 1
            rest = position - cumulative[edge]
            out[layer.axis] = layer.choice[edge].astype(np.int64)
            node = layer.target[edge].astype(np.int64)
        return out

    def rank(self, choices: Mapping[str, int]) -> int | None:
        """The rank of one survivor given by value indices; None when it is not a survivor."""
        node, rank = 0, 0
        for layer, cumulative in zip(self.layers, self._cumulative, strict=True):
            if not layer.nodes:
                return None
            start, stop = int(layer.first[node]), int(layer.first[node + 1])
            edge = start + int(np.searchsorted(layer.choice[start:stop], choices[layer.axis]))
            if edge == stop or layer.choice[edge] != choices[layer.axis]:
                return None
            rank += int(cumulative[edge]) - int(cumulative[start])
            node = int(layer.target[edge])
        return rank

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """The value indices of all survivors, per axis, in order of rank."""
        out: dict[str, NDArray[np.int64]] = {}
        node = np.zeros(1, dtype=np.int64)
        for layer, cumulative in zip(self.layers, self._cumulative, strict=True):
            if not layer.nodes:
                return {name: np.zeros(0, dtype=np.int64) for name in self.axes}
            start, degree = layer.first[node], np.diff(layer.first)[node]
            # Edge of every (path so far, next value), paths in order.
            ends = np.cumsum(degree)
            edge = np.arange(ends[-1]) + np.repeat(start - (ends - degree), degree)
            completions = (cumulative[edge + 1] - cumulative[edge]).astype(np.int64)
            out[layer.axis] = np.repeat(layer.choice[edge].astype(np.int64), completions)
            node = layer.target[edge]
        return out

    def count(self, allowed: Mapping[str, NDArray[np.bool_]]) -> int:
        """Number of survivors whose value indices are allowed; axes without a mask are free."""
        return int(self._completions(allowed)[0].sum())  # there is one root, or none

    def legal(self, axis: str, allowed: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """(values of axis,) which values occur in a survivor whose other value indices are allowed."""
        depth = self.axes.index(axis)
        here = self.layers[depth]
        possible = np.zeros(here.width, dtype=np.bool_)
        if not self.size:
            return possible
        counts = self._completions(allowed)
        reached = np.ones(1, dtype=np.bool_)
        for layer, after in zip(self.layers[:depth], self.layers[1:], strict=False):
            live = reached[layer.sources()]
            if layer.axis in allowed:
                live &= allowed[layer.axis][layer.choice]
            reached = np.zeros(after.nodes, dtype=np.bool_)
            reached[layer.target[live]] = True
        live = reached[here.sources()] & (counts[depth + 1][here.target] > 0)
        possible[here.choice[live]] = True
        return possible

    def _completions(self, allowed: Mapping[str, NDArray[np.bool_]]) -> list[NDArray[Any]]:
        """Per layer (nodes,): the number of allowed paths to the end; one more entry for the end itself."""
        dtype = exact_type(self.raw)
        out: list[NDArray[Any]] = [np.ones(1, dtype=dtype)]
        for layer in reversed(self.layers):
            per_edge = out[-1][layer.target]
            if layer.axis in allowed:
                per_edge = per_edge * allowed[layer.axis][layer.choice].astype(dtype)
            total = _running(per_edge)
            out.append(total[layer.first[1:]] - total[layer.first[:-1]])
        return out[::-1]


def reduce(layers: list[Layer], raw: int) -> Diagram:
    """The diagram of layers that hold a survivor and may still hold dead ends: edges that none passes are dropped."""
    kept: list[Layer] = []
    alive = np.ones(1, dtype=np.bool_)
    for layer in reversed(layers):
        # The nodes of the layer after this one that are left, numbered anew.
        number = np.cumsum(alive) - 1
        live = alive[layer.target]
        edges = np.concatenate(([0], np.cumsum(live)))
        degree = np.diff(edges[layer.first])
        alive = degree > 0
        first = np.concatenate(([0], np.cumsum(degree[alive]))).astype(np.int64)
        kept.append(
            Layer(layer.axis, layer.width, first, layer.choice[live], number[layer.target[live]].astype(np.int32))
        )
    return Diagram(tuple(reversed(kept)), raw)


def _running(counts: NDArray[Any]) -> NDArray[Any]:
    """(n + 1,) sums of the first 0 .. n counts."""
    out = np.zeros(len(counts) + 1, dtype=counts.dtype)
    np.cumsum(counts, out=out[1:])
    return out
