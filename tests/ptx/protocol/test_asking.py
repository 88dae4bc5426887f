"""The answers by which clusters take each other over: proved as a ring, and no break of them is proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from breaks import breaks
from structures import PROOFS, protocol
from taking_over import Handed

from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.asking import parts
from tinygpu.ptx.protocol.certificate import certify

POINT: dict[str, Any] = {"stages": 2, "raster": 1, "across": 1, "control": 1}


@cache
def taken_over(down: int) -> sync.Protocol:
    return protocol(Handed, (100, 200), POINT | {"down": down}, on="b200")


def changed(body: tuple[sync.Step, ...], old: type, new: Any) -> tuple[sync.Step, ...]:
    """Every value of a class otherwise, or left out where `new` gives none."""
    out: list[sync.Step] = []
    for step in body:
        found = new(step) if isinstance(step, old) else (step,)
        out += [replace(s, body=changed(s.body, old, new)) if hasattr(s, "body") and s is step else s for s in found]
    return tuple(out)


def asked_behind(tiles: sync.Tiles) -> tuple[sync.Step, ...]:
    asking = tuple(s for s in tiles.body if isinstance(s, sync.When))
    return (replace(tiles, body=(*(s for s in tiles.body if s not in asking), *asking)),)


def asked_twice(tiles: sync.Tiles) -> tuple[sync.Step, ...]:
    asking = tuple(s for s in tiles.body if isinstance(s, sync.When))
    return (replace(tiles, body=(*asking, *tiles.body)),)


def own_breaks(whole: sync.Protocol, down: int) -> Iterator[tuple[str, sync.Protocol]]:
    edits: list[tuple[str, type, Any]] = [
        ("nobody asks", sync.Ask, lambda s: ()),
        ("the answer goes to the own CTA only", sync.Ask, lambda s: (replace(s, ctas=1),)),
        ("it is expected in the own CTA only", sync.Expect, lambda s: (replace(s, ctas=1),)),
        ("its slot is given back to the own CTA", sync.Arrive, lambda s: (replace(s, home=1),)),
        ("nobody fences", sync.Fence, lambda s: () if s.text.startswith("fence.proxy") else (s,)),
        ("it is asked for behind the answer before", sync.Tiles, asked_behind),
        ("it is asked for twice a tile", sync.Tiles, asked_twice),
        ("the walk does not go by answers", sync.Tiles, lambda s: (replace(s, answered=False),)),
        ("other warps walk", sync.RoleBody, lambda s: (replace(s, walks=s.walks + 1),)),
    ]
    for name, kind, new in edits:
        if down > 1 or "own CTA" not in name:
            yield name, replace(whole, body=changed(whole.body, kind, new))


@pytest.mark.parametrize("down", [1, 2])
def test_answers_are_proved_as_a_ring_for_all_that_hear_them(down: int) -> None:
    found = certify(taken_over(down), PROOFS)
    assert found.proved, str(found)
    assert [ring.what for ring in found.rings] == ["ring of x", "launch control of answers"]
    assert all(ring.asked for ring in found.rings)


# Of the shipped machine: alone and in pairs, in clusters, with slices, and stages that tiles end in the middle of.
BLACKWELL: dict[str, Any] = {"bn": 64, "bk": 32, "tiles": 2, "launch_control": 1}


@pytest.mark.parametrize("store", ["staged", "direct"])
@pytest.mark.parametrize(
    ("ctas", "across_m", "across_n"), [("one", 1, 1), ("one", 2, 2), ("pairs", 2, 1), ("pairs", 4, 2)]
)
@pytest.mark.parametrize(("split", "stages"), [(1, 3), (3, 4)])
@pytest.mark.sampled(4)
def test_answers_of_the_shipped_machine_are_proved(
    store: str, ctas: str, across_m: int, across_n: int, split: int, stages: int
) -> None:
    point = BLACKWELL | {
        "store": store, "ctas": ctas, "cluster_m": across_m, "cluster_n": across_n, "split_k": split, "stages": stages,
    }
    sizes = (4096, 4096, 320) if split == 1 else (1024, 512, 2304)
    found = certify(protocol(MatmulBlackwell, sizes, point, on="b200"), PROOFS)
    assert found.proved, str(found)
    assert found.rings[-1].what == "launch control of answers"


@pytest.mark.parametrize("down", [1, pytest.param(2, marks=pytest.mark.slow)])  # all states of two CTAs take longer
@pytest.mark.parametrize("number", range(9))
def test_no_break_of_the_answers_is_proved(down: int, number: int) -> None:
    for name, broken in list(own_breaks(taken_over(down), down))[number : number + 1]:
        assert not certify(broken, PROOFS).proved, name


@pytest.mark.slow
@pytest.mark.parametrize("down", [1, 2])
def test_no_break_of_any_value_is_proved(down: int) -> None:
    """In one CTA all are refuted with their round."""
    for b in breaks(taken_over(down)):
        found = certify(b.protocol, PROOFS)
        assert not found.proved, f"{b.kind}: {b.what}"
        assert down > 1 or (found.refuted and found.refuted[0].round is not None), f"{b.kind}: {b.what}"


def test_who_asks_is_two_parts_of_one_role_and_the_others_are_one() -> None:
    bring, scale = (step for step in taken_over(2).body if isinstance(step, sync.RoleBody))
    hears, asks = parts(bring)
    assert parts(scale) == (scale,)
    assert (hears.role, asks.role, asks.warps, asks.one) == ("bring", "bring", 1, True)
    kinds = [[type(s).__name__ for s in part.body[-1].body] for part in (asks, hears)]  # type: ignore[union-attr]
    assert kinds[0] == ["Take", "Wait", "Expect", "Ask", "Advance"]
    assert "Hear" in kinds[1]
    assert "Ask" not in kinds[1]
