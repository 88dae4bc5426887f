"""Contenders in turns, on a stage whose clock is made up: sets, whole trips, drift, ties, the best of many."""

from collections.abc import Callable

import numpy as np
import pytest
from gpu_call.turns import MOST_SETS, Contender, ContenderFailed, Turns, best_of, compared, sets_for, take_turns
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.measuring.statistics import spread


class FakeStage:
    """Each launch moves the clock by its kernel's time, stretched as the chip grows warm."""

    def __init__(self, sets: int = 3, noise: float = 0.005, drift: float = 0.0, seed: int = 0) -> None:
        self.sets, self.noise, self.drift = sets, noise, drift
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.launched = 0
        self.touched: list[int] = []
        self.open = 0

    def kernel(self, seconds: float) -> Callable[[int], None]:
        def launch(number: int) -> None:
            self.launched += 1
            self.touched.append(number)
            stretch = 1 + self.drift * self.launched
            self.now += seconds * stretch * (1 + self.noise * self.rng.standard_normal())

        return launch

    def single(self, launch: Callable[[int], None]) -> float:
        begun = self.now
        launch(0)
        return self.now - begun

    def record(self, launch: Callable[[int], None], launches: int, sets: int) -> "FakeRun":
        self.open += 1
        return FakeRun(self, launch, launches, sets)


class FakeRun:
    def __init__(self, stage: FakeStage, launch: Callable[[int], None], launches: int, sets: int) -> None:
        self.stage, self.launch, self.launches, self.sets = stage, launch, launches, sets

    def sample(self) -> float:
        begun = self.stage.now
        for number in range(self.launches):
            self.launch(number % self.sets)
        return (self.stage.now - begun) / self.launches

    def close(self) -> None:
        self.stage.open -= 1


QUICK = Turns(rounds=12, warm_rounds=4, sample_s=1e-3, warm_up_s=2e-3, most_launches=20)


def test_times_are_those_of_the_kernels_and_everything_is_given_back() -> None:
    stage = FakeStage()
    times = take_turns(stage, [Contender("a", stage.kernel(1e-4)), Contender("b", stage.kernel(3e-4))], QUICK, 0)
    assert spread(times["a"].cold).median == pytest.approx(1e-4, rel=0.01)
    assert spread(times["b"].warm).median == pytest.approx(3e-4, rel=0.01)
    assert (len(times["a"].cold), len(times["b"].warm)) == (12, 4)
    assert stage.open == 0
    assert times["a"].to_json()["cold"]["count"] == 12


def test_every_set_is_touched_as_often_as_the_others_in_cold_samples() -> None:
    stage = FakeStage(sets=3)
    take_turns(stage, [Contender("a", stage.kernel(1e-4))], Turns(4, 0, 1e-3, 0.0, 20), 0)
    counts = np.bincount(stage.touched)
    assert counts[1] == counts[2] == counts[0] - 1  # and once alone, to see how long it takes
    stage = FakeStage(sets=3)
    take_turns(stage, [Contender("slow", stage.kernel(1.0))], Turns(2, 0, 1e-3, 0.0, 20), 0)
    assert np.bincount(stage.touched).tolist() == [4, 3, 3]


def test_a_kernel_under_two_names_is_a_tie_while_the_chip_grows_warm() -> None:
    verdicts = []
    for seed in range(40):
        stage = FakeStage(noise=0.01, drift=2e-5, seed=seed)
        contenders = [Contender("a", stage.kernel(1e-4)), Contender("b", stage.kernel(1e-4))]
        times = take_turns(stage, contenders, QUICK, seed)
        verdicts.append(compared(times, "a", "b")["verdict"])
    assert verdicts.count("tie") >= 38


def test_a_difference_is_found_in_spite_of_drift() -> None:
    stage = FakeStage(noise=0.005, drift=5e-5)
    contenders = [Contender("a", stage.kernel(0.98e-4)), Contender("b", stage.kernel(1e-4))]
    found = compared(take_turns(stage, contenders, QUICK, 1), "a", "b")
    assert found["verdict"] == "faster"
    assert found["low"] < 0.98 < found["high"] + 0.01


def test_the_best_of_many_is_the_fastest() -> None:
    stage = FakeStage(noise=0.002)
    many = [Contender(f"k{n}", stage.kernel(1e-4 * (1 + abs(n - 5) / 10))) for n in range(10)]
    best, medians = best_of(stage, many, 0)
    assert best.name == "k5"
    assert set(medians) == {c.name for c in many}
    assert min(medians, key=lambda name: medians[name]) == "k5"


@pytest.mark.parametrize("after", [0, 1, 2, 3, 30, 100])
def test_a_launch_that_fails_is_blamed_on_its_contender_and_everything_is_given_back(after: int) -> None:
    """At its first launch, while it is recorded, warmed up or timed."""
    stage = FakeStage()
    count = 0

    def failing(number: int) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        stage.now += 1e-4

    contenders = [Contender("good", stage.kernel(1e-4)), Contender("bad", failing), Contender("c", stage.kernel(1e-4))]
    with pytest.raises(ContenderFailed, match=r"^CUDA error: an illegal memory access was encountered$") as error:
        take_turns(stage, contenders, QUICK, 0)
    assert error.value.name == "bad"
    assert stage.open == 0


def test_two_contenders_of_one_name_are_refused() -> None:
    stage = FakeStage()
    with pytest.raises(ValueError, match=r"^two contenders have one name$"):
        take_turns(stage, [Contender("a", stage.kernel(1))] * 2, QUICK, 0)


@given(st.integers(1, 1 << 34), st.integers(1 << 20, 1 << 28), st.integers(0, 1 << 38))
def test_sets_are_cold_where_memory_and_their_number_allow(size: int, l2: int, free: int) -> None:
    count = sets_for(size, l2, free)
    assert 2 <= count <= MOST_SETS
    cold = (count - 1) * size >= 2 * l2
    assert cold or count == MOST_SETS or (count + 1) * size > free // 2
