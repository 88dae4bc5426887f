"""A policy: weights of the network, with where they come from; saves and loads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.files import FileError
from tinygpu.files.archive import Archive
from tinygpu.files.json_text import dumped, parse
from tinygpu.files.reading import read_file
from tinygpu.files.writing import write_file
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
# Bytes of a policy or checkpoint; the shipped policy has some 200 KB.
_MOST_BYTES = 2**27
BEGINS = (b"PK\x03\x04",)


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
        """Raises FileError where the file is no policy of this version."""
        arrays, provenance = read_archive(path, SCHEMA)
        weights = {name.removeprefix("weights/"): array for name, array in arrays.items()}
        wanted = {name: array.shape for name, array in initial(INPUTS, np.random.default_rng(0)).items()}
        if {name: array.shape for name, array in weights.items()} != wanted:
            raise FileError(
                f"{path}: the weights do not fit {len(FIGURES)} figures and {len(CONTEXT)} columns of context; train "
                "a policy for this version with tinygpu train"
            )
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in weights.values()):
            raise FileError(f"{path}: the weights must be finite numbers of 32 bits")
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
    """A NumPy archive of arrays and JSON facts; it replaces what was there if that is one too, whole or not at all."""
    held = io.BytesIO()
    head = np.array(dumped({"schema": schema, **facts}))
    np.savez_compressed(held, **{"facts": head, **arrays})  # type: ignore[arg-type]
    write_file(path, held.getvalue(), BEGINS, f"a file of the kind {schema!r}")


def read_archive(path: str | Path, schema: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and facts of `write_archive`. Raises FileError for any other file."""
    where = str(path)
    arrays = dict(Archive(read_file(path, _MOST_BYTES), where, _MOST_BYTES).arrays())
    head = arrays.pop("facts", None)
    facts = None
    if head is not None and head.dtype.kind == "U" and head.shape == ():
        facts = parse(str(head).encode("utf-8", "replace"), where)
    if not isinstance(facts, dict) or facts.get("schema") != schema:
        raise FileError(f"{where} is no file of the kind {schema!r}")
    return arrays, {key: value for key, value in facts.items() if key != "schema"}
