"""A bulk load into bytes that somebody uses: found to be right at once, or asked for access by access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulk_kernels import BARRIER, LOAD, PROXY_FENCE, STORE, dump, elected, expect, init, kernel, tile, wait

from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.emulator.instructions import bulk_loads

SECOND = BARRIER.replace("bar", "bar2")
LOADED_AGAIN = expect(256, "bar2") + f"    {LOAD} [tile], [%rd1], 256, [bar2];\n"
BEGUN = init() + init(1, "bar2") + "    ld.param.u64 %rd1, [x];\n"
MET = "    bar.sync 0;\n"
OWN = "    shl.b32 %r9, %r1, 2;\n    mov.u32 %r10, tile;\n    add.u32 %r9, %r9, %r10;\n"

# The kernel, what is taken away, and what is found then; "" where nothing is.
CASES: dict[str, tuple[str, str, str]] = {
    "read by warps": (
        BEGUN + elected(expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n") + wait()
        + OWN + "    ld.shared.u32 %r11, [%r9];\n"
        + MET + "    //\n" + elected(LOADED_AGAIN, "AGAIN") + wait(0, "bar2", "WAIT2"),
        MET + "    //\n", "that warp 1 may still be reading",
    ),
    "written by warps": (
        BEGUN + OWN + "    st.shared.u32 [%r9], %r1;\n" + PROXY_FENCE + elected(LOADED_AGAIN)
        + wait(0, "bar2", "WAIT2"),
        PROXY_FENCE, "that warp 1 wrote",
    ),
    "read by a bulk store": (
        BEGUN
        + elected(
            expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n" + wait()
            + f"    ld.param.u64 %rd2, [y];\n    {STORE} [%rd2+256], [tile], 256;\n    cp.async.bulk.commit_group;\n"
            "    cp.async.bulk.wait_group.read 0;\n" + LOADED_AGAIN + "    cp.async.bulk.wait_group 0;\n"
        )
        + wait(0, "bar2", "WAIT2"),
        "    cp.async.bulk.wait_group.read 0;\n", "may still be reading",
    ),
    "loaded before": (
        BEGUN + elected(expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n" + wait() + LOADED_AGAIN)
        + wait(0, "bar2", "WAIT2"),
        wait(), "wait for its completion first",
    ),
}  # fmt: skip
ON_A_BARRIER = (
    BEGUN + "    mov.u32 %r2, tile;\n    @%p1 bra MADE;\n    mbarrier.init.shared::cta.b64 [%r2+128], 1;\nMADE:\n" + MET
    + elected(LOADED_AGAIN) + wait(0, "bar2", "WAIT2")
    + elected("    mbarrier.arrive.shared::cta.b64 %rd9, [%r2+128];\n", "LATER")
)  # fmt: skip


def told(body: str, order: Any) -> tuple[str, list[tuple[str, str]]]:
    """(the fault, the advice) of a kernel."""
    text = kernel(".param .u64 x, .param .u64 y", body + MET + dump(256), tile(256) + BARRIER + SECOND)
    arguments = [np.arange(512, dtype=np.uint8) % 251, np.zeros(512, np.uint8)]
    try:
        report = emulate(text, grid=1, block=64, args=arguments, order=order)
    except EmulationFault as fault:
        return fault.sentence, []
    return "", [(a.rule, a.sentence) for a in report.advisories]


def both(body: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[tuple[str, str]]]:
    """What is told, which is the same where every load is asked for access by access."""
    found = told(body, order)
    with monkeypatch.context() as patched:
        patched.setattr(bulk_loads, "begin_write_run", lambda *_: False)
        assert told(body, order) == found
    return found


@pytest.mark.parametrize(("body", "lost", "fault"), CASES.values(), ids=CASES)
def test_a_load_over_what_is_used_is_a_race_and_none_behind_a_wait(
    body: str, lost: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert body.count(lost) == 1
    for order in ("late", "early", "random"):
        assert both(body, order, monkeypatch)[0] == ""
        assert fault in (found := both(body.replace(lost, ""), order, monkeypatch)[0]), found


def test_a_load_over_an_mbarrier_does_away_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = both(ON_A_BARRIER, "late", monkeypatch)
    assert "as an mbarrier, but it was overwritten on line" in found


def test_most_loads_are_found_to_be_right_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = []
    begin = bulk_loads.begin_write_run

    def begun(*given: Any) -> bool:
        at_once.append(begin(*given))
        return at_once[-1]

    monkeypatch.setattr(bulk_loads, "begin_write_run", begun)
    assert told(CASES["loaded before"][0], "late") == ("", [])
    assert at_once == [True, True]
