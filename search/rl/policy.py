"""A policy: weights of the network, with where they come from; saves and loads."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.rl.figures import CONTEXT, FIGURES
from tinygpu.search.rl.network import Shape, initial, log_softmax, scores
from tinygpu.search.rl.situation import EDGE_WIDTH, NODE_WIDTH, Situation
from tinygpu.search.rl.tree import Tree

Array = NDArray[np.float32]

SCHEMA = "tinygpu policy 1"
SHIPPED = Path(__file__).parent / "policy.npz"
INPUTS = Shape(EDGE_WIDTH, NODE_WIDTH)
# Edges whose scores are worked out at a time; a few arrays of this size stay in a core's cache.
_CHUNK = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A trained policy.

    weights     of the network (`tinygpu.search.rl.network`)
    provenance  how it was trained: seed, steps, settings, the triples and the devices that were held out
    """

    weights: Mapping[str, Array]
    provenance: Mapping[str, Any]

    def scores(self, situation: Situation) -> Array:
        """(edges,) the score of each value in a tree; where nothing is known, every leaf is as likely as any other."""
        tree = situation.tree
        if not situation.known or not tree.nodes:
            return np.asarray(np.log(tree.high - tree.low), dtype=np.float32)
        owner = tree.owner()
        out = np.empty(tree.edges, dtype=np.float32)
        node = 0
        while node < tree.nodes:
            last = max(int(np.searchsorted(tree.first, tree.first[node] + _CHUNK, side="right")) - 1, node + 1)
            edges = slice(int(tree.first[node]), int(tree.first[last]) if last < tree.nodes else tree.edges)
            described, mine = situation.nodes[node:last], owner[edges] - node
            out[edges] = scores(self.weights, situation.edges[edges], described, mine).scores
            node = last
        return out

    def save(self, path: str | Path) -> None:
        """Writes a NumPy archive; the file appears whole or not at all."""
        write_archive(path, {f"weights/{k}": v for k, v in self.weights.items()}, SCHEMA, self.provenance)

    @staticmethod
    def load(path: str | Path) -> Policy:
        """Raises ValueError where the file is no policy of this version."""
        arrays, provenance = read_archive(path, SCHEMA)
        weights = {name.removeprefix("weights/"): array for name, array in arrays.items()}
        wanted = {name: array.shape for name, array in initial(INPUTS, np.random.default_rng(0)).items()}
        if {name: array.shape for name, array in weights.items()} != wanted:
            raise ValueError(
                f"[{path}] the weights do not fit {len(FIGURES)} figures and {len(CONTEXT)} columns of context; train "
                "a policy for this version with tinygpu train"
            )
        return Policy(weights, provenance)


@cache
def shipped_policy() -> Policy:
    """The policy that comes with the package; read once."""
    return Policy.load(SHIPPED)


def leaf_log_chances(tree: Tree, values: Array) -> NDArray[np.float64]:
    """(leaves,) the logarithm of the chance that choices by these scores end at each leaf; they sum to 1.

    values  (edges,) scores
    """
    out = np.zeros(tree.leaves)
    if not tree.nodes:
        return out
    owner = tree.owner()
    total = log_softmax(values, tree.first, owner).astype(np.float64)
    # parents come before their children, level by level
    levels = np.flatnonzero(np.diff(tree.depth, prepend=-1))
    for start, stop in zip(levels, [*levels[1:], tree.nodes], strict=True):
        edges = slice(int(tree.first[start]), int(tree.first[stop]) if stop < tree.nodes else tree.edges)
        above = tree.parent[owner[edges]]
        total[edges] += np.where(above < 0, 0.0, total[np.maximum(above, 0)])
    last = tree.below < 0
    out[tree.low[last]] = total[last]
    return out


def write_archive(path: str | Path, arrays: Mapping[str, NDArray[Any]], schema: str, facts: Mapping[str, Any]) -> None:
    """A NumPy archive of arrays and JSON facts; it replaces what was there, whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with part.open("wb") as file:
        head = np.array(json.dumps({"schema": schema, **facts}))
        np.savez_compressed(file, **{"facts": head, **arrays})  # type: ignore[arg-type]
    os.replace(part, target)


def read_archive(path: str | Path, schema: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and facts of `write_archive`. Raises ValueError for any other file, OSError where there is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            facts = json.loads(str(file["facts"]))
            arrays = {name: file[name] for name in file.files if name != "facts"}
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile):
        facts, arrays = {}, {}
    if not isinstance(facts, dict) or facts.get("schema") != schema:
        raise ValueError(f"[{path}] this is no file of the kind {schema!r}")
    return arrays, {key: value for key, value in facts.items() if key != "schema"}
