"""Operands to getters: how the closure of an instruction reaches its registers, constants and special registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.faults import PtxSyntaxError, UnsupportedInstruction
from tinygpu.ptx.emulator.source.literals import float_pattern
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    FloatOperand,
    Instruction,
    IntegerOperand,
    Operand,
    RegisterOperand,
    SinkOperand,
    SpecialOperand,
    SymbolOperand,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type, view_index
from tinygpu.ptx.emulator.state.cluster_reach import CLUSTER_RANK_SHIFT
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.layout import SpaceLayout
from tinygpu.ptx.emulator.state.memory import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.registers import Slot, group_of

Getter = Callable[[Cohort], Any]
Run = Callable[[Cohort], None]
_GROUP_BITS = (1, 16, 32, 64)
_BASE_VIEW = (0, 1, 5, 8)


@dataclass(frozen=True, slots=True)
class Symbol:
    """Where a name lies: its space, and its address there."""

    space: str
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Lanewise:
    """An instruction that computes each lane by itself: what instructions of one name may do together.

    compute  results of sources, arrays of any one shape or single numbers, element by element
    """

    compute: Callable[..., Any]
    sources: tuple[Getter, ...]
    write: Callable[[Cohort, Array], None]

    def run(self, c: Cohort) -> None:
        self.write(c, self.compute(*[source(c) for source in self.sources]))


@dataclass(slots=True)
class Binder:
    """What compiling the instructions of one kernel collects, and how their operands are bound.

    symbols      variables by key
    param_bytes  bytes of the kernel's parameters
    constants    special registers that are the same for all threads of the launch; instructions look them up
    specials     special registers that are per-thread registers here
    taint_before what the instruction does to uninitialised bits, when that is not "any such source spoils all results"
    owns_taint   the instruction's closure sees to uninitialised bits itself
    owns_busy    it sees to registers that asynchronous instructions work with itself
    lanewise     the instruction, where it computes each lane by itself and can do no more than that
    fenced       registers whose use by other instructions is remembered until a wgmma.fence (Residents.touched)
    guesses      plain loads that count as relaxed ones (source/first_guesses.py)
    data_loads   volatile loads that count as plain ones (source/data_loads.py)
    strong_loads some load is volatile, relaxed or acquire, or counts as such
    cluster_size CTAs of a cluster: with more than one, shared addresses carry the CTA's rank
    """

    symbols: dict[str, Symbol]
    param_bytes: int
    constants: dict[str, int]
    shared: SpaceLayout
    local: SpaceLayout
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    slots: dict[str, Slot] = field(default_factory=dict)
    special_slots: dict[str, Slot] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    reads: set[Slot] = field(default_factory=set)
    writes: set[Slot] = field(default_factory=set)
    shared_granule_bytes: int = 4
    global_granule_bytes: int = 4
    instruction: Instruction | None = None
    taint_before: Run | None = None
    owns_taint: bool = False
    owns_busy: bool = False
    lanewise: Lanewise | None = None
    fenced: set[Slot] = field(default_factory=set)
    strong_loads: bool = False
    cluster_size: int = 1
    guesses: frozenset[tuple[int, int]] = frozenset()
    data_loads: frozenset[tuple[int, int]] = frozenset()

    def agrees(self, other: Binder) -> bool:
        """Whether what was compiled for this launch serves the other: all that is compiled in lies at one place."""
        return (
            self.symbols == other.symbols and self.shared == other.shared and self.local == other.local
            and self.param_bytes == other.param_bytes and self.constants.keys() == other.constants.keys()
            and self.cluster_size == other.cluster_size
        )  # fmt: skip

    # ---- per instruction ----------------------------------------------------------------------------------------

    def begin(self, instruction: Instruction) -> None:
        """Start collecting which registers this instruction reads and writes."""
        self.instruction = instruction
        self.reads = set()
        self.writes = set()
        self.taint_before = None
        self.owns_taint = False
        self.owns_busy = False
        self.lanewise = None

    def fail(self, sentence: str) -> PtxSyntaxError:
        at = self.instruction
        return PtxSyntaxError(at.line if at else 0, at.column if at else 0, sentence)

    def unsupported(self, reason: str = "") -> UnsupportedInstruction:
        at = self.instruction
        return UnsupportedInstruction(at.line if at else 0, at.name if at else "?", reason)

    def site(self, instruction: Instruction) -> Site:
        """A new memory site."""
        site = Site(instruction, len(self.sites))
        self.sites.append(site)
        return site

    def operands(self, instruction: Instruction, least: int, most: int | None = None) -> tuple[Operand, ...]:
        """The operands, refusing a wrong number of them."""
        most = least if most is None else most
        count = len(instruction.operands)
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.fail(f"`{instruction.name}` takes {wanted} operands, not {count}")
        return instruction.operands

    # ---- registers ----------------------------------------------------------------------------------------------

    def slot(self, register: RegisterOperand) -> Slot:
        """Where a register lives."""
        found = self.slots.get(register.key)
        if found is None:
            if register.type_name == "b128":
                raise self.unsupported("128-bit registers")
            group = group_of(register.type_name)
            found = (group, self.counts[group])
            self.counts[group] += 1
            self.slots[register.key] = found
        return found

    def scratch(self, type_name: str, key: str) -> RegisterOperand:
        """A register of the emulator's own."""
        return RegisterOperand(key, key, type_name)

    def _special_slot(self, name: str) -> Slot:
        found = self.special_slots.get(name)
        if found is None:
            found = (2, self.counts[2])
            self.counts[2] += 1
            self.special_slots[name] = found
        return found

    def _check_width(self, register: RegisterOperand, type_name: str) -> None:
        have = TYPES[register.type_name].bits
        want = TYPES[type_name].bits
        if have != want and not (want == 8 and have == 16):
            raise self.fail(
                f"{register.name} is declared .{register.type_name} ({have} bits), but .{type_name} needs {want} bits"
            )

    def destination(self, operand: Operand, type_name: str) -> Getter:
        """Getter of the array (n, 32) to write into; a sink gives scratch space."""
        if isinstance(operand, SinkOperand):
            dtype = numpy_type(type_name)
            return lambda c: np.empty((c.n, 32), dtype)
        if not isinstance(operand, RegisterOperand):
            raise self.fail("the destination must be a register")
        self._check_width(operand, type_name)
        slot = self.slot(operand)
        self.writes.add(slot)
        return _indexed(view_index(type_name), slot[1])

    def wide_destination(self, operand: Operand, type_name: str) -> tuple[Getter, int]:
        """The same for ld and cvt, whose register may be wider than the type: (getter of its bits, its width)."""
        if isinstance(operand, SinkOperand):
            return (lambda c: np.empty((c.n, 32), np.uint64)), 64
        if not isinstance(operand, RegisterOperand):
            raise self.fail("the destination must be a register")
        bits = TYPES[operand.type_name].bits
        if bits < TYPES[type_name].bits:
            raise self.fail(f"{operand.name} has {bits} bits, too few for .{type_name}")
        slot = self.slot(operand)
        self.writes.add(slot)
        return _indexed(_BASE_VIEW[slot[0]], slot[1]), _GROUP_BITS[slot[0]]

    def source(self, operand: Operand, type_name: str) -> Getter:
        """Getter of the operand's values as `type_name`: an array (n, 32) or a NumPy scalar."""
        if isinstance(operand, RegisterOperand):
            self._check_width(operand, type_name)
            slot = self.slot(operand)
            self.reads.add(slot)
            get = _indexed(view_index(type_name), slot[1])
            if operand.negated:
                return lambda c: ~get(c)
            if TYPES[type_name].bits == 8:
                return _low_byte(get, type_name)
            return get
        if isinstance(operand, SpecialOperand):
            return self._special(operand.name, type_name)
        value = self.constant(operand, type_name)
        if isinstance(operand, SymbolOperand) and self._ranked(operand):
            return self.with_rank(value)
        return lambda c: value

    def wide_source(self, operand: Operand, type_name: str) -> Getter:
        """The low bits of a register that may be wider than the type, as unsigned values of the type's width."""
        bits = TYPES[type_name].bits
        if isinstance(operand, RegisterOperand):
            have = TYPES[operand.type_name].bits
            if have < bits:
                raise self.fail(f"{operand.name} has {have} bits, too few for .{type_name}")
            slot = self.slot(operand)
            self.reads.add(slot)
            get = _indexed(_BASE_VIEW[slot[0]], slot[1])
            if _GROUP_BITS[slot[0]] == bits:
                return get
            dtype = np.dtype(f"u{bits // 8}")
            return lambda c: get(c).astype(dtype)
        if isinstance(operand, SpecialOperand):
            return self._special(operand.name, "u32" if bits <= 32 else "u64")
        pattern = np.uint64(self.pattern(operand, type_name)).astype(f"u{bits // 8}")
        return lambda c: pattern

    def pattern(self, operand: Operand, type_name: str) -> int:
        """The bits of a constant operand in this type."""
        bits = TYPES[type_name].bits
        if isinstance(operand, FloatOperand):
            if bits in (32, 64):
                return float_pattern((operand.width_bits, operand.pattern), bits)
            if bits == 16 and type_name == "f16":
                return float_pattern((operand.width_bits, operand.pattern), 16)
            raise self.fail(f"a floating constant cannot be .{type_name}")
        if isinstance(operand, IntegerOperand):
            if TYPES[type_name].is_float and bits > 16:
                raise self.fail(f"an integer constant cannot be .{type_name}: write 0f or 0d and hexadecimal digits")
            return operand.value & ((1 << bits) - 1)
        if isinstance(operand, SymbolOperand):
            return self.address_of(operand) & ((1 << bits) - 1)
        raise self.fail("expected a register or a constant")

    def constant(self, operand: Operand, type_name: str) -> Any:
        """A constant operand as a NumPy scalar of the type's register view."""
        if type_name == "pred":
            if isinstance(operand, IntegerOperand):
                return np.bool_(operand.value != 0)
            raise self.fail("expected a predicate")
        dtype = numpy_type(type_name)
        pattern = self.pattern(operand, type_name)
        return np.array([pattern], f"u{dtype.itemsize}").view(dtype)[0]

    def integer(self, operand: Operand, what: str) -> int:
        """An operand that must be an integer constant."""
        if not isinstance(operand, IntegerOperand):
            raise self.fail(f"{what} must be an integer constant")
        return operand.value

    def vector(self, operand: Operand, count: int, what: str) -> tuple[Operand, ...]:
        """The elements of a vector operand, refusing a wrong number of them; one bare register counts as one."""
        elements = operand.elements if isinstance(operand, VectorOperand) else (operand,)
        if len(elements) != count:
            raise self.fail(f"{what} takes {count} registers, not {len(elements)}")
        return elements

    # ---- special registers --------------------------------------------------------------------------------------

    def _special(self, name: str, type_name: str) -> Getter:
        bits = TYPES[type_name].bits
        dtype = numpy_type(type_name)
        if name in self.constants:
            return lambda c: c.emulation.constants.special(name, type_name)
        if name in ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            shift = 32 if name.endswith("_hi") else 0
            mask = (1 << bits) - 1
            return lambda c: np.array([(c.emulation.read_clock() >> shift) & mask], f"u{bits // 8}").view(dtype)[0]
        if name.startswith(("%envreg", "%pm", "%current_graph_exec")):
            return lambda c: dtype.type(0)
        slot = self._special_slot(name)
        self.reads.add(slot)
        if bits == 32:
            return _indexed(view_index(type_name), slot[1])
        get = _indexed(5, slot[1])
        return lambda c: get(c).astype(dtype)

    # ---- addresses ----------------------------------------------------------------------------------------------

    def symbol(self, name: str) -> Symbol:
        """Where a variable lies."""
        found = self.symbols.get(name)
        if found is None:
            raise self.fail(f"{name} is not declared")
        return found

    def address_of(self, operand: SymbolOperand) -> int:
        """The address of a variable in its own space, plus the operand's offset."""
        return self.symbol(operand.name).address + operand.offset

    def generic_address_of(self, operand: SymbolOperand) -> int:
        """The same as a generic address."""
        symbol = self.symbol(operand.name)
        return symbol.address + operand.offset + generic_base(symbol.space)

    def _ranked(self, operand: SymbolOperand) -> bool:
        found = self.symbols.get(operand.name)
        return self.cluster_size > 1 and found is not None and found.space == "shared"

    def with_rank(self, value: Any) -> Getter:
        """A shared address plus the bits that say which CTA of the cluster it belongs to."""
        group, index = self._special_slot("%cluster_ctarank")
        self.reads.add((group, index))
        dtype, shift = value.dtype, CLUSTER_RANK_SHIFT
        return lambda c: value + (c.files[5][index].astype(dtype) << dtype.type(shift))

    def symbol_address(self, operand: SymbolOperand, type_name: str, generic: bool) -> Getter:
        """Getter of the address of a variable, in its own space or generic."""
        value = self.generic_address_of(operand) if generic else self.address_of(operand)
        constant = numpy_type(type_name).type(value & ((1 << TYPES[type_name].bits) - 1))
        return self.with_rank(constant) if self._ranked(operand) else lambda c: constant

    def address(self, operand: Operand) -> tuple[Getter, int | None, str | None]:
        """(getter of (n, 32) byte addresses as uint64 or uint32, the constant address if it is one, symbol's space)."""
        if not isinstance(operand, AddressOperand):
            raise self.fail("expected an address in brackets")
        if isinstance(operand.base, RegisterOperand):
            register = operand.base
            bits = TYPES[register.type_name].bits
            if bits not in (32, 64):
                raise self.fail(f"{register.name} has {bits} bits and cannot be an address")
            type_name = "u64" if bits == 64 else "u32"
            get = self.source(register, type_name)
            if operand.offset == 0:
                return get, None, None
            offset = numpy_type(type_name).type(operand.offset & ((1 << bits) - 1))
            return (lambda c: get(c) + offset), None, None
        space: str | None = None
        value = operand.offset
        if isinstance(operand.base, SymbolOperand):
            symbol = self.symbol(operand.base.name)
            value += symbol.address
            space = symbol.space
        constant = np.uint64(value & ((1 << 64) - 1))
        if isinstance(operand.base, SymbolOperand) and self._ranked(operand.base):
            return self.with_rank(constant), value, space
        return (lambda c: np.full((c.n, 32), constant)), value, space

    def check_parameter(self, offset: int, size: int) -> None:
        """Refuse what is outside the kernel's parameters."""
        if offset < 0 or offset + size > self.param_bytes:
            raise self.fail(
                f"bytes {offset} to {offset + size - 1} are outside the kernel's {self.param_bytes} bytes of parameters"
            )

    def note_shared_width(self, size: int) -> None:
        """The kernel accesses shared memory in elements of this size."""
        self.shared_granule_bytes = min(self.shared_granule_bytes, max(1, size))

    def note_global_width(self, size: int) -> None:
        """The kernel accesses global memory in elements of this size."""
        self.global_granule_bytes = min(self.global_granule_bytes, max(1, size))


def generic_base(space: str) -> int:
    """What is added to an address of `space` to make it generic."""
    return {
        "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW, "param": PARAM_WINDOW, "global": 0,
    }[space]  # fmt: skip


def _indexed(view: int, index: int) -> Getter:
    def get(c: Cohort) -> Array:
        return c.files[view][index]

    return get


def _low_byte(get: Getter, type_name: str) -> Getter:
    """8-bit types live in 16-bit registers: read the low byte, with its sign where there is one."""
    if type_name == "s8":
        return lambda c: get(c).astype(np.int8).astype(np.int16)
    return lambda c: get(c) & np.uint16(0xFF)
