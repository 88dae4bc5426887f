"""Records which sectors of global memory a kernel accesses, by whom and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.caches import Accesses, access_kind
from tinygpu.ptx.emulator.state.meter import SECTOR_BYTES, Site

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.run.program import Program
    from tinygpu.ptx.emulator.state.cohort import Cohort

_SECTOR_BITS = SECTOR_BYTES.bit_length() - 1


class AccessStream:
    """Listens to the sites of one program. A run without it pays one comparison per request.

    A CTA's requests are numbered from 0; one instruction of several of its warps is one step.
    """

    def __init__(self, ctas: int) -> None:
        self._steps = np.zeros(ctas, np.int32)
        self._cohort: Cohort | None = None
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], int]] = []
        self._lines_and_kinds: list[tuple[int, int]] = []
        self._known: dict[int, int] = {}

    def follow(self, program: Program) -> None:
        """Listen to every site of a program, and to which warps carry out their instructions."""
        watched = {id(site.instruction) for site in program.sites}
        for site in program.sites:
            site.recorder = self
        for block in program.blocks:
            for operation in block.operations:
                if id(operation.instruction) in watched:
                    operation.run = self._announced(operation.run)
                    operation.careful = self._announced(operation.careful)

    def _announced(self, run: Callable[[Cohort], None]) -> Callable[[Cohort], None]:
        def announced(c: Cohort) -> None:
            self._cohort = c
            run(c)

        return announced

    def lanes(self, site: Site, addresses: Array, mask: NDArray[np.bool_] | None) -> None:
        """A request of (n, 32) byte addresses by the warps of the current cohort."""
        c = self._cohort
        if c is None:
            raise RuntimeError("an access was counted outside every instruction")
        sectors = c.spread(addresses).astype(np.int64) >> _SECTOR_BITS
        if mask is not None:
            sectors = np.where(mask, sectors, np.int64(-1))
        sectors = np.sort(sectors, axis=1)
        fresh = np.ones(sectors.shape, np.bool_)
        fresh[:, 1:] = sectors[:, 1:] != sectors[:, :-1]
        fresh &= sectors >= 0
        ctas = (c.set.global_warp // c.residents.warps_per_cta).astype(np.int32)
        asking = ctas.reshape(-1)[fresh.any(axis=1)]
        self._add(site, sectors[fresh], np.broadcast_to(ctas, fresh.shape)[fresh], asking)

    def pieces(self, site: Site, first: NDArray[np.int64], last: NDArray[np.int64], cta: int) -> None:
        """A copy of pieces that lie in the sectors first to last, both included."""
        lengths = last - first + 1
        begins = np.cumsum(lengths) - lengths
        sectors = np.arange(int(lengths.sum())) + np.repeat(first - begins, lengths)
        ctas = np.full(sectors.size, cta, np.int32)
        self._add(site, sectors, ctas, ctas[:1])

    def _add(
        self, site: Site, sectors: NDArray[np.int64], ctas: NDArray[np.int32], asking: NDArray[np.int32]
    ) -> None:
        number = self._known.get(site.number)
        if number is None:
            number = self._known[site.number] = len(self._lines_and_kinds)
            self._lines_and_kinds.append((site.line, access_kind(site.instruction)))
        self._parts.append((sectors, ctas, self._steps[ctas], number))
        # A CTA with several warps here is named several times; each time the same value is written.
        self._steps[asking] = self._steps[asking] + 1

    def accesses(self) -> Accesses:
        """All that was recorded."""
        if not self._parts:
            empty = np.zeros(0, np.int64)
            small = empty.astype(np.int32)
            return Accesses(empty, small, small, small, empty.astype(np.int8))
        sectors, ctas, steps = (np.concatenate([part[k] for part in self._parts]) for k in range(3))
        sizes = [part[0].size for part in self._parts]
        sites = np.repeat([part[3] for part in self._parts], sizes)
        table = np.array(self._lines_and_kinds, np.int32)
        return Accesses(sectors, ctas, steps, table[sites, 0], table[sites, 1].astype(np.int8))
