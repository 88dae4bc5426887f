"""Bundle: candidates of a machine or a family, as kernels in one file that a worker times on a GPU elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from tinygpu import __version__
from tinygpu.api.choosing import finalists, refine_best
from tinygpu.api.machines import Family
from tinygpu.api.problems import Asked, Refusal, problems
from tinygpu.api.tune import NothingFound, Watcher
from tinygpu.cost.predictor import Prediction
from tinygpu.devices import Device
from tinygpu.files.writing import check_replaceable
from tinygpu.language.inputs import input_distributions
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly, assemble
from tinygpu.ptx.assembling.pool import assemble_many
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of, tensors_of
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.ptx.measuring.bundle import BEGINS, Bundle, Entry, Question, ptx_digest, write_bundle
from tinygpu.ptx.measuring.reference import record
from tinygpu.ptx.verification.trial import adds_short, rounding_of
from tinygpu.search.evaluation import Failure
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import ranked, strain_at
from tinygpu.search.refine import Refined, refined
from tinygpu.search.searchable import Point
from tinygpu.seeds import check_seed
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

# What assembles PTX texts for a target; a refusal takes the place of an assembly.
Assembling = Callable[[Sequence[str], str], Sequence[Assembly | AssemblerError]]
Choose = Literal["best", "random", "mixed"]
CHOOSE: tuple[Choose, ...] = ("best", "random", "mixed")
# Points that are looked at, per kernel that is wanted: many points of a space give the same kernel.
POINTS_PER_KERNEL = 20


@dataclass(frozen=True, slots=True)
class Skipped:
    """A candidate without a kernel, and why."""

    machine: str
    point: Point
    sentence: str


@dataclass(frozen=True, slots=True, eq=False)
class Bundled:
    """A bundle that was written."""

    bundle: Bundle
    refused: tuple[Refusal, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """One kernel, not yet assembled."""

    question: int
    refined: Refined
    kernel: Kernel
    space: MachineSpace
    objective: PredictedTime


def bundle(
    chosen: Family,
    asked: Asked,
    device: Device,
    path: Path,
    *,
    count: int = 500,
    choose: Choose = "mixed",
    seconds: float = 60.0,
    seed: int = 0,
    cubins: bool = True,
    shuffled: bool = False,
    watcher: Watcher | None = None,
) -> Bundled:
    """Writes a bundle of `count` different kernels, or of as many as there are.

    choose   the "best" by prediction, "random" ones uniformly from the space, or half of each ("mixed")
    seconds  how long each machine's space is searched for its best, at most
    cubins   also machine code for `device`, where nvJitLink's has the kernel's register budgets; without, the driver
             there assembles the PTX
    shuffled the best predicted kernel first and the others in random order, so that a run which ends early has measured
             a sample of all; else the best predicted ones come first

    Raises ProblemError where no machine takes the problem, NothingFound where none has a candidate, and CannotRecord
    where a machine's reference does more than a bundle can carry.
    """
    check_seed(seed)
    if count < 1:
        raise ValueError(f"a bundle holds at least 1 kernel, not {count}")
    check_replaceable(path, BEGINS, "a bundle")
    watch = watcher or Watcher()
    accepted, refused = problems(chosen, asked)
    skipped: list[Skipped] = []
    questions: list[Question] = []
    made: list[_Made] = []
    spaces = []
    for machine, posed in accepted:
        watch.stage(f"{machine.__name__}: building the space")
        space = build_space(machine, posed, device)
        watch.space(space)
        if space.space.size:
            spaces.append(space)
    if not spaces:
        raise NothingFound(f"no machine of {chosen.name} has a candidate for this problem on {device.name}")
    share = -(-count // len(spaces))
    for space in spaces:
        kernels = _kernels(space, len(questions), share, choose, seconds, seed, watch, skipped)
        if kernels:
            made += kernels
            questions.append(question(space.machine, space.problem, [m.kernel for m in kernels]))
    assembled = _assemble(made, device, watch, skipped)
    standing = sorted(assembled, key=lambda pair: (pair[1].spills, _score(*pair)))[:count]
    if not standing:
        raise NothingFound(f"none of {len(made)} candidates becomes a kernel: {skipped[0].sentence}")
    if shuffled:
        order = np.random.default_rng([seed, len(standing)]).permutation(len(standing) - 1) + 1
        standing = [standing[0], *(standing[n] for n in order.tolist())]
    watch.stage(f"writing {len(standing)} kernels")
    codes = [a.loadable if cubins else None for _, a in standing]
    entries = [_entry(f"k{n:04}", m, a, c) for n, ((m, a), c) in enumerate(zip(standing, codes, strict=True))]
    written = write_bundle(
        path,
        title=f"{chosen.name} {standing[0][0].space.problem}",
        device=device.name,
        made=_made_now(),
        questions=questions,
        kernels=((e, m.kernel.ptx.encode(), c) for e, (m, _), c in zip(entries, standing, codes, strict=True)),
    )
    return Bundled(written, tuple(refused), tuple(skipped))


def one_by_one(texts: Sequence[str], target: str) -> list[Assembly | AssemblerError]:
    """Assembles in this process."""
    done: list[Assembly | AssemblerError] = []
    for ptx in texts:
        try:
            done.append(assemble(ptx, target))
        except AssemblerError as refused:
            done.append(refused)
    return done


def bundle_points(
    space: MachineSpace, points: Sequence[Point], path: Path, *, assembling: Assembling = one_by_one
) -> list[str | Failure]:
    """Writes a bundle of given candidates of one space; for each its kernel's name, or why it has none."""
    objective, cache = PredictedTime(space), SolverCache()
    names: list[str | Failure] = []
    made: list[tuple[str, _Made]] = []
    for number, point in enumerate(points):
        try:
            r = refined(objective, point, cache)
            kernel = lower(r.program, space.problem, r.point, r.layouts.swizzles)
        except LoweringError as error:
            names.append(Failure("lowering", str(error)))
            continue
        names.append(f"k{number:04}")
        made.append((f"k{number:04}", _Made(0, r, kernel, space, objective)))
    kernels = []
    portable = space.device.portable_target
    for target in dict.fromkeys(m.kernel.assembled_for(portable) for _, m in made):
        mine = [(name, m) for name, m in made if m.kernel.assembled_for(portable) == target]
        assembled = assembling([m.kernel.ptx for _, m in mine], target)
        for (name, m), assembly in zip(mine, assembled, strict=True):
            if isinstance(assembly, AssemblerError):
                names[int(name[1:])] = Failure("assembler", str(assembly))
            else:
                code = assembly.loadable
                kernels.append((_entry(name, m, assembly, code), m.kernel.ptx.encode(), code))
    kernels.sort(key=lambda made: made[0].name)
    if kernels:
        asked = question(space.machine, space.problem, [m.kernel for _, m in made])
        write_bundle(
            path, title=asked.name, device=space.device.name, made=_made_now(), questions=[asked], kernels=kernels
        )
    return names


def _made_now() -> str:
    return f"{datetime.now(UTC).date().isoformat()}, tinygpu {__version__}"


def question(machine: type[Machine], posed: Problem, kernels: Sequence[Kernel] = ()) -> Question:
    """A problem as the worker needs it.

    kernels  those that will answer it: what the instructions of one round off, no other is refused for
    """
    scalars = tuple((s.name, s.dtype.name) for s in machine.scalars(dict(posed.options)))
    given = [o.name for o in posed.operands if o.access != "out"]
    outputs = [o.name for o in posed.operands if o.access != "in"]
    options = dict(posed.options)
    graph = record(
        machine.reference, [*given, *(name for name, _ in scalars)], options, outputs, machine.__name__
    )
    return Question(
        f"{machine.__name__} {posed}", posed.to_json(), tensors_of(posed), scalars, graph,
        replace(rounding_of(machine, posed), short_sums=any(adds_short(k, posed) for k in kernels)),
        input_distributions(machine, posed),
    )  # fmt: skip


def _kernels(
    space: MachineSpace,
    number: int,
    count: int,
    choose: Choose,
    seconds: float,
    seed: int,
    watch: Watcher,
    skipped: list[Skipped],
) -> list[_Made]:
    """Different kernels of one machine: the best ones, random ones, or half of each."""
    name = space.machine.__name__
    objective, cache = PredictedTime(space), SolverCache()
    found: dict[str, _Made] = {}

    def add(points: Iterator[Point], wanted: int) -> None:
        for looked, point in enumerate(points):
            if len(found) >= wanted or looked >= POINTS_PER_KERNEL * count:
                return
            watch.stage(f"{name}: kernel {len(found) + 1:,} of {count:,}")
            try:
                r = refined(objective, point, cache)
                kernel = lower(r.program, space.problem, r.point, r.layouts.swizzles)
            except LoweringError as error:
                skipped.append(Skipped(name, point, str(error)))
                continue
            found.setdefault(_text(kernel), _Made(number, r, kernel, space, objective))

    if choose != "random":
        watch.stage(f"{name}: searching {space.space.size:,} candidates")
        result = minimize(
            space.space, objective, seconds=seconds, seed=seed, callbacks=(watch.progress,), subject=space.space.name
        )
        if result.ended == "interrupted":
            raise KeyboardInterrupt
        # what `tinygpu tune` takes comes first, whatever the count
        first = finalists(space, objective, refine_best(objective, result, cache))
        groups = ranked(objective, result, count, POINTS_PER_KERNEL * count)
        rest = sorted((r for group in groups for r in group), key=lambda r: r.score)
        best = (*(f.refined.point for f in first), *(r.point for r in rest))
        add(iter(best), count if choose == "best" else -(-count // 2))
    if choose != "best":
        rng = np.random.default_rng(seed)
        add(_drawn(space, rng), count)
    return list(found.values())


def _text(kernel: Kernel) -> str:
    """What decides whether two kernels are the same: the PTX without its comments."""
    lines = (line for line in kernel.ptx.splitlines() if not line.startswith("//"))
    return "\n".join([*lines, str(kernel.maps), str(kernel.clusters)])


def _drawn(space: MachineSpace, rng: np.random.Generator) -> Iterator[Point]:
    while True:
        yield from space.space.sample(64, rng)


def _assemble(
    made: list[_Made], device: Device, watch: Watcher, skipped: list[Skipped]
) -> list[tuple[_Made, Assembly]]:
    out: list[tuple[_Made, Assembly]] = []
    targets = dict.fromkeys(m.kernel.assembled_for(device.portable_target) for m in made)
    for target in targets:
        mine = [m for m in made if m.kernel.assembled_for(device.portable_target) == target]
        waiting = iter(mine)
        while part := list(islice(waiting, 64)):
            watch.stage(f"assembling for {target}: {len(out):,} of {len(made):,}")
            for m, assembly in zip(part, assemble_many([m.kernel.ptx for m in part], target), strict=True):
                if isinstance(assembly, AssemblerError):
                    skipped.append(Skipped(m.kernel.machine, dict(m.kernel.point), str(assembly)))
                else:
                    out.append((m, assembly))
    return out


def _prediction(made: _Made, assembly: Assembly) -> Prediction:
    return made.objective.prediction(
        made.refined.point, extra_wavefronts=made.refined.extra, registers=assembly.registers
    )


def _score(made: _Made, assembly: Assembly) -> float:
    prediction = _prediction(made, assembly)
    return float(prediction.seconds) + strain_at(made.space, made.refined.point, prediction)


def _entry(name: str, made: _Made, assembly: Assembly, code: bytes | None) -> Entry:
    return Entry(
        name,
        made.question,
        made.kernel.machine,
        dict(made.kernel.point),
        launch_of(made.kernel, made.space.problem),
        float(_prediction(made, assembly).seconds),
        assembly.registers,
        assembly.spill_store_bytes + assembly.spill_load_bytes,
        ptx_digest(made.kernel.ptx.encode()),
        code is not None,
    )


__all__ = [
    "CHOOSE",
    "Assembling",
    "Bundled",
    "Choose",
    "Skipped",
    "bundle",
    "bundle_points",
    "one_by_one",
    "question",
]
