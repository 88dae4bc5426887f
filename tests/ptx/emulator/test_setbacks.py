"""What the manual lets fail fails, a few times, and never where the success is already ordered before the attempt."""

from __future__ import annotations

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
