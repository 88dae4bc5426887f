"""Lowering: the arrow from Program to Kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, FloorDiv, ceil_div, symbol
from tinygpu.language.buffer_space import BUFFER_ALIGN_BYTES
from tinygpu.language.derive import own_memories
from tinygpu.language.problem import Problem
from tinygpu.language.roles import HANDED_OVER
from tinygpu.program import nodes as n
from tinygpu.program.pairs import pair_of_ring
from tinygpu.program.placement import Swizzles, place
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, walk
from tinygpu.ptx.launching.kernel import Bank, Fact, Kernel, Parameter
from tinygpu.ptx.lowering import (
    across_ctas,
    across_warps,
    control,
    fix_up,
    in_turn,
    launch_control,
    look_back,
    probe,
    roles,
    rounds,
)
from tinygpu.ptx.lowering.context import Context, Facts, LoweringError
from tinygpu.ptx.lowering.grid import Registers, enter, rounds_of_tile
from tinygpu.ptx.lowering.marks import mark
from tinygpu.ptx.lowering.reach import check_reach, side_by_side
from tinygpu.ptx.lowering.sync import Protocol, Ring

Need = tuple[int, tuple[int, int]]  # (oldest target, lowest version)
# Lowest .version per .target (each assembled).
VERSIONS = {80: (7, 0), 86: (7, 1), 87: (7, 4), 89: (7, 8), 90: (7, 8), 100: (8, 6), 120: (8, 7)}
# PTX ISA, .target: "f" targets are of PTX 8.8.
OF_FAMILIES = (8, 8)
# mbarrier.try_wait is of PTX 7.8 and sm_90, fence.mbarrier_init of PTX 8.0 and sm_90.
BARRIERS: Need = (90, (8, 0))
# clusterlaunchcontrol is of PTX 8.6 and sm_100.
TAKING_OVER: Need = (100, (8, 6))


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel, and its synchronisation as values: those that were printed."""

    kernel: Kernel
    protocol: Protocol


def lower(
    program: Program, problem: Problem, point: Mapping[str, int | str], swizzles: Swizzles | None = None
) -> Kernel:
    """PTX for a filled-in program."""
    return lowered(program, problem, point, swizzles).kernel


def probed(
    program: Program, problem: Problem, point: Mapping[str, int | str], swizzles: Swizzles | None, log_bytes: int
) -> Kernel:
    """The same kernel, in which each thread also keeps a log of so many bytes: see `tinygpu.ptx.lowering.probe`."""
    return lowered(program, problem, point, swizzles, log_bytes).kernel


def marked(program: Program, problem: Problem, point: Mapping[str, int | str], swizzles: Swizzles | None) -> str:
    """The same text with a mark of its statement behind each line: see `tinygpu.ptx.lowering.marks`."""
    return lowered(program, problem, point, swizzles, with_marks=True).kernel.ptx


def lowered(
    program: Program, problem: Problem, point: Mapping[str, int | str], swizzles: Swizzles | None = None,
    log_bytes: int = 0, with_marks: bool = False,
) -> Lowered:
    """PTX for a filled-in program, and the protocol of its hand-overs.

    Dims, leading dimensions and pointers are launch arguments. The problem decides only which facts the kernel may rely
    on (that a tile divides a dim, that rows are aligned); the facts that were used are part of the kernel.
    """
    check_reach(program)
    several = side_by_side(program)
    facts = Facts(problem.environment())
    context = Context(program, facts, place(program, swizzles or {}))
    parameters = _parameters(program)
    prologue = _arguments(context, parameters)
    context.threads = int(program.threads)
    if with_marks:
        context.emit.mark = partial(mark, context, {id(s): i for i, s in enumerate(walk(program.body))})
    context.thread = context.emit.computed("r", "mov.u32 {d}, %tid.x;")
    context.arguments["tid"] = context.thread
    if log_bytes:
        probe.begin(context, log_bytes)
    across_warps.begin(context)
    across_ctas.begin(context)
    _limits(context, program.body)
    context.spans = _spans(program)
    if several:
        roles.write(context, control.body)
    else:
        tiles = context.scheduler.walk(Registers(context), (0, 1))
        enter(context, tiles, tiles.begin)
        in_turn.begin(context, program.body, again=False)
        control.body(context, program.body)
    context.emit.line("ret;")
    maps = tuple(spec for spec, _ in context.maps)
    parameters = (*parameters, *(Parameter(m.name, "map", "b8") for m in maps))
    workspaces = fix_up.workspaces(program) + look_back.workspaces(program)
    workspaces += (probe.workspace(program, log_bytes),) if log_bytes else ()
    if context.workspace:
        parameters = (*parameters, *(Parameter(w.name, "workspace", "u64") for w in workspaces))
        prologue += [
            line
            for name, register in context.workspace.items()
            for line in (f"  ld.param.u64 {register}, [{name}];", f"  cvta.to.global.u64 {register}, {register};")
        ]
    for spec, register in context.maps:
        prologue += [f"  mov.b64 {register}, {spec.name};", f"  cvta.param.u64 {register}, {register};"]
    together = int(program.grid.cluster) > 1 or any(p.completion in (*HANDED_OVER, "turn") for p in program.pipelines)
    needs = [*_needs(program), *([BARRIERS] if together else [])]
    suffix = _suffix(program)
    target = max([min(VERSIONS), *(oldest for oldest, _ in needs)])
    version = max([VERSIONS[max(t for t in VERSIONS if t <= target)], *(lowest for _, lowest in needs)])
    version = max(version, OF_FAMILIES) if suffix == "f" else version
    name = f"{program.machine.lower()}"
    budgets = any(r.registers for r in program.roles)
    clusters = tuple(int(a.cluster) for a in program.grid.axes) if int(program.grid.cluster) > 1 else ()
    align = context.placement.align_bytes
    used = tuple(Fact(k, d) for k, d in _strongest(facts.used))
    ptx = "\n".join(
        [
            *_header(program, point, used),
            f".version {version[0]}.{version[1]}",
            f".target sm_{target}{suffix}",
            ".address_size 64",
            "",
            *([f".extern .shared .align {align} .b8 smem[];", ""] if context.placement.total_bytes else []),
            *[line for b in _banks(program) for line in (b.declaration, "")],
            f".visible .entry {name}(",
            ",\n".join(_declaration(p) for p in parameters),
            ")",
            f".{'reqntid' if several else 'maxntid'} {int(program.threads)}, 1, 1",
            # setmaxnreg needs a register count that the assembler knows at entry.
            *([".minnctapersm 1"] if budgets else []),
            *([f".reqnctapercluster {int(program.grid.cluster)}, 1, 1"] if clusters else []),
            "{",
            *context.emit.declarations(),
            *prologue,
            *context.emit.lines(),
            "}",
            "",
        ]
    )
    kernel = Kernel(
        name,
        program.machine,
        ptx,
        target,
        int(program.threads),
        context.placement.asked_bytes,
        parameters,
        tuple((str(a.size), int(a.extent)) for a in program.grid.axes),
        int(program.grid.raster),
        tuple((t.name, t.dims) for t in program.tensors),
        rounds.steps(program),
        used,
        tuple(sorted(point.items())),
        context.scheduler,
        maps,
        clusters,
        suffix,
        workspaces,
        _dealt(program),
        rounds.rings(program),
        rounds.turns(program),
        _banks(program),
        tuple(dict.fromkeys(pair for t in program.tensors for pair in t.known)),
        look_back.axes(program),
        () if all(a.groups.same(1) for a in program.grid.axes) else tuple(str(a.groups) for a in program.grid.axes),
    )
    return Lowered(kernel, _protocol(program, context))


def _protocol(program: Program, context: Context) -> Protocol:
    (body,) = context.protocol.bodies
    rings = []
    for p in program.pipelines:
        places = [context.placement.places[b.name] for b in p.buffers if b.name in context.placement.places]
        bytes_of = tuple((at.offset_bytes, at.offset_bytes + at.stages * at.stage_bytes) for at in places)
        stages = int(p.stages) if p.buffers else 1
        pair = pair_of_ring(program, p.name)
        rings.append(Ring(p.name, stages, tuple(b.name for b in p.buffers), p.completion, bytes_of, pair))
    if context.placement.answers[1]:
        rings.append(launch_control.ring(context))
    return Protocol(tuple(rings), tuple(int(a.cluster) for a in program.grid.axes), tuple(body))


def _declaration(p: Parameter) -> str:
    if p.kind == "map":
        return f"  .param .align 64 .b8 {p.name}[128]"
    return f"  .param .{p.type} {_symbol(p)}"


def _suffix(program: Program) -> str:
    """What `.target` ends in: "a" where an instruction exists on one architecture only, "f" where in a family."""
    found = {i.suffix(*_operands(s)) for s in walk(program.body) for i in s.instructions}
    if program.grid.scheduler.settled().takes_over and int(program.grid.cluster) > 1:
        found.add("f")
    return next((suffix for suffix in ("a", "f") if suffix in found), "")


def _operands(s: n.Statement) -> tuple[DType, ...]:
    """Types of the operands of a product."""
    return (s.a.dtype, s.b.dtype) if isinstance(s, n.Multiply) else ()


def _dealt(program: Program) -> tuple[str, int] | tuple[()]:
    """(dim, elements per round) of the rounds that the scheduler deals out."""
    if not program.grid.scheduler.settled().deals_rounds:
        return ()
    trips = rounds_of_tile(program)
    for name in trips.symbols:
        for step in _divisors(trips):
            if trips.same(ceil_div(symbol(name), step)):
                return name, step
    raise LoweringError(f"stream-K deals out the rounds of a loop over one dim, and this one has {trips}")


def _spans(program: Program) -> dict[str, tuple[str, int]]:
    """Indices that count through a whole dim, in steps: those of the grid, and of loops over ceil(dim / step)."""
    out = {}
    for axis in program.grid.axes:
        if axis.groups.same(1):
            out[axis.index] = (str(axis.size), int(axis.extent))
    for s in walk(program.body):
        if isinstance(s, n.Repeated) and (program.grid.scheduler.slices.same(1) or s.first.same(0)):
            for name in s.trips.symbols:
                for step in _divisors(s.trips):
                    if s.trips.same(ceil_div(symbol(name), step)):
                        out[s.index] = (name, step)
    return out


def _divisors(trips: Expr) -> list[int]:
    """Numbers that a trip count divides by, and 1."""
    return [1, *[int(f.args[1]) for f in trips.sympy.atoms(FloorDiv) if f.args[1].is_Integer]]


def _strongest(used: Mapping[tuple[str, int], None]) -> list[tuple[str, int]]:
    """Facts without those that follow from another one."""
    pairs = sorted(used)
    return [(k, d) for k, d in pairs if not any(k == k2 and d2 != d and d2 % d == 0 for k2, d2 in pairs)]


def _header(program: Program, point: Mapping[str, int | str], facts: tuple[Fact, ...]) -> list[str]:
    tensors = " ".join(
        f"{t.name}:{t.dtype}[{','.join(t.dims)}]{'' if t.major == 'row' else f':{t.major}'}" for t in program.tensors
    )
    return [
        f"// {program.machine}: {tensors}",
        "// " + " ".join(f"{k}={v}" for k, v in sorted(point.items())),
        "// for " + (", ".join(map(str, facts)) or "any size"),
    ]


# Parameters that are called as what they say; others say something of a tensor.
AS_CALLED = ("dim", "scalar", "map", "workspace")


def _parameters(program: Program) -> tuple[Parameter, ...]:
    out = [Parameter(t.name, "place", "u32") if t.memory.own else Parameter(t.name, "pointer", "u64")
           for t in program.tensors]
    out += [Parameter(s.name, "scalar", s.dtype.name) for s in program.scalars]
    dims = list(dict.fromkeys(str(t.size(a)) for t in program.tensors for a in range(t.rank)))
    dims += [d for a in program.grid.axes for d in (str(a.size), str(a.groups)) if d not in dims]
    dims = [d for d in dims if not d.isdigit()]
    dims += sorted(_free_symbols(program) - set(dims))
    out += [Parameter(d, "dim", "u32") for d in dims]
    out += [Parameter(t.name, "ld", "u32" if t.rank == 2 else "u64") for t in program.tensors if t.rank > 1]
    out += [Parameter(t.name, name.rpartition(".")[2], "u64") for t in program.tensors for _, name in t.pitches[1:]]
    return tuple(out)


def _free_symbols(program: Program) -> set[str]:
    """Dims that expressions name beside the tensors' own: everything that is no index and no tensor fact."""
    indices = {a.index for a in program.grid.axes}
    indices |= {n.PART} | {s.index for s in walk(program.body) if isinstance(s, n.Repeated)}
    scalars = {s.name for s in program.scalars}
    found = {name for e in expressions(program) for name in e.symbols}
    return {name for name in found - indices - scalars if "." not in name}


def _banks(program: Program) -> tuple[Bank, ...]:
    return tuple(
        Bank(m.bank, m.capacity_bytes, tuple(t.name for t in program.tensors if t.memory == m))
        for m in own_memories(program)
    )


def _symbol(p: Parameter) -> str:
    return p.name if p.kind in AS_CALLED else f"{p.name}_{_fact(p)}"


def _fact(p: Parameter) -> str:
    """What a parameter says of its tensor."""
    return "ptr" if p.kind in ("pointer", "place") else p.kind


def _arguments(context: Context, parameters: tuple[Parameter, ...]) -> list[str]:
    emit = context.emit
    lines = []
    banks = {t.name: t.memory.bank for t in context.program.tensors if t.memory.own}
    for p in parameters:
        register = emit.parameter("d" if p.type == "u64" else "r")
        lines.append(f"  ld.param.{p.type} {register}, [{_symbol(p)}];")
        if p.kind == "pointer":
            lines.append(f"  cvta.to.global.u64 {register}, {register};")
        if p.kind == "place":
            place, register = register, emit.parameter("d")
            bank = emit.parameter("d")
            lines.append(f"  cvt.u64.u32 {register}, {place};")
            lines.append(f"  mov.u64 {bank}, {banks[p.name]};")
            lines.append(f"  add.u64 {register}, {register}, {bank};")
        context.arguments[p.name if p.kind in AS_CALLED else f"{p.name}.{_fact(p)}"] = register
    if context.placement.total_bytes:
        smem = emit.parameter("r")
        lines.append(f"  mov.u32 {smem}, smem;")
        align = context.placement.align_bytes
        if align > BUFFER_ALIGN_BYTES:
            # The loader keeps to smaller alignments only: the space for rounding up is asked for at launch.
            lines.append(f"  add.u32 {smem}, {smem}, {align - 1};")
            lines.append(f"  and.b32 {smem}, {smem}, {2**32 - align};")
        context.arguments["smem"] = smem
    return lines


def _limits(context: Context, body: tuple[n.Statement, ...]) -> None:
    """Largest values of loop counters whose trip counts are numbers."""
    for s in walk(body):
        if isinstance(s, n.Loop) and s.trips.is_number:
            context.index_limits[s.index] = int(s.trips) - 1


def _needs(program: Program) -> Iterator[Need]:
    """(oldest target, lowest version) of every instruction, and of what clusters take each other over by."""
    if program.grid.scheduler.settled().takes_over:
        yield TAKING_OVER
    for s in walk(program.body):
        yield from (instruction.available(*_operands(s)) for instruction in s.instructions)


__all__ = ["Lowered", "LoweringError", "lower", "lowered"]
