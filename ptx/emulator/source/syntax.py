"""What a PTX text says, as values: the syntax tree that the parser builds."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegisterOperand:
    """A register; `key` names it uniquely within its function, `type_name` is its declared type.

    negated marks a predicate source written with `!`; element is the suffix of a vector register ("x", "y", ...).
    """

    name: str
    key: str
    type_name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class SpecialOperand:
    """A special register with its component, such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class IntegerOperand:
    value: int


@dataclass(frozen=True, slots=True)
class FloatOperand:
    """A floating constant: its width as written (32 or 64) and its bits."""

    width_bits: int
    pattern: int


@dataclass(frozen=True, slots=True)
class SymbolOperand:
    """The name of a variable, function or label, plus an offset in bytes.

    mask  in an initialiser: which bits of the address are meant, shifted down; 0 for all
    """

    name: str
    offset: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class VectorOperand:
    """{a, b, ...}"""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class AddressOperand:
    """[base + offset]; base is a register, a symbol, or None for an absolute address.

    coordinates holds the operands of a tensor coordinate list [base, {c0, c1}].
    """

    base: RegisterOperand | SymbolOperand | None
    offset: int
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class PartOperand:
    """Bytes or halves of a register, as video instructions take them: %r1.b3, %r1.h10, -%r1.h0.

    part  "" for the whole register
    """

    register: RegisterOperand
    part: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class PairOperand:
    """d|p: a result and the predicate beside it."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class GroupOperand:
    """(a, b, ...) of a call."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class TextOperand:
    """What a fault says: the operand of a trap that the emulator put there itself."""

    text: str


@dataclass(frozen=True, slots=True)
class SinkOperand:
    """_: a result that is dropped."""


Operand = (
    RegisterOperand
    | SpecialOperand
    | IntegerOperand
    | FloatOperand
    | SymbolOperand
    | VectorOperand
    | AddressOperand
    | PartOperand
    | PairOperand
    | GroupOperand
    | SinkOperand
    | TextOperand
)


@dataclass(frozen=True, slots=True)
class Guard:
    """@p or @!p."""

    register: RegisterOperand
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    opcode     first word ("cp" of "cp.async.cg.shared.global")
    modifiers  what follows it, without the dots
    types      those modifiers that are PTX types, in order
    """

    opcode: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    column: int

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the code; `key` is unique within its function."""

    key: str
    line: int


Statement = Instruction | Label


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in memory.

    space          "global", "shared", "const", "local", "param"
    size_bytes     0 for an unsized extern array
    elements       initial values as (byte offset, size in bytes, integer pattern or symbol)
    linkage        "extern", "visible", "weak", "common", or "" for one of this module alone
    """

    name: str
    space: str
    align_bytes: int
    size_bytes: int
    type_name: str
    extern: bool
    elements: tuple[tuple[int, int, int | SymbolOperand], ...]
    line: int
    key: str = ""
    linkage: str = ""


@dataclass(frozen=True, slots=True)
class Prototype:
    """What a call through a register passes and gets back: the sizes and alignments of parameters and results."""

    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    line: int


@dataclass(slots=True)
class Function:
    """An entry or a device function."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    line: int
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    call_prototypes: dict[str, Prototype] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    has_body: bool = True
    linkage: str = ""


@dataclass(slots=True)
class Module:
    """One PTX text, or several that were linked.

    lines    of all texts, one after another
    aliases  other names of functions
    starts   how many lines stand before each text
    """

    version: tuple[int, int]
    target: str
    address_size: int
    variables: list[Variable]
    functions: list[Function]
    lines: tuple[str, ...]
    aliases: dict[str, str] = field(default_factory=dict)
    starts: tuple[int, ...] = (0,)

    def place(self, line: int) -> tuple[int, int]:
        """(number of the text, or 0 where there is one; line in it) of a line counted through all texts."""
        if len(self.starts) == 1:
            return 0, line
        number = bisect_left(self.starts, line)
        return number, line - self.starts[number - 1]
