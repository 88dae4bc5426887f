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
from tinygpu.api.choosing import AnySpace, AnyTime, finalists_of, objective_of
from tinygpu.api.machines import Family
from tinygpu.api.problems import Asked, Refusal, problems
from tinygpu.api.tune import NothingFound, Watcher
from tinygpu.devices import Device
from tinygpu.files.writing import check_replaceable
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Problem
from tinygpu.language.reference import constants_of
from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly, assemble
from tinygpu.ptx.assembling.pool import assemble_many
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.launching.launches import launch_of_kernels, tensors_of
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.ptx.measuring.bundle import BEGINS, Bundle, Entry, Question, ptx_digest, write_bundle
from tinygpu.ptx.measuring.reference import CannotRecord, record
from tinygpu.ptx.verification.trial import adds_short, rounding_of
from tinygpu.search.evaluation import Failure
from tinygpu.search.minimize import minimize
from tinygpu.search.plan_time import PlanTime
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import ranked, strain_at
from tinygpu.search.refine import Refined, refined
from tinygpu.search.result import Result
from tinygpu.search.searchable import Point
from tinygpu.seeds import check_seed
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import space_of

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
    """One candidate's kernels, not yet assembled.

    parts  each kernel by itself: its machine's space, its layouts, its text
    """

    question: int
    point: Point
    kernels: Kernels
    parts: tuple[tuple[MachineSpace, Refined], ...]
    space: AnySpace
    objective: AnyTime

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(stage.kernel.ptx for stage in self.kernels.stages)


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
        space = space_of(machine, posed, device)
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
            questions.append(question(space.machine, space.problem, [m.kernels for m in kernels]))
    assembled = _assemble(made, watch, skipped)
    standing = sorted(assembled, key=lambda pair: (any(a.spills for a in pair[1]), _score(*pair)))[:count]
    if not standing:
        raise NothingFound(f"none of {len(made)} candidates becomes a kernel: {skipped[0].sentence}")
    if shuffled:
        order = np.random.default_rng([seed, len(standing)]).permutation(len(standing) - 1) + 1
        standing = [standing[0], *(standing[n] for n in order.tolist())]
    watch.stage(f"writing {len(standing)} kernels")
    codes = [_codes(assemblies) if cubins else None for _, assemblies in standing]
    entries = [_entry(f"k{n:04}", m, a, c) for n, ((m, a), c) in enumerate(zip(standing, codes, strict=True))]
    written = write_bundle(
        path,
        title=f"{chosen.name} {standing[0][0].space.problem}",
        device=device.name,
        made=_made_now(),
        questions=questions,
        kernels=((e, _texts(m, c)) for e, (m, _), c in zip(entries, standing, codes, strict=True)),
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
    space: AnySpace, points: Sequence[Point], path: Path, *, assembling: Assembling = one_by_one
) -> list[str | Failure]:
    """Writes a bundle of given candidates of one space; for each its kernel's name, or why it has none."""
    objective, cache = objective_of(space), SolverCache()
    names: list[str | Failure] = []
    made: list[tuple[str, _Made]] = []
    for number, point in enumerate(points):
        try:
            one = _lowered(0, objective, point, cache)
        except LoweringError as error:
            names.append(Failure("lowering", str(error)))
            continue
        names.append(f"k{number:04}")
        made.append((f"k{number:04}", one))
    kernels = []
    for (name, m), assemblies in zip(made, _assembled([m for _, m in made], assembling), strict=True):
        if isinstance(assemblies, AssemblerError):
            names[int(name[1:])] = Failure("assembler", str(assemblies))
        else:
            codes = _codes(assemblies)
            kernels.append((_entry(name, m, assemblies, codes), _texts(m, codes)))
    kernels.sort(key=lambda made: made[0].name)
    if kernels:
        asked = question(space.machine, space.problem, [m.kernels for _, m in made])
        write_bundle(
            path, title=asked.name, device=space.device.name, made=_made_now(), questions=[asked], kernels=kernels
        )
    return names


def _lowered(number: int, objective: AnyTime, point: Point, cache: SolverCache) -> _Made:
    """The kernels of a candidate; raises LoweringError."""
    space = objective.space
    if isinstance(objective, PlanTime):
        candidates = objective.space.candidates(point)
        parts = [(c.space, refined(PredictedTime(c.space), c.point, cache)) for c in candidates]
        kernels = tuple(_kernel(*part) for part in parts)
        whole = Kernels.of_plan(objective.space.machine, space.problem, point, kernels)
        return _Made(number, point, whole, tuple(parts), space, objective)
    part = (objective.space, refined(objective, point, cache))
    whole = Kernels.of_machine(objective.space.machine, _kernel(*part), space.problem)
    return _Made(number, part[1].point, whole, (part,), space, objective)


def _kernel(space: MachineSpace, r: Refined) -> Kernel:
    return lower(r.program, space.problem, r.point, r.layouts.swizzles)


def _made_now() -> str:
    return f"{datetime.now(UTC).date().isoformat()}, tinygpu {__version__}"


def question(machine: type[Declared], posed: Problem, kernels: Sequence[Kernels] = ()) -> Question:
    """A problem as the worker needs it.

    kernels  those that will answer it: what the instructions of one round off, no other is refused for
    """
    if narrow := next((o for o in posed.operands if o.dtype.bits < 8 and o.access != "in"), None):
        raise CannotRecord(
            f"{machine.__name__}: {narrow.name} is {narrow.dtype}, and results are compared on a GPU whose elements "
            "are whole bytes"
        )
    scalars = tuple((s.name, s.dtype.name) for s in machine.scalars(dict(posed.options)))
    given = [o.name for o in posed.operands if o.access != "out"]
    outputs = [o.name for o in posed.operands if o.access != "in"]
    options = constants_of(machine, posed, {})
    graph = record(
        machine.reference, [*given, *(name for name, _ in scalars)], options, outputs, machine.__name__,
        {name: posed.operand(name).dtype.numpy for name in given},
    )  # fmt: skip
    short = any(adds_short(s.kernel, s.problem) for k in kernels for s in k.stages)
    return Question(
        f"{machine.__name__} {posed}", posed.to_json(), tensors_of(posed), scalars, graph,
        replace(rounding_of(machine, posed), short_sums=short),
        input_distributions(machine, posed),
    )  # fmt: skip


def _kernels(
    space: AnySpace,
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
    objective, cache = objective_of(space), SolverCache()
    found: dict[str, _Made] = {}

    def add(points: Iterator[Point], wanted: int) -> None:
        for looked, point in enumerate(points):
            if len(found) >= wanted or looked >= POINTS_PER_KERNEL * count:
                return
            watch.stage(f"{name}: kernel {len(found) + 1:,} of {count:,}")
            try:
                made = _lowered(number, objective, point, cache)
            except LoweringError as error:
                skipped.append(Skipped(name, point, str(error)))
                continue
            found.setdefault("\n".join(_text(stage.kernel) for stage in made.kernels.stages), made)

    if choose != "random":
        watch.stage(f"{name}: searching {space.space.size:,} candidates")
        result = minimize(
            space.space, objective, seconds=seconds, seed=seed, callbacks=(watch.progress,), subject=space.space.name
        )
        if result.ended == "interrupted":
            raise KeyboardInterrupt
        # what `tinygpu tune` takes comes first, whatever the count
        best = (*(f.point for f in finalists_of(objective, result, cache)), *_best(objective, result, count))
        add(iter(best), count if choose == "best" else -(-count // 2))
    if choose != "best":
        rng = np.random.default_rng(seed)
        add(_drawn(space, rng), count)
    return list(found.values())


def _text(kernel: Kernel) -> str:
    """What decides whether two kernels are the same: the PTX without its comments."""
    lines = (line for line in kernel.ptx.splitlines() if not line.startswith("//"))
    return "\n".join([*lines, str(kernel.maps), str(kernel.clusters)])


def _best(objective: AnyTime, result: Result, count: int) -> list[Point]:
    """The best points of a search; of a machine those that divide the work differently, and their likes."""
    if isinstance(objective, PlanTime):
        return [trial.point for trial in result.top(POINTS_PER_KERNEL * count)]
    groups = ranked(objective, result, count, POINTS_PER_KERNEL * count)
    return [r.point for r in sorted((r for group in groups for r in group), key=lambda r: r.score)]


def _drawn(space: AnySpace, rng: np.random.Generator) -> Iterator[Point]:
    while True:
        yield from space.space.sample(64, rng)


def _assembled(
    made: Sequence[_Made], assembling: Assembling
) -> Iterator[tuple[Assembly, ...] | AssemblerError]:
    """What the assembler says of the kernels of each candidate: of all of them, or of the first that it refuses."""
    texts: dict[tuple[str, str], Assembly | AssemblerError | None] = {}
    for m in made:
        for stage in m.kernels.stages:
            texts[stage.kernel.assembled_for(m.space.device.portable_target), stage.kernel.ptx] = None
    for target in dict.fromkeys(target for target, _ in texts):
        mine = [ptx for of, ptx in texts if of == target]
        texts |= {(target, ptx): found for ptx, found in zip(mine, assembling(mine, target), strict=True)}
    for m in made:
        portable = m.space.device.portable_target
        found = [texts[stage.kernel.assembled_for(portable), stage.kernel.ptx] for stage in m.kernels.stages]
        refused = next((f for f in found if isinstance(f, AssemblerError)), None)
        yield refused or tuple(f for f in found if isinstance(f, Assembly))


def _assemble(
    made: list[_Made], watch: Watcher, skipped: list[Skipped]
) -> list[tuple[_Made, tuple[Assembly, ...]]]:
    out: list[tuple[_Made, tuple[Assembly, ...]]] = []
    waiting = iter(made)
    while part := list(islice(waiting, 64)):
        watch.stage(f"assembling: {len(out):,} of {len(made):,}")
        for m, assemblies in zip(part, _assembled(part, assemble_many), strict=True):
            if isinstance(assemblies, AssemblerError):
                skipped.append(Skipped(m.kernels.machine.__name__, dict(m.point), str(assemblies)))
            else:
                out.append((m, assemblies))
    return out


def _seconds(made: _Made, assemblies: Sequence[Assembly]) -> float:
    """Predicted seconds of the whole."""
    extra, registers = [r.extra for _, r in made.parts], [a.registers for a in assemblies]
    if isinstance(made.objective, PlanTime):
        whole = made.objective.prediction(made.point, extra_wavefronts=extra, registers=registers)
        return float(whole.seconds)
    return float(
        made.objective.prediction(made.point, extra_wavefronts=extra[0], registers=registers[0]).seconds
    )


def _score(made: _Made, assemblies: Sequence[Assembly]) -> float:
    strains = 0.0
    for (space, r), assembly in zip(made.parts, assemblies, strict=True):
        prediction = PredictedTime(space).prediction(
            r.point, extra_wavefronts=r.extra, registers=assembly.registers
        )
        strains += strain_at(space, r.point, prediction)
    return _seconds(made, assemblies) + strains


def _codes(assemblies: Sequence[Assembly]) -> tuple[bytes, ...] | None:
    """Machine code of every kernel; None where one has none that can be loaded."""
    found = [assembly.loadable for assembly in assemblies]
    codes = tuple(code for code in found if code is not None)
    return codes if len(codes) == len(found) else None


def _texts(made: _Made, codes: Sequence[bytes] | None) -> list[tuple[bytes, bytes | None]]:
    texts = [text.encode() for text in made.texts]
    return list(zip(texts, codes if codes is not None else [None] * len(texts), strict=True))


def _entry(name: str, made: _Made, assemblies: Sequence[Assembly], codes: Sequence[bytes] | None) -> Entry:
    return Entry(
        name,
        made.question,
        made.kernels.machine.__name__,
        dict(made.kernels.point),
        launch_of_kernels(made.kernels),
        _seconds(made, assemblies),
        max(a.registers for a in assemblies),
        sum(a.spill_store_bytes + a.spill_load_bytes for a in assemblies),
        ptx_digest(*(text.encode() for text in made.texts)),
        codes is not None,
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
