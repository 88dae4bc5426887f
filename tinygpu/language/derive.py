"""Constraints that a program brings by itself: from its memories, its roles and the device's limits."""

from __future__ import annotations

from typing import Any

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, ceil_div, expr, maximum, symbol
from tinygpu.language.meeting import TURNS
from tinygpu.language.memories import BANK_ALIGN_BYTES, RMEM, SMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.roles import Pipeline
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Buffer, Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import places, walk

# Registers beside the tiles that a program names, for addresses, counters and predicates: at least 24 in a kernel with
# a loop. The predictor expects 14, and 20 more per buffer of a ring: medians of the assembler's reports on random
# candidates of the shipped machines (`tests/benchmarks/register_estimate.py` prints the error).
LEAST_OVERHEAD = 24
EXPECTED_OVERHEAD, EXPECTED_PER_BUFFER = 14, 20


def derived_constraints(program: Program) -> list[Constraint]:
    """Legality from capacities and launch limits; dominance from spilling."""
    out = [_threads(program), _grid(program)]
    if not shared_bytes(program).same(0):
        out.append(_smem(program))
    if any(b.memory is TMEM for p in program.pipelines for b in p.buffers):
        out.append(_tmem(program))
    out += [_bank(m, program) for m in own_memories(program)]
    out += _registers(program)
    if len(program.roles) > 1:
        out += _side_by_side(program)
    if any(p.completion == "turn" for p in program.pipelines):
        out.append(_turns())
    if not program.grid.cluster.same(1):
        out.append(_cluster(program))
    return [*out, *_dealt_rounds(program)]


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


def _dealt_rounds(program: Program) -> tuple[Constraint, ...]:
    """What the scheduler asks of the rounds that CTAs share."""
    divided = next((s.trips for s in walk(program.body) if isinstance(s, n.Repeated) and s.divided), expr(1))
    return program.grid.scheduler.constraints(divided)


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
    tiles = tiles * program.grid.scheduler.slices
    return Constraint(
        "grid size",
        tiles <= 2**31 - 1,
        "the tiles of the problem fit into one grid",
        source="device",
        judge="launch",
        why="CUDA programming guide: at most 2^31 - 1 CTAs along x",
    )


def _smem(program: Program) -> Constraint:
    also = "" if exchange_bytes(program).same(0) else ", and what warps exchange,"
    return Constraint(
        "smem capacity",
        shared_bytes(program) <= symbol("device.max_smem_per_block_optin"),
        f"the buffers of all stages{also} fit into the shared memory of one CTA",
        source="SMEM",
        judge="launch",
    )


def own_memories(program: Program) -> tuple[Memory, ...]:
    """The memories of the machine's own in which tensors lie."""
    return tuple(dict.fromkeys(t.memory for t in program.tensors if t.memory.own))


def _bank(memory: Memory, program: Program) -> Constraint:
    taken = expr(0)
    for t in program.tensors:
        if t.memory == memory:
            taken = taken + ceil_div(tensor_extent_bytes(t), BANK_ALIGN_BYTES) * BANK_ALIGN_BYTES
    return Constraint(
        f"{memory} capacity",
        taken <= memory.capacity_bytes,
        f"the tensors in {memory} fit into its {memory.capacity_bytes:,} bytes, each at a multiple of "
        f"{BANK_ALIGN_BYTES}",
        source=memory.name,
        judge="launch",
    )


def tensor_extent_bytes(t: Tensor) -> Expr:
    """Bytes from the first element of a tensor to its last, gaps between rows included."""
    elements = t.size(t.contiguous_axis)
    for axis, name in t.pitches:
        elements = elements + (t.size(axis) - 1) * symbol(name)
    return elements * t.dtype.bytes if t.dtype.bits % 8 == 0 else ceil_div(elements * t.dtype.bits, 8)


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


# A buffer begins at a multiple of this: one row of banks, so that solved layouts see the same banks everywhere. Every
# launch begins dynamic shared memory at one, too.
BUFFER_ALIGN_BYTES = 128
# Where rows are swizzled by the hardware: the widest atom (PTX ISA, "Swizzling Modes").
SWIZZLED_ALIGN_BYTES = 1024
TMEM_COLUMN_BYTES = TMEM_LANES * 4


def buffer_bytes(program: Program, body: tuple[n.Statement, ...], memory: Memory) -> Expr:
    """Bytes of one memory that a body needs at most at once.

    Scopes that follow each other share theirs, unless several roles stand side by side: these do not wait for each
    other at the end of a scope.
    """
    parts = []
    for s in body:
        own = expr(0)
        for name in s.scopes:
            for b in program.pipeline(name).buffers:
                if b.memory is memory:
                    own = own + (tmem_bytes(b) if memory is TMEM else _aligned(program, b.bytes))
            if memory is SMEM:
                own = own + barrier_bytes(program, program.pipeline(name))
        inside = [buffer_bytes(program, inner.statements, memory) for inner in s.children]
        side_by_side = len(program.roles) > 1 or any(inner.ahead for inner in s.children)
        parts.append(own + _together(inside, side_by_side))
    return _together(parts, len(program.roles) > 1)


def shared_bytes(program: Program) -> Expr:
    """Shared memory of one CTA: its buffers and barriers, and behind them what the warps of each role exchange.

    With them comes the space in which a kernel rounds up where its shared memory begins, which the loader aligns to 128
    bytes at most.
    """
    used = buffer_bytes(program, program.body, SMEM) + exchange_bytes(program)
    align = buffer_align_bytes(program)
    return used if align <= BUFFER_ALIGN_BYTES or used.same(0) else used + align


def exchange_bytes(program: Program) -> Expr:
    """What the warps of all roles leave for each other, and the CTA for others."""
    total = expr(0)
    for turn in (*(size for _, size in exchanges(program)), cluster_exchange(program)):
        total = total + _aligned(program, TURNS * turn)
    return total


def cluster_exchange(program: Program) -> Expr:
    """The bytes that a CTA leaves for others of its cluster at once: it has two places for them."""
    return _together([s.cluster_bytes for s in walk(program.body)], False)


def exchanges(program: Program) -> list[tuple[str, Expr]]:
    """Per role, the bytes that its warps leave for each other at once: they have two places for them."""
    out = []
    for role in program.roles:
        mine = [
            s.exchanged_bytes for block in walk(program.body) if isinstance(block, n.InRole) and block.role == role.name
            for s in walk(block.body)
        ]  # fmt: skip
        out.append((role.name, _together(mine, False)))
    return [(name, size) for name, size in out if not size.same(0)]


def _together(parts: list[Expr], side_by_side: bool) -> Expr:
    """What all parts need, where they live at the same time, or one after another."""
    parts = [p for p in parts if not p.same(0)]
    if side_by_side:
        return sum(parts, expr(0))
    return maximum(*parts) if parts else expr(0)


def buffer_align_bytes(program: Program) -> int:
    """Multiples at which the buffers of a program begin."""
    swizzled = any(b.swizzle_bytes is not None for p in program.pipelines for b in p.buffers)
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
    return frozenset(
        name
        for place in places(body)
        for inner in place.statement.children
        if inner.produces and (place.loops or isinstance(place.statement, n.Repeated))
        for name in (inner.produces, *inner.along)
    )


def live_registers(body: tuple[n.Statement, ...]) -> Expr:
    """Registers of the tiles that live at once, at the worst place of a body."""
    peaks: dict[frozenset[str], Expr] = {}
    _peaks(body, {}, frozenset(), peaks)
    largest = [sets for sets in peaks if not any(sets < other for other in peaks)]
    totals = [peaks[s] for s in largest if not peaks[s].same(0)]
    return maximum(*_not_below_others(totals)) if totals else expr(0)


def _not_below_others(totals: list[Expr]) -> list[Expr]:
    """Sums of registers without those that have no more of any term than another one."""
    kept: list[tuple[Expr, dict[Any, Any]]] = []
    for total in sorted(totals, key=str):
        terms = dict(total.sympy.as_coefficients_dict())
        if not any(_no_more(terms, other) for _, other in kept):
            kept = [(k, other) for k, other in kept if not _no_more(other, terms)]
            kept.append((total, terms))
    return [total for total, _ in kept]


def _no_more(some: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Whether a sum, by its terms, has no more of any of them than another, in which nothing is taken away."""
    return all(n >= 0 for n in other.values()) and all(n <= other.get(term, 0) for term, n in some.items())


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
        own = {} if s.own_registers.same(0) else {f"own {len(peaks)}": s.own_registers}
        if s.children:
            # what a block takes is kept elsewhere before what it makes takes its place
            made = _register_tiles(s.writes)
            taken = {t.name for t in s.reads} - later
            live = {k: v for k, v in live.items() if k not in taken} | made
            if made or own:
                _note(live | own, peaks)
            # what lives before a loop and is used in it is needed in its next round; what the loop makes is made again
            needed = later | (_used(s) & live.keys() if isinstance(s, n.Repeated) else frozenset())
            held = _fragments_of_a_round(s) if isinstance(s, n.Repeated) and s.written_out else {}
            for i, inner in enumerate(s.children):
                behind = needed.union(*[_used(o) for other in s.children[i + 1 :] for o in other.statements])
                if inner.ahead:  # copies end behind the other bodies, and hold their registers until then
                    _peaks(tuple(o for o in inner.statements if o.own_registers.same(0)), live, behind, peaks)
                    held = held | _own_registers(inner)
                else:
                    after_it = _peaks(inner.statements, live | held, behind, peaks)
                    live = {k: v for k, v in after_it.items() if k in live or k not in held}
        else:
            operands, made = _used(s), _register_tiles(s.writes)
            if not _takes_place(s, later):
                live |= made
            _note(live | own, peaks)
            live = {k: v for k, v in (made | live).items() if k in later or k not in operands}
    return {k: v for k, v in live.items() if k in needed_after or k in outer}


def _fragments_of_a_round(s: n.Repeated) -> dict[str, Expr]:
    """Operands of asynchronous products in registers: those of all steps of an unrolled loop are held until it ends."""
    return {
        f"fragments {i} of {s.index}": tile_registers(m.a) * (s.trips - 1)
        for inner in s.children
        for i, m in enumerate(inner.statements)
        if isinstance(m, n.Multiply) and m.token is not None and m.a.memory is RMEM
    }


def _own_registers(ahead: n.Body) -> dict[str, Expr]:
    """Registers that the statements of a body take by themselves, each beside the others."""
    taken = enumerate(s.own_registers for s in ahead.statements)
    return {f"copy {i} into {ahead.produces}": size for i, size in taken if not size.same(0)}


def _register_tiles(tiles: tuple[Tile, ...]) -> dict[str, Expr]:
    return {t.name: tile_registers(t) for t in tiles if t.memory is RMEM}


def _takes_place(s: n.Statement, later: frozenset[str]) -> bool:
    """A result takes the registers of an operand that is not needed any more: all, or of a narrower type some."""
    return s.in_place and any(
        t.name not in later
        and t.partition is not None
        and made.partition is not None
        and t.dtype.bits >= made.dtype.bits
        and t.partition.value_count.same(made.partition.value_count)
        for t in s.reads
        for made in s.writes
    )


def _note(live: dict[str, Expr], peaks: dict[frozenset[str], Expr]) -> None:
    total = expr(0)
    for amount in live.values():
        total = total + amount
    peaks[frozenset(live)] = total


def _used(s: n.Statement) -> frozenset[str]:
    """Names of the register tiles that a statement reads."""
    own = (t.name for t in (*s.reads, *(s.writes if s.in_place else ())) if t.memory is RMEM)
    return frozenset(own).union(*[_used(i) for inner in s.children for i in inner.statements])


def tile_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of a register tile."""
    if tile.memory is not RMEM or tile.partition is None:
        return expr(0)
    return ceil_div(tile.partition.value_count * tile.dtype.bits, 32)
