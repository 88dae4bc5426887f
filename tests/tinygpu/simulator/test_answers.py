"""CTAs that take each other over, as they are predicted and simulated: a tile takes as long as the answer at least."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from taking_over import Handed

import tinygpu as tg
from tinygpu.cost.demand import Demand, Phase
from tinygpu.cost.rates import Rates
from tinygpu.devices import device

POINT: dict[str, Any] = {"across": 1, "down": 1, "raster": 1, "stages": 3}


@cache
def of(control: int, slower: int = 1) -> Any:
    known = device("b200").figure("lat_dram")
    chip = device("b200").with_figures({"lat_dram": replace(known, value=known.value * slower)})
    return tg.predict(tg.space(Handed, m=8 * 2000, n=32 * 40, device=chip), POINT, control=control)


def seconds(control: int, how: str, slower: int = 1) -> float:
    simulation = of(control, slower).simulation
    return float(simulation.seconds if how == "simulated" else simulation.prediction.seconds)


def test_who_asks_needs_time_for_it_and_who_is_dealt_tiles_none() -> None:
    """An assumption, as the model's pages say: a trip to DRAM and back."""
    chip = device("b200")
    demands = [Demand(8, 32, 32, 0, Phase(), asks=asks) for asks in (0, 1)]
    none, some = (float(Rates.of(chip, demand).answer_s(demand)) for demand in demands)
    assert none == 0
    assert some == chip.number("lat_dram") / chip.boost_clock_hz


@pytest.mark.parametrize("how", ["predicted", "simulated"])
def test_it_never_pays_where_all_tiles_are_alike_and_shows_where_answers_are_slow(how: str) -> None:
    static, taken = (seconds(control, how) for control in (0, 1))
    assert static <= taken < 2 * static
    assert seconds(1, how, 50) > 1.5 * seconds(0, how, 50)
