"""Constraints that a program brings by itself: from its memories, its roles and the device's limits."""

from __future__ import annotations

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, ceil_div, expr, maximum, symbol
from tinygpu.language.memories import RMEM, SMEM, TMEM, Memory
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n

# Registers beside the tiles that a program names: addresses, indices and predicates. From the assembler's reports on
# the shipped machines; the error of the estimate is printed by `tinygpu tune`.
OVERHEAD_REGISTERS = 24


def derived_constraints(program: n.Program) -> list[Constraint]:
    """Legality from capacities and launch limits; dominance from spilling."""
    out = [_threads(program), _grid(program)]
    if any(b.memory is SMEM for p in program.pipelines for b in p.buffers):
        out.append(_smem(program))
    if any(b.memory is TMEM for p in program.pipelines for b in p.buffers):
        out.append(_tmem(program))
    out += _registers(program)
    return out


def _threads(program: n.Program) -> Constraint:
    return Constraint(
        "threads per CTA",
        program.threads <= symbol("device.max_threads_per_block"),
        "the warps of all roles fit into one CTA",
        source="device",
        judge="launch",
        why="CUDA programming guide, compute capabilities",
    )


def _grid(program: n.Program) -> Constraint:
    tiles = expr(1)
    for axis in program.grid.axes:
        tiles = tiles * ceil_div(axis.size, axis.extent)
    return Constraint(
        "grid size",
        tiles <= 2**31 - 1,
        "the tiles of the problem fit into one grid",
        source="device",
        judge="launch",
        why="CUDA programming guide: at most 2^31 - 1 CTAs along x",
    )


def _smem(program: n.Program) -> Constraint:
    return Constraint(
        "smem capacity",
        buffer_bytes(program, program.body, SMEM) <= symbol("device.max_smem_per_block_optin"),
        "the buffers of all stages fit into the shared memory of one CTA",
        source="SMEM",
        judge="launch",
    )


def _tmem(program: n.Program) -> Constraint:
    return Constraint(
        "tmem capacity",
        buffer_bytes(program, program.body, TMEM) <= symbol("device.tmem_bytes_per_sm"),
        "the accumulators fit into the tensor memory of one SM",
        source="TMEM",
        judge="emulator",
    )


def _registers(program: n.Program) -> list[Constraint]:
    need = registers_estimate(program)
    why = "beyond the limit the assembler spills to local memory, which costs more than a smaller tile (judged by its report)"
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
            need * program.threads <= symbol("device.registers_per_sm"),
            "the tiles that a CTA holds at once fit into the registers of one SM",
            "dominance",
            "RMEM",
            "model",
            why,
        ),
    ]


# A buffer begins at a multiple of this: one row of banks, so that solved layouts see the same banks everywhere.
BUFFER_ALIGN_BYTES = 128


def buffer_bytes(program: n.Program, body: tuple[n.Statement, ...], memory: Memory) -> Expr:
    """Bytes of one memory that a body needs at most at once; scopes that follow each other share theirs."""
    parts = []
    for s in body:
        if isinstance(s, n.Scope):
            own = expr(0)
            for name in s.pipelines:
                for b in program.pipeline(name).buffers:
                    if b.memory is memory:
                        own = own + ceil_div(b.bytes, BUFFER_ALIGN_BYTES) * BUFFER_ALIGN_BYTES
            parts.append(own + buffer_bytes(program, s.body, memory))
        elif isinstance(s, (n.InRole, n.Loop, n.Fill, n.Drain)):
            parts.append(buffer_bytes(program, s.body, memory))
    parts = [p for p in parts if not p.same(0)]
    return maximum(*parts) if len(parts) > 1 else (parts[0] if parts else expr(0))


def registers_estimate(program: n.Program) -> Expr:
    """Registers per thread: tiles that live together, and a constant for addresses."""
    return _live(program.body) + OVERHEAD_REGISTERS


def _live(body: tuple[n.Statement, ...]) -> Expr:
    own = expr(0)
    inner = []
    for s in body:
        if isinstance(s, (n.Constant, n.Load, n.Apply, n.Reduce)):
            own = own + tile_registers(s.result) if not _reuses(s) else own
        elif isinstance(s, n.Copy) and isinstance(s.instruction, Route) and s.partition is not None:
            own = own + s.partition.value_count * ceil_div(s.source.dtype.bits, 32)
        elif isinstance(s, n.Pipelined):
            inner.append(_live(s.fill) + _live(s.drain))
        elif isinstance(s, (n.Loop, n.Fill, n.Drain, n.Scope, n.InRole)):
            inner.append(_live(s.body))
    inner = [i for i in inner if not i.same(0)]
    if not inner:
        return own
    return own + (maximum(*inner) if len(inner) > 1 else inner[0])


def _reuses(s: n.Statement) -> bool:
    """An element-wise result takes the place of an operand that it replaces."""
    return isinstance(s, n.Apply) and any(
        isinstance(o, Tile) and o.dtype.bits >= s.result.dtype.bits for o in s.operands
    )


def tile_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of a register tile."""
    if tile.memory is not RMEM or tile.partition is None:
        return expr(0)
    return ceil_div(tile.partition.value_count * tile.dtype.bits, 32)
