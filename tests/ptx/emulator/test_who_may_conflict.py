"""A store to shared memory asks only about readers and mbarriers that it can meet, and finds what asking all finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.access import shared_order
from tinygpu.ptx.emulator.state.clocks import Ticks
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.shadows import SharedReads

WARPS, SLOTS, SLOT_BYTES = 3, 3, 256
HEAD = f"""
.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 y)
{{
    .reg .pred %o, %p, %q; .reg .b32 %r<12>; .reg .b64 %rd<4>;
    .shared .align 128 .b8 slots[{SLOTS * SLOT_BYTES}]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5; shl.b32 %r4, %r2, 2;
    mov.u32 %r5, slots; mov.u32 %r6, bar; mov.u32 %r7, %cluster_ctarank; mov.u32 %r9, %clock;
    setp.eq.u32 %p, %r1, 0; @%p mbarrier.init.shared.b64 [%r6], 1;
"""
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; fence.proxy.async;"
END = f"{SYNC}\nret;\n}}\n"
# %q: the warp that does it; %o, %p: its last and its first lane; %r10: where, in any CTA of the cluster
ACTS = {
    "read": "@%q ld.shared::cluster.u32 %r8, [%r10];",
    "write": "@%q st.shared::cluster.u32 [%r10], %r9;",
    "send": "@%p cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r11], 128; @%p cp.async.bulk.commit_group;",
    "await": "@%p cp.async.bulk.wait_group.read 0;",
    "write the end": "@%o st.shared::cluster.u32 [%r10], %r9;",
    "overwrite": "@%q st.shared.u32 [%r6], %r9;",
    "arrive": "@%p mbarrier.arrive.shared.b64 %rd2, [%r6];",
    "meet": "bar.sync 0;",
    "meet all": SYNC,
}


@dataclass(frozen=True)
class Act:
    """One line of a kernel: what a warp of every CTA does, in which slot, and whether in the other CTA's."""

    what: str
    warp: int
    slot: int
    abroad: bool

    @property
    def text(self) -> str:
        place = f"add.u32 %r11, %r5, {self.slot * SLOT_BYTES}; add.u32 %r10, %r11, %r4;"
        rank = f"xor.b32 %r8, %r7, {int(self.abroad)}; mapa.shared::cluster.u32 %r10, %r10, %r8;"
        first, last = 32 * self.warp, 32 * self.warp + 31
        who = f"setp.eq.u32 %q, %r3, {self.warp}; setp.eq.u32 %p, %r1, {first}; setp.eq.u32 %o, %r1, {last};"
        return f"{place} {rank} {who} {ACTS[self.what]}"


acts = st.builds(Act, st.sampled_from(list(ACTS)), st.integers(0, WARPS - 1), st.integers(0, SLOTS - 1), st.booleans())


def found(kernel: str, ctas: int) -> list[tuple[str, str, int, int]]:
    """(kind, sentence, line, how often) of all faults."""
    data = np.zeros(64, np.uint32)
    report = emulate(kernel, grid=2 * ctas, block=32 * WARPS, cluster=ctas, args=[data], check="collect")
    return [(f.kind, f.sentence, f.line, f.count) for f in report.faults]


def everyone(c: shared_order.Cohort, *_: object) -> list[int]:
    return list(range(c.residents.warps_per_cta))


def all_foreign(reads: SharedReads, *_: int) -> Iterator[tuple[int, Ticks]]:
    yield from reads.foreign.items()


def every_mbarrier(residents: Residents, index: np.ndarray, size: int, line: int) -> None:
    for cta, address in list(residents.mbarriers.live):
        place = cta * residents.shared.stride_bytes + address
        if ((index < place + 8) & (index + size > place)).any():
            residents.mbarriers.overwritten(cta, address, address + 8, line)


@settings(max_examples=80, deadline=None)
@given(st.lists(acts, min_size=2, max_size=14), st.integers(1, 2))
def test_asking_who_can_conflict_finds_what_asking_all_finds(lines: list[Act], ctas: int) -> None:
    inner = [Act(a.what, a.warp, a.slot, a.abroad and ctas == 2) for a in lines]
    kernel = "\n".join([HEAD, SYNC, *(act.text for act in inner), END])
    few = found(kernel, ctas)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_order, "_unknown_readers", everyone)
        patch.setattr(SharedReads, "foreign_at", all_foreign)
        patch.setattr(Residents, "drop_overwritten_mbarriers", every_mbarrier)
        assert found(kernel, ctas) == few
