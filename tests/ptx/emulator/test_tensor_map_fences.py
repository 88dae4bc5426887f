"""Tensor maps that a kernel changes: each use comes after a release by who changed it, and an acquire after that.

Histories are drawn: two warps change maps, release, acquire and use them, between barriers or side by side. What
happened before what follows from the barriers alone, and says which uses are races.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from bulk_kernels import BARRIER, MAP, expect, kernel, tile, wait

from tinygpu.ptx.emulator import DeviceBuffer, Report, TensorMap, emulate

MAPS, BOX_BYTES = 2, 512
WRITES = ("replace", "cp_fenceproxy", *["store"] * 6)


@dataclass(frozen=True)
class Step:
    """What one warp does: which `word` of a map for a store, `place` among all steps, between which barriers."""

    what: str
    warp: int
    map: int
    word: int
    interval: int
    place: int

    def before(self, other: Step) -> bool:
        """Whether it happens before another one."""
        if self.warp == other.warp:
            return self.place < other.place
        return self.interval < other.interval

    @property
    def parts(self) -> tuple[int, ...]:
        """What it writes of a map: one of two words, or both and all the rest."""
        return (self.word,) if self.what == "store" else (0, 1, 2)


def drawn(seed: int, intervals: int = 12) -> list[Step]:
    """Writes have an interval for themselves: nothing else than fences decides what is a race."""
    rng = np.random.default_rng(seed)
    steps: list[Step] = []

    def add(what: str, warp: int, interval: int) -> None:
        map_, word = int(rng.integers(MAPS) * (rng.random() < 0.3)), int(rng.integers(2))
        steps.append(Step(what, warp, map_, word, interval, len(steps)))

    for interval in range(intervals):
        if interval % 4 < 2:
            warp = int(rng.integers(2))
            for _ in range(int(rng.integers(1, 3))):
                add(str(rng.choice(WRITES)), warp, interval)
                if rng.random() < 0.6:
                    add("release", warp, interval)
            continue
        for warp in range(2):
            for _ in range(int(rng.integers(0, 4))):
                add(str(rng.choice(["release", "acquire", "acquire", "use", "use"])), warp, interval)
    for warp in range(2):
        add("use", warp, intervals)
    return steps


def racing(steps: list[Step]) -> list[int]:
    """The places of uses that are races."""
    found = []
    for use in (s for s in steps if s.what == "use"):
        earlier = [s for s in steps if s.before(use)]
        written = [s for s in earlier if s.what in WRITES and s.map == use.map]
        last = {part: s for s in written for part in s.parts}
        acquires = [s for s in earlier if s.what == "acquire" and s.map == use.map]
        for write in last.values():
            releases = [s for s in steps if s.what == "release" and s.warp == write.warp and write.before(s)]
            if write.what == "cp_fenceproxy":
                releases = [write]
            if not any(r.before(a) for r in releases for a in acquires):
                found.append(use.place)
                break
    return found


# %p1 is false for thread 0, %p2 for lane 0 of each warp, %p3 for warp 0, which have 128 bytes of `desc` each.
BEGIN = """    ld.param.u64 %rd1, [table]; add.u64 %rd2, %rd1, 128;
    shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; setp.ne.u32 %p2, %r3, 0; setp.ne.u32 %p3, %r2, 0;
    mov.u32 %r10, desc; shl.b32 %r11, %r2, 7; add.u32 %r10, %r10, %r11;
    mul.wide.u32 %rd3, %r3, 4; add.u64 %rd4, %rd1, %rd3; ld.global.u32 %r12, [%rd4];
    shl.b32 %r13, %r3, 2; add.u32 %r13, %r13, %r10; st.shared.u32 [%r13], %r12;
    @%p1 bra MADE;
    mbarrier.init.shared::cta.b64 [bar0], 1;
    mbarrier.init.shared::cta.b64 [bar1], 1;
    fence.mbarrier_init.release.cluster;
MADE:
    bar.sync 0;"""


def text_of(steps: list[Step]) -> tuple[str, dict[int, int]]:
    """A kernel of two warps, and which step has which line of its own."""
    uses = [0, 0]
    lines = BEGIN.split("\n")
    at: dict[int, int] = {}
    for interval in range(max(s.interval for s in steps) + 1):
        for warp in range(2):
            lines.append(f"    @{'' if warp == 0 else '!'}%p3 bra OTHER{interval}_{warp};")
            for s in (s for s in steps if s.interval == interval and s.warp == warp):
                if s.what == "use":
                    lines += ["    @%p2 bra " + f"USED{s.place};", *expect(BOX_BYTES, f"bar{warp}").splitlines()]
                lines += text_of_step(s).split("\n")
                at[len(lines)] = s.place
                if s.what == "use":
                    lines += wait(uses[warp] % 2, f"bar{warp}", f"WAIT{s.place}").splitlines()
                    lines.append(f"USED{s.place}:")
                    uses[warp] += 1
            lines += [f"OTHER{interval}_{warp}:"]
        lines.append("    bar.sync 0;")
    shared = "".join(tile(BOX_BYTES, f"tile{w}") + BARRIER.replace("bar", f"bar{w}") for w in range(2))
    text = kernel(".param .u64 table", "\n".join(lines), shared + ".shared .align 128 .b8 desc[256];")
    first = text.split("\n").index(lines[0])
    return text, {line + first: place for line, place in at.items()}


def text_of_step(s: Step) -> str:
    where = f"%rd{1 + s.map}"
    match s.what:
        case "replace":
            return f"    @!%p2 tensormap.replace.tile.global_dim.global.b1024.b32 [{where}], 1, {8 + s.place % 4};"
        case "cp_fenceproxy":
            return (
                "    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                f"[{where}], [%r10], 128;"
            )
        case "store":
            word = f"[{where}+{64 * s.word}]"
            return f"    @!%p2 ld.global.u32 %r14, {word};\n    @!%p2 st.global.u32 {word}, %r14;"
        case "release":
            return "    @!%p2 fence.proxy.tensormap::generic.release.gpu;"
        case "acquire":
            return f"    @!%p2 fence.proxy.tensormap::generic.acquire.gpu [{where}], 128;"
    box = f"[tile{s.warp}], [{where}, {{0, 0}}], [bar{s.warp}]"
    return f"    {MAP}.2d.shared::cta.global.mbarrier::complete_tx::bytes {box};"


def table_of_maps() -> tuple[DeviceBuffer, DeviceBuffer]:
    held = DeviceBuffer(np.zeros((12, 32), np.float16))
    return DeviceBuffer(np.frombuffer(bytes(TensorMap(held, (32, 8))) * MAPS, np.uint8).copy()), held


def launch(text: str, **options: int) -> Report:
    table, held = table_of_maps()
    settings = {"grid": 1, "block": 64} | options
    return emulate(text, args=[table], buffers=[held], check="collect", **settings)  # type: ignore[arg-type]


def histories(seeds: range) -> Iterator[tuple[int, int]]:
    """(uses, races among them) of each."""
    for seed in seeds:
        steps = drawn(seed)
        text, places = text_of(steps)
        report = launch(text)
        assert {fault.kind for fault in report.faults} <= {"race"}
        found = sorted(places[fault.line] for fault in report.faults)
        assert found == racing(steps), f"seed {seed}: {steps}"
        yield sum(s.what == "use" for s in steps), len(found)


def test_a_use_is_a_race_unless_released_and_acquired_in_this_order() -> None:
    uses, races = np.array(list(histories(range(12)))).sum(axis=0)
    assert 0.2 * uses < races < 0.8 * uses


@pytest.mark.slow
def test_every_use_is_a_race_unless_released_and_acquired_in_this_order() -> None:
    assert len(list(histories(range(12, 600)))) == 588


ACQUIRED = "fence.proxy.tensormap::generic.acquire on its address"
# The intervals of release and acquire, where the change is in interval 1 and the use in interval 3.
SENTENCES = {
    (2, 2): f"it was written on line A and released on line B, and nothing orders that before {ACQUIRED}",
    (2, 0): f"it was written on line A, and {ACQUIRED} must come between",
    (0, 2): "it was written on line A, and the writer must execute fence.proxy.tensormap::generic.release (or "
            "tensormap.cp_fenceproxy)",
}  # fmt: skip


@pytest.mark.parametrize(("release", "acquire"), SENTENCES)
def test_what_is_missing_is_said(release: int, acquire: int) -> None:
    write, last = Step("replace", 0, 0, 0, 1, 1), Step("use", 1, 0, 0, 3, 4)
    fences = [Step("release", 0, 0, 0, release, release), Step("acquire", 1, 0, 0, acquire, 3)]
    text, places = text_of(sorted([write, *fences, last], key=lambda s: (s.interval, s.place)))
    (fault,) = launch(text).faults
    lines = {place: str(line) for line, place in places.items()}
    sentence = SENTENCES[release, acquire].replace("line A", f"line {lines[1]}")
    if release == 2:
        sentence = sentence.replace("line B", f"line {lines[2]}")
    assert fault.sentence.split(", without a proxy fence between: ")[1] == sentence


# CTA 0 changes the map and tells CTA 1, which uses it.
TWO_CTAS = f"""    ld.param.u64 %rd1, [table]; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p2, %r2, 0;
    @%p1 bra DONE;
    @%p2 bra SECOND;
    tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 8;
    fence.proxy.tensormap::generic.release.gpu;
    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    st.release.gpu.global.u32 [%rd1+128], 1;
    bra DONE;
SECOND:
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.proxy.async;
AGAIN: ld.acquire.gpu.global.u32 %r3, [%rd1+128]; setp.ne.u32 %p3, %r3, 1; @%p3 bra AGAIN;
    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
{expect(BOX_BYTES)}    {MAP}.2d.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd1, {{0, 0}}], [bar];
{wait()}DONE:"""
IN_SECOND = TWO_CTAS.rindex("    fence.proxy.tensormap::generic.acquire")


@pytest.mark.parametrize("together", [True, False])
def test_what_one_cta_publishes_another_one_acquires(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first has ended before the second starts; an acquire by another CTA is none."""
    if not together:
        monkeypatch.setattr(sys.modules["tinygpu.ptx.emulator.emulate"], "_POLLING_BATCH_WARPS", 1)
    without = TWO_CTAS[:IN_SECOND] + TWO_CTAS[IN_SECOND:].split("\n", 1)[1]
    for body, races in ((TWO_CTAS, 0), (without, 1)):
        text = kernel(".param .u64 table", body, tile(BOX_BYTES) + BARRIER)
        assert [fault.kind for fault in launch(text, grid=2, block=32).faults] == ["race"] * races
