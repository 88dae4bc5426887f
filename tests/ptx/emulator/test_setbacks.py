"""What the manual lets fail fails, a few times, and never where the success is already ordered before the attempt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import EmulationFault, LaunchError, emulate
from tinygpu.ptx.emulator.state.setbacks import MOST_IN_A_ROW

# Warp 0 arrives; then {between}; then warp 1 (of two) tries once, with {name}, and stores what it found.
ONCE = """
.reg .pred %p, %w, %done; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r4, bar;
setp.ne.u32 %p, %r1, 0; setp.lt.u32 %w, %r1, 32;
@!%p mbarrier.init.shared.b64 [%r4], 32;
bar.sync 0;
@!%w bra OTHER;
mbarrier.arrive.shared.b64 _, [%r4];
OTHER:
{between}
mbarrier.{name}.parity.shared.b64 %done, [%r4], 0;
selp.u32 %r2, 1, 0, %done;
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2;
ret;
"""
LOOP = "mov.u32 %r6, 0;\nAGAIN: mbarrier.{name}.parity.shared.b64 %done, [%r4], 0;\n@!%done bra AGAIN;"
TRIES = ("try_wait", "test_wait")


def found(between: str, name: str, order: str, seed: int) -> np.ndarray:
    y = np.zeros(64, np.uint32)
    text = module(ONCE.replace("{between}", between.replace("{name}", name)).replace("{name}", name), [".param .u64 y"])
    emulate(text, grid=1, block=64, args=[y], order=order, seed=seed)  # type: ignore[arg-type]
    return y.reshape(2, 32).all(axis=1)


@pytest.mark.parametrize("name", TRIES)
@pytest.mark.parametrize("order", ["random", "spurious"])
def test_what_is_ordered_before_an_attempt_is_found(name: str, order: str) -> None:
    for seed in range(8):
        assert found("bar.sync 1;", name, order, seed).all(), "a barrier orders the arrivals"
        assert found(LOOP, name, order, seed).all(), "a warp that has found a phase finds it again"
        assert found("", name, order, seed)[0], "a warp knows its own arrivals"


@pytest.mark.parametrize("name", TRIES)
def test_an_attempt_that_nothing_orders_fails_first(name: str) -> None:
    assert not any(found("", name, "spurious", seed)[1] for seed in range(8))
    chance = {bool(found("", name, "random", seed)[1]) for seed in range(24)}
    assert chance == {False, True}


def test_attempts_fail_a_bounded_number_of_times() -> None:
    count = "mov.u32 %r6, 0;\nAGAIN: add.u32 %r6, %r6, 1; mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0;"
    body = ONCE.replace("{between}", count + "\n@!%done bra AGAIN;").replace("%r2;\nret", "%r6;\nret")
    most = set()
    for seed in range(24):
        y = np.zeros(64, np.uint32)
        text = module(body.replace("{name}", "try_wait"), [".param .u64 y"])
        emulate(text, grid=1, block=64, args=[y], order="spurious", seed=seed)
        most.add(int(y.max()))
    assert most == set(range(2, MOST_IN_A_ROW + 2))


# Warps 1 to 3 arrive, warp 3 perhaps with a copy; some of them then meet warp 0 (of 4), which looks once. By then the
# phase is over: that it has from a flag of warp 2 which releases nothing.
ARRIVERS = """
.reg .pred %p, %q, %done; .reg .b32 %r<8>; .reg .b64 %rd<4>;
.shared .align 128 .b8 slot[16]; .shared .align 8 .b64 bar; .shared .align 4 .b32 flag;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r3, slot; mov.u32 %r4, bar; mov.u32 %r7, flag;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [%r4], 3; st.shared.u32 [%r7], 0;
READY:
bar.sync 0;
shr.u32 %r2, %r1, 5; and.b32 %r5, %r1, 31; setp.ne.u32 %p, %r5, 0;
setp.eq.u32 %q, %r2, 0; @%q bra LOOKS;
setp.eq.u32 %q, %r2, 3; @%q bra LAST;
@!%p mbarrier.arrive.shared.b64 _, [%r4];
{meet12}
setp.ne.u32 %q, %r2, 2; @%q bra OVER;
SEEN: mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0; @!%done bra SEEN;
@!%p st.relaxed.cta.shared.u32 [%r7], 1;
bra OVER;
LAST:
{last}
{meet3}
bra OVER;
LOOKS:
{meets}
LOOK: ld.relaxed.cta.shared.u32 %r6, [%r7]; setp.eq.u32 %q, %r6, 0; @%q bra LOOK;
mbarrier.{name}.parity.shared.b64 %done, [%r4], 0;
selp.u32 %r6, 1, 0, %done; @!%p st.global.u32 [%rd1], %r6;
OVER:
bar.sync 0;
COMES: mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0; @!%done bra COMES;
ret;
"""
COPY = """@!%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 16;
@!%p cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1+16], 16, [%r4];
"""
WAITED = COPY + "SELF: mbarrier.try_wait.parity.shared.b64 %done, [%r4], 0; @!%done bra SELF;\n"
# What warp 3 does, and whether who meets it then knows that it is over.
LASTS = {
    "arrives": ("@!%p mbarrier.arrive.shared.b64 _, [%r4];", True),
    "copies": (COPY, False),
    "copies, waits": (WAITED, True),
}


@pytest.mark.parametrize("name", TRIES)
@pytest.mark.parametrize("last", LASTS)
def test_a_phase_is_certain_when_every_arrival_is_ordered_before(last: str, name: str) -> None:
    action, over = LASTS[last]
    for met in itertools.product((False, True), repeat=3):
        branches = "".join(
            f"setp.eq.u32 %q, %r2, {warp}; @!%q bra SKIP{warp}; bar.sync {warp}, 64; SKIP{warp}:\n"
            for warp in (1, 2) if met[warp - 1]
        )  # fmt: skip
        body = ARRIVERS.replace("{meet12}", branches).replace("{last}", action).replace("{name}", name)
        body = body.replace("{meet3}", "bar.sync 3, 64;" if met[2] else "")
        body = body.replace("{meets}", "".join(f"bar.sync {warp + 1}, 64;\n" for warp in range(3) if met[warp]))
        y = np.zeros(8, np.uint32)
        emulate(module(body, [".param .u64 y"]), grid=1, block=128, args=[y], order="spurious", seed=sum(met))
        # Who has waited for the copy knows of every arrival.
        certain = met[2] and (last == "copies, waits" or (over and all(met)))
        assert y[0] == certain, met


@pytest.mark.parametrize("name", TRIES)
def test_a_warp_finds_again_what_it_has_found_by_a_relaxed_look(name: str) -> None:
    """Also when it has looked in vain for the next phase in between."""
    relaxed = f"{name}.parity.relaxed.cta"
    again = LOOP.replace("{name}.parity", relaxed) + "\nmbarrier.try_wait.parity.shared.b64 %done, [%r4], 1;"
    text = ONCE.replace("{between}", again).replace("{name}.parity", relaxed)
    for seed in range(8):
        y = np.zeros(64, np.uint32)
        emulate(module(text, [".param .u64 y"]), grid=1, block=64, args=[y], order="spurious", seed=seed)
        assert y.all()


TWICE = "mbarrier.arrive.shared.b64 _, [%r4]; mbarrier.arrive.shared.b64 _, [%r4];"


def test_who_is_slow_misses_a_phase_that_another_follows() -> None:
    """A count of arrivals that is too low: hardware passes the wait, or never does."""
    body = ONCE.replace("mbarrier.arrive.shared.b64 _, [%r4];", TWICE).replace("{between}", LOOP)
    text = module(body.replace("{name}", "try_wait").replace("{what}", "try_wait"), [".param .u64 y"])
    for order, seed in (("spurious", 0), ("spurious", 1)):
        with pytest.raises(EmulationFault, match="deadlock: no thread can run"):
            emulate(text, grid=1, block=64, args=[np.zeros(64, np.uint32)], order=order, seed=seed)  # type: ignore[arg-type]


def test_orders_are_named() -> None:
    text = module("ret;", [])
    with pytest.raises(LaunchError, match=r'^order is "late", "early", "random" or "spurious", not \'soon\'$'):
        emulate(text, grid=1, block=1, args=[], order="soon")  # type: ignore[arg-type]
