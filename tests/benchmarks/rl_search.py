"""What the strategy "rl" finds on devices and shapes that its policy never saw, beside other strategies.

    python -m tests.benchmarks.rl_search [--cases N] [--seeds N] [--evaluations N] [--seed N] [--beside ...] [...]

Cases are drawn from the held-out devices, with shapes of other draws than those of training. For each the whole space
is scored, so that the optimum under the predictor is known. Every strategy gets the same budget; the figures are the
share of runs with a candidate within 5 % of the optimum among the first so many, and the geometric mean of time over
optimum, with the worst decile; and the CPU time until the first proposal.

"predictor" is the obvious alternative to a policy: it draws the points that the policy is shown (or lists all, where
these are as few), predicts them at once, and proposes them in the order of their predicted times. Under the predictor
it cannot be wrong about the points that it drew; what it may miss are better points that it did not draw.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tinygpu.api.train import draw_triples
from tinygpu.search import STRATEGIES, Strategy, minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.rl.lesson import columns_of, optimum
from tinygpu.search.rl.policy import Policy
from tinygpu.search.rl.situation import TREE_POINTS, points_of
from tinygpu.search.rl.strategy import PolicySearch
from tinygpu.search.searchable import Searchable
from tinygpu.search.seen import Seen
from tinygpu.search.strategy import Proposals

MARKS = (1, 8, 20, 50, 100)
BESIDE = ("random", "annealing", "surrogate")
PREDICTOR = "predictor"
MATMULS = {"matmul_ampere": 0.4, "matmul_hopper": 0.3, "matmul_simt": 0.3}


def by_prediction(objective: PredictedTime) -> Strategy:
    """Proposes the points that a policy would be shown, the best predicted first."""

    def strategy(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
        points = points_of(space, rng, TREE_POINTS)
        order = np.argsort(objective.score_columns(columns_of(points)), kind="stable").tolist()
        yield [points[order[0]]]
        while order:
            order = [number for number in order if points[number] not in seen]
            yield [points[number] for number in order[:batch]]

    return strategy


class Timed:
    """A strategy, and the CPU seconds until its first proposal."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.first_s: list[float] = []

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
        began = time.process_time()
        proposals = self.strategy(space, seen, rng, batch)
        first = next(proposals)
        self.first_s.append(time.process_time() - began)
        answers = yield first
        while True:
            try:
                answers = yield proposals.send(answers)
            except StopIteration:
                return


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The strategy rl on held-out devices and shapes.")
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--evaluations", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1000, help="of the cases")
    parser.add_argument("--beside", default=",".join(BESIDE), help="other strategies, with commas between them")
    parser.add_argument("--machine", help="all cases are of this one, instead of the three large matmuls")
    parser.add_argument("--policy", type=Path, help="instead of the one that ships")
    chosen = parser.parse_args(arguments)
    strategies = {name: Timed(STRATEGIES[name]) for name in chosen.beside.split(",") if name}
    strategies["rl"] = Timed(PolicySearch(Policy.load(chosen.policy)) if chosen.policy else STRATEGIES["rl"])
    strategies[PREDICTOR] = Timed(STRATEGIES["random"])
    marks = [mark for mark in MARKS if mark <= chosen.evaluations]
    found: dict[str, list[list[float]]] = defaultdict(list)
    shares = {chosen.machine: 1.0} if chosen.machine else MATMULS
    cases = itertools.islice(draw_triples(chosen.seed, held_out=True, shares=shares), chosen.cases)
    for number, triple in enumerate(cases):
        space = triple.space()
        objective = PredictedTime(space)
        best = optimum(space, objective)
        if not np.isfinite(best):
            continue
        strategies[PREDICTOR].strategy = by_prediction(objective)
        for name, strategy in strategies.items():
            for seed in range(chosen.seeds):
                result = minimize(space.space, objective, strategy=strategy, evaluations=max(marks), seed=seed)
                costs = np.minimum.accumulate([trial.evaluation.cost for trial in result.history])
                found[name].append([float(costs[min(mark, len(costs)) - 1] / best) for mark in marks])
        ratios = "  ".join(f"{name} {np.mean([r[1] for r in found[name][-chosen.seeds :]]):.3f}" for name in strategies)
        print(f"{number + 1:3} {triple}: {space.space.size:,} points, after {marks[1]}: {ratios}", flush=True)
    cases_done = len(found["rl"]) // chosen.seeds
    print(f"\n{cases_done} cases, {chosen.seeds} seeds, held-out devices and shapes, seed {chosen.seed}")
    print("share of runs within 5 % of the optimum; geometric mean of time over optimum (worst decile)")
    print(f"{'evaluations':>12} " + " ".join(f"{mark:>22}" for mark in marks) + "   CPU to the first")
    for name, rows in found.items():
        table = np.array(rows)
        # a launch that is refused counts as ten times the optimum
        table = np.where(np.isfinite(table), table, 10.0)
        cells = [
            f"{np.mean(c <= 1.05):6.1%} {np.exp(np.log(c).mean()):6.3f} ({np.quantile(c, 0.9):5.2f})" for c in table.T
        ]
        took = f"{np.mean(strategies[name].first_s):16.2f} s"
        print(f"{name:>12} " + " ".join(f"{cell:>22}" for cell in cells) + took)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
