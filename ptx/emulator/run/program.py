"""A kernel made ready to run: basic blocks as sequences of closures over NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.instructions.async_copies import ASYNC_COPIES
from tinygpu.ptx.emulator.instructions.atomics import ATOMICS
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.bits import BITS
from tinygpu.ptx.emulator.instructions.bulk_forms import bulk_form
from tinygpu.ptx.emulator.instructions.clusters import CLUSTERS
from tinygpu.ptx.emulator.instructions.comparisons import COMPARISONS
from tinygpu.ptx.emulator.instructions.conversions import CONVERSIONS
from tinygpu.ptx.emulator.instructions.fences import FENCES
from tinygpu.ptx.emulator.instructions.floating import FLOATING
from tinygpu.ptx.emulator.instructions.integer import INTEGER, Compile
from tinygpu.ptx.emulator.instructions.launch_control import LAUNCH_CONTROL
from tinygpu.ptx.emulator.instructions.loads_stores import LOADS_STORES
from tinygpu.ptx.emulator.instructions.matrices import MATRICES
from tinygpu.ptx.emulator.instructions.mbarriers import MBARRIERS
from tinygpu.ptx.emulator.instructions.moves import MOVES
from tinygpu.ptx.emulator.instructions.products import PRODUCTS
from tinygpu.ptx.emulator.instructions.refused import why_refused
from tinygpu.ptx.emulator.instructions.taint import make_taint
from tinygpu.ptx.emulator.instructions.tcgen05 import TCGEN05
from tinygpu.ptx.emulator.instructions.tensormaps import TENSORMAPS
from tinygpu.ptx.emulator.instructions.warp_ops import WARP_OPS
from tinygpu.ptx.emulator.source.control_flow import EXIT, Block, build_blocks
from tinygpu.ptx.emulator.source.data_loads import data_loads
from tinygpu.ptx.emulator.source.first_guesses import first_guesses
from tinygpu.ptx.emulator.source.inlining import FlatCode
from tinygpu.ptx.emulator.source.syntax import Guard, Instruction, IntegerOperand, RegisterOperand
from tinygpu.ptx.emulator.source.types import TYPES
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.layout import SpaceLayout
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.registers import Slot

# Instruction classes of the meter, by table; the type decides between integer and float.
INSTRUCTION_TABLES: tuple[tuple[str, dict[str, Compile]], ...] = (
    ("integer", PRODUCTS), ("bits", BITS), ("compare", COMPARISONS), ("convert", CONVERSIONS), ("move", MOVES),
    ("memory", LOADS_STORES),
    ("atomic", ATOMICS), ("warp", WARP_OPS), ("async", ASYNC_COPIES | TENSORMAPS), ("matrix", MATRICES),
    ("fence", FENCES), ("mbarrier", MBARRIERS), ("cluster", CLUSTERS), ("launch", LAUNCH_CONTROL),
    ("tensor core", TCGEN05),
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Operation:
    """One compiled instruction.

    run      carries it out for the active lanes of a cohort
    careful  the same, also carrying uninitialised bits from sources to results
    guarded  it has a predicate: how many lanes really execute it is counted apart
    """

    instruction: Instruction
    run: Run
    careful: Run
    guard: Getter | None
    reads: frozenset[Slot]
    writes: frozenset[Slot]
    kind: str
    executed: int = 0
    threads: int = 0


@dataclass(slots=True, eq=False)
class Terminator:
    """How a block ends.

    kind       "next", "branch", "switch", "exit", "trap", or "barrier"
    condition  predicate of a branch (already negated where the guard is)
    """

    kind: str
    instruction: Instruction | None
    condition: Getter | None = None
    condition_slots: frozenset[Slot] = frozenset()
    selector: Getter | None = None
    barrier: BarrierSpec | None = None


@dataclass(slots=True, eq=False)
class BarrierSpec:
    """A CTA barrier: its number, thread count (None: all), and what it does.

    action  "sync", "arrive", or a reduction "popc", "and", "or"
    written the register of a reduction's result
    """

    number: Getter
    count: Getter | None
    action: str
    aligned: bool
    predicate: Getter | None = None
    result: Getter | None = None
    written: frozenset[Slot] = frozenset()


@dataclass(slots=True, eq=False)
class CompiledBlock:
    """A block ready to run, with how often it ran.

    touched  registers that are read or written, for cohorts whose rows are copied out and back
    written  registers that are written
    polls    it looks at something that other threads may change: a loop around it may be waiting for them
    """

    rank: int
    operations: list[Operation]
    terminator: Terminator
    targets: list[int]
    touched: tuple[Slot, ...]
    written: tuple[Slot, ...]
    polls: bool = False
    executed: int = 0
    threads: int = 0


@dataclass(slots=True, eq=False)
class Program:
    """A compiled kernel; its counts are those of one launch."""

    name: str
    blocks: list[CompiledBlock]
    register_counts: tuple[int, ...]
    special_slots: dict[str, Slot]
    shared: SpaceLayout
    local: SpaceLayout
    sites: list[Site]
    shared_granule_bytes: int
    global_granule_bytes: int
    maybe_uninitialised: tuple[Slot, ...]
    register_names: dict[Slot, str]
    takes_clusters: bool = False
    strong_loads: bool = False

    def forget_counts(self) -> None:
        """Begin to count anew."""
        for block in self.blocks:
            block.executed = block.threads = 0
            for operation in block.operations:
                operation.executed = operation.threads = 0
        for site in self.sites:
            site.forget_counts()


def compile_program(name: str, code: FlatCode, binder: Binder) -> Program:
    """Compile flat code. Raises PtxSyntaxError or UnsupportedInstruction."""
    for statement in code.statements:
        if isinstance(statement, Instruction) and not _is_known(statement):
            raise UnsupportedInstruction(statement.line, statement.name)
    binder.guesses = first_guesses(code.statements)
    binder.data_loads = data_loads(code.statements)
    blocks = build_blocks(code.statements, code.branch_targets)
    compiled = [_compile_block(binder, block) for block in blocks]
    _watch_fenced(compiled, frozenset(binder.fenced))
    return Program(
        name, compiled, tuple(binder.counts), dict(binder.special_slots), binder.shared, binder.local, binder.sites,
        binder.shared_granule_bytes, binder.global_granule_bytes, _maybe_uninitialised(compiled, binder),
        {slot: key for key, slot in binder.slots.items()},
        any(isinstance(s, Instruction) and s.opcode == "clusterlaunchcontrol" for s in code.statements),
        binder.strong_loads,
    )  # fmt: skip


def _watch_fenced(blocks: list[CompiledBlock], fenced: frozenset[Slot]) -> None:
    """Remember the use of registers that wgmma works with by other instructions, until the next wgmma.fence."""
    if not fenced:
        return
    for block in blocks:
        for operation in block.operations:
            used = tuple(sorted(fenced & (operation.reads | operation.writes)))
            if used and operation.instruction.opcode != "wgmma":
                operation.run = _noting(operation.run, used)
                operation.careful = _noting(operation.careful, used)


def _noting(run: Run, used: tuple[Slot, ...]) -> Run:
    def noting(c: Cohort) -> None:
        run(c)
        touched = c.residents.touched
        for slot in used:
            mask = touched.get(slot)
            if mask is None:
                mask = np.zeros(c.residents.warps, np.bool_)
                touched[slot] = mask
            mask[c.set.rows] = True

    return noting


def compile_function(i: Instruction) -> tuple[str, Compile] | None:
    """(class, compile function) for an instruction, None where the opcode is unknown."""
    bulk = bulk_form(i)
    if bulk is not None:
        return "async", bulk
    if i.opcode in FLOATING and (i.opcode not in INTEGER or _is_float(i)):
        return "float", FLOATING[i.opcode]
    if i.opcode in INTEGER:
        return "integer", INTEGER[i.opcode]
    for kind, table in INSTRUCTION_TABLES:
        if i.opcode in table:
            return kind, table[i.opcode]
    return None


def _is_known(i: Instruction) -> bool:
    """Whether PTX has the opcode."""
    control = i.opcode in ("bra", "brx", "exit", "ret", "trap", "brkpt", "barrier")
    return control or bool(why_refused(i.opcode)) or compile_function(i) is not None


def _is_float(i: Instruction) -> bool:
    if not i.types:
        return False
    kind = TYPES[i.types[-1]]
    return kind.is_float or (kind.kind == "packed" and kind.lane not in ("u16", "s16"))


def compile_instruction(b: Binder, i: Instruction) -> Operation:
    """One instruction that does not end a block."""
    b.begin(i)
    found = compile_function(i)
    kind, compile_it = ("refused", _refused) if found is None else found
    try:
        run = compile_it(b, i)
    except UnsupportedInstruction as refused:
        # Code that is never reached may hold what has no semantics here.
        b.begin(i)
        run = _refusing(refused)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, PtxSyntaxError):
            raise
        raise b.fail(f"`{i.name}` does not take these types or operands") from error
    reads, writes = frozenset(b.reads), frozenset(b.writes)
    careful = make_taint(b, i, run, kind, reads, writes)
    guard = None
    if i.guard is not None:
        guard = b.source(_guard_operand(i.guard), "pred")
        reads = frozenset(b.reads)
        slot = b.slot(i.guard.register)
        operation = Operation(i, run, careful, guard, reads, writes, kind)
        operation.run = _guarded(operation, run, guard, None)
        operation.careful = _guarded(operation, careful, guard, slot)
        return operation
    return Operation(i, run, careful, None, reads, writes, kind)


def _refused(b: Binder, i: Instruction) -> Run:
    raise b.unsupported(why_refused(i.opcode))


def _refusing(refused: UnsupportedInstruction) -> Run:
    def refuse(c: Cohort) -> None:
        raise refused

    return refuse


def _guard_operand(guard: Guard) -> RegisterOperand:
    register = guard.register
    return RegisterOperand(register.name, register.key, register.type_name, guard.negated)


def _guarded(operation: Operation, run: Run, guard: Getter, slot: Slot | None) -> Run:
    """Carry out `run` for the lanes whose guard holds. With `slot`, an uninitialised guard is a fault."""

    def guarded(c: Cohort) -> None:
        if slot is not None:
            c.residents.require_initialised(c, slot, operation.instruction, "decides whether this instruction executes")
        outer = c.mask
        holds = guard(c)
        if outer is None:
            if holds.all():
                run(c)
                operation.executed += c.n
                operation.threads += c.n * 32
                return
            mask = holds
        else:
            mask = holds & outer
        lanes = int(np.count_nonzero(mask))
        if lanes:
            # A copy: the instruction may write its own guard.
            c.narrow(mask.copy() if mask is holds else mask)
            run(c)
            c.narrow(outer)
        operation.executed += c.n
        operation.threads += lanes

    return guarded


def _compile_block(b: Binder, block: Block) -> CompiledBlock:
    operations = [compile_instruction(b, i) for i in block.body]
    terminator, reads, writes = _compile_end(b, block)
    touched = set(reads) | set(writes)
    written = set(writes)
    for operation in operations:
        touched |= operation.reads | operation.writes
        written |= operation.writes
    return CompiledBlock(
        block.rank, operations, terminator, block.targets, tuple(sorted(touched)), tuple(sorted(written)),
        any(_polls(i) for i in block.body),
    )  # fmt: skip


def _polls(i: Instruction) -> bool:
    if i.opcode in ("atom", "nanosleep") or (i.opcode == "mbarrier" and i.has("test_wait")):
        return True
    return i.opcode == "ld" and any(i.has(m) for m in ("volatile", "relaxed", "acquire", "mmio"))


def _compile_end(b: Binder, block: Block) -> tuple[Terminator, set[Slot], set[Slot]]:
    end = block.end
    if end is None:
        return Terminator("next", None), set(), set()
    b.begin(end)
    condition: Getter | None = None
    slots: frozenset[Slot] = frozenset()
    if end.guard is not None:
        condition = b.source(_guard_operand(end.guard), "pred")
        slots = frozenset(b.reads)
    if end.opcode in ("bra", "skip"):
        kind = "branch" if condition is not None else "next"
        return Terminator(kind, end, condition, slots), b.reads, b.writes
    if end.opcode in ("exit", "ret"):
        kind = "branch" if condition is not None else "exit"
        return Terminator(kind, end, condition, slots), b.reads, b.writes
    if end.opcode in ("trap", "brkpt"):
        return Terminator("trap", end, condition, slots), b.reads, b.writes
    if end.opcode == "brx":
        selector = b.source(b.operands(end, 2)[0], "u32")
        return Terminator("switch", end, None, frozenset(b.reads), selector), b.reads, b.writes
    spec = _compile_barrier(b, end)
    return Terminator("barrier", end, None, frozenset(b.reads), barrier=spec), b.reads, b.writes


def _compile_barrier(b: Binder, i: Instruction) -> BarrierSpec:
    """bar.sync, bar.arrive, bar.red, barrier{.cta}.* (PTX ISA, "bar, barrier")."""
    aligned = i.opcode == "bar" or i.has("aligned")
    if i.has("red"):
        action = next((m for m in ("popc", "and", "or") if i.has(m)), None)
        if action is None:
            raise b.fail(f"`{i.name}` needs .popc, .and or .or")
        operands = b.operands(i, 3, 4)
        predicate = b.source(operands[-1], "pred")
        number = b.source(operands[1], "u32")
        count = b.source(operands[2], "u32") if len(operands) == 4 else None
        result = b.destination(operands[0], "u32" if action == "popc" else "pred")
        return BarrierSpec(number, count, action, aligned, predicate, result, frozenset(b.writes))
    action = "arrive" if i.has("arrive") else "sync" if i.has("sync") else ""
    if not action:
        raise b.unsupported()
    operands = b.operands(i, 2 if action == "arrive" else 1, 2)
    if isinstance(operands[0], IntegerOperand) and not 0 <= operands[0].value <= 15:
        raise b.fail(f"barriers are numbered 0 to 15, not {operands[0].value}")
    number = b.source(operands[0], "u32")
    count = b.source(operands[1], "u32") if len(operands) > 1 else None
    return BarrierSpec(number, count, action, aligned)


# ---- definite assignment ------------------------------------------------------------------------------------------


def _maybe_uninitialised(blocks: list[CompiledBlock], b: Binder) -> tuple[Slot, ...]:
    """Registers that some path reads before it surely wrote them; only these start out as uninitialised."""
    slots = sorted({slot for block in blocks for slot in block.touched})
    special = set(b.special_slots.values())
    position = {slot: k for k, slot in enumerate(slots)}
    everything = (1 << len(slots)) - 1
    start = sum(1 << position[slot] for slot in special if slot in position)
    after = [everything] * len(blocks)
    into = [everything] * len(blocks)
    made = []
    for block in blocks:
        bits = 0
        for operation in block.operations:
            if operation.guard is None:
                for slot in operation.writes:
                    bits |= 1 << position[slot]
        if block.terminator.barrier is not None:
            for slot in block.written:
                bits |= 1 << position[slot]
        made.append(bits)
    before: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for target in block.targets:
            if target != EXIT:
                before[target].append(block.rank)
    changed = True
    while changed:
        changed = False
        for block in blocks:
            known = everything
            for source in before[block.rank]:
                known &= after[source]
            if block.rank == 0:
                known = start & known if before[0] else start
            known |= start
            into[block.rank] = known
            fresh = known | made[block.rank]
            if fresh != after[block.rank]:
                after[block.rank] = fresh
                changed = True
    doubtful: set[Slot] = set()
    for block in blocks:
        known = into[block.rank]
        for operation in block.operations:
            for slot in operation.reads:
                if not known >> position[slot] & 1:
                    doubtful.add(slot)
            if operation.guard is None:
                for slot in operation.writes:
                    known |= 1 << position[slot]
        for slot in _end_reads(block):
            if slot in position and not known >> position[slot] & 1:
                doubtful.add(slot)
    return tuple(sorted(doubtful))


def _end_reads(block: CompiledBlock) -> set[Slot]:
    read: set[Slot] = set(block.terminator.condition_slots)
    return read


RunBlock = Callable[[Cohort], None]
__all__ = [
    "BarrierSpec", "CompiledBlock", "Operation", "Program", "PtxSyntaxError", "Terminator", "compile_function",
    "compile_instruction", "compile_program",
]  # fmt: skip
