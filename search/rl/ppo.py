"""Proximal policy optimisation: a policy gradient that stays near the policy which played the episodes.

Schulman et al., Proximal policy optimization algorithms, arXiv 1707.06347 (2017). The reward comes at the end and
nothing is discounted, so that every choice of an episode has the same return. Since the best points of a lesson are
known, some of them are shown as well: paths to them are made likelier, which keeps the policy from settling on what it
found first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.rl.forest import Episodes, Forest
from tinygpu.search.rl.network import Adam, expected, expected_gradient, log_softmax, scores, scores_gradient

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a policy is trained.

    lessons, episodes  lessons that are drawn for a step, and episodes of each
    epochs, batch      how often a step goes through its choices, and how many at a time
    clip               how far the chance of a value may move in a step before its gradient is dropped
    rate               of Adam, at the first step; it falls as 1 / (1 + step / settled)
    entropy            weight of the entropy, at the first step; it falls in the same way
    value              weight of the error of the expected reward
    decay              of the weights, as a share of the rate, at each step of Adam
    shown              paths to good points that are shown for each lesson of a step, beside the episodes
    temperature        how good these points are: each is drawn by exp(reward / temperature)
    show               weight of the cross entropy of the shown paths
    blur               spread of the noise on what describes a choice of a shown path: a lesson should not be recognised
    memory             the policy is a running mean of the weights, in which those of a step count so much at the next
    """

    lessons: int = 48
    episodes: int = 16
    epochs: int = 2
    batch: int = 1024
    clip: float = 0.2
    rate: float = 1e-3
    entropy: float = 0.05
    settled: float = 300.0
    value: float = 0.5
    decay: float = 0.05
    shown: int = 8
    temperature: float = 0.02
    show: float = 1.0
    blur: float = 0.15
    memory: float = 0.96


@dataclass(frozen=True, slots=True)
class Learned:
    """Figures of one step: mean reward of the episodes, mean entropy of the choices, variance that is explained."""

    reward: float
    entropy: float
    explained: float


def improve(forest: Forest, adam: Adam, settings: Settings, step: int, rng: np.random.Generator) -> Learned:
    """One step: plays episodes and follows their gradient. Changes the weights of `adam`."""
    drawn = rng.choice(len(forest), min(settings.lessons, len(forest)), replace=False)
    played = forest.play(adam.weights, np.repeat(drawn, settings.episodes), rng)
    spread = float(played.rewards.std()) + 1e-6
    advantages = ((played.rewards - played.expected) / spread).astype(np.float32)
    advantages -= advantages.mean()
    advantages /= advantages.std() + 1e-6
    fade = 1 / (1 + step / settings.settled)
    entropy = 0.0
    for _ in range(settings.epochs):
        order = rng.permutation(len(played.nodes))
        for start in range(0, len(order), settings.batch):
            rows = order[start : start + settings.batch]
            entropy = _follow(forest, adam, settings, played, advantages, rows, fade)
    if settings.show > 0 and settings.shown:
        nodes, picked = forest.demonstrate(np.repeat(drawn, settings.shown), settings.temperature, rng)
        order = rng.permutation(len(nodes))
        for start in range(0, len(order), settings.batch):
            rows = order[start : start + settings.batch]
            _imitate(forest, adam, settings, nodes[rows], picked[rows], fade, rng)
    error = float((played.rewards - played.expected).var())
    return Learned(float(played.final.mean()), entropy, 1 - error / (float(played.rewards.var()) + 1e-12))


def _follow(
    forest: Forest,
    adam: Adam,
    settings: Settings,
    played: Episodes,
    advantages: Array,
    rows: NDArray[np.int64],
    fade: float,
) -> float:
    """One step of Adam on some choices; returns the mean entropy."""
    weights = adam.weights
    choices = forest.choices(played.nodes[rows])
    edges, nodes = forest.described(choices)
    scored = scores(weights, edges, nodes, choices.owner)
    logs = log_softmax(scored.scores, choices.first, choices.owner)
    chances = np.exp(logs)
    taken = choices.first + played.picked[rows]
    ratio = np.exp(logs[taken] - played.log_chances[rows])
    gain = advantages[rows]
    # where the clipped term is the smaller one, it does not depend on the weights
    free = np.where(gain >= 0, ratio <= 1 + settings.clip, ratio >= 1 - settings.clip)
    pull = ratio * gain * free
    surprise = np.add.reduceat(-chances * logs, choices.first)
    slope = chances * (pull[choices.owner] + settings.entropy * fade * (logs + surprise[choices.owner]))
    slope[taken] -= pull
    slope /= len(rows)
    gradients = scores_gradient(weights, scored, slope.astype(np.float32))
    hopes, hidden = expected(weights, nodes)
    wrong = settings.value * 2 * (hopes - played.rewards[rows]) / len(rows)
    gradients |= expected_gradient(weights, nodes, hidden, wrong.astype(np.float32))
    adam.step(gradients, settings.rate * fade, settings.decay)
    return float(surprise.mean())


def _imitate(
    forest: Forest,
    adam: Adam,
    settings: Settings,
    nodes: NDArray[np.int64],
    picked: NDArray[np.int64],
    fade: float,
    rng: np.random.Generator,
) -> None:
    """One step of Adam that makes these values of these nodes likelier."""
    choices = forest.choices(nodes)
    edges, described = forest.described(choices)
    described += settings.blur * rng.standard_normal(described.shape, dtype=np.float32)
    scored = scores(adam.weights, edges, described, choices.owner)
    slope = np.exp(log_softmax(scored.scores, choices.first, choices.owner))
    slope[choices.first + picked] -= 1
    gradients = scores_gradient(adam.weights, scored, (settings.show / len(nodes) * slope).astype(np.float32))
    adam.step(gradients, settings.rate * fade, settings.decay)
