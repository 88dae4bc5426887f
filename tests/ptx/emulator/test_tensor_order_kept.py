"""What is remembered of accesses to tensor memory: as little as decides whether later ones are ordered, and no less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.tensor_order import Access, Region, TensorOrder, lane_run

ALL = lane_run(0, 128)
SUMS, FIRST, SECOND = Region(ALL, 0, 64), Region(ALL, 64, 68), Region(ALL, 68, 72)


class Warps:
    """Two warps of one CTA, each of which is told what it knows; faults and advice are kept."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.knows: dict[tuple[int, int], int] = {}
        self.emulation = SimpleNamespace(tick=1, fault=self._fault, advise=lambda *_: None)
        self.clocks = SimpleNamespace(
            own_column=np.arange(2), executed_tick_of=self._known, issue=lambda row: None,
            name=lambda cluster, column: f"warp {column}",
        )  # fmt: skip
        self.ctas, self.cluster_size = [0], 1
        self.order = TensorOrder(self)  # type: ignore[arg-type]
        self.kept: list[Access] = []

    def cluster_of(self, cta: int) -> int:
        return 0

    def _known(self, row: int, column: int) -> int:
        return self.knows.get((row, column), 0)

    def _fault(self, *given: Any) -> None:
        self.faults.append(given[5])

    def does(
        self, warp: int, kind: Any, reads: tuple[Region, ...] = (), writes: tuple[Region, ...] = (), shape: Any = None
    ) -> Access:
        """One access, by the first lane of a warp where the tensor core carries it out; columns 2 and 3 are that."""
        self.emulation.tick += 1
        works = kind in ("mma", "cp")
        instruction = SimpleNamespace(name=f"tcgen05.{kind}", line=self.emulation.tick)
        origin = Origin(self, instruction, warp, 0 if works else None)  # type: ignore[arg-type]
        column = warp + 2 * works
        access = Access(origin, kind, reads, writes, column, self.emulation.tick, shape=shape)
        self.kept = self.order.enter(access, self.kept)
        return access

    def ends(self, access: Access, known_to: int | None = None) -> None:
        """It completes, which a warp may know."""
        self.emulation.tick += 1
        access.tick = self.emulation.tick
        if known_to is not None:
            self.knows[known_to, access.column] = access.tick


def test_what_an_earlier_product_alone_reads_is_remembered_behind_a_later_one_of_the_same_sums() -> None:
    warps = Warps()
    warps.does(0, "mma", (SUMS, FIRST), (SUMS,))
    warps.does(0, "mma", (SUMS, SECOND), (SUMS,))
    assert not warps.faults
    warps.does(1, "st", (), (FIRST,))
    assert len(warps.faults) == 1
    assert "columns 64 to 67" in warps.faults[0]


def test_sums_are_remembered_of_the_last_product_only() -> None:
    warps = Warps()
    first = warps.does(0, "mma", (SUMS, FIRST), (SUMS,))
    last = warps.does(0, "mma", (SUMS, SECOND), (SUMS,))
    assert ([first.reads, first.writes], last.writes) == ([(FIRST,), ()], (SUMS,))
    warps.does(1, "ld", (SUMS,))
    assert len(warps.faults) == 1
    assert f"on line {last.issued}" in warps.faults[0]


@pytest.mark.parametrize(("warp", "shape"), [(1, "one"), (0, "another")])
def test_who_reads_again_stands_for_earlier_reads_of_its_own_kind_only(warp: int, shape: str) -> None:
    """Products of another thread, or of other sums or shapes, complete in any order."""
    warps = Warps()
    other = Region(ALL, 128, 192)
    warps.does(0, "mma", (SUMS, FIRST), (SUMS,), "one")
    warps.ends(warps.does(warp, "mma", (other, FIRST), (other,), shape), known_to=1)
    assert not warps.faults
    first = next(access for access in warps.kept if SUMS in access.writes)
    assert first.reads == (SUMS, FIRST)


def test_a_load_of_another_warp_stands_for_nobody() -> None:
    warps = Warps()
    warps.does(0, "ld", (FIRST,))
    warps.ends(warps.does(1, "ld", (FIRST,)))
    warps.does(1, "st", (), (FIRST,))
    assert len(warps.faults) == 1
    assert "(warp 0) may still be reading" in warps.faults[0]


def test_rounds_of_products_with_scales_leave_no_more_to_remember_than_there_are_regions() -> None:
    """Otherwise every access is compared with all products before it."""
    warps, most = Warps(), 0
    scales = [Region(ALL, 64 + 4 * i, 68 + 4 * i) for i in range(8)]
    for _ in range(20):
        for region in scales:
            warps.ends(warps.does(0, "cp", (), (region,)), known_to=0)
        for region in scales:
            last = warps.does(0, "mma", (SUMS, region), (SUMS,))
        warps.ends(last, known_to=0)
        for access in warps.kept:
            warps.ends(access, known_to=0)
        most = max(most, len(warps.kept))
    assert not warps.faults
    assert most <= 2 * len(scales)
