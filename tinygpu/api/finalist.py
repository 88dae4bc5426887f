"""Finalists: candidates of a machine that were refined by their layouts, lowered and assembled.

Of what a search found the best are taken, of every way to divide the work; those that do not spill are ranked by what
is then known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.cost.predictor import Prediction
from tinygpu.notebook import html as notebook
from tinygpu.processes.apart import EndedApart, run_apart
from tinygpu.program.layouts import LINES, buffer_layouts
from tinygpu.program.placement import place
from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly, assemble, load
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import Built
from tinygpu.ptx.lowering.line_table import LineTable
from tinygpu.ptx.lowering.lower import lower
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import FAR, ranked, strain_at
from tinygpu.search.refine import Refined, refine
from tinygpu.search.result import Result
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces import Space
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.built import BuiltSpace
from tinygpu.users_code import at, with_place

Values = Mapping[str, int | str]

# So many ways to divide the work are kept, each by its best candidate that does not spill.
KEPT = 6
# For each way, candidates whose layouts are solved, and of these candidates that are assembled, at most.
REFINED = 60
ASSEMBLED = 5
# Ways that are looked at, at most, for each that is kept.
WAYS = 4


# Wall time that the assembler may take for one kernel; the largest of ours take 2 s.
ASSEMBLING_SECONDS = 120.0


class NotAdmitted(ValueError):
    """A point that the space does not hold, with every constraint that it breaks."""


@dataclass(frozen=True, slots=True, eq=False)
class Finalist:
    """A candidate that was lowered and assembled.

    prediction  with the assembler's registers and the conflicts of its layouts
    """

    space: MachineSpace
    refined: Refined
    built: Built
    assembly: Assembly
    prediction: Prediction

    @property
    def parts(self) -> tuple[Finalist, ...]:
        """What it is made of: one kernel."""
        return (self,)

    @property
    def kernels(self) -> Kernels:
        return Kernels.of_machine(self.space.machine, self.built.kernel, self.space.problem)

    @property
    def spills(self) -> bool:
        return bool(self.assembly.spill_store_bytes or self.assembly.spill_load_bytes)

    @property
    def ptx(self) -> str:
        return self.built.kernel.ptx

    @property
    def point(self) -> dict[str, int | str]:
        return dict(self.refined.point)

    def __str__(self) -> str:
        """A short account: the candidate, its launch, what it relies on, its registers, its prediction, its layouts."""
        p, k, a = self.prediction, self.built.kernel, self.assembly
        grid = k.grid(self.space.problem)[0]
        lines = [
            f"{k.machine} for {self.space.problem} on {self.space.device.name}",
            "",
            "candidate   " + " ".join(f"{n}={v}" for n, v in k.point),
            f"launch      {grid:,} CTAs of {k.threads} threads, {k.smem_bytes:,} B of dynamic shared memory",
            "relies on   " + (", ".join(map(str, k.facts)) or "nothing"),
            f"assembled   {a.registers} registers, {a.spill_store_bytes + a.spill_load_bytes} B spilled, "
            f"{int(p.occupancy.ctas_per_sm)} CTAs per SM",
            f"predicted   {float(p.seconds) * 1e6:,.1f} us, {100 * float(p.share_of_roofline):.0f} % of the roofline: "
            f"{p.sentence()}",
        ]
        lines += [f"layout      {name}: {solution}" for name, solution in self.refined.layouts.solutions.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same with pictures: where the time goes, and how buffers lie in the banks; the program and the PTX."""
        account = dict(line.split(maxsplit=1) for line in str(self).splitlines()[2:] if not line.startswith("layout"))
        seconds = float(self.prediction.seconds)
        parts = {name: s for name, s in self.prediction.breakdown().items() if s > 0}
        time = notebook.bars(
            "predicted, not measured: busy and lost time",
            {name: s / seconds for name, s in parts.items()},
            {name: f"{s * 1e6:,.2f} us" for name, s in parts.items()},
        )
        built, solved = self.built, self.refined.layouts.solutions
        layouts = [
            notebook.paragraph(f"{b.buffer.name}: {solved.get(b.buffer.name, b.layout)}") + picture.svg()
            for b in buffer_layouts(built.program, place(built.program, built.layouts.swizzles))
            if (picture := b.picture(LINES)) is not None
        ]
        title = f"{self.built.kernel.machine} for {self.space.problem} on {self.space.device.name}"
        return "".join(
            [
                notebook.paragraph(title),
                notebook.table(("", ""), account.items()),
                time,
                *layouts,
                notebook.folded("program", notebook.code(str(self.built.program))),
                notebook.folded("PTX", notebook.code(self.ptx)),
            ]
        )

    @property
    def score(self) -> float:
        """Predicted seconds, and the strain that decides where these cannot."""
        return float(self.prediction.seconds) + strain_at(self.space, self.refined.point, self.prediction)


@dataclass(frozen=True, slots=True)
class Failed:
    """A candidate that could not be made, or not be verified: a fault of ours, or of the assembler.

    error  what ended it, as it was raised
    """

    space: BuiltSpace
    point: Values
    step: str
    error: Exception

    def __str__(self) -> str:
        listed = " ".join(f"{name}={value}" for name, value in self.point.items())
        return f"{self.step} of {self.space.machine.__name__} {listed}: {with_place(self.error)}"


def refuse(failure: Failed) -> None:
    """Whoever wants just this candidate is told why there is none."""
    if isinstance(failure.error, EndedApart):
        raise CannotBeMade(str(failure)) from failure.error
    raise failure.error


class CannotBeMade(ValueError):
    """A candidate crashed the assembler or the emulator, or kept it busy for too long."""


def having(space: BuiltSpace, point: Values) -> Space:
    """The candidates that have these values; raises NotAdmitted where there are none.

    With every reason; but where the device lacks something, that alone, since no other problem or value helps.
    """
    unknown = [name for name in point if name not in space.space.names]
    if unknown:
        names = ", ".join(space.space.names)
        raise NotAdmitted(f"{space.machine.__name__} has no parameter {unknown[0]!r}; it has {names}")
    broken = space.space.explain(point)
    violations = tuple(v for v in broken if v.constraint is not None and _of_device(v.constraint)) or broken
    if violations:
        own = [v.constraint.place for v in violations if v.constraint is not None and v.constraint.place]
        conflicting = space.space.conflict() if not space.space.size and not own else ()
        own += [c.place for conflict in conflicting for c in conflict.constraints if c.place]
        raise at(NotAdmitted("; ".join(v.sentence for v in violations)), own[0] if own else space.machine._own_place())
    return space.space.restrict(point)


def _of_device(constraint: Constraint) -> bool:
    names = constraint.condition.symbols
    return bool(names) and all(name.startswith("device.") for name in names)


def refine_best(
    objective: PredictedTime, result: Result, layouts: SolverCache, keep: int = KEPT
) -> list[list[Refined]]:
    """The best of what a search found, with their layouts, by the way in which they divide the work; best first."""
    found: list[list[Refined]] = []
    for group in ranked(objective, result, WAYS * keep, REFINED):
        # conflicts only add to a score: what begins above the last that is kept does not get below it
        if len(found) >= keep and group[0].score >= sorted(g[0].score for g in found)[keep - 1]:
            break
        found.append(refine(objective, group, layouts, keep=ASSEMBLED))
    return sorted(found, key=lambda g: g[0].score)


def finalists(
    space: MachineSpace,
    objective: PredictedTime,
    best: Sequence[Sequence[Refined]],
    keep: int = KEPT,
    failed: Callable[[Failed], None] = refuse,
) -> tuple[Finalist, ...]:
    """For `keep` ways to divide the work the best candidate that does not spill, as a kernel, best first.

    Ranked with the assembler's registers. Those that were assembled and spill come last. `failed` is told of each that
    the assembler refused, or that crashed it or kept it busy for too long; it is left out.

    Candidates that take `FAR` times as long as the best that divides the work as they do come after all others, and are
    assembled only where that way has no kernel yet and they are not as far behind the best kernel of all ways.
    """
    load()
    kept: dict[int, Finalist] = {}
    spilled: list[Finalist] = []

    def assemble_up_to(most: float, way: int, group: Sequence[Refined]) -> Sequence[Refined]:
        """Assembles candidates of a way until none can be its best, or one is beyond `most`; those that are left."""
        for number, r in enumerate(group):
            mine = kept.get(way)
            if r.score > most or (mine is not None and r.score >= mine.score):
                return group[number:]
            try:
                made = assembled(space, objective, r)
            except (AssemblerError, EndedApart) as error:
                failed(Failed(space, r.point, "assembling", error))
                continue
            if made.spills:
                spilled.append(made)
            elif mine is None or made.score < mine.score:
                kept[way] = made
        return ()

    later: list[tuple[int, Sequence[Refined]]] = []
    for way, group in enumerate(best):
        if len(kept) == keep:
            break
        if left := assemble_up_to(FAR * group[0].score, way, group):
            later.append((way, left))
    for way, left in sorted(later, key=lambda one: one[1][0].score):
        assemble_up_to(FAR * min((f.score for f in kept.values()), default=math.inf), way, left)
    best_first = sorted(kept.values(), key=lambda f: f.score)
    return (*best_first[:keep], *sorted(spilled, key=lambda f: f.score))


def assembled(space: MachineSpace, objective: PredictedTime, r: Refined) -> Finalist:
    """One candidate, lowered, and assembled in a process of its own."""
    kernel = lower(r.program, space.problem, r.point, r.layouts.swizzles)
    target = kernel.assembled_for(space.device.portable_target)
    built = Built(r.program, r.layouts, kernel)
    try:
        assembly = run_apart(lambda: assemble(kernel.ptx, target), seconds=ASSEMBLING_SECONDS)
    except AssemblerError as error:
        raise at(error, LineTable.of(built, space.problem).place(error.faults[0].line)) from None
    prediction = objective.prediction(r.point, extra_wavefronts=r.extra, registers=assembly.registers)
    return Finalist(space, r, built, assembly, prediction)
