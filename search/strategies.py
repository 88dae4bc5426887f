"""Strategies by name, and which of them `auto` stands for."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.extensions import extension, extensions, without_ours
from tinygpu.search.annealing import annealing
from tinygpu.search.bounded import BoundedObjective
from tinygpu.search.branch_and_bound import BranchAndBound
from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import ColumnObjective, Objective
from tinygpu.search.evolutionary import evolutionary
from tinygpu.search.exhaustive import exhaustive
from tinygpu.search.local_search import local_search
from tinygpu.search.random_search import random_search
from tinygpu.search.rl.shipped import rl
from tinygpu.search.searchable import Searchable
from tinygpu.search.seen import LISTABLE_POINTS
from tinygpu.search.strategy import Strategy
from tinygpu.search.surrogate import surrogate
from tinygpu.search.terms import SumObjective

# Strategies that need nothing but the space.
STRATEGIES: Mapping[str, Strategy] = {
    "exhaustive": exhaustive,
    "random": random_search,
    "annealing": annealing,
    "evolutionary": evolutionary,
    "local": local_search,
    "surrogate": surrogate,
    "rl": rl,
}
# The one that needs an objective with bounds.
BRANCH_AND_BOUND = "branch_and_bound"
# The one that needs an objective that is a sum.
FACTORED = "factored"

# A proposal of the surrogate costs some 20 ms. Where points are evaluated by the thousand and so many are wanted, that
# time is better spent on more points.
_MANY_EVALUATIONS = 2_000

# Points of a sum beyond which its terms are listed instead of their combinations.
_COMBINATIONS = 16_384


def check_name(strategy: str) -> None:
    """Raises ValueError where no strategy has this name, and ExtensionError where a package's cannot be used."""
    if without_ours(strategy) not in (*STRATEGIES, BRANCH_AND_BOUND, FACTORED, "auto") or offered(strategy) is not None:
        named(strategy)


def named(strategy: str) -> Strategy:
    """The strategy of this name, ours or an installed package's, that needs nothing but the space. Raises as above."""
    found = offered(strategy) or STRATEGIES.get(without_ours(strategy))
    if found is None:
        known = ", ".join([*STRATEGIES, BRANCH_AND_BOUND, FACTORED, *(e.name for e in extensions("strategies"))])
        raise ValueError(f"there is no strategy {strategy!r}; there are {known} and auto")
    return found


def offered(strategy: str) -> Strategy | None:
    """The strategy that an installed package offers by this name; None where none does.

    Raises ExtensionError where it cannot be used, and for a name that stands for two strategies.
    """
    found = extension("strategies", strategy, (*STRATEGIES, BRANCH_AND_BOUND, FACTORED, "auto"))
    if found is None:
        return None
    made: Strategy = found.imported()
    if not callable(made):
        raise found.wrong(made, "a strategy, which is a function")
    return made


def resolve(
    strategy: str | Strategy, space: Searchable, objective: Objective, budget: Budget
) -> tuple[str, Strategy]:
    """The strategy that is meant, and its name. Raises ValueError where there is none, or what it needs is missing."""
    if not isinstance(strategy, str):
        return getattr(strategy, "__name__", type(strategy).__name__), strategy
    check_name(strategy)
    strategy = without_ours(strategy)
    if strategy == "auto":
        strategy = choose(space, objective, budget)
    if strategy == FACTORED:
        from tinygpu.search.factored import Factored, separable  # needs spaces, which not every search has

        if not isinstance(objective, SumObjective) or not separable(space, objective):
            raise ValueError(
                "strategy='factored' needs an objective that is a sum of terms with parameters of their own, as the "
                "predicted times of a plan's steps are, and constraints that keep these apart"
            )
        return strategy, Factored(objective)
    if strategy == BRANCH_AND_BOUND:
        if not isinstance(objective, BoundedObjective):
            raise ValueError(
                "strategy='branch_and_bound' needs an objective that bounds regions (a method 'bound'), as predicted "
                "times do; a proof of the optimum is not possible with this one"
            )
        return strategy, BranchAndBound(objective)
    made = named(strategy)
    if strategy != "exhaustive" and budget.open_ended:
        raise ValueError(
            f"strategy={strategy!r} needs a budget for a space of {space.size:,} points: evaluations=... or seconds=..."
        )
    return strategy, made


def choose(space: Searchable, objective: Objective, budget: Budget) -> str:
    """What `auto` stands for: everything where that is possible, else the strategy for points that cost much."""
    columns = isinstance(objective, ColumnObjective)
    listed = space.size <= LISTABLE_POINTS and (budget.evaluations is None or space.size <= budget.evaluations)
    if budget.evaluations is None and space.size > _COMBINATIONS and isinstance(objective, SumObjective):
        from tinygpu.search.factored import separable

        if separable(space, objective):
            return FACTORED
    # A budget in time says nothing about how many points fit into it, unless they come by the thousand.
    if listed and (budget.seconds is None or columns):
        return "exhaustive"
    if budget.open_ended and isinstance(objective, BoundedObjective):
        return BRANCH_AND_BOUND
    many = budget.evaluations is None or budget.evaluations > _MANY_EVALUATIONS
    return "annealing" if columns and many else "surrogate"
