"""The row of a check about hand-overs: what is proved is noted, what is wrong is a failure with its round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from taking_over import Alone, Handed

from tinygpu.devices import device
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx.lowering import handover
from tinygpu.ptx.lowering.sync import Expect
from tinygpu.testing.case import Case
from tinygpu.testing.cases import examine

POINT: dict[str, Any] = {
    "product": "mma.sync", "bm": 8, "bn": 64, "bk": 32, "warps": 1, "split_k": 1, "swizzle": 64, "stages": 4,
}  # fmt: skip
HANDED: dict[str, Any] = {"across": 1, "down": 1, "raster": 1, "stages": 2, "control": 1}
SKINNY = Case(MatmulSkinny, MatmulSkinny.problem(m=8, n=200, k=528), device("h100"), POINT)


def test_what_is_proved_is_noted() -> None:
    found = examine("handovers", SKINNY)
    assert (found.fault, found.blind, found.absent) == ("", "", "")
    assert found.note == (
        "proved: ring of a, b (for all stages, rounds, tiles and CTAs): no slot is overwritten before it was read; "
        "no slot is read before it was filled; no phase is missed; no wait lasts for ever"
    )


def test_a_machine_without_pipelines_has_nothing_to_look_at() -> None:
    point = {"warps": 2, "rows": 4, "vector": 4, "across": 1}
    assert examine("handovers", Case(Axpby, Axpby.problem(n=256), device("h100"), point)).absent == "pipelines"


def test_the_answers_of_a_machine_without_pipelines_are_looked_at_and_what_they_read_is_counted_apart() -> None:
    case = Case(Alone, Alone.problem(m=16, n=64), device("rtx5090"), {"warps": 4, "down": 1})
    found = examine("handovers", case)
    assert (found.fault, found.blind) == ("", "")
    assert found.note.startswith("proved: launch control of answers (for all stages, rounds, tiles and CTAs): ")
    other = Case(Handed, Handed.problem(m=16, n=64), device("rtx5090"), HANDED)
    assert [examine("meter", c).fault for c in (case, other)] == ["", ""]


def test_a_wrong_hand_over_is_a_failure_with_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering that expects twice the bytes: the slot never counts as full."""

    def doubled(context: Any, *actions: Any) -> None:
        issue(context, *(replace(a, bytes=2 * a.bytes) if isinstance(a, Expect) else a for a in actions))

    issue = handover.issue
    monkeypatch.setattr(handover, "issue", doubled)
    before = (
        f"producer acquires slot {slot} of ring in round {slot}; producer fills slot {slot} of ring in round {slot}"
        for slot in range(4)
    )
    assert examine("handovers", SKINNY).fault == (
        "refuted: ring of a, b: round 0 of ring: nobody can go on: consumer in round 0 until slot 0 is full; "
        f"producer in round 4 until slot 0 is empty\n  before it: {'; '.join(before)}"
    )
