"""Who has seen what stands at a place may write there: a lock is reset with a plain store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, EmulationFault, Order, emulate

# CTA 0 signals through a word; CTA 1 waits until it sees that, and resets the word.
BODY = """
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
setp.ne.u32 %p, %r1, 0; setp.ne.u32 %q, %r2, 0;
@%p ret;
@%q bra WAITS;
{signal}
ret;
WAITS:
{wait}
{reset}
ret;
"""
SIGNALS = (
    "red.release.gpu.global.add.u32 [%rd1], 1;", "red.relaxed.gpu.global.add.u32 [%rd1], 1;",
    "red.global.add.u32 [%rd1], 1;", "st.release.gpu.global.u32 [%rd1], 1;", "st.relaxed.gpu.global.u32 [%rd1], 1;",
    "atom.exch.acq_rel.gpu.global.b32 %r5, [%rd1], 1;",
)  # fmt: skip
LOADS = ("ld.acquire.gpu", "ld.relaxed.gpu", "ld.volatile")
WAIT = "AGAIN: {load}.global.u32 %r3, [%rd1]; setp.eq.u32 %q, %r3, 0; @%q bra AGAIN;"


def run(signal: str, wait: str, reset: str, order: Order, seed: int = 0) -> int:
    y = np.zeros(1, np.uint32)
    text = BODY.replace("{signal}", signal).replace("{wait}", wait).replace("{reset}", reset)
    report = emulate(
        module(text, [".param .u64 y"]), grid=2, block=32, args=[y], order=order, seed=seed
    )  # fmt: skip
    assert report.faults == ()
    return int(y[0])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_reset_after_the_release_was_seen_is_ordered(signal: str, load: str, order: Order) -> None:
    assert run(signal, WAIT.replace("{load}", load), "st.global.u32 [%rd1], 0;", order) == 0


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_reset_by_who_has_seen_nothing_is_a_race(signal: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(signal, "", "st.global.u32 [%rd1], 5;", "late")
    assert caught.value.kind == "race"


@pytest.mark.parametrize("signal", SIGNALS)
def test_what_was_seen_at_one_place_orders_no_other(signal: str) -> None:
    y = np.zeros(2, np.uint32)
    both = signal + " " + signal.replace("[%rd1]", "[%rd1+4]")
    text = BODY.replace("{signal}", both).replace("{wait}", WAIT.replace("{load}", "ld.relaxed.gpu"))
    text = text.replace("{reset}", "st.global.u32 [%rd1+4], 7;")
    with pytest.raises(EmulationFault) as caught:
        emulate(module(text, [".param .u64 y"]), grid=2, block=32, args=[y])
    assert caught.value.kind == "race"


# ---- shared memory, of the own CTA and of another one of the cluster ------------------------------------------------

# The one thread signals through a word of shared memory; the other waits until it sees that, and resets the word.
SHARED_BODY = """
.reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<4>; .shared .align 8 .b32 words[2];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r6, words; mov.u32 %r7, words;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
st.shared.u32 [%r6], 0; st.shared.u32 [%r6+4], 0;
READY:
{meet}
{map}
{role}
@%p bra SIGNALS;
@%q bra WAITS;
bra OVER;
SIGNALS:
{signal}
bra OVER;
WAITS:
{wait}
{reset}
OVER:
{meet}
setp.ne.u32 %p, %r1, 0; @%p bra DONE;
ld.shared.u32 %r3, [%r7]; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3;
DONE:
ret;
"""
CLUSTER_MEETS = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
LEADERS = "setp.eq.u32 %p, %r1, 0; setp.eq.u32 %q, %r8, 1; and.pred %q, %p, %q; @%q setp.ne.u32 %p, %r1, 0;"
# Per place of the word: CTAs, how all meet, %r6 of signaller and waiter, who signals (%p) and who waits (%q), scope.
PLACES = {
    "shared": (1, "bar.sync 0;", "", "setp.eq.u32 %p, %r1, 0; setp.eq.u32 %q, %r1, 32;", "cta"),
    "of the signaller's CTA": (
        2, CLUSTER_MEETS, "mapa.shared::cluster.u32 %r6, %r6, 0; mov.u32 %r8, %r2;", LEADERS, "cluster",
    ),
    "of the waiter's CTA": (
        2, CLUSTER_MEETS, "mapa.shared::cluster.u32 %r6, %r6, 1; mov.u32 %r8, %r2;", LEADERS, "cluster",
    ),
}  # fmt: skip
SHARED_SIGNALS = (
    "red.release.{scope}.{space}.add.u32 [%r6], 1;", "red.relaxed.{scope}.{space}.add.u32 [%r6], 1;",
    "red.{space}.add.u32 [%r6], 1;", "st.release.{scope}.{space}.u32 [%r6], 1;",
    "st.relaxed.{scope}.{space}.u32 [%r6], 1;", "atom.exch.acq_rel.{scope}.{space}.b32 %r5, [%r6], 1;",
    "st.volatile.{space}.u32 [%r6], 1;",
)  # fmt: skip
SHARED_LOADS = ("ld.acquire.{scope}.{space}", "ld.relaxed.{scope}.{space}", "ld.volatile.{space}")
SHARED_WAIT = "AGAIN: {load}.u32 %r3, [%r6]; setp.eq.u32 %q, %r3, 0; @%q bra AGAIN;"


def run_shared(place: str, signal: str, wait: str, reset: str, order: Order = "late") -> tuple[set[str], int]:
    """Kinds of faults, and the word in the end."""
    ctas, meet, remote, role, scope = PLACES[place]
    space = "shared" if ctas == 1 else "shared::cluster"
    text = SHARED_BODY.replace("{signal}", signal).replace("{wait}", wait).replace("{reset}", reset)
    text = text.replace("{meet}", meet).replace("{map}", remote).replace("{role}", role)
    text = text.replace("{scope}", scope).replace("{space}", space)
    y = np.full(2, 9, np.uint32)
    report = emulate(
        module(text, [".param .u64 y"]), grid=ctas, block=64, cluster=ctas, args=[y], order=order, check="collect"
    )
    return {fault.kind for fault in report.faults}, int(y[1 if place == "of the waiter's CTA" else 0])


def racing_lines(text: str, **options: Any) -> list[str]:
    """The instructions at which a race is found, in their order."""
    report = emulate(module(text, [".param .u64 y"]), args=[np.zeros(4, np.uint32)], check="collect", **options)
    assert {fault.kind for fault in report.faults} == {"race"}
    return [fault.line_text.split()[0] for fault in sorted(report.faults, key=lambda fault: fault.line)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("load", SHARED_LOADS)
@pytest.mark.parametrize("signal", SHARED_SIGNALS)
@pytest.mark.parametrize("place", PLACES)
def test_a_reset_in_shared_memory_after_the_release_was_seen_is_ordered(place: str, signal: str, load: str) -> None:
    for order in ORDERS:
        found = run_shared(place, signal, SHARED_WAIT.replace("{load}", load), "st.{space}.u32 [%r6], 0;", order)
        assert found == (set(), 0), order


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("signal", SHARED_SIGNALS)
def test_a_reset_in_shared_memory_by_who_has_seen_nothing_is_a_race(place: str, signal: str) -> None:
    assert run_shared(place, signal, "", "st.{space}.u32 [%r6], 5;")[0] == {"race"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("signal", SHARED_SIGNALS[1:3])
def test_what_was_seen_at_one_place_of_shared_memory_orders_no_other(place: str, signal: str) -> None:
    both = signal.replace("[%r6]", "[%r6+4]") + " " + signal
    wait = SHARED_WAIT.replace("{load}", SHARED_LOADS[1])
    assert run_shared(place, both, wait, "st.{space}.u32 [%r6+4], 7;")[0] == {"race"}


@pytest.mark.parametrize("place", PLACES)
def test_what_was_stored_plainly_is_not_seen_by_a_strong_load(place: str) -> None:
    """Only what strong ones and atomics wrote: a plain store races with loads before and behind it, and the reset."""
    ctas, meet, remote, role, scope = PLACES[place]
    space = "shared" if ctas == 1 else "shared::cluster"
    wait = "\n" + SHARED_WAIT.replace("AGAIN: ", "AGAIN:\n").replace("{load}", SHARED_LOADS[1])
    text = SHARED_BODY.replace("{signal}", "\nst.{space}.u32 [%r6], 1;").replace("{wait}", wait)
    text = text.replace("{reset}", "st.{space}.u32 [%r6], 0;").replace("{meet}", meet).replace("{map}", remote)
    text = text.replace("{role}", role).replace("{scope}", scope).replace("{space}", space)
    found = racing_lines(text, grid=ctas, block=64, cluster=ctas)
    assert found == [f"st.{space}.u32", f"ld.relaxed.{scope}.{space}.u32", f"st.{space}.u32"]


def test_what_was_stored_plainly_in_global_memory_is_not_seen_by_a_strong_load() -> None:
    wait = WAIT.replace("AGAIN: ", "AGAIN:\n").replace("{load}", "ld.relaxed.gpu")
    text = BODY.replace("{signal}", "st.global.u32 [%rd1], 1;").replace("{wait}", wait)
    found = racing_lines(text.replace("{reset}", "st.global.u32 [%rd1], 0;"), grid=2, block=32)
    assert found == ["ld.relaxed.gpu.global.u32", "st.global.u32"]


# Thread 0 signals, thread 64 sees it, and thread 32, which has seen nothing, stores there after that.
SEEN_BY_ANOTHER = """
.reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<4>; .shared .align 8 .b32 words[2];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r6, words;
setp.ne.u32 %p, %r1, 0;
@!%p st.shared.u32 [%r6], 0;
bar.sync 0;
@!%p red.relaxed.cta.{space}.add.u32 [{at}], 1;
setp.eq.u32 %q, %r1, 64; @!%q bra LATER;
AGAIN: ld.acquire.cta.{space}.u32 %r3, [{at}]; setp.eq.u32 %q, %r3, 0; @%q bra AGAIN;
LATER:
setp.eq.u32 %q, %r1, 32;
@%q st.{space}.u32 [{at}], 5;
ret;
"""


@pytest.mark.parametrize(("space", "at"), [("shared", "%r6"), ("global", "%rd1")])
def test_what_another_warp_has_seen_orders_nothing(space: str, at: str) -> None:
    text = SEEN_BY_ANOTHER.replace("{space}", space).replace("{at}", at)
    assert racing_lines(text, grid=1, block=96) == ["@%q"]


# Thread 0 signals, thread 32 sees it; thread 0 learns that (nothing is released) and writes there once more; thread 32
# learns that too, and stores plainly what it takes for the second value.
WRITTEN_AGAIN = """
.reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<4>; .shared .align 8 .b32 words[4];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r6, words;
setp.ne.u32 %p, %r1, 0;
@%p bra MADE;
st.shared.u32 [%r6], 0; st.shared.u32 [%r6+4], 0; st.shared.u32 [%r6+8], 0;
MADE:
bar.sync 0;
{atomic}
@%p bra OTHER;
st.relaxed.cta.{space}.u32 [{at}], 1;
SEEN: ld.relaxed.cta.{space}.u32 %r3, [{at}+4]; setp.eq.u32 %q, %r3, 0; @%q bra SEEN;
{again}
st.relaxed.cta.{space}.u32 [{at}+8], 1;
ret;
OTHER:
setp.ne.u32 %q, %r1, 32; @%q ret;
FIRST: ld.relaxed.cta.{space}.u32 %r3, [{at}]; setp.eq.u32 %q, %r3, 0; @%q bra FIRST;
st.relaxed.cta.{space}.u32 [{at}+4], 1;
SECOND: ld.relaxed.cta.{space}.u32 %r3, [{at}+8]; setp.eq.u32 %q, %r3, 0; @%q bra SECOND;
{look}
st.{space}.u32 [{at}], 5;
ret;
"""
AGAIN_WRITTEN = ("st.relaxed.cta.{space}.u32 [{at}], 2;", "red.relaxed.cta.{space}.add.u32 [{at}], 1;")
LOOK = "THIRD: ld.relaxed.cta.{space}.u32 %r3, [{at}]; setp.ne.u32 %q, %r3, 2; @%q bra THIRD;"


@pytest.mark.parametrize("again", AGAIN_WRITTEN)
@pytest.mark.parametrize(("space", "at"), [("shared", "%r6"), ("global", "%rd1")])
def test_what_was_seen_before_a_later_write_orders_nothing_behind_that(space: str, at: str, again: str) -> None:
    for look, found in (("", ["st.{space}.u32"]), (LOOK, [])):
        text = WRITTEN_AGAIN.replace("{again}", again).replace("{look}", look).replace("{atomic}", "")
        text = text.replace("{space}", space).replace("{at}", at)
        words = [np.zeros(4, np.uint32)]
        report = emulate(module(text, [".param .u64 y"]), grid=1, block=64, args=words, check="collect")
        assert [fault.line_text.split()[0] for fault in report.faults] == [f.replace("{space}", space) for f in found]


@pytest.mark.parametrize(("space", "at"), [("shared", "%r6"), ("global", "%rd1")])
def test_what_is_stored_plainly_where_atomics_were_is_not_seen_by_a_strong_load(space: str, at: str) -> None:
    """It races with the store, as the strong loads before it do, and so does the reset, whatever was atomic there."""
    text = WRITTEN_AGAIN.replace("{again}", "\nst.{space}.u32 [{at}], 2;").replace("{look}", "\n" + LOOK.split(": ")[1])
    text = text.replace("{atomic}", "red.relaxed.cta.{space}.add.u32 [{at}], 0;").replace("@%q bra THIRD;", "")
    text = text.replace("{space}", space).replace("{at}", at)
    store = f"st.{space}.u32"
    assert racing_lines(text, grid=1, block=64) == [store, f"ld.relaxed.cta.{space}.u32", store]


# Thread 0 signals, and its warp goes on for long; thread 32 looks once, says what it saw, and stores plainly.
LOOKS_ONCE = """
.reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<4>; .shared .align 8 .b32 words[2];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r6, words;
setp.ne.u32 %p, %r1, 0;
@!%p st.shared.u32 [%r6], 0;
bar.sync 0;
@!%p st.relaxed.cta.{space}.u32 [{at}], 1;
@!%p bra DONE;
setp.ne.u32 %q, %r1, 32; @%q bra DONE;
mov.u32 %r5, 0;
LATER: add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, 50; @%q bra LATER;
ld.relaxed.cta.{space}.u32 %r3, [{at}];
st.global.u32 [%rd1+4], %r3;
st.{space}.u32 [{at}], 5;
DONE:
ret;
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("space", "at"), [("shared", "%r6"), ("global", "%rd1")])
def test_who_saw_an_older_value_has_not_seen_the_write(space: str, at: str, order: Order) -> None:
    text = module(LOOKS_ONCE.replace("{space}", space).replace("{at}", at), [".param .u64 y"])
    saw = set()
    for seed in range(4):
        y = np.full(2, 0, np.uint32)
        report = emulate(text, grid=1, block=64, args=[y], order=order, seed=seed, check="collect")
        assert [fault.line_text for fault in report.faults] == [f"st.{space}.u32 [{at}], 5;"] * (1 - int(y[1]))
        saw.add(int(y[1]))
    assert saw == {0 if order == "spurious" else 1} or order == "random"
