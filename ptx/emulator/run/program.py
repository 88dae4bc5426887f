"""A kernel made ready to run: basic blocks as sequences of closures over NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.emulator.faults import UnsupportedInstruction
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.run.batches import Step, batched
from tinygpu.ptx.emulator.run.operations import Operation, compile_instruction, guard_operand, is_known
from tinygpu.ptx.emulator.source.control_flow import EXIT, Block, build_blocks
from tinygpu.ptx.emulator.source.data_loads import data_loads
from tinygpu.ptx.emulator.source.first_guesses import first_guesses
from tinygpu.ptx.emulator.source.inlining import FlatCode
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.layout import SpaceLayout
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.registers import Slot


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

    steps    the same operations, some of them together
    touched  registers that are read or written, for cohorts whose rows are copied out and back
    written  registers that are written
    polls    it looks at something that other threads may change: a loop around it may be waiting for them
    """

    rank: int
    operations: list[Operation]
    steps: list[Step]
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
        if isinstance(statement, Instruction) and not is_known(statement):
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
        for step in block.steps:
            used = tuple(sorted(fenced & step.touched))
            if used and step.instruction.opcode != "wgmma":
                step.run = _noting(step.run, used)
                step.careful = _noting(step.careful, used)


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


def _compile_block(b: Binder, block: Block) -> CompiledBlock:
    operations = [compile_instruction(b, i) for i in block.body]
    terminator, reads, writes = _compile_end(b, block)
    touched = set(reads) | set(writes)
    written = set(writes)
    for operation in operations:
        touched |= operation.reads | operation.writes
        written |= operation.writes
    return CompiledBlock(
        block.rank, operations, batched(operations), terminator, block.targets, tuple(sorted(touched)),
        tuple(sorted(written)), any(_polls(i) for i in block.body),
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
        condition = b.source(guard_operand(end.guard), "pred")
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
