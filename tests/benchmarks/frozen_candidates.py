"""Random candidates of every shipped machine, frozen and compared: kernels, counts, predictions and explanations.

    python -m tests.benchmarks.frozen_candidates freeze corpus.jsonl.gz
    python -m tests.benchmarks.frozen_candidates compare corpus.jsonl.gz

For a change of what lies under the machines (layouts, counting, lowering) that should change nothing that they make:
freeze before it, compare after it, or with another checkout. On every target that a machine has, candidates are drawn
at random from spaces of random problems, and as many points that no space admits.

A line of the corpus is a candidate with its problem: the hash of its PTX without comments, the hash of the rest of its
kernel, every count of its Demand, the predicted seconds and bottleneck; or a point that is out, and the sentences that
say why. The comparison reads problem and point from the corpus, so that it does not depend on how they are drawn. It
prints how many of each are equal, the first that differ, and by how much counts differ; it ends with 1 where a kernel,
an explanation or the membership of a point differs. Counts and predictions may differ where they became exact: each
kind of difference is listed with its number, to be looked at.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tinygpu.api.machines import SHIPPED, family
from tinygpu.cost.demand import Demand
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.language.posing import ProblemError
from tinygpu.language.problem import Problem
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.search.predicted import PredictedTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.draws import SIZES, SeededDraw, draw_problem

TARGETS = ("a100", "rtx4090", "h100", "rtx5090", "b200")
# Odd sizes leave few structures of the tensor-core machines; half of the problems have sizes like these.
EVEN_SIZES = (64, 128, 192, 256, 512, 1024, 4096)
OF_A_PROBLEM = 10
# A corpus that is older than a name is read in today's words: parameters and values of machines, fields of a kernel
# (of which a corpus has a hash under the earlier names alone), sentences.
STORES = {"staged": "bulk", "stmatrix": "matrices"}
EARLIER: dict[str, dict[str, str]] = {
    "matmul_simt": {"threads_m": "tall", "threads_n": "wide", "raster": "group"},
    "matmul_ampere": {"warps_m": "wm", "warps_n": "wn", "raster": "group", "store": "put"},
    "matmul_hopper": {"raster": "group", "store": "out"},
}
EARLIER_FIELDS = {"swizzle_bytes": "span_bytes"}
SENTENCES = (
    (r"^spans( \(\d+\))? \(partition\): (rows .*) are whole spans of", r"swizzled rows\1 (partition): \2 are whole widths of"),  # noqa: E501
    (r"slots and spans of (\S+) begin where the swizzle's pattern does", r"slots of \1 are whole atoms of the swizzle"),
    (r"^(wgmma\S*) spans of b", r"\1 swizzle of b"),
    (r"are whole spans, or (.*) make a span;", r"are whole widths of its swizzle, or \1 make one;"),
)
COMMENT = re.compile(r"[ \t]*//[^\n]*")


@dataclass(frozen=True, slots=True)
class Frozen:
    """One point of one problem, and what became of it.

    kernel   hash of its PTX, and of the rest of the kernel; or the sentence of a refusal; nothing where it is out
    counts   name -> number, of its Demand
    seconds  predicted, with the name of the bottleneck
    out      why the point is not admitted
    """

    machine: str
    target: str
    problem: dict[str, Any]
    point: dict[str, int | str]
    kernel: tuple[str, ...] = ()
    counts: dict[str, float] | None = None
    seconds: float = 0.0
    bottleneck: str = ""
    out: tuple[str, ...] = ()

    def differences(self, now: Frozen) -> Iterator[str]:
        """The aspects in which another checkout differs; counts by their names."""
        if bool(self.out) != bool(now.out):
            yield "membership"
            return
        if self.out != now.out:
            yield "explanation"
        if len(self.kernel) != len(now.kernel):
            yield "PTX"
        elif self.kernel != now.kernel:
            yield "PTX" if self.kernel[0] != now.kernel[0] else "launch"
        if self.counts is not None and now.counts is not None:
            for name in sorted(self.counts.keys() | now.counts.keys()):
                if self.counts.get(name) != now.counts.get(name):
                    yield f"count of {name}"
        if (self.seconds, self.bottleneck) != (now.seconds, now.bottleneck):
            yield "prediction"


def judged(space: MachineSpace, name: str, target: str, point: dict[str, int | str], cache: SolverCache) -> Frozen:
    """What becomes of a point."""
    found = Frozen(name, target, space.problem.to_json(), point)
    out = tuple(violation.sentence for violation in space.space.explain(point))
    if out:
        return replace(found, out=out)
    try:
        kernel = build(space.program(point), space.problem, point, cache).kernel
        texts = (COMMENT.sub("", kernel.ptx), launched(name, kernel))
        made = tuple(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)
    except LoweringError as refused:
        made = (f"refused: {refused}",)
    index = space.structure_index(point)
    axes = {axis: int(point[axis]) for axis in space.traces[index].axes}
    demand = space.counts(index).demand({**space.environment, **axes}, space.device)
    prediction = PredictedTime(space).prediction(point)
    return replace(
        found,
        kernel=made,
        counts=flat(demand),
        seconds=float(prediction.seconds),
        bottleneck=str(prediction.bottleneck),
    )


def launched(name: str, kernel: Kernel) -> str:
    """All of a kernel but its text, in the words of the oldest corpora."""
    stores = STORES if name == "matmul_hopper" else {}
    named = tuple(sorted((EARLIER.get(name, {}).get(key, key), stores.get(str(v), v)) for key, v in kernel.point))
    # A kernel without banks, and without dims that are numbers, is described as before there were any.
    text = repr(replace(kernel, ptx="", point=named)).replace(", banks=()", "").replace(", known=()", "")
    # What a kernel's scheduler says of its launch stood in it as numbers.
    text = text.replace(f", scheduler={kernel.scheduler!r}", "").replace(", raster=", ", group=")
    for suffix, specific in (("", False), ("a", True)):
        text = text.replace(f", suffix={suffix!r}", f", persistent={kernel.persistent}, specific={specific}")
    text = text.replace(", workspaces=", f", parts={kernel.slices}, workspaces=").replace(", dealt=", ", stream_k=")
    for today, before in EARLIER_FIELDS.items():
        text = text.replace(f"{today}=", f"{before}=")
    return text


def flat(demand: Demand) -> dict[str, float]:
    """The counts of a demand by their path, without those that are 0."""

    def visit(value: dict[str, Any], path: str) -> Iterator[tuple[str, float]]:
        for name, inner in value.items():
            if isinstance(inner, tuple | list):
                inner = dict(zip(map(str, range(len(inner))), inner, strict=True))
            if isinstance(inner, dict):
                yield from visit(inner, f"{path}{name}.")
            elif inner is not None and not isinstance(inner, str) and float(inner):
                yield path + name, float(inner)

    return dict(visit(asdict(demand), ""))


def drawn(name: str, machine: type[Machine], target: str, count: int, seed: int) -> Iterator[Frozen]:
    """So many candidates of a machine on a target, as many points that are out, or none where there is no candidate."""
    rng = np.random.default_rng([seed, *name.encode(), *target.encode()])
    left, cache = count, SolverCache()
    for _ in range(20 * count):
        if not left:
            break
        try:
            sizes = SIZES if rng.integers(2) else EVEN_SIZES
            problem = draw_problem(machine, SeededDraw(rng), sizes, plain=bool(rng.integers(3) == 0))
        except ProblemError:
            continue
        space = build_space(machine, problem, device(target))
        if not space.space.size:
            continue
        taken = min(left, OF_A_PROBLEM)
        left -= taken
        for point in space.space.sample(taken, rng):
            yield judged(space, name, target, dict(point), cache)
            if outside := anywhere_out(space, rng):
                yield judged(space, name, target, outside, cache)


def anywhere_out(space: MachineSpace, rng: np.random.Generator) -> dict[str, int | str] | None:
    """A point of the axes that is not admitted; None where a few draws find none."""
    for _ in range(8):
        part = space.space.parts[int(rng.integers(len(space.space.parts)))]
        values = {axis.name: axis.values[int(rng.integers(len(axis.values)))] for axis in part.axes}
        point = dict(part.fixed) | values
        if space.space.explain(point):
            return point
    return None


def freeze(path: Path, count: int, seed: int) -> None:
    written: Counter[tuple[str, str]] = Counter()
    lines = []
    for name in SHIPPED:
        (machine,) = family(name).machines
        for target in TARGETS:
            for found in drawn(name, machine, target, count, seed):
                lines.append(json.dumps(asdict(found)))
                written[name, target] += not found.out
            if written[name, target]:
                print(f"{name} on {target}: {written[name, target]} candidates", flush=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{len(lines)} points are in {path}")


def compare(path: Path, shown: int) -> int:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        corpus = [frozen(json.loads(line)) for line in file]
    spaces: dict[str, MachineSpace] = {}
    caches: dict[str, SolverCache] = {}
    equal, differing = Counter[str](), Counter[str]()
    worst: dict[str, float] = {}
    for before in corpus:
        key = json.dumps([before.machine, before.target, before.problem])
        if key not in spaces:
            spaces.clear()  # they follow each other
            (machine,) = family(before.machine).machines
            spaces[key] = build_space(machine, Problem.from_json(before.problem), device(before.target))
        cache = caches.setdefault(before.machine, SolverCache())
        now = judged(spaces[key], before.machine, before.target, before.point, cache)
        found = tuple(before.differences(now))
        equal[before.machine] += not found
        for what in found:
            differing[what] += 1
            if what.startswith("count of ") and before.counts and now.counts:
                was, became = (c.get(what.removeprefix("count of "), 0.0) for c in (before.counts, now.counts))
                worst[what] = max(worst.get(what, 0.0), abs(became - was) / max(was, 1))
            if differing[what] <= shown:
                print(f"{what} of {before.machine} on {before.target}: {before.problem['dims']} {before.point}")
    listed = Counter(frozen.machine for frozen in corpus)
    for machine, points in listed.items():
        print(f"{machine}: {equal[machine]} of {points} points are as they were")
    for what, number in sorted(differing.items()):
        print(f"{what}: {number} differ" + (f", by {worst[what]:.1%} at most" if what in worst else ""))
    return int(any(what in ("membership", "explanation", "PTX", "launch") for what in differing))


def frozen(line: dict[str, Any]) -> Frozen:
    """A line of a corpus, in today's words."""
    name = line["machine"]
    axes = {before: today for today, before in EARLIER.get(name, {}).items()}
    stores = {before: today for today, before in STORES.items()} if name == "matmul_hopper" else {}
    point = {axes.get(key, key): stores.get(value, value) for key, value in line["point"].items()}
    out = tuple(in_todays_words(sentence) for sentence in line["out"])
    return Frozen(**(line | {"kernel": tuple(line["kernel"]), "out": out, "point": point}))


def in_todays_words(sentence: str) -> str:
    for before, today in SENTENCES:
        sentence = re.sub(before, today, sentence)
    return sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("freeze", "compare"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--count", type=int, default=200, help="candidates of each machine on each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=3, help="of each kind of difference so many are listed")
    asked = parser.parse_args()
    if asked.what == "freeze":
        freeze(asked.path, asked.count, asked.seed)
    else:
        sys.exit(compare(asked.path, asked.shown))


if __name__ == "__main__":
    main()
