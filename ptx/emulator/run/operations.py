"""One instruction made ready to run: a closure over NumPy arrays, with its guard and its careful form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.instructions.async_copies import ASYNC_COPIES
from tinygpu.ptx.emulator.instructions.atomics import ATOMICS
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Lanewise, Run
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
from tinygpu.ptx.emulator.source.syntax import Guard, Instruction, RegisterOperand
from tinygpu.ptx.emulator.source.types import TYPES
from tinygpu.ptx.emulator.state.cohort import Cohort
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
    lanewise where it computes each lane by itself, without a guard
    """

    instruction: Instruction
    run: Run
    careful: Run
    guard: Getter | None
    reads: frozenset[Slot]
    writes: frozenset[Slot]
    kind: str
    lanewise: Lanewise | None = None
    executed: int = 0
    threads: int = 0

    @property
    def touched(self) -> frozenset[Slot]:
        """Registers that it reads or writes."""
        return self.reads | self.writes


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


def is_known(i: Instruction) -> bool:
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
    reads, writes, lanewise = frozenset(b.reads), frozenset(b.writes), b.lanewise
    careful = make_taint(b, i, run, kind, reads, writes)
    guard = None
    if i.guard is not None:
        guard = b.source(guard_operand(i.guard), "pred")
        reads = frozenset(b.reads)
        slot = b.slot(i.guard.register)
        operation = Operation(i, run, careful, guard, reads, writes, kind)
        operation.run = _guarded(operation, run, guard, None)
        operation.careful = _guarded(operation, careful, guard, slot)
        return operation
    return Operation(i, run, careful, None, reads, writes, kind, lanewise)


def _refused(b: Binder, i: Instruction) -> Run:
    raise b.unsupported(why_refused(i.opcode))


def _refusing(refused: UnsupportedInstruction) -> Run:
    def refuse(c: Cohort) -> None:
        raise refused

    return refuse


def guard_operand(guard: Guard) -> RegisterOperand:
    """The predicate of a guard, negated where the guard is."""
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
