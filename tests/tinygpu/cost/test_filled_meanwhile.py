"""Slots that copies fill while others are in use: the same work, of which one slot at a time is under way."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from block_attention import BlockAttention

import tinygpu as tg
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.spaces.build import MachineSpace, build_space

WAYS = ("for both", "for each")


def demands(space: MachineSpace, point: dict[str, Any]) -> dict[str, Demand]:
    """By how a round waits for keys and values."""
    found = {}
    for waits in WAYS:
        whole = {**point, "waits": waits}
        index = space.structure_index(whole)
        chosen = {axis: whole[axis] for axis in space.traces[index].axes}
        found[waits] = space.counts(index).demand({**space.environment, **chosen}, space.device, 0.0)
    return found


@pytest.mark.parametrize(
    ("d", "bn", "gpu"), [(64, 128, "a100"), (128, 64, "a100"), (128, 32, "h100"), (64, 64, "rtx4090")]
)
def test_what_is_brought_meanwhile_is_the_same_and_is_not_waited_for(d: int, bn: int, gpu: str) -> None:
    problem = AttentionAmpere.problem(b=1, h=16, g=1, s=4096, t=4096, d=d)
    space = build_space(AttentionAmpere, problem, device(gpu))
    point = {"warps": 4, "rows": 32, "bn": bn, "stages": 1, "vector": 8, "across": 8}
    both, each = demands(space, point).values()
    for f in fields(both.iteration.work):
        one, other = (getattr(demand.iteration.work, f.name) for demand in (both, each))
        assert np.array_equal(one, other), f.name
    assert (int(both.prefetch_iterations), int(each.prefetch_iterations)) == (0, 1)
    keys = bn * d * 2
    assert int(each.bytes_in_flight_per_cta) == keys
    assert float(predict(device(gpu), each).seconds) < float(predict(device(gpu), both).seconds)


def test_what_a_round_asks_for_and_waits_for_is_under_way_together() -> None:
    """Which keys come is loaded first: the copies stay in their round, and are not what that one load is."""
    space = tg.space(BlockAttention, h=8, s=1024, d=64, total=60, device="a100")
    found = tg.predict(space, **space.sample(1)[0])
    assert int(found.demand().bytes_in_flight_per_cta) >= 2 * 64 * 64 * 2
    assert 0.5 < found.seconds / found.simulation.seconds < 2
