"""Constraints that a program brings by itself: from its memories, its roles and the device's limits."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, ceil_div, expr, symbol
from tinygpu.language.buffer_space import buffer_bytes, exchange_bytes, shared_bytes
from tinygpu.language.live_registers import LEAST_OVERHEAD, live_registers
from tinygpu.language.memories import BANK_ALIGN_BYTES, TMEM, Memory
from tinygpu.language.tensors import Tensor
from tinygpu.program import nodes as n
from tinygpu.program.prefetched import steps
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def derived_constraints(program: Program) -> list[Constraint]:
    """Legality from capacities and launch limits; dominance from spilling."""
    out = [_threads(program), _grid(program)]
    if not shared_bytes(program).same(0):
        out.append(_smem(program))
    if any(b.memory is TMEM for p in program.pipelines for b in p.buffers):
        out.append(_tmem(program))
    out += [_bank(m, program) for m in own_memories(program)]
    out += _registers(program)
    out += _prefetched(program)
    if len(program.roles) > 1:
        out += _side_by_side(program)
    if any(p.completion == "turn" for p in program.pipelines):
        out.append(_turns())
    if not program.grid.cluster.same(1):
        out.append(_cluster(program))
    return [*out, *_dealt_rounds(program)]


def _prefetched(program: Program) -> Iterator[Constraint]:
    """Where loads of the next round's first step stand: in front of another step's products, from another slot."""
    for s in walk(program.body):
        if isinstance(s, n.Pipelined) and not s.prefetch.same(0):
            several = (program.pipeline(s.pipeline).stages >= 2) & (steps(s).loop.trips >= 2)
            yield Constraint(
                f"prefetch of {s.pipeline}",
                (s.prefetch >= 0) & (s.prefetch <= 1) & ((s.prefetch < 1) | several),
                f"a round of {s.pipeline} loads the first step of the next one ahead where it has two steps at least, "
                "and the ring two stages",
                source="pipelines",
                judge="emulator",
            )


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
    portable = program.grid.portable
    return Constraint(
        "cluster size",
        program.grid.cluster <= symbol(f"device.max_cluster_size_{'' if portable else 'non'}portable"),
        f"the CTAs of a cluster fit into the {'clusters that every such' if portable else 'largest clusters that the'} "
        "device has",
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
        tiles = tiles * axis.tiles
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
