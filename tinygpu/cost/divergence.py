"""Divergence: warps in which an edge predicate such as `row < m and column < n` holds for some lanes only.

The warps form a grid: along each axis, warp k covers the indices k * step + (0 .. reach), and the lanes' offsets are
the product of what each axis spans. A matmul tile, a row of an element-wise kernel and a reduction are of this form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Edge:
    """One axis of an edge predicate `index < extent`, as the lanes of a grid of warps see it.

    extent        indices that exist: the predicate is index < extent
    warps         warps along this axis
    step          distance between the first indices of neighbouring warps
    lanes         lanes of one warp along this axis; the lanes of all axes multiply to 32
    lane_step     distance between the indices of neighbouring lanes
    """

    extent: int
    warps: int
    step: int
    lanes: int = 32
    lane_step: int = 1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("extent", self.extent, 0),
            ("warps", self.warps, 1),
            ("step", self.step, 1),
            ("lanes", self.lanes, 1),
            ("lane_step", self.lane_step, 1),
        ):
            if value < least:
                raise ValueError(f"[divergence] {name} must be at least {least}, not {value}")

    @property
    def reach(self) -> int:
        """Distance between the first and the last lane's index."""
        return (self.lanes - 1) * self.lane_step

    @property
    def warps_touching(self) -> int:
        """Warps of which at least one lane is inside: those whose first index is."""
        return min(self.warps, -(-self.extent // self.step))

    @property
    def warps_inside(self) -> int:
        """Warps of which every lane is inside: those whose last index is."""
        return min(self.warps, max(0, -(-(self.extent - self.reach) // self.step)))

    @property
    def lanes_inside(self) -> int:
        """Lanes inside, over all warps of this axis."""
        touching, inside = self.warps_touching, self.warps_inside
        # Warps between `inside` and `touching` are cut: warp k keeps ceil((extent - k * step) / lane_step) lanes.
        cut = (-(-(self.extent - warp * self.step) // self.lane_step) for warp in range(inside, touching))
        return inside * self.lanes + sum(cut)


@dataclass(frozen=True, slots=True)
class Divergence:
    """How a grid of warps meets an edge predicate.

    warps            warps that evaluate it
    divergent_warps  those with both outcomes among their lanes
    active_warps     those with at least one lane inside
    active_lanes     lanes inside
    """

    warps: int
    divergent_warps: int
    active_warps: int
    active_lanes: int

    @property
    def fraction(self) -> float:
        """Share of warps with both branch outcomes, 0 .. 1."""
        return self.divergent_warps / self.warps

    @property
    def lane_efficiency(self) -> float:
        """Share of lanes inside, 0 .. 1: what is left of each issued instruction."""
        return self.active_lanes / (32 * self.warps)

    def __str__(self) -> str:
        return (
            f"{self.divergent_warps:,} of {self.warps:,} warps diverge ({self.fraction:.2%}); "
            f"{self.lane_efficiency:.2%} of the lanes are active"
        )


def divergence(edges: Sequence[Edge]) -> Divergence:
    """Divergence of the conjunction of the edges' predicates over the product of their warps (closed form).

    >>> divergence([Edge(extent=100, warps=4, step=32)])
    Divergence(warps=4, divergent_warps=1, active_warps=4, active_lanes=100)
    """
    # A warp's lanes form a box, so it has a lane inside iff each axis has one, and all inside iff each axis has all:
    # divergent warps = prod(touching) - prod(inside).
    if math.prod(edge.lanes for edge in edges) != 32:
        raise ValueError(
            "[divergence] the lanes of all axes must multiply to the 32 of a warp, not "
            f"{' x '.join(str(edge.lanes) for edge in edges) or 'none'}"
        )
    touching = math.prod(edge.warps_touching for edge in edges)
    inside = math.prod(edge.warps_inside for edge in edges)
    return Divergence(
        warps=math.prod(edge.warps for edge in edges),
        divergent_warps=touching - inside,
        active_warps=touching,
        active_lanes=math.prod(edge.lanes_inside for edge in edges),
    )


def count_divergence(predicate: NDArray[np.bool_]) -> Divergence:
    """Divergence counted by definition from the outcome in every lane.

    predicate   (..., 32) outcome per lane, one row for each warp

    >>> count_divergence(np.arange(128).reshape(4, 32) < 100)
    Divergence(warps=4, divergent_warps=1, active_warps=4, active_lanes=100)
    """
    lanes = np.asarray(predicate)
    if lanes.ndim == 0 or lanes.shape[-1] != 32 or lanes.size == 0:
        raise ValueError(f"[divergence] one row of 32 lanes for each warp is needed, not the shape {lanes.shape}")
    lanes = lanes.astype(bool).reshape(-1, 32)
    some, every = lanes.any(axis=1), lanes.all(axis=1)
    return Divergence(len(lanes), int((some & ~every).sum()), int(some.sum()), int(lanes.sum()))
