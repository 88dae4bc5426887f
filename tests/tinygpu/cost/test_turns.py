"""Groups that take turns at two servers: the closed form is the equilibrium of the chain of states, with its limits."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.cost.turns import in_turns


def by_states(tensor_s: float, lanes_s: float, groups: int) -> float:
    """Seconds until every group has done its share, by the equilibrium of how many groups are at the tensor cores."""
    up, down = groups / lanes_s, groups / tensor_s  # rates at which a group comes there, and leaves
    weights = np.array([(up / down) ** k for k in range(groups + 1)])
    served = down * (1 - weights[0] / weights.sum())
    return groups / served


@pytest.mark.parametrize("seed", range(40))
def test_the_time_is_that_of_the_equilibrium(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensor, lanes = rng.uniform(0.01, 10, size=2)
    if seed % 8 == 0:
        lanes = tensor
    groups = int(rng.integers(1, 9))
    found = float(in_turns(np.array(tensor), np.array(lanes), np.array(float(groups))))
    assert found == pytest.approx(by_states(tensor, lanes, groups), rel=1e-5)


def test_more_groups_hide_more_and_no_number_hides_all() -> None:
    rng = np.random.default_rng(0)
    tensor, lanes = rng.uniform(0.01, 10, size=(2, 200))
    groups = np.linspace(1, 64, 100)[:, None]
    found = in_turns(tensor, lanes, groups)
    assert (np.diff(found, axis=0) <= 1e-9).all()
    assert found[0] == pytest.approx(tensor + lanes)
    assert (found >= np.maximum(tensor, lanes)).all()
    assert in_turns(tensor, lanes, np.array(1e6)) == pytest.approx(np.maximum(tensor, lanes), rel=1e-3)


def test_work_of_one_kind_alone_takes_no_turns() -> None:
    one, none = np.array([0.3, 5.0]), np.zeros(2)
    for groups in (1.0, 2.5, 16.0):
        assert in_turns(one, none, np.array(groups)) == pytest.approx(one)
        assert (in_turns(none, one, np.array(groups)) == 0).all()
