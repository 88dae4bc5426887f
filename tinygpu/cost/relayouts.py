"""What relayouts cost: shuffles, selects and byte permutations of the plan, as expressions.

They have no closed form in the digits of the partitions. Each number is a rule that plans for given digits; over arrays
of candidates it is asked once for each combination of digits, of which there are few.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.cost.digits import counted_by
from tinygpu.expressions import Expr
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.relayout import counts
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
    bits = s.source.dtype.bits

    def counted(before: Layout, after: Layout) -> tuple[int, int, int]:
        extents = tuple(max(_reach(before, axis), _reach(after, axis)) for axis in parts[0].axes)
        return counts(before, after, extents, bits)

    found = counted_by(("shuffles", "selects", "permutes"), str(bits), parts, counted)
    return Exchanged(*found)


def _reach(layout: Layout, axis: int) -> int:
    return sum(mode.along(axis).cosize - 1 for mode in layout.modes) + 1
