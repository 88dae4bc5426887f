"""Bytes that the buffers of a program take of a memory, with what stands beside them: barriers, exchanges of warps."""

from __future__ import annotations

from tinygpu.expressions import Expr, ceil_div, expr, maximum, where
from tinygpu.language.buffer import Buffer
from tinygpu.language.data_paths import columns_taken
from tinygpu.language.meeting import TURNS
from tinygpu.language.memories import SMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.roles import HANDED_OVER, Pipeline
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# A buffer begins at a multiple of this: one row of banks, so that solved layouts see the same banks everywhere. Every
# launch begins dynamic shared memory at one, too.
BUFFER_ALIGN_BYTES = 128
# Where rows are swizzled by the hardware: the widest atom (PTX ISA, "Swizzling Modes").
SWIZZLED_ALIGN_BYTES = 1024
# PTX ISA, mbarrier: an opaque object of 8 bytes, at a multiple of 8.
BARRIER_BYTES = 8
# PTX ISA, clusterlaunchcontrol.try_cancel: an opaque answer of 16 bytes, at a multiple of 16.
ANSWER_BYTES = 16
TMEM_COLUMN_BYTES = TMEM_LANES * 4
# PTX ISA, tcgen05.alloc: columns that are allocated at once.
COLUMNS = (32, 64, 128, 256, 512)
MOST_COLUMNS = COLUMNS[-1]


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
        inside = [buffer_bytes(program, inner.statements, memory) for inner in s.children]
        side_by_side = len(program.roles) > 1 or any(inner.ahead for inner in s.children)
        parts.append(own + _together(inside, side_by_side))
    return _together(parts, len(program.roles) > 1)


def shared_bytes(program: Program) -> Expr:
    """Shared memory of one CTA: its buffers, behind them what the warps of each role exchange, and the barriers.

    With them comes the space in which a kernel rounds up where its shared memory begins, which the loader aligns to 128
    bytes at most.
    """
    used = buffer_bytes(program, program.body, SMEM) + exchange_bytes(program)
    used = sum((barrier_bytes(program, p) for p in program.pipelines), used + answer_bytes(program))
    align = buffer_align_bytes(program)
    return used if align <= BUFFER_ALIGN_BYTES or used.same(0) else used + align


def exchange_bytes(program: Program) -> Expr:
    """What the warps of all roles leave for each other, and the CTA for others."""
    total = expr(0)
    for turn in (*(size for _, size in exchanges(program)), cluster_exchange(program)):
        total = total + all_turns(turn)
    return total


def all_turns(size_bytes: Expr) -> Expr:
    """Places for what is left at a time, so that one is written while the one before is read."""
    return ceil_div(TURNS * size_bytes, BUFFER_ALIGN_BYTES) * BUFFER_ALIGN_BYTES


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
    """A buffer in TMEM takes whole columns of 128 lanes x 32 bits, whatever lanes it uses (PTX ISA, tcgen05.alloc).

    It takes none where it lies in those of another.
    """
    if b.over:
        return expr(0)
    if b.path is not None:
        return b.stages * columns_taken(b.path) * TMEM_COLUMN_BYTES
    return b.stages * ceil_div(b.shape[-1] * b.dtype.bits, 32) * TMEM_COLUMN_BYTES


def allocated_tmem_bytes(program: Program) -> Expr:
    """Tensor memory of a CTA: columns are allocated in powers of two, 32 at least (PTX ISA, tcgen05.alloc)."""
    columns = sum((tmem_bytes(b) for p in program.pipelines for b in p.buffers if b.memory is TMEM), expr(0))
    if columns.same(0):
        return columns
    columns = columns // TMEM_COLUMN_BYTES
    allocated = expr(MOST_COLUMNS)
    for power in reversed(COLUMNS[:-1]):
        allocated = where(columns <= power, power, allocated)
    return where(columns > MOST_COLUMNS, columns, allocated) * TMEM_COLUMN_BYTES


def answer_bytes(program: Program) -> Expr:
    """Shared memory for the answers by which clusters take each other over, and the barriers that hand them over."""
    return program.grid.scheduler.answers * (ANSWER_BYTES + 2 * BARRIER_BYTES)


def barrier_bytes(program: Program, p: Pipeline) -> Expr:
    """Shared memory for the barriers that hand a pipeline over; those of all pipelines lie side by side.

    A full and an empty one for every stage; where roles take turns, one for each of them. Behind those of buffers in
    TMEM is room for the address of what was allocated there.
    """
    if p.completion == "turn":
        return expr(BARRIER_BYTES * max(1, len(program.roles)))
    if p.completion not in HANDED_OVER:
        return expr(0)
    return (2 * p.stages + int(any(b.memory is TMEM for b in p.buffers))) * BARRIER_BYTES
