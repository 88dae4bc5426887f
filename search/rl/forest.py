"""A forest: many situations with their rewards, in which episodes run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.rl.network import Indices, Weights, expected, log_softmax, scores
from tinygpu.search.rl.situation import Situation

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """A situation of which every leaf's reward is known.

    name     machine, problem and device, in words
    rewards  (leaves,) at most 0; 0 is the best known
    """

    name: str
    situation: Situation
    rewards: Array

    def __post_init__(self) -> None:
        leaves = self.situation.tree.leaves
        if self.rewards.shape != (leaves,):
            raise ValueError(f"[{self.name}] {self.rewards.shape} rewards for {leaves} leaves; each leaf has one")
        if not np.all(np.isfinite(self.rewards)) or np.any(self.rewards > 0):
            raise ValueError(f"[{self.name}] rewards are finite and at most 0, which is the best known")


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Some choices with all legal values of each, those of one choice side by side.

    nodes   (choices,) which nodes of the forest they are
    edges   (values,) which edges
    first   (choices,) where the values of each begin
    owner   (values,) which choice each belongs to
    """

    nodes: Indices
    edges: Indices
    first: Indices
    owner: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """What was chosen in some episodes, choice after choice.

    nodes        (steps,) nodes of the forest
    picked       (steps,) which value of the choice was taken, from 0
    log_chances  (steps,) how likely it was
    expected     (steps,) the reward that was expected
    rewards      (steps,) the reward at the end of the episode
    final        (episodes,) the same, once per episode
    lessons      (episodes,) which lesson each was
    """

    nodes: Indices
    picked: Indices
    log_chances: Array
    expected: Array
    rewards: Array
    final: Array
    lessons: Indices


class Forest:
    """Lessons side by side: nodes, edges and leaves are numbered through."""

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        kept = [lesson for lesson in lessons if lesson.situation.tree.nodes]
        if not kept:
            raise ValueError("there is nothing to learn: no lesson has a choice; give spaces with several points")
        self.names = tuple(lesson.name for lesson in kept)
        trees = [lesson.situation.tree for lesson in kept]
        nodes = np.cumsum([0, *(t.nodes for t in trees)])
        edges = np.cumsum([0, *(t.edges for t in trees)])
        leaves = np.cumsum([0, *(t.leaves for t in trees)])
        self.roots: Indices = nodes[:-1].astype(np.int64)
        self.first = np.concatenate([t.first + e for t, e in zip(trees, edges[:-1], strict=True)])
        self.count = np.concatenate([t.count for t in trees])
        self.leaf = np.concatenate([t.low + n for t, n in zip(trees, leaves[:-1], strict=True)])
        below = [np.where(t.below < 0, -1, t.below + n) for t, n in zip(trees, nodes[:-1], strict=True)]
        self.below = np.concatenate(below)
        self.leaves = leaves.astype(np.int64)
        self.rewards = np.concatenate([lesson.rewards for lesson in kept]).astype(np.float32)
        # half precision: the features of a few hundred lessons fit into memory
        self.edges = np.concatenate([lesson.situation.edges.astype(np.float16) for lesson in kept])
        self.nodes = np.concatenate([lesson.situation.nodes.astype(np.float16) for lesson in kept])

    def __len__(self) -> int:
        return len(self.roots)

    def choices(self, nodes: Indices) -> Choices:
        """The legal values of these nodes."""
        count = self.count[nodes]
        first = np.cumsum(count) - count
        owner = np.repeat(np.arange(len(nodes)), count)
        edges = np.arange(int(count.sum())) - first[owner] + self.first[nodes][owner]
        return Choices(nodes, edges, first, owner)

    def described(self, choices: Choices) -> tuple[Array, Array]:
        """What the network is told of the values and of the choices."""
        return self.edges[choices.edges].astype(np.float32), self.nodes[choices.nodes].astype(np.float32)

    def play(self, weights: Weights, lessons: Indices, rng: np.random.Generator, greedy: bool = False) -> Episodes:
        """One episode per entry of `lessons`; each takes values by their chances, or always the likeliest."""
        at = self.roots[lessons]
        running = np.arange(len(lessons))
        final = np.zeros(len(lessons), dtype=np.float32)
        nodes, picked, chances, hopes, episode = [], [], [], [], []
        while len(running):
            choices = self.choices(at)
            edges, described = self.described(choices)
            logs = log_softmax(scores(weights, edges, described, choices.owner).scores, choices.first, choices.owner)
            keys = logs if greedy else logs + rng.gumbel(size=len(logs))
            taken = _best(keys, choices)
            nodes.append(at)
            picked.append(taken - choices.first)
            chances.append(logs[taken])
            hopes.append(expected(weights, described)[0])
            episode.append(running)
            edge = choices.edges[taken]
            after = self.below[edge]
            ended = after < 0
            final[running[ended]] = self.rewards[self.leaf[edge[ended]]]
            running, at = running[~ended], after[~ended]
        order = np.concatenate(episode)
        return Episodes(
            np.concatenate(nodes),
            np.concatenate(picked),
            np.concatenate(chances),
            np.concatenate(hopes).astype(np.float32),
            final[order],
            final,
            lessons,
        )

    def paths(self, lessons: Indices, leaves: Indices) -> tuple[Indices, Indices]:
        """(steps,) the nodes on the way to leaves, and which value of each leads there, from 0.

        lessons, leaves  (paths,) where each path begins, and the leaf of the forest where it ends
        """
        at, ends = self.roots[lessons], leaves
        nodes, picked = [], []
        while len(at):
            choices = self.choices(at)
            before = self.leaf[choices.edges] <= ends[choices.owner]
            taken = np.add.reduceat(before.astype(np.int64), choices.first) - 1
            nodes.append(at)
            picked.append(taken)
            at = self.below[self.first[at] + taken]
            ends, at = ends[at >= 0], at[at >= 0]
        return np.concatenate(nodes), np.concatenate(picked)

    def demonstrate(self, lessons: Indices, temperature: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
        """As `paths`, to a leaf of each lesson that is drawn by exp(reward / temperature): nearly always a good one."""
        ends = []
        for lesson in lessons.tolist():
            low, high = int(self.leaves[lesson]), int(self.leaves[lesson + 1])
            weights = np.exp(self.rewards[low:high].astype(np.float64) / temperature)
            total = np.cumsum(weights)
            ends.append(low + min(int(np.searchsorted(total, rng.random() * total[-1])), high - low - 1))
        return self.paths(lessons, np.array(ends, dtype=np.int64))


def _best(keys: NDArray[np.floating], choices: Choices) -> Indices:
    """(choices,) the value with the greatest key of each, the first of equal ones."""
    greatest = np.maximum.reduceat(keys, choices.first)[choices.owner]
    hits = np.flatnonzero(keys == greatest)
    _, where = np.unique(choices.owner[hits], return_index=True)
    return np.asarray(hits[where], dtype=np.int64)
