"""Who has seen what stands at a place may write there: a lock is reset with a plain store."""

from __future__ import annotations

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
