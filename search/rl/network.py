"""The network: a score for every legal value of a choice, and the reward that is expected from a choice on.

The score of a value is a small perceptron of what the value leads to and of the choice that it belongs to, the same for
every parameter of every machine; any number of values can be scored. Forward and backward passes are written out in
NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Indices = NDArray[np.int64]
Weights = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the layers.

    edge, node  columns of what describes a value and a choice
    hidden      units of both layers of the scores
    value       units of the layer of the expected reward
    """

    edge: int
    node: int
    hidden: int = 128
    value: int = 64


def initial(shape: Shape, rng: np.random.Generator) -> dict[str, Array]:
    """Random weights; the scores begin near 0, so that every legal value is about as likely."""

    def layer(inputs: int, outputs: int, gain: float = 1.0) -> Array:
        drawn = gain * np.sqrt(2 / inputs) * rng.standard_normal((inputs, outputs))
        return np.asarray(drawn, dtype=np.float32)

    both = shape.edge + shape.node
    return {
        "edge": layer(both, shape.hidden)[: shape.edge],
        "node": layer(both, shape.hidden)[: shape.node],
        "first": np.zeros(shape.hidden, dtype=np.float32),
        "middle": layer(shape.hidden, shape.hidden),
        "second": np.zeros(shape.hidden, dtype=np.float32),
        "score": layer(shape.hidden, 1, 0.1),
        "value in": layer(shape.node, shape.value),
        "value first": np.zeros(shape.value, dtype=np.float32),
        "value out": layer(shape.value, 1, 0.1),
        "value last": np.zeros(1, dtype=np.float32),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a forward pass leaves for the backward pass.

    scores  (edges,)
    """

    edges: Array
    nodes: Array
    owner: Indices
    one: Array
    two: Array
    scores: Array


def scores(weights: Weights, edges: Array, nodes: Array, owner: Indices) -> Scored:
    """Scores of values.

    edges  (edges, ...) what describes each value
    nodes  (nodes, ...) what describes each choice
    owner  (edges,) the choice that each value belongs to
    """
    one: Array = edges @ weights["edge"]
    one += (nodes @ weights["node"] + weights["first"])[owner]
    np.maximum(one, 0, out=one)
    two: Array = one @ weights["middle"]
    two += weights["second"]
    np.maximum(two, 0, out=two)
    return Scored(edges, nodes, owner, one, two, (two @ weights["score"])[:, 0])


def scores_gradient(weights: Weights, scored: Scored, slope: Array) -> dict[str, Array]:
    """Gradients of the weights of the scores for the slope of a loss by each score, (edges,)."""
    two = slope[:, np.newaxis] * weights["score"].T
    two *= scored.two > 0
    one = two @ weights["middle"].T
    one *= scored.one > 0
    # edges of one choice lie side by side
    starts = np.flatnonzero(np.concatenate([[True], scored.owner[1:] != scored.owner[:-1]]))
    by_node = np.add.reduceat(one, starts, axis=0)
    return {
        "edge": scored.edges.T @ one,
        "node": scored.nodes.T @ by_node,
        "first": by_node.sum(axis=0),
        "middle": scored.one.T @ two,
        "second": two.sum(axis=0),
        "score": scored.two.T @ slope[:, np.newaxis],
    }


def expected(weights: Weights, nodes: Array) -> tuple[Array, Array]:
    """(nodes,) the expected reward, and the hidden layer for the backward pass."""
    hidden = np.maximum(nodes @ weights["value in"] + weights["value first"], 0)
    return (hidden @ weights["value out"])[:, 0] + weights["value last"][0], hidden


def expected_gradient(weights: Weights, nodes: Array, hidden: Array, slope: Array) -> dict[str, Array]:
    """Gradients of the weights of the expected reward for the slope of a loss by each, (nodes,)."""
    inner = slope[:, np.newaxis] * weights["value out"].T
    inner *= hidden > 0
    return {
        "value in": nodes.T @ inner,
        "value first": inner.sum(axis=0),
        "value out": hidden.T @ slope[:, np.newaxis],
        "value last": slope.sum(keepdims=True),
    }


def log_softmax(values: Array, first: Indices, owner: Indices) -> Array:
    """Log probabilities of the values of each choice.

    values  (edges,) scores, those of one choice side by side
    first   (choices,) where those of each choice begin
    owner   (edges,) the choice that each belongs to

    >>> np.exp(log_softmax(np.zeros(3, dtype=np.float32), np.array([0, 2]), np.array([0, 0, 1]))).tolist()
    [0.5, 0.5, 1.0]
    """
    shifted = values - np.maximum.reduceat(values, first)[owner]
    logs: Array = shifted - np.log(np.add.reduceat(np.exp(shifted), first))[owner]
    return logs


class Adam:
    """Adam with a bound on the norm of the gradient."""

    def __init__(self, weights: dict[str, Array], bound: float = 1.0) -> None:
        self.weights = weights
        self.bound = bound
        self.steps = 0
        self.mean = {name: np.zeros_like(w) for name, w in weights.items()}
        self.square = {name: np.zeros_like(w) for name, w in weights.items()}

    def step(self, gradients: Mapping[str, Array], rate: float, decay: float = 0.0) -> None:
        """Moves the weights by `rate` against the gradients, and by the share `rate` x `decay` towards 0."""
        norm = float(np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values())))
        shrink = min(1.0, self.bound / (norm + 1e-12))
        self.steps += 1
        near, far = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for name, gradient in gradients.items():
            given = gradient * np.float32(shrink)
            self.mean[name] += np.float32(0.1) * (given - self.mean[name])
            self.square[name] += np.float32(0.001) * (given * given - self.square[name])
            moved = (self.mean[name] / near) / (np.sqrt(self.square[name] / far) + 1e-8)
            self.weights[name] -= (rate * (moved + decay * self.weights[name])).astype(np.float32)
