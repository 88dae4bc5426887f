"""What relayouts cost: shuffles, selects and byte permutations of the plan, as expressions.

They have no closed form in the digits of the partitions. Each number is a rule that plans for given digits; over arrays
of candidates it is asked once for each combination of digits, of which there are few.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

from tinygpu.expressions import Expr, Table, expr, tabulated
from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.relayout import counts
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What every warp does, each a number of instructions.

    shuffles  rounds
    selects   selp
    permutes  prmt
    """

    shuffles: Expr
    selects: Expr
    permutes: Expr


def exchanged(s: n.Relayout) -> Exchanged:
    """What one relayout costs; nothing where it is not legal."""
    if s.source.partition is None or s.result.partition is None:
        raise ValueError(f"{s.source.name} does not lie in registers")
    parts = (s.source.partition, s.result.partition)
    symbolic = list(dict.fromkeys(leaf for p in parts for leaf in _leaves(p) if isinstance(leaf, Expr)))
    bits = s.source.dtype.bits

    @lru_cache(maxsize=4096)
    def counted(*numbers: int) -> tuple[int, int, int]:
        known = dict(zip(symbolic, numbers, strict=True))
        before, after = (_filled(p.layout, known) for p in parts)
        extents = tuple(max(_reach(before, axis), _reach(after, axis)) for axis in parts[0].axes)
        return counts(before, after, extents, bits)

    key = zlib.crc32(f"{parts[0]} {parts[1]} {bits}".encode())
    named = (("shuffles", 0), ("selects", 1), ("permutes", 2))
    found = [
        tabulated(Table(f"{what}_{key}", lambda *numbers, place=place: counted(*numbers)[place]), *symbolic)
        if symbolic
        else expr(counted()[place])
        for what, place in named
    ]
    return Exchanged(*found)


def _leaves(partition: Partition) -> list[Leaf]:
    out: list[Leaf] = []
    for size, step in partition.layout.steps:
        out.append(size)
        out += [count for _, count in step.terms] if isinstance(step, Step) else []
    return out


def _filled(layout: Layout, known: dict[Expr, int]) -> Layout:
    def number(leaf: Leaf) -> int:
        return known[leaf] if isinstance(leaf, Expr) else leaf

    modes = []
    for mode in layout.modes:
        digits: list[tuple[Leaf, Leaf | Step]] = []
        for size, step in mode.steps:
            moved = Step(tuple((a, number(c)) for a, c in step.terms)) if isinstance(step, Step) else 0
            digits.append((number(size), moved))
        modes.append(digits)
    return Layout.of(*modes)


def _reach(layout: Layout, axis: int) -> int:
    return sum(mode.along(axis).cosize - 1 for mode in layout.modes) + 1
