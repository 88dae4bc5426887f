"""Machines that are predicted far behind another are not refined, lowered and assembled, unless the others fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tinygpu.api.finalist import Finalist
from tinygpu.api.tune import FAR_BEHIND, Effort, Tuned, tune_spaces
from tinygpu.cli.printing import console
from tinygpu.cli.tuned import tuned_report
from tinygpu.devices import device
from tinygpu.machines.elementwise import BiasRelu
from tinygpu.processes.apart import EndedApart
from tinygpu.ptx.runtime.driver import DriverStatus
from tinygpu.ptx.verification.comparison import Check
from tinygpu.ptx.verification.verify import Verification
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.result import Result
from tinygpu.spaces.build import MachineSpace, build_space

RIGHT = Verification("kernel", BiasRelu.problem(m=64, n=64), (Check("integers", "early", 0.0, 0.0, 0, 1),))


@cache
def whole() -> MachineSpace:
    return build_space(BiasRelu, BiasRelu.problem(m=1024, n=1024), device("a100"))


def behind(least: float, most: float) -> MachineSpace:
    """The space of one candidate that is predicted so many times as long as the best."""
    found = minimize(whole().space, PredictedTime(whole()))
    assert found.value is not None
    times = [(trial.value / found.value, trial.point) for trial in found.history if trial.value is not None]
    return whole().restrict(next(point for ratio, point in times if least < ratio <= most))


def made(objective: PredictedTime, result: Result, *rest: Any) -> tuple[Any, ...]:
    """The best of a search, taken to be as fast as it was predicted: what is assembled is no matter here."""
    return (SimpleNamespace(space=objective.space, score=result.value, spills=False, point=result.best),)


def verified(failing: tuple[MachineSpace, ...]) -> Callable[[Finalist, int], Verification]:
    def verified(winner: Finalist, seed: int) -> Verification:
        if any(winner.space is one for one in failing):
            raise EndedApart("it crashed")
        return RIGHT

    return verified


def tuned(*spaces: MachineSpace, failing: tuple[MachineSpace, ...] = ()) -> Tuned:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygpu.api.tune.finalists_of", made)
        patch.setattr("tinygpu.api.tune.verified_apart", verified(failing))
        return tune_spaces("bias_relu", device("a100"), spaces)


def test_what_is_far_behind_is_searched_and_not_assembled() -> None:
    slow = behind(FAR_BEHIND, 1e9)
    found = tuned(slow, whole())
    assert found.winner.space is whole()
    first, second = found.searched
    assert first.result is not None
    assert first.result.value is not None
    assert (len(first.finalists), len(second.finalists)) == (0, 1)


def test_what_is_near_is_assembled_in_whatever_order_it_was_searched() -> None:
    near = behind(1.0, FAR_BEHIND)
    for order in ((near, whole()), (whole(), near)):
        found = tuned(*order)
        assert found.winner.space is whole()
        assert [len(s.finalists) for s in found.searched] == [1, 1]


def test_it_has_its_turn_where_no_kernel_of_the_others_can_be_verified() -> None:
    slow = behind(FAR_BEHIND, 1e9)
    found = tuned(slow, whole(), failing=(whole(),))
    assert found.winner.space is slow
    assert [str(f.error) for f in found.failed] == ["it crashed"]


@pytest.mark.end_to_end
def test_the_command_says_what_was_not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinygpu.api.tune.verified_apart", verified(()))
    found = tune_spaces("bias_relu", device("a100"), (behind(FAR_BEHIND, 1e9), whole()), Effort(keep=1))
    with console.capture() as captured:
        tuned_report(found, [Path("kernel.ptx")], DriverStatus(False, "no driver"), verbose=False)
    result, winner = found.searched[0].result, float(found.winner.prediction.seconds)
    assert result is not None
    assert result.value is not None
    us, times = result.value * 1e6, result.value / winner
    said = f"its best is predicted to take {us:,.1f} us, {times:.2f} times as long as the winner, and was not assembled"
    assert said in captured.get()
