"""Slots that products still read when the next ones begin bring no data meanwhile: the closed form knows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.spaces.build import build_space
from tinygpu.spaces.space import Space

SIZES = {
    MatmulHopper: {"m": 4096, "n": 4096, "k": 4096},
    MatmulAmpere: {"m": 4096, "n": 4096, "k": 4096},
    MatmulSkinny: {"m": 16, "n": 4096, "k": 4096},
    AttentionHopper: {"b": 2, "h": 4, "g": 1, "s": 2048, "t": 2048, "d": 128},
}


def drawn(machine: type[Machine], gpu: str = "h100") -> list[tuple[dict[str, Any], Demand]]:
    space = build_space(machine, machine.problem(**SIZES[machine]), device(gpu))
    points: Space = space.space
    found = []
    for point in points.sample(60, np.random.default_rng(5)):
        index = space.structure_index(point)
        axes = {a: int(point[a]) for a in space.traces[index].axes}
        found.append((dict(point), space.counts(index).demand({**space.environment, **axes}, space.device)))
    return found


def test_one_slot_of_a_ring_is_late_where_products_go_on() -> None:
    for point, demand in drawn(MatmulHopper):
        assert float(demand.late) == pytest.approx(1 / point["stages"])


@pytest.mark.end_to_end
def test_products_of_warps_themselves_are_over_when_their_slot_is_given_back() -> None:
    assert all(float(demand.late) == 0 for _, demand in drawn(MatmulAmpere, "a100"))
    skinny = [(point, float(demand.late)) for point, demand in drawn(MatmulSkinny)]
    assert all(share == 0 for point, share in skinny if point["product"] == "mma.sync")
    assert {share for point, share in skinny if point["product"] == "wgmma"} - {0.0}


@pytest.mark.end_to_end
def test_a_ring_of_one_slot_has_none_that_is_late() -> None:
    """Where products overlap, both are over at the end of their round."""
    found = [(point, float(demand.late)) for point, demand in drawn(AttentionHopper)]
    assert {share for point, share in found if point["overlapped"]} == {0.0}
    shares = {point["stages"]: share for point, share in found if not point["overlapped"]}
    assert shares[1] == 0
    assert 0 < shares[2] < 1 / 2  # of keys and values, not all go on
    assert 0 < shares[3] < 1 / 3


@pytest.mark.end_to_end
def test_late_slots_bring_nothing_until_the_next_products_begin() -> None:
    slower = 0
    for _, demand in drawn(MatmulHopper):
        free, held = (predict(device("h100"), replace(demand, late=late)) for late in (0, demand.late))
        assert float(free.reads_s) <= float(held.reads_s) <= float(free.reads_s) / (1 - float(demand.late)) * (1 + 1e-9)
        assert float(held.seconds) >= float(free.seconds)
        slower += float(held.seconds) > 1.01 * float(free.seconds)
    assert slower >= 5
