"""A situation: a space as the policy sees it, before anything was evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.rl.figures import CONTEXT, FIGURES, context_of, demand_of, figures_of
from tinygpu.search.rl.tree import Tree, grow
from tinygpu.search.searchable import Point, Searchable, rows
from tinygpu.spaces.build import MachineSpace

Array = NDArray[np.float32]

# Points of the tree: a space of up to this many is listed, from a larger one so many are drawn uniformly.
TREE_POINTS = 16_384

# Columns that describe an edge beside the summary of its figures, and a node beside that of the edge above it.
EDGE_WIDTH = 3 * len(FIGURES) + 3
NODE_WIDTH = 3 * len(FIGURES) + 3 + len(CONTEXT)


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """A tree of choices with all that the policy is told.

    known    whether there is a machine behind the points; else every figure is 0, and the policy knows nothing
    figures  (leaves, FIGURES)
    edges    (edges, EDGE_WIDTH) summary of the figures below, share of the leaves, place of the value among its kind
    nodes    (nodes, NODE_WIDTH) summary of the figures below, leaves, values, how far down the choice is, the context
    """

    tree: Tree
    known: bool
    figures: Array
    edges: Array
    nodes: Array


def observe(space: Searchable, rng: np.random.Generator, most: int = TREE_POINTS) -> Situation:
    """The situation of a space; of more than `most` points a uniform sample is seen."""
    return situate(space, points_of(space, rng, most))


def points_of(space: Searchable, rng: np.random.Generator, most: int) -> list[Point]:
    """Every point of a space of up to `most`, else so many that are drawn uniformly."""
    if space.size > most:
        return list(space.sample(most, rng))
    return [
        point for _, columns in space.columns_by_part() for point in rows(columns) or [{}] if point or point in space
    ]


def situate(space: Searchable, points: Sequence[Point]) -> Situation:
    """The situation of a space of which `points` are seen."""
    tree, kept = grow(points, space.names)
    origin = getattr(space, "origin", None)
    if isinstance(origin, MachineSpace):
        figures, context = machine_figures(origin, [points[i] for i in kept.tolist()])
    else:
        figures = np.zeros((tree.leaves, len(FIGURES)), dtype=np.float32)
        context = np.zeros(len(CONTEXT), dtype=np.float32)
    return Situation(tree, isinstance(origin, MachineSpace), figures, *_described(tree, figures, context))


def machine_figures(space: MachineSpace, points: Sequence[Point]) -> tuple[Array, Array]:
    """(points, FIGURES) and (CONTEXT,) of candidates of one space."""
    names = [choice.name for choice in space.machine.choices()]
    number_of = {tuple(label for _, label in structure): number for number, structure in enumerate(space.structures)}
    index = [number_of[tuple(point[name] for name in names)] for point in points]
    figures = np.zeros((len(points), len(FIGURES)), dtype=np.float32)
    context = np.zeros(len(CONTEXT), dtype=np.float32)
    for number in sorted(set(index)):
        mine = [row for row, i in enumerate(index) if i == number]
        chosen: Mapping[str, Any] = {
            axis: np.array([points[row][axis] for row in mine], dtype=np.int64) for axis in space.traces[number].axes
        }
        demand = demand_of(space, number, chosen)
        figures[mine] = figures_of(demand, space.device)
        context = context_of(demand, space.device)
    return figures, context


def _described(tree: Tree, figures: Array, context: Array) -> tuple[Array, Array]:
    if not tree.nodes:
        return np.zeros((0, EDGE_WIDTH), dtype=np.float32), np.zeros((0, NODE_WIDTH), dtype=np.float32)
    summaries = tree.summaries(figures)
    owner = tree.owner()
    codes = tree.edge_codes()
    widths = np.array([max(len(values) - 1, 1) for values in tree.values])
    below = tree.high - tree.low
    inside = np.add.reduceat(below, tree.first)
    edges = np.empty((tree.edges, EDGE_WIDTH), dtype=np.float32)
    edges[:, :-3] = summaries
    edges[:, -3] = np.log2(below / inside[owner]) / 4
    edges[:, -2] = codes / widths[tree.depth[owner]]
    edges[:, -1] = below == 1
    width = len(FIGURES)
    nodes = np.empty((tree.nodes, NODE_WIDTH), dtype=np.float32)
    nodes[1:, : 3 * width] = summaries[tree.parent[1:]]
    nodes[0, : 3 * width] = np.concatenate([figures.mean(axis=0), figures.min(axis=0), figures.max(axis=0)])
    nodes[:, 3 * width] = np.log2(inside) / 8
    nodes[:, 3 * width + 1] = np.log2(tree.count) / 2
    nodes[:, 3 * width + 2] = tree.depth / len(tree.names)
    nodes[:, 3 * width + 3 :] = context
    return edges, nodes
