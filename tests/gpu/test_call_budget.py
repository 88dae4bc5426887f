"""Shares of the call's time: never more than there is, and nobody takes what later steps need."""

import pytest
from gpu_call.budget import Budget, Share
from gpu_call.run import MINUTES, STEPS
from hypothesis import given
from hypothesis import strategies as st

shares = st.lists(st.tuples(st.floats(0.5, 60), st.floats(1, 5)), min_size=1, max_size=8).map(
    lambda pairs: [Share(f"s{n}", least, least * factor) for n, (least, factor) in enumerate(pairs)]
)


@given(shares, st.floats(1, 600), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_no_step_gets_more_than_its_most_or_than_is_left(made: list[Share], total: float, used: list[float]) -> None:
    budget = Budget(made, total)
    spent = 0.0
    for share, part in zip(made, used, strict=False):
        given_share, limit = budget.limit(spent)
        assert given_share == share
        assert limit == 0 or share.least_s - 1e-6 <= limit <= share.most_s
        assert limit <= total - spent + 1e-9
        spent += limit * part


@given(shares, st.floats(0, 100))
def test_every_step_gets_its_least_where_all_of_these_fit(made: list[Share], more: float) -> None:
    total = sum(s.least_s for s in made) + more
    budget = Budget(made, total)
    spent = 0.0
    for share in made:
        _, limit = budget.limit(spent)
        assert limit >= share.least_s - 1e-6
        spent += limit
    assert spent <= total + 1e-6


def test_what_a_step_leaves_over_goes_to_those_behind_it() -> None:
    made = [Share("a", 10, 50), Share("b", 10, 50), Share("c", 10, 50)]
    budget = Budget(made, 60)
    assert [budget.limit(spent)[1] for spent in (0, 40, 45)] == [40, 10, 15]
    budget = Budget(made, 60)
    assert [budget.limit(spent)[1] for spent in (0, 5, 10)] == [40, 45, 50]
    assert Budget(made, 15).limit(0)[1] == 10
    assert Budget(made, 5).limit(0)[1] == 0


def test_shares_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a takes more than 0 s, and at most no less than at least: "):
        Share("a", 5, 4)
    with pytest.raises(ValueError, match=r"^a call takes more than 0 s, not 0$"):
        Budget([Share("a", 1, 2)], 0)


def test_the_least_of_all_steps_fits_into_the_call() -> None:
    assert sum(s.least_s for s in STEPS) <= 0.6 * 60 * MINUTES
    assert len({s.name for s in STEPS}) == len(STEPS)
