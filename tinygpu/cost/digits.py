"""Numbers that follow from the digits of partitions by listing them: tables over the parameters that digits name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from tinygpu.expressions import Expr, Table, expr, tabulated
from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step


def counted_by(
    names: Sequence[str], key: str, parts: Sequence[Partition], rule: Callable[..., tuple[int, ...]]
) -> list[Expr]:
    """A number for each name, as a rule counts them from the layouts of some partitions.

    key  what the rule knows besides, in words: tables of one name count the same
    """
    symbolic = list(dict.fromkeys(leaf for p in parts for leaf in _leaves(p) if isinstance(leaf, Expr)))

    @lru_cache(maxsize=4096)
    def counted(*numbers: int) -> tuple[int, ...]:
        known = dict(zip(symbolic, numbers, strict=True))
        return rule(*[_filled(p.layout, known) for p in parts])

    mark = zlib.crc32(f"{' '.join(map(str, parts))} {key}".encode())
    return [
        tabulated(Table(f"{what}_{mark}", lambda *numbers, place=place: counted(*numbers)[place]), *symbolic)
        if symbolic
        else expr(counted()[place])
        for place, what in enumerate(names)
    ]


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
