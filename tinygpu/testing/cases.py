"""The checks of one case, by name: each says in a sentence what is wrong, or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from tinygpu.cost.counting import count
from tinygpu.cost.drawn_rows import drawn_from
from tinygpu.cost.ordered_rows import named_in_order
from tinygpu.expressions import evaluate
from tinygpu.language.instruction import BulkTransfer, MatrixMultiply
from tinygpu.language.memories import SMEM
from tinygpu.language.problem import Problem
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.spaces.build import MachineSpace
from tinygpu.testing.case import Case, resize
from tinygpu.testing.coverage import (
    layout_fault,
    partition_fault,
    partitions,
    small_problem_dims,
    store_fault,
)
from tinygpu.testing.enumeration import Asked, enumerate_cta
from tinygpu.testing.finding import RIGHT, Finding
from tinygpu.testing.judges import judge
from tinygpu.testing.listed_tiles import MIDDLES, has_idle_tiles, listed_problem, listed_tiles
from tinygpu.testing.statements import mean_what_they_do
from tinygpu.testing.whole_problems import between_sectors, constant_beyond, illegal, whole_problem
from tinygpu.testing.workbench import Workbench
from tinygpu.users_code import with_place

# What is listed one by one; those that share a tile do not all do the same.
ALONE = "CTAs that have a tile to themselves"
# The heuristic that each counted amount stands for.
HEURISTIC_OF = {"sectors_read": "coalescing", "sectors_written": "coalescing"}


def examine(check: str, case: Case, bench: Workbench | None = None) -> Finding:
    """What one of the checks says of a case.

    check  "traces", "partitions", "layouts", "counts", "meter", "meanings", "handovers", "kernel" or "refused"
    """
    if check not in CHECKS:
        raise ValueError(f"there is no check {check!r}; there are {', '.join(CHECKS)}")
    return CHECKS[check](case, bench or Workbench())


def traces(case: Case, bench: Workbench) -> Finding:
    """The space can be built: every structure can be traced for these types, orders and options."""
    try:
        case.space(bench)
    except Exception as error:  # whatever a user's program raises is a finding, not the end of the check
        return Finding(f"no space can be built: {type(error).__name__}: {with_place(error)}")
    return RIGHT


def covers(case: Case, bench: Workbench) -> Finding:
    """Every partition holds every element of its tile once, and every output element is stored once."""
    program = _filled(case, bench)
    for name, partition in partitions(program):
        fault = partition_fault(partition)
        if fault:
            return Finding(f"the partition of {name}: {fault}")
    small = resize(case.machine, case.problem, small_problem_dims(program, case.problem))
    return Finding(store_fault(program, small))


def lays_out(case: Case, bench: Workbench) -> Finding:
    """Buffers lie apart, their layouts keep every element, and no access leaves its buffer."""
    program = _filled(case, bench)
    if not any(b.memory is SMEM for p in program.pipelines for b in p.buffers):
        return Finding(absent="buffers in shared memory")
    return Finding(layout_fault(program, solve_buffers(program, bench.solver)))


def counts(case: Case, bench: Workbench) -> Finding:
    """What CTAs inside the tensors are counted to ask for is what listing every lane's address gives.

    Rows begin at sectors, and then in the middle of them, unless rounds then begin at more places than tiles show.
    """
    program = _filled(case, bench)
    if program.grid.scheduler.settled().shares:
        return Finding(absent=ALONE)
    if _branches(program):
        return Finding(absent="accesses that the program alone decides")
    found = listed_problem(program, case, bench)
    if found is None:
        if size := constant_beyond(program, case, MIDDLES[-1]):
            return Finding(absent=f"tiles inside the tensors: a dim of {size} elements ends before windows do")
        return Finding(blind="its windows reach beyond the tensors of every problem")
    inside, first = found
    between = between_sectors(inside)
    for problem in (inside,) if illegal(case, between, bench) else (inside, between):
        tiles = listed_tiles(program, problem, first)
        if tiles is None and problem is between:
            continue
        if tiles is None:
            return Finding(absent="windows that begin at few places of a sector")
        if has_idle_tiles(program, problem, tiles):
            return Finding(absent="rounds in every tile")
        told = _counted(program, case, bench, problem, tiles)
        if told.fault:
            return told
    return RIGHT


def _counted(
    program: Program, case: Case, bench: Workbench, inside: Problem, tiles: Sequence[Mapping[str, int]]
) -> Finding:
    """The counts of a CTA on one problem: the mean of those that have these tiles."""
    layouts = solve_buffers(program, bench.solver)
    every = [enumerate_cta(program, inside, layouts, tile) for tile in tiles]
    listed = Asked(*(sum(getattr(one, f.name) for one in every) / len(every) for f in fields(Asked)))
    said = closed_forms(case.space(bench), case, inside)
    if _by_engines(program):  # what engines read and write of shared memory goes by whole rows of banks, not by lanes
        said = {name: amount for name, amount in said.items() if not name.startswith("ideal")}
    drawn = _draws_rows(program)
    for name, amount in said.items():
        if drawn and amount <= getattr(listed, name):
            continue  # of rows that data name, counts expect some to be neighbours, or the same
        if amount != getattr(listed, name):
            left_out = HEURISTIC_OF.get(name, "")
            missing = left_out not in case.machine.heuristics if left_out else False
            because = f"; heuristics of {case.machine.__name__} leaves out {left_out!r}" if missing else ""
            counted = f"the count says {amount:,g}, listing {getattr(listed, name):,g}"
            return Finding(f"{name} of one CTA on {inside}: {counted}{because}")
    promised = sum(layouts.conflicts.values())
    found = listed.wavefronts_read + listed.wavefronts_written - listed.ideal_read - listed.ideal_written
    if bool(promised) != bool(found):
        return Finding(f"layouts leave {promised:,} conflicts in all buffers together, and listing finds {found:,g}")
    return RIGHT


def meter(case: Case, bench: Workbench) -> Finding:
    """The emulator's exact counts on whole tiles equal those of listing every CTA.

    How often CTAs read what others tell them hangs on who is how far, so that what is told is left out on both sides.
    """
    program = _filled(case, bench)
    if program.grid.scheduler.settled().shares:
        return Finding(absent=ALONE)
    if program.placed_by_data or _branches(program):
        return Finding(absent="accesses that the program alone decides")
    found = whole_problem(program, case, bench, within=())
    if found is None:
        return Finding(blind="the machine takes no problem of whole tiles")
    built = build(program, found, case.point or {}, bench.solver)
    numbers = [range(_ctas_along(a, found)) for a in program.grid.axes]
    names = [a.index for a in program.grid.axes]
    listed = [
        enumerate_cta(program, found, built.layouts, dict(zip(names, tile, strict=True)), threads_only=True, told=False)
        for tile in itertools.product(*numbers)
    ]
    lines = LineInfo.of(built, found)
    verification = verify(
        built.kernel, case.machine, found, orders=("late",), random_inputs=False, derived=found,
        lines=lines,
    )  # fmt: skip
    c = verification.counters
    if c is None:
        return Finding(f"on {found}: {verification.checks[0]}")
    told = _told(program, lines, verification)
    pairs = {
        "sectors_read": c.global_load_sectors - told[0],
        "sectors_written": c.global_store_sectors + c.global_atomic_sectors - told[1],
        "wavefronts_read": c.shared_load_wavefronts - _addresses(lines, verification),
        "wavefronts_written": c.shared_store_wavefronts,
    }
    for name, measured in pairs.items():
        counted = sum(getattr(one, name) for one in listed)
        if counted != measured:
            where = f"{name.replace('_', ' ')} in {len(listed)} tiles of {found}"
            return Finding(f"{where}: {counted:,} by listing, {measured:,} by the emulator")
    return RIGHT


def _addresses(lines: LineInfo, found: Verification) -> int:
    """Wavefronts that are of no statement: by which warps learn where the CTA's tensor memory begins, before the first
    of them, and which tile is next.
    """
    text = lines.kernel.ptx.splitlines()
    reads = ("ld.shared.u32", "ld.shared.b128")
    own = (n for n in found.lines if n not in lines.lines and text[n - 1].strip().startswith(reads))
    return sum(found.lines[number].wavefronts for number in own)


def _told(program: Program, lines: LineInfo, found: Verification) -> tuple[int, int]:
    """(sectors read, written) by what CTAs tell each other when they look back."""
    read = written = 0
    if any(isinstance(s, n.Preceding) for s in walk(program.body)):
        for line, counters in found.lines.items():
            if line in lines.lines and isinstance(lines.lines[line].statement, n.Preceding):
                loads = " ld." in lines.kernel.ptx.splitlines()[line - 1]
                read, written = read + loads * counters.sectors, written + (not loads) * counters.sectors
    return read, written


def _ctas_along(axis: n.Axis, problem: Problem) -> int:
    """CTAs along an axis of the grid; those that fill up a cluster have a tile beyond the last one."""
    return int(evaluate(axis.clusters * axis.cluster, problem.dim))


def kernel(case: Case, bench: Workbench) -> Finding:
    """The candidate lowers, assembles, runs without a fault, and gives what the reference gives."""
    judged = judge(case, bench)
    return RIGHT if judged.stage == "right" else Finding(f"{judged.stage}: {judged.sentence}")


def refused(case: Case, bench: Workbench) -> Finding:
    """The candidate, which the space rejects as illegal, does not work."""
    judged = judge(case, bench)
    if judged.stage != "right":
        return RIGHT
    reasons = "; ".join(str(v) for v in case.space(bench).space.explain(case.point or {}))
    return Finding(f"it lowers, assembles and is right, and yet the space rejects it: {reasons}")


def hands_over(case: Case, bench: Workbench) -> Finding:
    """What pipelines hand over is proved, of the kernel's own waits and arrivals; or explored, and nothing is wrong."""
    program = _filled(case, bench)
    if not program.pipelines and program.grid.scheduler.answers.same(0):
        return Finding(absent="pipelines")
    try:
        made = lowered(program, case.problem, case.point or {}, solve_buffers(program, bench.solver).swizzles)
    except LoweringError as error:
        return Finding(blind=f"it is not lowered: {with_place(error)}")
    found = certify(made.protocol, bench.proofs)
    if found.refuted:
        return Finding(str(found.refuted[0]))
    unknown = [ring for ring in found.rings if ring.verdict == "unknown"]
    return Finding(blind=str(unknown[0])) if unknown else Finding(note="\n".join(map(str, found.rings)))


CHECKS: Mapping[str, Callable[[Case, Workbench], Finding]] = {
    "traces": traces,
    "partitions": covers,
    "layouts": lays_out,
    "counts": counts,
    "meter": meter,
    "meanings": mean_what_they_do,
    "handovers": hands_over,
    "kernel": kernel,
    "refused": refused,
}


# -- what the checks share -------------------------------------------------------------------------------------------


def _filled(case: Case, bench: Workbench) -> Program:
    if case.point is None:
        raise ValueError(f"{case} names no candidate")
    return case.space(bench).program(case.point)


def _branches(program: Program) -> bool:
    """Whether conditions or data decide how often statements are carried out: counts take what is typical."""
    said = bool(program.said_by_data) or any(s.taken_where is not None for s in walk(program.body))
    return said or any(t.buffer is not None and t.pick for s in walk(program.body) for t in (*s.reads, *s.writes))


def _draws_rows(program: Program) -> bool:
    """Whether data name rows of which it is known what they are drawn from, or in which order they come."""
    tiles = (tile for s in walk(program.body) for tile in (*s.reads, *s.writes))
    return any(drawn_from(program, t) is not None or named_in_order(program, t) is not None for t in tiles)


def _by_engines(program: Program) -> bool:
    """Whether copy engines or tensor cores read or write shared memory by themselves."""
    for s in walk(program.body):
        for instruction in s.instructions:
            if isinstance(instruction, BulkTransfer):
                return True
            if isinstance(instruction, MatrixMultiply) and SMEM in instruction.places:
                return True
    return False


def closed_forms(space: MachineSpace, case: Case, problem: Problem) -> dict[str, float]:
    """The counted amounts of one CTA, over all of its rounds."""
    point = case.point or {}
    index = space.structure_index(point)
    axes = {a: int(point[a]) for a in space.traces[index].axes}
    # Without what the machine charges besides: that is no count of anything. Listed is what loads ask of L1.
    named = tuple(h for h in space.machine.heuristics if isinstance(h, str) and h != "L1")
    counts = space.counts(index) if named == space.machine.heuristics else count(space.traces[index].program, named)
    demand = counts.demand({**space.environment, **problem.environment(), **axes}, space.device)

    def total(name: str) -> float:
        phases = (demand.prologue.work, demand.iteration.work, demand.epilogue.work)
        before, each, after = (getattr(work, name) for work in phases)
        return float(before + demand.iterations * each + after)

    return {
        "sectors_read": total("sectors_read"),
        "sectors_written": total("sectors_written"),
        "ideal_read": total("smem_load_wavefronts"),
        "ideal_written": total("smem_store_wavefronts"),
        "tensor_flops": total("tensor_flops"),
        "idle_flops": total("idle_flops"),
    }
