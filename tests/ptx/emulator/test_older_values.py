"""A strong read may see what stood there before another thread's write, as long as nothing orders the write before it.

The law: whatever the order, no warp ever sees a place go back: neither behind what it read or wrote there itself, nor
behind what any warp did that a barrier orders before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import EmulationFault, Order, Report, emulate
from tinygpu.ptx.emulator.state.setbacks import MOST_IN_A_ROW

LOADS = ("ld.volatile", "ld.relaxed.gpu", "ld.acquire.gpu", "ld.acquire.sys")
STORES = {
    "st.volatile": "st.volatile.{s}.u32 [{at}], 1;",
    "st.relaxed": "st.relaxed.gpu.{s}.u32 [{at}], 1;",
    "st.release": "st.release.gpu.{s}.u32 [{at}], 1;",
    "red.add": "red.relaxed.gpu.{s}.add.u32 [{at}], 1;",
    "atom.exch": "atom.acq_rel.gpu.{s}.exch.b32 %r9, [{at}], 1;",
    "atom.cas": "atom.relaxed.gpu.{s}.cas.b32 %r9, [{at}], 0, 1;",
}
# Two warps, of one CTA or of two: warp 0 sets a flag, {between}, then warp 1 reads it and stores what it found.
HEAD = """
.reg .pred %p, %w, %done; .reg .b32 %r<16>; .reg .b64 %rd<4>; .shared .align 8 .b32 sflag;
ld.param.u64 %rd1, [y]; ld.param.u64 %rd3, [flag]; mov.u32 %r4, sflag;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shr.u32 %r2, %r2, 5; add.u32 %r1, %r1, %r2;
mov.u32 %r3, %laneid; setp.ne.u32 %p, %r3, 0; @%p ret;
setp.eq.u32 %w, %r1, 0; setp.eq.u32 %p, %r1, 1;
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
"""
ONCE = HEAD + """
@%w st.shared.u32 [%r4], 0;
bar.sync 0;
@%w {write}
{between}
{read} %r5, [{at}];
mov.u32 %r7, 0; setp.ne.u32 %done, %r5, 0; @%done mov.u32 %r7, 1;
@%p st.global.u32 [%rd1], %r7;
ret;
"""
LOOP = "mov.u32 %r6, 0;\nAGAIN: add.u32 %r6, %r6, 1; {read} %r5, [{at}]; setp.ne.u32 %done, %r5, 1;\n@%done bra AGAIN;"


def parameters(*names: str) -> list[str]:
    return [f".param .u64 {name}" for name in names]


def run(body: str, order: Order, seed: int = 0, grid: int = 1, block: int = 64) -> tuple[np.ndarray, Report]:
    """What both warps stored: from a flag in global memory that is 0."""
    y = np.zeros(2, np.uint32)
    text = module(body, parameters("y", "flag"))
    report = emulate(text, grid=grid, block=block, args=[y, np.zeros(1, np.uint32)], order=order, seed=seed)
    return y, report


def once(space: str, write: str, read: str, between: str) -> str:
    at = "%r4" if space == "shared" else "%rd3"
    read = f"{read}.{space}.u32"
    body = ONCE.replace("{write}", STORES[write]).replace("{between}", between).replace("{read}", read)
    return body.replace("{s}", space).replace("{at}", at)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("read", LOADS)
@pytest.mark.parametrize("write", STORES)
@pytest.mark.parametrize(("space", "ctas"), [("global", 1), ("global", 2), ("shared", 1)])
def test_a_flag_may_look_unset_until_something_orders_it(space: str, ctas: int, write: str, read: str) -> None:
    shape: Any = {"grid": ctas, "block": 64 // ctas}
    text = once(space, write, read, "")
    assert [int(run(text, "spurious", seed, **shape)[0][1]) for seed in range(2)] == [0] * 2
    assert {int(run(text, "random", seed, **shape)[0][1]) for seed in range(12)} == {0, 1}
    loop = once(space, write, read, LOOP).replace("[%rd1], %r7", "[%rd1], %r6")
    polls = {int(run(loop, "spurious", seed, **shape)[0][1]) for seed in range(8)}
    assert len(polls) > 1
    assert polls <= set(range(2, MOST_IN_A_ROW + 2))
    again = once(space, write, read, LOOP)
    for order in ("random", "spurious"):
        assert all(run(again, order, seed, **shape)[0][1] for seed in range(2)), "what was found is found again"
        if ctas == 1:
            ordered = once(space, write, read, "bar.sync 1;")
            assert all(run(ordered, order, seed)[0][1] for seed in range(2)), "a barrier orders the write"


@pytest.mark.parametrize("space", ["global", "shared"])
def test_who_writes_sees_it_whoever_else_writes_the_same(space: str) -> None:
    """Both warps carry out one store together."""
    text = once(space, "st.relaxed", "ld.relaxed.gpu", "").replace("@%w st.relaxed", "st.relaxed")
    for order in ("random", "spurious"):
        assert all(run(text.replace("@%p st.", "st."), order, seed)[0].all() for seed in range(3))


def test_what_another_warp_saw_before_a_barrier_is_seen() -> None:
    """CTA 0 sets the flag; warp 0 of CTA 1 waits for it, and a barrier later its warp 1 sees it too."""
    body = """
.reg .pred %p, %w, %done; .reg .b32 %r<16>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [y]; ld.param.u64 %rd3, [flag];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; setp.ne.u32 %p, %r1, 0; @%p bra WAIT;
setp.eq.u32 %w, %r2, 0; @%w st.relaxed.gpu.global.u32 [%rd3], 1;
ret;
WAIT: setp.ge.u32 %w, %r2, 32; @%w bra SECOND;
AGAIN: ld.relaxed.gpu.global.u32 %r5, [%rd3]; setp.ne.u32 %done, %r5, 1; @%done bra AGAIN;
SECOND: bar.sync 0;
ld.relaxed.gpu.global.u32 %r5, [%rd3];
setp.eq.u32 %w, %r2, 32; @%w st.global.u32 [%rd1], %r5;
ret;
"""
    for order in ("random", "spurious"):
        for seed in range(6):
            assert run(body, order, seed, grid=2)[0][0] == 1


# CTAs 0 and 1 each write data and raise a counter; CTA 2 waits until it is {target}, and reads the data of CTA {whose}.
TURNS = """
.reg .pred %p, %w, %done; .reg .b32 %r<16>; .reg .b64 %rd<6>;
ld.param.u64 %rd1, [y]; ld.param.u64 %rd3, [flag]; ld.param.u64 %rd4, [data];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; setp.ne.u32 %p, %r2, 0; @%p ret;
setp.eq.u32 %w, %r1, 2; @%w bra READ;
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd5, %rd4, %rd2; add.u32 %r3, %r1, 7; st.global.u32 [%rd5], %r3;
setp.eq.u32 %p, %r1, 0; @%p bra TURN;
FIRST: ld.acquire.gpu.global.u32 %r5, [%rd3]; setp.lt.u32 %done, %r5, 1; @%done bra FIRST;
TURN: {raise}
ret;
READ: ld.acquire.gpu.global.u32 %r5, [%rd3]; setp.lt.u32 %done, %r5, {target}; @%done bra READ;
ld.global.u32 %r6, [%rd4+{offset}]; st.global.u32 [%rd1], %r6;
ret;
"""


RAISES = ("red.release.gpu.global.add.u32 [%rd3], 1;", "membar.gl; red.global.add.u32 [%rd3], 1;")


@pytest.mark.parametrize(("raises", "order"), [(RAISES[0], "spurious"), (RAISES[1], "random")])
def test_with_an_older_value_comes_what_was_published_with_it(raises: str, order: Order) -> None:
    for target, whose, right in ((1, 0, True), (2, 1, True), (1, 1, False)):
        found: set[int | str] = set()
        for seed in range(4):
            y, flag, data = (np.zeros(size, np.uint32) for size in (1, 1, 2))
            text = TURNS.replace("{target}", str(target)).replace("{offset}", str(4 * whose)).replace("{raise}", raises)
            try:
                emulate(
                    module(text, parameters("y", "flag", "data")), grid=3, block=32, args=[y, flag, data],
                    order=order, seed=seed,
                )  # fmt: skip
                found.add(int(y[0]))
            except EmulationFault as fault:
                found.add(fault.fault.kind)
        assert found == {7 + whose} if right else "race" in found, (target, whose, found)


# ---- the law ----------------------------------------------------------------------------------------------------


WARPS, CTAS, PLACES = 3, 2, 2
Step = tuple[str, int, int]
"""What is done, at which place, by which warps (a bit each)."""


def drawn(rng: np.random.Generator, steps: int) -> list[Step]:
    kinds = ("add", "volatile", "relaxed.gpu", "acquire.gpu", "meet")
    chances = (0.35, 0.2, 0.2, 0.15, 0.1)
    return [
        (str(rng.choice(kinds, p=chances)), int(rng.integers(PLACES)), int(rng.integers(1, 1 << (WARPS * CTAS))))
        for _ in range(steps)
    ]


def program(steps: list[Step], space: str) -> str:
    """Every warp stores what it found, or left, at each step."""
    lines = [
        ".reg .pred %p, %w; .reg .b32 %r<16>; .reg .b64 %rd<8>; .shared .align 8 .b32 places[4];",
        "ld.param.u64 %rd1, [y]; ld.param.u64 %rd3, [flag]; mov.u32 %r4, places;",
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5;",
        f"mad.lo.u32 %r1, %r1, {WARPS}, %r3; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;",
        "and.b32 %r2, %r2, 31; setp.eq.u32 %p, %r2, 0; mov.u32 %r8, 0;",
        "st.shared.u32 [%r4], %r8; st.shared.u32 [%r4+4], %r8; bar.sync 0;",
    ]
    base = "%r4" if space == "shared" else "%rd3"
    for number, (kind, place, warps) in enumerate(steps):
        lines.append(f"shr.u32 %r5, {warps}, %r1; and.b32 %r5, %r5, 1; setp.eq.and.u32 %w, %r5, 1, %p;")
        at, out = f"[{base}+{4 * place}]", f"[%rd1+{4 * number * WARPS * CTAS}]"
        if kind == "meet":
            lines.append("bar.sync 0;")
        elif kind == "add":
            lines.append(f"@%w atom.{space}.add.u32 %r6, {at}, 1; add.u32 %r6, %r6, 1; @%w st.global.u32 {out}, %r6;")
        else:
            if (kind, space) == ("volatile", "shared"):  # of data, such a load counts as a plain one
                kind = "relaxed.cta"
            lines.append(f"@%w ld.{kind}.{space}.u32 %r6, {at}; @%w st.global.u32 {out}, %r6;")
    return module("\n".join([*lines, "ret;"]), parameters("y", "flag"))


def stale(steps: list[Step], space: str, order: Order, seed: int) -> int:
    """Runs the steps, demands that no place goes back for anyone, and says how many values were seen in all."""
    total = WARPS * CTAS
    y, places = np.zeros((len(steps), total), np.uint32), np.zeros(PLACES, np.uint32)
    emulate(program(steps, space), grid=CTAS, block=32 * WARPS, args=[y, places], order=order, seed=seed)
    least = np.zeros((total, PLACES), np.int64)
    for number, (kind, place, warps) in enumerate(steps):
        if kind == "meet":
            whole = least.reshape(CTAS, WARPS, PLACES)
            whole[:] = whole.max(axis=1, keepdims=True)
            continue
        for warp in (w for w in range(total) if warps >> w & 1):
            value = int(y[number, warp])
            assert value >= least[warp, place] + (kind == "add"), f"step {number} {steps[number]}: warp {warp} {order}"
            least[warp, place] = value
    for place in range(PLACES) if space == "global" else ():
        assert places[place] == sum(s[2].bit_count() for s in steps if s[0] == "add" and s[1] == place)
    return int(y.sum())


@pytest.mark.parametrize("space", ["global", "shared"])
def test_no_place_goes_back_for_anyone(space: str) -> None:
    _goes_on(space, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("space", ["global", "shared"])
def test_no_place_ever_goes_back_for_anyone(space: str) -> None:
    _goes_on(space, range(2, 80))


def _goes_on(space: str, seeds: range) -> None:
    missed = 0
    for seed in seeds:
        steps = drawn(np.random.default_rng(seed), 24)
        latest = stale(steps, space, "late", seed)
        missed += stale(steps, space, "spurious", seed) < latest
        stale(steps, space, "random", seed)
    assert missed > len(seeds) // 2, "older values are seen"


def test_without_checks_reads_see_the_latest() -> None:
    y = np.zeros(2, np.uint32)
    text = module(once("global", "st.relaxed", "ld.relaxed.gpu", ""), parameters("y", "flag"))
    emulate(text, grid=1, block=64, args=[y, np.zeros(1, np.uint32)], order="spurious", check=False)
    assert y[1] == 1
