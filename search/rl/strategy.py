"""The strategy "rl": a policy chooses parameter after parameter, at first as it learned elsewhere, then as it sees.

The first proposals are the policy's likeliest candidates, best first, without any evaluation. From then on a table with
one number for each value of each parameter shifts the policy's scores; evaluations move the table by the gradient of
the chances of the points tried, weighed by how good they were. In a space of which the policy knows nothing (a table of
measured points) the table alone learns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.evaluation import Evaluation, Trial
from tinygpu.search.rl.network import Indices, log_softmax
from tinygpu.search.rl.policy import Policy, leaf_log_chances
from tinygpu.search.rl.situation import TREE_POINTS, Situation, points_of, situate
from tinygpu.search.rl.tree import Tree
from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals

Array = NDArray[np.float32]

# Proposals before the first evaluation counts.
ZERO_SHOT = 8
# Of a large space the policy looks at a new sample, with the surroundings of the best points, after so many proposals.
_LOOK_AGAIN = 32
_BEST_POINTS = 4
# Candidates whose figures differ by less than this are much the same as far as the policy can tell: at first proposals
# are spread, later they may be close.
_SAME_AT_FIRST = 0.4
_SAME = 0.1
# Of the likeliest candidates so many are looked at for different ones.
_LOOKED_AT = 2_000
# The table learns after so many proposals.
_LEARN_AGAIN = 4
# The table: steps after each batch of evaluations, their size, and how much of the table is kept each time.
_STEPS = 12
_RATE = 0.4
_KEPT = 0.97
# Every so many proposals one is drawn by its chance; the others are the likeliest.
_DRAWN_EVERY = 3


class PolicySearch:
    """The strategy with a given policy: best first, then adapted; in the end every point has been proposed."""

    __name__ = "rl"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int, /) -> Proposals:
        unseen = UnseenPoints(space, seen, rng)
        table = Table()
        view = View(self._policy, situate(space, _look(space, seen, rng)))
        chances = view.log_chances(table)
        proposed, learned, looked = 0, ZERO_SHOT, ZERO_SHOT
        while True:
            if space.size > TREE_POINTS and proposed >= looked + _LOOK_AGAIN:
                view = View(self._policy, situate(space, _look(space, seen, rng)))
                looked = learned = proposed
            if proposed >= learned:
                table.learn(view, list(seen))
                chances = view.log_chances(table)
                learned = proposed + _LEARN_AGAIN
            first = proposed < ZERO_SHOT
            count = min(batch, ZERO_SHOT - proposed) if first else batch
            # Where nothing is known at first, the likeliest point is no better than any other.
            guided = view.situation.known if first else proposed % _DRAWN_EVERY != 0
            keys = chances if guided else chances + rng.gumbel(size=len(chances))
            chosen = view.unseen(keys, seen, count, _SAME_AT_FIRST if first else _SAME) or unseen.draw(batch)
            if not chosen:
                return
            proposed += len(chosen)
            yield chosen


def first_proposals(policy: Policy, situation: Situation, count: int = ZERO_SHOT) -> list[dict[str, Value]]:
    """The candidates that the policy finds most promising, best first, before any evaluation."""
    view = View(policy, situation)
    return [dict(point) for point in view.unseen(view.log_chances(Table()), Seen(), count)]


def _look(space: Searchable, seen: Seen, rng: np.random.Generator) -> list[Point]:
    """Points that the policy is shown: a sample, and what lies around the best points so far."""
    found = points_of(space, rng, TREE_POINTS)
    if space.size > TREE_POINTS:
        tried = sorted((trial for trial in seen if trial.value is not None), key=lambda trial: trial.evaluation.cost)
        found += [trial.point for trial in tried]
        found += [point for trial in tried[:_BEST_POINTS] for point in space.neighbours(trial.point)]
    return found


class Table:
    """One number for each value of each parameter, added to the scores of the policy."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, Value | None], float] = {}

    def shifts(self, tree: Tree) -> list[Array]:
        """Per parameter (values,) the numbers of its values."""
        return [
            np.array([self.numbers.get((name, value), 0.0) for value in values], dtype=np.float32)
            for name, values in zip(tree.names, tree.values, strict=True)
        ]

    def learn(self, view: View, trials: Sequence[Trial]) -> None:
        """Some steps along the gradient of the chances of the points tried, weighed by how good they are."""
        tree = view.tree
        leaves = [(leaf, trial.evaluation) for trial in trials if (leaf := view.leaf(trial.point)) is not None]
        if len(leaves) < 2 or not tree.nodes:
            return
        gains = _gains([evaluation for _, evaluation in leaves])
        paths = [view.path(leaf) for leaf, _ in leaves]
        taken = np.array([edge for path in paths for edge in path], dtype=np.int64)
        gain = np.repeat(gains, [len(path) for path in paths])
        nodes = view.owner[taken]
        count = tree.count[nodes]
        first = np.cumsum(count) - count
        owner = np.repeat(np.arange(len(nodes)), count)
        edges = np.arange(len(owner)) - first[owner] + tree.first[nodes][owner]
        picked = first + taken - tree.first[nodes]
        shifts = self.shifts(tree)
        starts = np.cumsum([0, *(len(shift) for shift in shifts)])
        flat = np.concatenate(shifts)
        place = starts[tree.depth[nodes]][owner] + view.codes[edges]
        for _ in range(_STEPS):
            logs = log_softmax(view.scores[edges] + flat[place], first, owner)
            slope = -np.exp(logs) * gain[owner]
            slope[picked] += gain
            flat += _RATE * np.bincount(place, weights=slope, minlength=len(flat)).astype(np.float32) / len(leaves)
        flat *= _KEPT
        for name, values, start in zip(tree.names, tree.values, starts, strict=False):
            self.numbers |= {(name, value): float(flat[start + i]) for i, value in enumerate(values)}


def _gains(evaluations: Sequence[Evaluation]) -> NDArray[np.float64]:
    """(evaluations,) from -1 to 1 by rank: the best half is worth choosing again; failures are the worst of all."""
    costs = np.array([evaluation.cost for evaluation in evaluations])
    ranks = np.array([np.mean(costs < cost) + np.mean(costs == cost) / 2 for cost in costs])
    return np.asarray(1 - 2 * ranks, dtype=np.float64)


class View:
    """A situation with the policy's scores."""

    def __init__(self, policy: Policy, situation: Situation) -> None:
        self.situation = situation
        self.tree = situation.tree
        self.scores = policy.scores(situation)
        self.owner: Indices = self.tree.owner()
        self.codes = self.tree.edge_codes()
        self._leaves: dict[tuple[int, ...], int] = {}
        self._paths: dict[int, list[int]] = {}

    def leaf(self, point: Point) -> int | None:
        """The leaf of a point; None where it is not among those that the policy was shown."""
        if not self._leaves:
            self._leaves = {tuple(row): leaf for leaf, row in enumerate(self.tree.codes.tolist())}
            self._numbers = [{v: code for code, v in enumerate(values)} for values in self.tree.values]
        codes = (numbers.get(point.get(n)) for n, numbers in zip(self.tree.names, self._numbers, strict=True))
        found = tuple(-1 if code is None else code for code in codes)
        return self._leaves.get(found)

    def log_chances(self, table: Table) -> NDArray[np.float64]:
        """(leaves,) how likely each point is chosen."""
        shifts = table.shifts(self.tree)
        starts = np.cumsum([0, *(len(shift) for shift in shifts)])
        place = starts[self.tree.depth[self.owner]] + self.codes
        flat = np.concatenate(shifts) if shifts else np.zeros(0, dtype=np.float32)
        return leaf_log_chances(self.tree, self.scores + flat[place])

    def path(self, leaf: int) -> list[int]:
        """The edges from the root to a leaf."""
        if leaf not in self._paths:
            self._paths[leaf] = self.tree.path(leaf)
        return self._paths[leaf]

    def unseen(self, keys: NDArray[np.float64], seen: Seen, count: int, same: float = _SAME_AT_FIRST) -> list[Point]:
        """Unseen points by their keys, the greatest first; those that look like one before them, or like one that was
        tried, come last.

        keys  (leaves,) logarithms of chances, or with Gumbel noise for points that are drawn by their chances
        same  how little the figures of points that look alike differ
        """
        figures = self.situation.figures
        known = [leaf for trial in seen if (leaf := self.leaf(trial.point)) is not None] if len(seen) else []
        chosen: list[int] = []
        alike: list[int] = []
        for leaf in np.argsort(-keys, kind="stable").tolist():
            if len(chosen) == count:
                break
            point = self.tree.point(leaf)
            if point in seen:
                continue
            close = np.abs(figures[[*known, *chosen]] - figures[leaf]).max(axis=1) if known or chosen else np.ones(1)
            if self.situation.known and close.min() < same and len(alike) < _LOOKED_AT:
                alike.append(leaf)
            else:
                chosen.append(leaf)
        chosen += alike[: count - len(chosen)]
        return [self.tree.point(leaf) for leaf in chosen]
