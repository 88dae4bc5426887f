"""Constraints that a program brings by itself: from its memories, its roles and the device's limits."""

from __future__ import annotations

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, ceil_div, expr, maximum, symbol
from tinygpu.language.memories import RMEM, SMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.roles import Pipeline
from tinygpu.language.route import Route
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# Registers beside the tiles that a program names, for addresses, counters and predicates: at least 24 in a kernel with
# a loop. The predictor expects 14, and 20 more per buffer of a ring: medians of the assembler's reports on random
# candidates of the shipped machines (`tests/benchmarks/register_estimate.py` prints the error).
LEAST_OVERHEAD = 24
EXPECTED_OVERHEAD, EXPECTED_PER_BUFFER = 14, 20


def derived_constraints(program: Program) -> list[Constraint]:
    """Legality from capacities and launch limits; dominance from spilling."""
    out = [_threads(program), _grid(program)]
    if any(b.memory is SMEM for p in program.pipelines for b in p.buffers):
        out.append(_smem(program))
    if any(b.memory is TMEM for p in program.pipelines for b in p.buffers):
        out.append(_tmem(program))
    out += _registers(program)
    if len(program.roles) > 1:
        out += _side_by_side(program)
    if any(p.completion == "turn" for p in program.pipelines):
        out.append(_turns())
    if not program.grid.cluster.same(1):
        out.append(_cluster(program))
    if not program.grid.stream_k.same(0):
        out.append(_rounds(program))
    return out


def _turns() -> Constraint:
    return Constraint(
        "turns target",
        symbol("device.cc") >= 90,
        "roles that take turns wait with mbarrier.try_wait, which exists from sm_90 on",
        source="roles",
        judge="assembler",
        why="PTX ISA, mbarrier.try_wait",
    )


def _cluster(program: Program) -> Constraint:
    return Constraint(
        "cluster size",
        program.grid.cluster <= symbol("device.max_cluster_size_portable"),
        "the CTAs of a cluster fit into the clusters that every such device has",
        source="device",
        judge="launch",
        why="CUDA programming guide, thread block clusters",
    )


def _rounds(program: Program) -> Constraint:
    divided = next(s for s in walk(program.body) if isinstance(s, (n.Loop, n.Pipelined)) and s.divided)
    return Constraint(
        "rounds in a row",
        (program.grid.stream_k == 0) | (divided.trips <= n.MOST_ROUNDS),
        "clusters that share rounds count those of two tiles for each in 32 bits",
        source="grid",
        judge="launch",
    )


def _side_by_side(program: Program) -> list[Constraint]:
    """No two roles have a warp in common."""
    out = []
    for i, a in enumerate(program.roles):
        for b in program.roles[:i]:
            apart = (b.first + b.warps <= a.first) | (a.first + a.warps <= b.first)
            sentence = f"the roles {b.name} and {a.name} have different warps"
            out.append(Constraint(f"warps of {b.name} and {a.name}", apart, sentence, source="roles", judge="emulator"))
    return out


def _threads(program: Program) -> Constraint:
    return Constraint(
        "threads per CTA",
        program.threads <= symbol("device.max_threads_per_block"),
        "the warps of all roles fit into one CTA",
        source="device",
        judge="launch",
        why="CUDA programming guide, compute capabilities",
    )


def _grid(program: Program) -> Constraint:
    tiles = expr(1)
    for axis in program.grid.axes:
        tiles = tiles * ceil_div(axis.size, axis.extent)
    tiles = tiles * program.grid.parts
    return Constraint(
        "grid size",
        tiles <= 2**31 - 1,
        "the tiles of the problem fit into one grid",
        source="device",
        judge="launch",
        why="CUDA programming guide: at most 2^31 - 1 CTAs along x",
    )


def _smem(program: Program) -> Constraint:
    return Constraint(
        "smem capacity",
        buffer_bytes(program, program.body, SMEM) <= symbol("device.max_smem_per_block_optin"),
        "the buffers of all stages fit into the shared memory of one CTA",
        source="SMEM",
        judge="launch",
    )


def _tmem(program: Program) -> Constraint:
    return Constraint(
        "tmem capacity",
        buffer_bytes(program, program.body, TMEM) <= symbol("device.tmem_bytes_per_sm"),
        "the accumulators fit into the tensor memory of one SM",
        source="TMEM",
        judge="emulator",
    )


def _registers(program: Program) -> list[Constraint]:
    if any(r.registers for r in program.roles):
        return _budgets(program)
    need = live_registers(program.body) + LEAST_OVERHEAD
    # A warp takes its registers from its scheduler's part of the SM's: one warp more than a multiple counts like four.
    schedulers = symbol("device.warp_schedulers_per_sm")
    threads = 32 * schedulers * ceil_div(program.threads, 32 * schedulers)
    why = (
        "beyond the limit the assembler spills to local memory, "
        "which costs more than a smaller tile (judged by its report)"
    )
    return [
        Constraint(
            "registers per thread",
            need <= symbol("device.max_registers_per_thread"),
            "the tiles that a thread holds at once fit into its registers",
            "dominance",
            "RMEM",
            "model",
            why,
        ),
        Constraint(
            "registers per CTA",
            need * threads <= symbol("device.registers_per_sm"),
            "the tiles that a CTA holds at once fit into the registers of one SM",
            "dominance",
            "RMEM",
            "model",
            why,
        ),
    ]


def _budgets(program: Program) -> list[Constraint]:
    """Roles with register budgets: together within the SM, and each tile within its role's budget."""
    total = expr(0)
    for r in program.roles:
        total = total + r.threads * r.registers
    out = [
        Constraint(
            "register budget",
            total <= symbol("device.registers_per_sm"),
            "the register budgets of all roles fit into one SM",
            source="RMEM",
            judge="emulator",
            why="PTX ISA, setmaxnreg: a role that asks for more than is left waits for ever",
        )
    ]
    for r in program.roles:
        mine = tuple(s for b in walk(program.body) if isinstance(b, n.InRole) and b.role == r.name for s in b.body)
        out.append(
            Constraint(
                f"registers of {r.name}",
                live_registers(mine) + LEAST_OVERHEAD <= r.registers,
                f"the tiles that a thread of {r.name} holds at once fit into its budget of {r.registers} registers",
                "dominance",
                "RMEM",
                "model",
                "beyond the budget the assembler spills to local memory, which costs more than a smaller tile",
            )
        )
    return out


# A buffer begins at a multiple of this: one row of banks, so that solved layouts see the same banks everywhere.
BUFFER_ALIGN_BYTES = 128
# Where rows are cut into swizzled spans: the period of the widest pattern (PTX ISA, "Swizzling Modes").
SWIZZLED_ALIGN_BYTES = 1024
TMEM_COLUMN_BYTES = TMEM_LANES * 4


def buffer_bytes(program: Program, body: tuple[n.Statement, ...], memory: Memory) -> Expr:
    """Bytes of one memory that a body needs at most at once.

    Scopes that follow each other share theirs, unless several roles stand side by side: these do not wait for each
    other at the end of a scope.
    """
    parts = []
    for s in body:
        if isinstance(s, n.Scope):
            own = expr(0)
            for name in s.pipelines:
                for b in program.pipeline(name).buffers:
                    if b.memory is memory:
                        own = own + (tmem_bytes(b) if memory is TMEM else _aligned(program, b.bytes))
                if memory is SMEM:
                    own = own + barrier_bytes(program, program.pipeline(name))
            parts.append(own + buffer_bytes(program, s.body, memory))
        elif isinstance(s, (n.InRole, n.Loop, n.Produce, n.Consume, n.FixUp)):
            parts.append(buffer_bytes(program, s.body, memory))
    parts = [p for p in parts if not p.same(0)]
    if len(program.roles) > 1:
        return sum(parts, expr(0))
    return maximum(*parts) if parts else expr(0)


def buffer_align_bytes(program: Program) -> int:
    """Multiples at which the buffers of a program begin."""
    swizzled = any(b.span is not None for p in program.pipelines for b in p.buffers)
    return SWIZZLED_ALIGN_BYTES if swizzled else BUFFER_ALIGN_BYTES


def _aligned(program: Program, size_bytes: Expr) -> Expr:
    align = buffer_align_bytes(program)
    return ceil_div(size_bytes, align) * align


def tmem_bytes(b: Buffer) -> Expr:
    """A buffer in TMEM takes whole columns of 128 lanes x 32 bits, whatever lanes it uses (PTX ISA, tcgen05.alloc)."""
    return b.stages * ceil_div(b.shape[-1] * b.dtype.bits, 32) * TMEM_COLUMN_BYTES


def barrier_bytes(program: Program, p: Pipeline) -> Expr:
    """Shared memory for the barriers that hand a pipeline over.

    A full and an empty one of 8 bytes for every stage; where roles take turns, one for each of them.
    """
    if p.completion == "turn":
        return _aligned(program, expr(8 * max(1, len(program.roles))))
    if p.completion not in ("mbarrier", "tcgen05 commit"):
        return expr(0)
    return _aligned(program, p.stages * 16)


def registers_estimate(program: Program) -> Expr:
    """Registers per thread that the assembler is expected to give; where roles have budgets, their mean."""
    if all(r.registers for r in program.roles):
        total = warps = expr(0)
        for r in program.roles:
            total, warps = total + r.warps * r.registers, warps + r.warps
        return ceil_div(total, warps)
    rings = _rings(program.body)
    buffers = sum(len(p.buffers) for p in program.pipelines if p.name in rings)
    return live_registers(program.body) + EXPECTED_OVERHEAD + EXPECTED_PER_BUFFER * buffers


def _rings(body: tuple[n.Statement, ...]) -> frozenset[str]:
    """Pipelines that are filled round after round, however many stages they have."""
    pipelined = {s.pipeline for s in walk(body) if isinstance(s, n.Pipelined)}
    loops = (s for s in walk(body) if isinstance(s, n.Loop))
    return frozenset(pipelined.union(f.pipeline for loop in loops for f in walk(loop.body) if isinstance(f, n.Produce)))


def live_registers(body: tuple[n.Statement, ...]) -> Expr:
    """Registers of the tiles that live at once, at the worst place of a body."""
    peaks: dict[frozenset[str], Expr] = {}
    _peaks(body, {}, frozenset(), peaks)
    largest = [sets for sets in peaks if not any(sets < other for other in peaks)]
    totals = [peaks[s] for s in largest if not peaks[s].same(0)]
    return maximum(*totals) if totals else expr(0)


def _peaks(
    body: tuple[n.Statement, ...],
    outer: dict[str, Expr],
    needed_after: frozenset[str],
    peaks: dict[frozenset[str], Expr],
) -> dict[str, Expr]:
    """Walks a body with the tiles that live before it; returns what lives after it.

    Notes in `peaks` what lives at each statement.
    """
    live = dict(outer)
    used = [_used(s) for s in body]
    after = [needed_after.union(*used[i + 1 :]) for i in range(len(body))]
    for s, later in zip(body, after, strict=True):
        if isinstance(s, n.Pipelined):
            needed = later | (_used(s) & live.keys())
            _peaks(tuple(f for f in s.produce if not isinstance(f, n.Copy)), live, needed, peaks)
            copies = [_copy_registers(c) for c in s.produce if isinstance(c, n.Copy)]
            held = {f"copy {i} of {s.pipeline}": taken for i, taken in enumerate(copies) if not taken.same(0)}
            live |= _peaks(s.consume, live | held, needed, peaks)
            live = {k: v for k, v in live.items() if k not in held}
        elif isinstance(s, n.FixUp):
            # the value is stored before the result takes its place, whose neighbours are loaded four at a time
            live = {k: v for k, v in live.items() if k in later or k != s.value.name}
            live[s.result.name] = tile_registers(s.result)
            _note(live | {f"fix-up {s.name}": expr(4)}, peaks)
            live = _peaks(s.body, live, later, peaks)
        elif isinstance(s, (n.Loop, n.Produce, n.Consume, n.Scope, n.InRole)):
            # what lives before a loop and is used in it is needed in its next round; what the loop makes is made again
            inner = later | (_used(s) & live.keys() if isinstance(s, n.Loop) else frozenset())
            around = live | (_fragments_of_a_round(s) if isinstance(s, n.Loop) and s.unrolled else {})
            live = {k: v for k, v in _peaks(s.body, around, inner, peaks).items() if k in live or k not in around}
        else:
            operands = _used(s)
            if isinstance(s, (n.Constant, n.Load, n.Apply, n.Reduce)):
                if not _takes_place(s, later):
                    live[s.result.name] = tile_registers(s.result)
                _note(live, peaks)
                live.setdefault(s.result.name, tile_registers(s.result))
            elif isinstance(s, n.Copy):
                taken = _copy_registers(s)
                _note(live if taken.same(0) else live | {f"copy {len(peaks)}": taken}, peaks)
            else:
                _note(live, peaks)
            live = {k: v for k, v in live.items() if k in later or k not in operands}
    return {k: v for k, v in live.items() if k in needed_after or k in outer}


def _fragments_of_a_round(s: n.Loop) -> dict[str, Expr]:
    """Operands of asynchronous products in registers: those of all steps of an unrolled loop are held until it ends."""
    return {
        f"fragments {i} of {s.index}": tile_registers(m.a) * (s.trips - 1)
        for i, m in enumerate(s.body)
        if isinstance(m, n.Multiply) and m.token is not None and m.a.memory is RMEM
    }


def _takes_place(s: n.Statement, later: frozenset[str]) -> bool:
    """An element-wise result takes the registers of an operand that is not needed any more."""
    return isinstance(s, n.Apply) and any(
        isinstance(o, Tile) and o.name not in later and tile_registers(o).same(tile_registers(s.result))
        for o in s.operands
    )


def _note(live: dict[str, Expr], peaks: dict[frozenset[str], Expr]) -> None:
    total = expr(0)
    for amount in live.values():
        total = total + amount
    peaks[frozenset(live)] = total


def _copy_registers(s: n.Copy) -> Expr:
    if not isinstance(s.instruction, Route) or s.partition is None:
        return expr(0)
    return ceil_div(s.partition.value_count * s.source.dtype.bits, 32)


def _used(s: n.Statement) -> frozenset[str]:
    """Names of the register tiles that a statement reads."""
    if isinstance(s, n.Pipelined):
        return frozenset().union(*[_used(i) for i in s.produce + s.consume], frozenset())
    if isinstance(s, n.FixUp):
        return frozenset({s.value.name}).union(*[_used(i) for i in s.body])
    if isinstance(s, (n.Loop, n.Produce, n.Consume, n.Scope, n.InRole)):
        return frozenset().union(*[_used(i) for i in s.body], frozenset())
    tiles: tuple[object, ...] = ()
    if isinstance(s, n.Store):
        tiles = (s.value,)
    elif isinstance(s, n.Apply):
        tiles = (*s.operands, s.result)
    elif isinstance(s, n.Multiply):
        tiles = (s.a, s.b, s.accumulator)
    elif isinstance(s, n.Reduce):
        tiles = (s.source,)
    return frozenset(t.name for t in tiles if isinstance(t, Tile) and t.memory is RMEM)


def tile_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of a register tile."""
    if tile.memory is not RMEM or tile.partition is None:
        return expr(0)
    return ceil_div(tile.partition.value_count * tile.dtype.bits, 32)
