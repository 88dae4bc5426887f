"""A long run of random candidates: python -m tests.benchmarks.long_run JOURNAL [--cpu-seconds N] [--seed S]

Every machine that ships, on a device of every generation that has its instructions: problems with any sizes, types,
orders, pitches, alignments and options that the machine takes, and of each a candidate of one structure of its space.
Each is lowered, assembled for its target where there is an assembler, emulated with all checks on in three orders, and
compared with its reference (`tinygpu.testing.judges`). Draws are numbered, and number k is the same in every run with a
seed: machines and devices come in turn; structures, types, sizes and the rest are drawn.

JOURNAL has a line of JSON for each draw. A run that is started again goes on behind the last one, until the CPU time,
that of all runs together, is spent. At the end a table of the whole journal is printed, and every failure with the
command that tries it again:

    python -m tests.benchmarks.long_run --again NUMBER MACHINE DEVICE --seed S

Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import ProblemError
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing import Case
from tinygpu.testing.bench import draw_problems
from tinygpu.testing.draws import DEVICES, SeededDraw, draw_problem
from tinygpu.testing.judges import judge
from tinygpu.testing.workbench import Workbench

PROBLEMS_TRIED = 12  # until one has candidates


@dataclass(frozen=True, slots=True)
class Drawn:
    """What became of one draw.

    types      of the operands
    structure  the options of the candidate's Choices
    stage      "right", "none" (no problem that was drawn has candidates there), who refused it, or "crash"
    sentence   why
    cpu        seconds, those of the assembler included
    """

    number: int
    machine: str
    on: str
    types: str
    structure: str
    case: str
    stage: str
    sentence: str
    cpu: float

    @property
    def failed(self) -> bool:
        return self.stage not in ("right", "none")


def spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def drawn_space(
    machine: type[Machine], on: str, rng: np.random.Generator, bench: Workbench
) -> tuple[Case, MachineSpace] | None:
    """A problem with candidates on a device; None where none was found."""
    for _ in range(PROBLEMS_TRIED):
        try:
            problem = draw_problem(machine, SeededDraw(rng))
            case = Case(machine, problem, device(on))
            space = case.space(bench)
        except ProblemError:
            continue
        if space.space.size:
            return case, space
    return None


def shipped(name: str) -> type[Machine]:
    (found,) = family(name).machines
    if not issubclass(found, Machine):
        raise ValueError(f"{name} is no machine of one kernel")
    return found


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """Machines and the devices that have candidates of an easy problem, device after device."""
    out = []
    for on in DEVICES:
        for name in SHIPPED:
            machine = shipped(name)
            few = {dim: values[0] for dim, values in machine.dim_values().items() if values}
            follow = {dim.name for dim in machine.following_dims()}
            easy = {dim: 64 for dim in machine.dim_names() if dim not in follow} | few
            try:
                problems = [machine.problem(**easy)]
            except ProblemError:  # of sizes that hang together
                problems = list(draw_problems(machine, 8, np.random.default_rng(0)))
            if any(build_space(machine, problem, device(on)).space.size for problem in problems):
                out.append((name, on))
    return tuple(out)


def tried(number: int, name: str, on: str, seed: int, bench: Workbench) -> Drawn:
    """One draw: its candidate before the judges."""
    begun = spent()
    rng = np.random.default_rng([seed, number])
    case, types, structure = "", "", ""
    try:
        found = drawn_space(shipped(name), on, rng, bench)
        if found is None:
            return Drawn(number, name, on, "", "", "", "none", "", spent() - begun)
        posed, space = found
        types = " ".join(f"{o.name}:{o.dtype}" for o in posed.problem.operands)
        filled = [s for s in space.structures if space.space.restrict(dict(s)).size] if space.structures[0] else [()]
        chosen = dict(filled[int(rng.integers(len(filled)))])
        structure = " ".join(f"{k}={v}" for k, v in chosen.items())
        (point,) = (space.space.restrict(chosen) if chosen else space.space).sample(1, rng)
        posed = Case(posed.machine, posed.problem, posed.device, point)
        case = str(posed)
        judged = judge(posed, bench, seed=int(rng.integers(1 << 30)))
        stage, sentence = str(judged.stage), judged.sentence
    except Exception:
        stage, sentence = "crash", traceback.format_exc(limit=-3)
    return Drawn(number, name, on, types, structure, case, stage, sentence, spent() - begun)


def read(journal: Path) -> Iterator[Drawn]:
    """The draws of a journal; a last line that was cut off is left out."""
    if not journal.exists():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            yield Drawn(**json.loads(line))
        except (ValueError, TypeError):
            return


def table(draws: Sequence[Drawn], seed: int) -> Iterator[str]:
    """The whole journal: by machine and device how many were right, and by type; then every failure."""
    yield "| machine | " + " | ".join(DEVICES) + " | structures | types | s of CPU |"
    yield "| --- |" + " ---: |" * (len(DEVICES) + 3)
    for name in SHIPPED:
        mine = [d for d in draws if d.machine == name]
        cells = []
        for on in DEVICES:
            there = Counter(d.stage for d in mine if d.on == on)
            failed = sum(d.failed for d in mine if d.on == on)
            right = f"{there['right']} right" if there["right"] else ("none" if there["none"] else "")
            cells.append(f"{right}, **{failed} failed**" if failed else right)
        judged = [d for d in mine if d.stage != "none"]
        kinds = len({d.structure for d in judged}), len({d.types for d in judged})
        yield f"| `{name}` | {' | '.join(cells)} | {kinds[0]} | {kinds[1]} | {sum(d.cpu for d in mine):.0f} |"
    stages = Counter(d.stage for d in draws if d.stage != "none")
    whole = ", ".join(f"{count} {stage}" for stage, count in stages.most_common())
    yield f"\n{sum(stages.values())} candidates in {sum(d.cpu for d in draws):.0f} s of CPU: {whole or 'none'}"
    for d in draws:
        if d.failed:
            yield f"\n{d.number}: {d.case or d.machine + ' on ' + d.on}\n{d.stage}: {d.sentence}"
            yield f"    python -m tests.benchmarks.long_run --again {d.number} {d.machine} {d.on} --seed {seed}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A long run of random candidates of every machine that ships.")
    parser.add_argument("journal", type=Path, nargs="?", help="a line for each draw; a run goes on behind the last")
    parser.add_argument("--cpu-seconds", type=float, default=600.0, help="of all runs of the journal together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--again", nargs=3, metavar=("NUMBER", "MACHINE", "DEVICE"), help="try one draw alone, and print all of it"
    )
    chosen = parser.parse_args(arguments)
    bench = Workbench()
    if chosen.again is not None:
        again, name, on = chosen.again
        one = tried(int(again), name, on, chosen.seed, bench)
        print(f"{one.case or one.machine + ' on ' + one.on}\n{one.stage} {one.sentence}")
        return int(one.failed)
    if chosen.journal is None:
        parser.error("a run needs a journal, or --again with the number of a draw")
    draws = list(read(chosen.journal))
    left = chosen.cpu_seconds - sum(d.cpu for d in draws)
    chosen.journal.write_text("".join(f"{json.dumps(asdict(d))}\n" for d in draws), encoding="utf-8")
    begun, number = spent(), 1 + max((d.number for d in draws), default=-1)
    with chosen.journal.open("a", encoding="utf-8") as file:
        while spent() - begun < left:
            draws.append(tried(number, *pairs()[number % len(pairs())], chosen.seed, bench))
            file.write(f"{json.dumps(asdict(draws[-1]))}\n")
            file.flush()
            number += 1
    for line in table(draws, chosen.seed):
        print(line)
    return int(any(d.failed for d in draws))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
