"""Reductions by one instruction, put together without a machine."""

from __future__ import annotations

from dataclasses import replace

from tinygpu.language.exchange import lanes_only
from tinygpu.language.instruction import Elementwise, Shuffle
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n


def reduce_of(name: str, combine: Elementwise, by: Shuffle, source: Tile, result: Tile, axis: int) -> n.Reduce:
    """The statement of `p.reduce(combine, source, axis, by)`."""
    left, right, made = (replace(result, name=f"{result.name}.{part}") for part in ("left", "right", "made"))
    merge = n.Merge((left,), (right,), (made,), (n.Apply(name, combine, (left, right), made),))
    return n.Reduce(name, merge, lanes_only(by), (source,), (result,), axis)
