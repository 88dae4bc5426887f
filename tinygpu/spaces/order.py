"""In which order axes are eliminated: an estimate of the work, made once per space.

The order changes the work and the order of the funnel's rows, never a count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# From so many first axes the greedy order is tried; the cheapest is taken.
_STARTS = 5


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the estimate knows of a condition: the axes that it reads and the share of points that it admits."""

    axes: frozenset[str]
    share: float


def plan_order(widths: Mapping[str, int], rules: Sequence[Estimate]) -> tuple[str, ...]:
    """The axes (name: number of values) in the order of least estimated work, connected axes side by side."""
    order: list[str] = []
    for group in connected(tuple(widths), [r.axes for r in rules]):
        order += _Plan(group, widths, rules).best()
    return tuple(order)


def connected(names: Sequence[str], edges: Sequence[frozenset[str]]) -> list[tuple[str, ...]]:
    """The names in groups that no edge (a set of names) joins; groups and members in the order of `names`."""
    leader = {n: n for n in names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for edge in edges:
        for one, other in pairwise(n for n in edge if n in leader):
            leader[find(one)] = find(other)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(find(name), []).append(name)
    return [tuple(g) for g in groups.values()]


class _Plan:
    """Orders one connected group. Sets of axes are bit masks, and rules over the same axes are one rule."""

    def __init__(self, group: Sequence[str], widths: Mapping[str, int], rules: Sequence[Estimate]) -> None:
        self.group = group
        self.width = [float(widths[n]) for n in group]
        bit = {n: 1 << i for i, n in enumerate(group)}
        self.shares: dict[int, float] = {}
        for rule in rules:
            mask = sum(bit[n] for n in rule.axes if n in bit)
            if mask:
                self.shares[mask] = self.shares.get(mask, 1.0) * rule.share

    def best(self) -> list[str]:
        everything = range(len(self.group))
        pulled = {i: len([mask for mask in self.shares if mask >> i & 1]) for i in everything}
        starts = sorted(everything, key=lambda i: (-pulled[i], self.width[i]))[:_STARTS]
        plans = [self._declared(), *(self._greedy(start) for start in starts)]
        _, order = min(plans, key=lambda plan: plan[0])
        return [self.group[i] for i in order]

    def _greedy(self, start: int) -> tuple[float, list[int]]:
        order, left = [start], [i for i in range(len(self.group)) if i != start]
        chosen, pending = 1 << start, list(self.shares.items())
        work, rows, pending = self._step(1.0, chosen, start, pending)
        while left:
            steps = [(i, self._step(rows, chosen | 1 << i, i, pending)) for i in left]
            pick, (added, rows, pending) = min(steps, key=lambda s: (s[1][1], s[1][0]))
            work += added
            chosen |= 1 << pick
            order.append(pick)
            left.remove(pick)
        return work, order

    def _declared(self) -> tuple[float, list[int]]:
        work, rows, pending = 0.0, 1.0, list(self.shares.items())
        order = list(range(len(self.group)))
        for i in order:
            added, rows, pending = self._step(rows, (2 << i) - 1, i, pending)
            work += added
        return work, order

    def _step(
        self, rows: float, chosen: int, axis: int, pending: list[tuple[int, float]]
    ) -> tuple[float, float, list[tuple[int, float]]]:
        """Work of adding an axis to those before it (`chosen` has it too), states after it, and rules still pending."""
        cells = rows * self.width[axis]
        after, left, read = cells, [], 0
        for mask, share in pending:
            if mask & ~chosen:
                left.append((mask, share))
                read |= mask
            else:
                after *= share
        states, frontier = 1.0, read & chosen
        for i, width in enumerate(self.width):
            if frontier >> i & 1:
                states *= width
        return cells, min(after, states), left
