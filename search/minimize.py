"""Minimize: search a space for the point with the least value. The one door to every strategy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import ColumnObjective, Evaluation, Failure, Objective, Trial
from tinygpu.search.history import HistoryBuilder
from tinygpu.search.interruption import Interruption
from tinygpu.search.journal import Journal
from tinygpu.search.progress import Callback, Progress
from tinygpu.search.result import Ended, Result
from tinygpu.search.searchable import Columns, Point, Searchable, rows
from tinygpu.search.seen import Seen
from tinygpu.search.strategies import resolve
from tinygpu.search.strategy import PROVED, Strategy
from tinygpu.search.streaming import StreamingObjective
from tinygpu.seeds import check_seed

# Points of an array that become dictionaries together.
_ROWS_AT_A_TIME = 4096


def minimize(
    space: Searchable,
    objective: Objective,
    *,
    strategy: str | Strategy = "auto",
    evaluations: int | None = None,
    seconds: float | None = None,
    within: float | None = None,
    floor: float | None = None,
    seed: int = 0,
    journal: str | Path | None = None,
    warm_start: Sequence[Point] = (),
    callbacks: Sequence[Callback] = (),
    batch: int = 1,
    subject: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """The least value of `objective` that the strategy finds over `space`, with all that it tried.

    strategy     one of STRATEGIES by name, "branch_and_bound", a strategy of your own, or "auto": exhaustive where
                 every point can be evaluated within the budget; else surrogate, or annealing where points are
                 evaluated by the thousand; without a budget branch_and_bound, where the objective has bounds
    evaluations  how many points are tried at most; failures count
    seconds      wall time after which no further evaluation is begun; earlier runs of the journal count
    within       the search ends once its best value is at most (1 + within) times `floor`: 0.05 for "within 5 %"
    floor        a value, above 0, that no point can be below: for times, the roofline's time of the problem
    seed         of every random draw: the same seed tries the same points in the same order, and a run with a larger
                 budget begins with the whole of a smaller one
    journal      a file that keeps every evaluation; a search that was killed and is called again goes on from there
    warm_start   points of the space that are tried first
    callbacks    told after each batch of evaluations
    batch        points that are handed to the objective at once, for one that works on several in parallel
    subject      what is being searched, in words: kept in the result, and a journal of another subject is refused
    clock        seconds that only grow

    Raises ValueError for an empty space, a warm start outside the space, a journal of another search, and a budget
    that the strategy needs and did not get. Whatever the objective raises passes through; the journal stays usable.
    Ctrl-C does not pass: it ends the search, and the result is what was found until then, `ended` by "interrupted".
    """
    budget = Budget(evaluations, seconds, within, floor)
    _check(space, batch, warm_start)
    name, strategy = resolve(strategy, space, objective, budget)
    check_seed(seed)
    header = {"subject": subject, "strategy": name, "seed": seed, "batch": batch, "space size": space.size}
    with Journal(journal, header) if journal is not None else nullcontext() as opened:
        search = _Search(space, objective, budget, opened, callbacks, batch, clock)
        ended = search.run(strategy, np.random.default_rng(seed), warm_start)
        return Result(subject, name, seed, space.size, search.builder.history(), search.elapsed(), ended)


def _check(space: Searchable, batch: int, warm_start: Sequence[Point]) -> None:
    if space.size == 0:
        raise ValueError("the space is empty: there is nothing to search, and its explanation says why")
    if batch < 1:
        raise ValueError(f"a batch has at least 1 point, not {batch}")
    for point in warm_start:
        if point not in space:
            raise ValueError(f"the warm start {dict(point)} is not in the space; leave it out")


# Rows that are evaluated together and then written to the journal: few enough that a kill costs little.
_ROWS_ON_DISK_AT_ONCE = 1024


class _Spent(Exception):
    """A budget is spent."""

    def __init__(self, budget: Ended) -> None:
        super().__init__(budget)
        self.budget = budget


class _Search:
    """One run: hands a strategy's proposals to the objective, within the budgets, and keeps what comes back."""

    def __init__(
        self,
        space: Searchable,
        objective: Objective,
        budget: Budget,
        journal: Journal | None,
        callbacks: Sequence[Callback],
        batch: int,
        clock: Callable[[], float],
    ) -> None:
        self.builder = HistoryBuilder()
        self._space = space
        self._objective = objective
        self._columns = objective if isinstance(objective, ColumnObjective) else None
        self._budget = budget
        self._total = space.size if budget.evaluations is None else min(budget.evaluations, space.size)
        self._ended_by_total: Ended = "every point" if self._total == space.size else "evaluations"
        self._journal = journal
        self._callbacks = callbacks
        self._batch = batch
        self._clock = clock
        self._begun = clock()
        self._seen = Seen()
        self._recorded = Seen()
        self._earlier_seconds = 0.0
        self._replayed = 0
        self._best: Trial | None = None
        self._interruption = Interruption()
        for entry in journal or ():
            self._recorded.add(entry.point, entry.evaluation)
            self._earlier_seconds = max(self._earlier_seconds, entry.seconds)

    def elapsed(self) -> float:
        return self._earlier_seconds + self._clock() - self._begun

    def run(self, strategy: Strategy, rng: np.random.Generator, warm_start: Sequence[Point]) -> Ended:
        try:
            with self._interruption:
                return self._run(strategy, rng, warm_start)
        except _Spent as spent:
            return spent.budget
        except KeyboardInterrupt:
            return "interrupted"

    def _run(self, strategy: Strategy, rng: np.random.Generator, warm_start: Sequence[Point]) -> Ended:
        for start in range(0, len(warm_start), self._batch):
            self._evaluate(warm_start[start : start + self._batch])
        proposals = strategy(self._space, self._seen, rng, self._batch)
        answers: Sequence[Evaluation] | None = None
        while True:
            try:
                proposed = next(proposals) if answers is None else proposals.send(answers)
            except StopIteration as stopped:
                return "proof" if stopped.value == PROVED else "strategy"
            if isinstance(proposed, Mapping):
                self._evaluate_columns(proposed)
                answers = []
            else:
                answers = self._evaluate(proposed)

    def _evaluate_columns(self, columns: Columns) -> None:
        # With a journal, or beside points that were tried before, rows are looked up one by one.
        if self._columns is None or self._journal is not None or len(self._seen):
            count = len(next(iter(columns.values())))
            step = self._batch if self._columns is None else max(self._batch, _ROWS_ON_DISK_AT_ONCE)
            for start in range(0, count, step):
                self._evaluate([p for p in rows(columns, start, start + step) if p not in self._seen], listed=True)
            return
        if self._out_of_time():
            raise _Spent("seconds")
        columns = {name: column[: self._total - len(self.builder)] for name, column in columns.items()}
        values, failures = self._score(self._columns, columns)
        with self._interruption.held():
            self.builder.add_columns(columns, values, failures)
            if len(failures) < len(values):
                row = int(np.nanargmin(values))
                self._keep_best(Trial(rows(columns, row, row + 1)[0], Evaluation(float(values[row]))))
        self._tell()

    def _score(
        self, objective: ColumnObjective, columns: Columns
    ) -> tuple[NDArray[np.float64], dict[int, Failure]]:
        """The values of many points, NaN for failures, and the failures by row."""
        values = np.array(objective.score_columns(columns), dtype=np.float64)
        count = len(next(iter(columns.values())))
        if values.shape != (count,):
            raise ValueError(f"the objective gave values of shape {values.shape} for {count} rows")
        failures: dict[int, Failure] = {}
        failed = np.flatnonzero(~np.isfinite(values))
        for start in range(0, failed.size, _ROWS_AT_A_TIME):
            some = failed[start : start + _ROWS_AT_A_TIME]
            points = rows({name: np.asarray(column)[some] for name, column in columns.items()})
            for row, evaluation in zip(some.tolist(), self._ask(points), strict=True):
                values[row] = np.nan if evaluation.value is None else evaluation.value
                if evaluation.failure is not None:
                    failures[row] = evaluation.failure
        return values, failures

    def _evaluate(self, points: Sequence[Point], *, listed: bool = False) -> list[Evaluation]:
        """Evaluations of `points`, from the journal where it has them; those seen before are not tried again.

        listed  whether they were listed from the space, and need not be looked up in it
        """
        new = self._new(points, listed)
        unrecorded = [point for point in new if point not in self._recorded]
        cut = bool(unrecorded) and self._out_of_time()
        if cut:
            new = list(itertools.takewhile(self._recorded.__contains__, new))
        self._replayed += len(new) if cut else len(new) - len(unrecorded)
        try:
            if not cut:
                self._record(unrecorded)
        finally:  # what came before an interruption counts
            with self._interruption.held():
                for point in new:
                    if point in self._recorded:
                        evaluation = self._recorded[point]
                        self._seen.add(point, evaluation)
                        self.builder.add(point, evaluation)
                        self._keep_best(Trial(point, evaluation))
        if new:
            self._tell()
        if cut:
            raise _Spent("seconds")
        return [self._seen[point] for point in points]

    def _record(self, points: Sequence[Point]) -> None:
        """Asks for points; each is in the journal as soon as its evaluation is known."""
        left = set(range(len(points)))
        for number, evaluation in self._answers(points):
            if not 0 <= number < len(points):
                raise ValueError("the objective gave an evaluation of a point that it was not asked for")
            if number not in left:
                raise ValueError(f"the objective gave two evaluations of {dict(points[number])}")
            left.remove(number)
            with self._interruption.held():
                self._recorded.add(points[number], evaluation)
                if self._journal is not None:
                    self._journal.record(points[number], evaluation, self.elapsed())
        if left:
            raise ValueError(f"the objective gave {len(points) - len(left)} evaluations for {len(points)} points")

    def _answers(self, points: Sequence[Point]) -> Iterator[tuple[int, Evaluation]]:
        if not points:
            return iter(())
        if isinstance(self._objective, StreamingObjective):
            return self._objective.stream(points)
        if self._columns is not None and len({tuple(point) for point in points}) == 1 and len(points) > 1:
            columns = {name: np.array([point[name] for point in points]) for name in points[0]}
            if columns:
                values, failures = self._score(self._columns, columns)
                found = (failures.get(row) for row in range(len(points)))
                pairs = zip(found, values.tolist(), strict=True)
                return enumerate(Evaluation(failure=f) if f is not None else Evaluation(v) for f, v in pairs)
        return enumerate(self._ask(points))

    def _new(self, points: Sequence[Point], listed: bool) -> list[Point]:
        """Those of `points` that were not tried, each once, as far as the budget of evaluations goes."""
        new = Seen()
        for point in points:
            if point in self._seen or point in new:
                continue
            if not listed and point not in self._space:
                raise ValueError(f"the strategy proposed {dict(point)}, which is not in the space")
            if len(self.builder) + len(new) == self._total:
                break
            new.add(point, _ASKED)
        return [trial.point for trial in new]

    def _ask(self, points: Sequence[Point]) -> Sequence[Evaluation]:
        evaluations = self._objective(points)
        if len(evaluations) != len(points):
            raise ValueError(f"the objective gave {len(evaluations)} evaluations for {len(points)} points")
        return evaluations

    def _out_of_time(self) -> bool:
        return self._budget.seconds is not None and self.elapsed() >= self._budget.seconds

    def _keep_best(self, trial: Trial) -> None:
        if trial.value is not None and (self._best is None or trial.evaluation.cost < self._best.evaluation.cost):
            self._best = trial

    def _tell(self) -> None:
        count = len(self.builder)
        here = self._clock() - self._begun
        progress = Progress(
            evaluations=count,
            replayed=self._replayed,
            failures=self.builder.failures,
            kinds=self.builder.kinds,
            total=self._total,
            seconds=self.elapsed(),
            rate=(count - self._replayed) / here if here > 0 else 0.0,
            best=self._best,
            budget=self._budget,
        )
        for callback in self._callbacks:
            callback(progress)
        if self._best is not None and self._budget.enough(self._best.evaluation.cost):
            raise _Spent("within")
        if count == self._total:
            raise _Spent(self._ended_by_total)


_ASKED = Evaluation(0.0)
