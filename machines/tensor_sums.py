"""What machines have in common that add up in tensor memory: how tiles are dealt, and the way of their sums out.

A CTA takes tile after tile; with two slots of sums the next tile is multiplied while the one before is stored. Where
there are too few tiles, CTAs share them along k. A warpgroup takes the sums a piece of columns at a time, fixes them up
with those of other CTAs, and stores the result: from its registers, where a thread has a row and touches a sector of
every row; or through shared memory, from where TMA stores rows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from tinygpu.language import Choice, Dim, Param, Partition, Require, Tracer, ceil_div, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.ptx import isa


class TensorSums(Epilogue):
    """A product in tensor memory, in tiles that CTAs may share, whose pieces pass through an epilogue."""

    tiles = Param(1, 2)  # whose sums are in tensor memory at a time
    cluster_m, cluster_n = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    raster = Param(1, 4, 8, 16)  # rows of clusters visited together, for L2
    split_k = Param(1, 2, 3, 4, 6, 8)  # CTAs that share each tile, where there are too few tiles for all SMs
    stream_k = Param(0, 1)  # all CTAs do the same number of rounds, and share tiles wherever these end
    launch_control = Param(0, 1)  # those that are done first take over the tiles of those that have not begun
    outs = Param(1, 2)  # pieces on their way out: with two, one is stored while the next one comes
    swizzle_c = Param(32, 64, 128)
    vc = Param(1, 2, 4, 8)  # neighbours that one thread stores at once

    store = Choice("staged", "direct")
    tma, ld, put = isa.TmaLoad(), isa.Tcgen05Ld(), isa.TmaStore()
    st_stage, st_row = isa.StShared(vc), isa.StGlobal(vc)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(1)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def dealt(self, p: Tracer, m: Any, n: Any, bm: Any, bn: Any) -> AbstractContextManager[Any]:
        """The grid of tiles: columns are its slow axis, so that rows of neighbours, or of a pair, follow each other."""
        return p.grid(
            (n, bn), (m, bm), raster=self.raster, cluster=(self.cluster_n, self.cluster_m), portable=False,
            persistent=True, slices=self.split_k, stream_k=self.stream_k, launch_control=self.launch_control,
        )  # fmt: skip

    def out(self, p: Tracer, around: ExitStack, rows: Partition) -> Any:
        """Slots through which pieces of the result go to TMA; None where threads store them."""
        if self.store == "direct":
            return None
        piece = p.smem(self.c.dtype, rows.shape, swizzle=self.swizzle_c)
        return around.enter_context(p.pipeline("out", self.outs, c=piece))

    def take_sums(self, p: Tracer, sums: Any, ld: Any, rows: Partition, out: Any, i: Any, j: Any, bn: Any) -> None:
        """A warpgroup stores the tile that begins at row i, column j, held piece by piece as `rows` says."""
        with p.role("epilogue", warps=4, first=4), sums.consume() as t, p.unroll(bn, step=rows.shape[1]) as at:
            values = p.load(ld, t.c.window((0, at), rows.shape), rows)
            with p.fix_up(isa.Add(values.dtype.name), self.leave, self.take, values) as total:
                result, target = self.finish(p, total, i, j + at), self.c.tile(i, j + at, shape=total.shape)
                if out is None:
                    p.store(self.st_row, target, result)
                    return
                with out.produce() as s:
                    p.store(self.st_stage, s.c, result)
                with out.consume() as s:
                    p.copy(self.put, s.c, target)


def where_idle(m: Dim, n: Dim, k: Dim, bn: Param, bk: Param) -> Require:
    """That tiles are shared only where it pays."""
    split_k, most = TensorSums.split_k, 2 * symbol("device.sm_count")
    return Require(
        (split_k == 1) | ((ceil_div(m, 128) * ceil_div(n, bn) * split_k <= most) & (split_k * bk <= k)),
        "CTAs share tiles only where SMs would be idle (two CTAs for each at most), and each has rounds of its own",
        kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has a tile",
    )


def where_queued(m: Dim, n: Dim, bn: Param) -> Require:
    """That CTAs take each other over only where some wait for others."""
    return Require(
        (TensorSums.launch_control == 0)
        | (ceil_div(m, 128) * ceil_div(n, bn) * TensorSums.split_k > symbol("device.sm_count")),
        "CTAs take each other over only where some do not begin at once: there are more of them than SMs",
        kind="dominance",
        why="where all begin at once, every answer is a no, for which each tile waits",
    )


def widest_pieces(piece: Param) -> Require:
    """That pieces lie under the widest swizzle that goes with their rows, of elements of 16 bits or more."""
    return Require(
        (TensorSums.swizzle_c == 128) | (piece % TensorSums.swizzle_c > 0),
        "no wider swizzle goes with the rows of a piece",
        kind="dominance",
        why="TMA moves a wider one in fewer boxes, and threads that store rows meet in no more banks",
        only=(TensorSums.store, "staged"),
    )
