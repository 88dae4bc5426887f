"""Rows: who shares one, how much of it each has at a time, and passes over it.

Softmax, norms, losses, reductions, scans and their gradients differ in what they do with a row, and not in this: some
lanes, some warps or the whole CTA lie side by side along it, or the CTAs of a cluster; each has so many neighbours, so
many times. Many short rows want few lanes each, few long ones many SMs; more at a time leaves more loads under way, and
takes more registers. A row that registers hold is read once; one that they cannot hold, or not beside a second CTA, is
read again for every pass, while it is in L2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygpu.language import Dim, Machine, Param, Partition, Passes, Require, Tracer, blocked, minimum
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Threads(Machine):
    """Threads side by side along an axis, neighbours that each has, and how many times it has them"""

    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    lanes = Require(across <= 32 * warps, "the threads side by side are threads of the CTA")


class Rows(Threads):
    """Rows that threads of a CTA share"""

    m, n = Dim(), Dim()

    @property
    def height(self) -> Any:
        """Rows of a tile."""
        return 32 * self.warps // self.across

    def tile(self, step: Any) -> Partition:
        """Who holds a tile of them, in which each thread has its neighbours so many times."""
        shape = (self.height, self.across * self.vector * step)
        return blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)


class ClusterRows(Rows):
    """Rows that the CTAs of a cluster share"""

    ctas, st_one = Param(1, 2, 4, 8), isa.StGlobal(1)
    full = Require(
        (ctas == 1) | (Rows.across == 32 * Rows.warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip
    most: Any = ctas * Rows.across * Rows.vector * Rows.step  # elements of a row that a tile of each CTA has
    together = 0  # of what a thread holds, neighbours so many times are computed at once (0: all): takes few registers

    @contextmanager
    def row(self, p: Tracer, held: bool) -> Iterator[Passes]:
        """The rows of a tile, as a value: in registers, or read again for every pass."""
        who = self.tile(self.step)
        part = self.tile(minimum(self.step, self.together)) if self.together else who
        width, beside = who.shape[1], self.ctas * who.shape[1]
        grid = p.grid((self.m, self.height), (self.n if held else beside, width), cluster=(1, self.ctas))
        with grid as at, p.role("all", warps=self.warps):
            kept = part if held else None
            with p.passes(self.n, who, at=at, step=beside, held=kept, by=self.exchange, cluster=1) as row:
                yield row

    def leave(self, p: Tracer, row: Passes, **results: Any) -> None:
        """What is found of each row, by the tensor that it goes to: the first CTA of a cluster says it."""
        with p.when(row.at[1] < 1):
            for name, found in results.items():
                p.store(self.st_one, getattr(self, name).column(row.at[0], self.height), found)
