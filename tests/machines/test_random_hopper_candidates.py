"""Many random admitted candidates of the Hopper matmuls are right in the emulator, with all of its checks on.

The quick suite draws a few of every machine. The long run, of 500:

    pytest -m slow tests/machines/test_random_hopper_candidates.py
    python tests/machines/test_random_hopper_candidates.py matmul_hopper --seed 0 --count 500
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import Machine, Problem, ProblemError
from tinygpu.machines.operands import BIASES, FACTORS, RESULTS
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case
from tinygpu.testing.judges import ORDERS, Judgement, judge
from tinygpu.testing.workbench import Workbench

# One, a remainder of everything, multiples of tiles and their neighbours. Loops over k have fewer and more rounds than
# stages; tiles are fewer than SMs, so that CTAs may share them.
SIZES = (1, 7, 33, 64, 100, 128, 200, 256, 300, 513)
FEW = (1, 2, 7, 16, 33, 64)  # rows of a, for the machine that streams b
ON = "h100-sxm5"
COUNT = 500
SPILLING = 20  # one in so many at most spills although its registers were expected to suffice, by a few bytes
PIECE_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One candidate, and what became of it."""

    case: Case
    judgement: Judgement

    @property
    def fault(self) -> str:
        """What is wrong with it, and how to see that again; "" if nothing is."""
        found = self.judgement
        if found.stage == "right":
            return ""
        return f"{self.case}\n{found.stage}: {found.sentence}\n{self.case.snippet('kernel')}"

    @property
    def spills_unforeseen(self) -> bool:
        """Whether the assembler spills although the expected registers are there."""
        built, device = self.judgement.built, self.case.device
        if built is None or not self.judgement.spills:
            return False
        warps = -(-built.kernel.threads // (32 * device.warp_schedulers_per_sm)) * device.warp_schedulers_per_sm
        return self.judgement.estimate <= min(device.max_registers_per_thread, device.registers_per_sm // (32 * warps))


def drawn(machine: type[Machine], rng: np.random.Generator) -> Problem:
    """A problem with any types and options, sizes with edges, and the orders and pitches that TMA and wgmma take."""

    def pick(options: tuple[str, ...]) -> str:
        return str(options[int(rng.integers(len(options)))])

    while True:
        kind = pick(("f16", "bf16", "tf32", "e4m3", "e5m2", "s8"))
        free = dtype(kind).bits == 16
        majors = {"a": pick(("row", "col")), "b": pick(("row", "col")) if free else "col"}
        result = pick(RESULTS[kind])
        sizes = {name: int(rng.choice(SIZES)) for name in "mnk"}
        if rng.random() < 0.4:
            sizes = {name: 64 * -(-size // 64) for name, size in sizes.items()}
        if machine.__name__ == "MatmulSkinny":
            sizes["m"] = int(rng.choice(FEW))
        options = {
            "with_bias": bool(rng.random() < 0.4),
            "with_residual": bool(rng.random() < 0.3),
            "activation": pick(("none", "relu", "gelu", "silu")),
            "scaling": pick(("none", "none", "number", "columns")),
        }
        dtypes = {"a": kind, "b": pick(FACTORS[kind]), "c": result, "bias": pick(BIASES[kind]), "residual": result}
        contiguous = {
            "a": sizes["k" if majors["a"] == "row" else "m"],
            "b": sizes["n" if majors["b"] == "row" else "k"],
            "c": sizes["n"],
        }
        lds = {name: _whole_pieces(size, dtypes[name]) for name, size in contiguous.items()}
        if rng.random() < 0.4:
            lds["c"] = sizes["n"]  # what TMA may not be able to store
        try:
            return machine.problem(**sizes, dtypes=dtypes, majors=majors, lds=lds, options=options)
        except ProblemError:
            continue


def _whole_pieces(size: int, kind: str) -> int:
    per = PIECE_BYTES * 8 // dtype(kind).bits
    return -(-size // per) * per


def candidates(machine: type[Machine], seed: int, count: int) -> Iterator[Judged]:
    """`count` candidates, each of a problem of its own, drawn uniformly from its space and judged."""
    rng = np.random.default_rng([3, seed])
    bench = Workbench()
    while count:
        problem = drawn(machine, rng)
        space = build_space(machine, problem, device(ON))
        if not space.space.size:
            continue
        (point,) = space.space.sample(1, rng)
        case = Case(machine, problem, space.device, point)
        order = ORDERS[int(rng.integers(len(ORDERS)))]
        yield Judged(case, judge(case, bench, orders=(order,), random_inputs=bool(rng.random() < 0.3), seed=count))
        count -= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul_hopper", "matmul_skinny"])
def test_five_hundred_random_candidates_are_right(name: str) -> None:
    (machine,) = family(name).machines
    faults, spills = [], 0
    for found in candidates(machine, 0, COUNT):
        faults += [found.fault] if found.fault else []
        spills += found.spills_unforeseen
    assert not faults, f"{len(faults)} of {COUNT} are wrong, the first:\n{faults[0]}"
    assert spills <= COUNT // SPILLING


@pytest.mark.parametrize("name", ["matmul_hopper", "matmul_skinny"])
def test_what_is_drawn_has_all_types_orders_and_edges(name: str) -> None:
    (machine,) = family(name).machines
    rng = np.random.default_rng(1)
    seen: Counter[str] = Counter()
    for _ in range(40):
        problem = drawn(machine, rng)
        seen[problem.operand("a").dtype.name] += 1
        seen.update(f"{o.name} {o.major}" for o in problem.operands if o.name in "ab")
        seen["whole" if all(size % 64 == 0 for size in problem.dim.values()) else "edge"] += 1
    assert {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "a row", "a col", "b row", "b col", "edge", "whole"} <= {*seen}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machine", nargs="?", default="matmul_hopper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT)
    chosen = parser.parse_args(arguments)
    (machine,) = family(chosen.machine).machines
    tally: Counter[str] = Counter()
    for found in candidates(machine, chosen.seed, chosen.count):
        tally[found.judgement.stage] += 1
        tally["spills"] += found.judgement.spills
        tally["spills that were not foreseen"] += found.spills_unforeseen
        for name in ("schedule", "store", "product", "split_k", "stream_k"):
            if name in (found.case.point or {}):
                tally[f"{name}={(found.case.point or {})[name]}"] += 1
        print(found.fault or f"right: {found.case}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(tally.items())))
    few_spills = tally["spills that were not foreseen"] <= chosen.count // SPILLING
    return 0 if tally["right"] == chosen.count and few_spills else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
