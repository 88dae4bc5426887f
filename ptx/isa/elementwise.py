"""What element-wise instructions share: an operation that exists for several types, its accuracy, and its evidence.

operands   one value of each operand per element, in registers
legality   the types of `spelling`, with the oldest target and lowest .version where they are younger than sm_80
meaning    NumPy, of the operands as they are stored
cost       one slot of the unit per element
lowering   the text of `spelling`, element by element
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DTYPES, dtype
from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.isa.specimen import (
    OLDEST_TARGET,
    TARGETS,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    markdown_table,
    target_twin,
    version,
)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result may be from the exact value v: relative * |v| + absolute. Both zero: correctly rounded.

    low, high  the inputs for which it is promised
    """

    relative: float = 0.0
    absolute: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    def __str__(self) -> str:
        if not self.relative and not self.absolute:
            return "exact, rounded once where it must be"
        parts = [
            f"2^{np.log2(x):g} {word}" for x, word in ((self.relative, "relative"), (self.absolute, "absolute")) if x
        ]
        where = "" if np.isinf(self.low) else f" for inputs from {self.low:g} to {self.high:g}"
        return "within " + " plus ".join(parts) + where


EXACT = Accuracy()


def narrowed(value: Any, kind: str) -> NDArray[Any]:
    """f64 values rounded once to a float type.

    NumPy rounds f64 to bf16 by way of f32. Rounded to odd there, nothing is lost for the second rounding (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    wide = np.asarray(value, dtype=np.float64)
    with np.errstate(all="ignore"):
        if kind != "bf16":
            return np.asarray(wide.astype(dtype(kind).numpy))
        single = wide.astype(np.float32)
        towards_zero = np.where(np.abs(single) > np.abs(wide), np.nextafter(single, np.float32(0)), single)
        inexact = ~np.isnan(wide) & (towards_zero != wide)
        odd = (towards_zero.astype(np.float32).view(np.uint32) | inexact).view(np.float32)
        return np.asarray(odd.astype(dtype(kind).numpy))


@dataclass(frozen=True, eq=False)
class Arithmetic(Elementwise):
    """An operation that exists for several types; `kind` is the type of its operands and its result.

    Class facts:
    spelling     kind -> opcode, or whole statements with {d}, {a}, {b}, {c}, {e}
    needs        kind -> (oldest target, lowest .version), for kinds that are younger than sm_80 and .version 7.0
    accuracy     kind -> how far the result may be off; EXACT where it is not listed
    stems        opcodes with {t} for their type: what would have to exist for the kinds that are not listed
    not_offered  kind -> why it is not listed although it exists
    """

    kind: str = "f32"
    arity: ClassVar[int] = 2
    spelling: ClassVar[dict[str, str]] = {}
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {}
    accuracy: ClassVar[dict[str, Accuracy]] = {}
    stems: ClassVar[tuple[str, ...]] = ()
    not_offered: ClassVar[dict[str, str]] = {}
    source: ClassVar[str] = "PTX ISA, floating point and integer arithmetic instructions"

    def __post_init__(self) -> None:
        if self.kind not in self.spelling:
            raise ValueError(f"{type(self).__name__} exists for {', '.join(self.spelling)}, not for {self.kind!r}")
        if self.kind in self.needs:  # an instance of a younger kind has its own target and .version
            target, isa = self.needs[self.kind]
            object.__setattr__(self, "target", target)
            object.__setattr__(self, "isa", isa)

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.kind,) * self.arity, self.kind

    def text(self) -> str:
        operands = ", ".join(("{a}", "{b}", "{c}", "{e}")[: self.arity])
        spelled = self.spelling[self.kind]
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {operands};"

    @property
    def label(self) -> str:
        spelled = self.spelling[self.kind]
        return f"{type(self).__name__.lower()}.{self.kind}" if "{d}" in spelled else spelled

    @classmethod
    def forms(cls, kind: str) -> tuple[Arithmetic, ...]:
        """The instructions of this class for one kind."""
        return (cls(kind),)

    def error(self) -> Accuracy:
        """How far a result may be from the exact value."""
        return self.accuracy.get(self.kind, EXACT)


# -- evidence ----------------------------------------------------------------------------------------------------------

_LETTERS = "abce"
# The target before the one that brought 8-bit floats, and before the one that brought bf16 arithmetic.
_BEFORE = {89: 87, 90: 89}


def register(kind: str, number: int) -> str:
    """A register of a specimen that holds one element."""
    return f"%{ {64: 'd', 16: 'h'}.get(dtype(kind).bits, 'r') }{number}".replace(" ", "")


def statement(instruction: Elementwise) -> str:
    """The instruction over registers 0 (result) and 1 to 4."""
    takes, gives = instruction.types()
    names = {letter: register(kind, i + 1) for i, (letter, kind) in enumerate(zip(_LETTERS, takes, strict=False))}
    return instruction.text().replace("\n", " ").format(d=register(gives, 0), **names)


def specimen(instruction: Elementwise, title: str = "", body: str = "") -> Specimen:
    """Loads one element of each operand, applies the instruction, and stores the result."""
    takes, gives = instruction.types()
    fields = [Field(letter, kind, 1) for letter, kind in zip(_LETTERS, takes, strict=False)]
    lines = [_load(f.dtype, i + 1, f.name) for i, f in enumerate(fields)]
    lines += (
        body
        or instruction.text().format(
            d=register(gives, 0), **{f.name: register(f.dtype, i + 1) for i, f in enumerate(fields)}
        )
    ).split("\n")
    lines.append(f"st.global.b{dtype(gives).bits} [%out], {register(gives, 0)};")
    meaning = instruction.meaning
    return Specimen(
        title or f"{instruction.label}",
        "\n".join(lines),
        (*fields, Field("out", gives, 1, "out")),
        meaning,
        max(instruction.target, 80),
        instruction.isa,
    )


def _load(kind: str, number: int, name: str) -> str:
    bits = dtype(kind).bits
    form = ("s" if dtype(kind).kind == "signed" else "u") if bits == 8 else "b"
    return f"ld.global.{form}{bits} {register(kind, number)}, [%{name}];"


def variants(operation: type[Arithmetic]) -> Iterator[Variant]:
    """Every element type: those on offer as they are spelled, the others as they would be."""
    for target, _ in TARGETS:
        cc = compute_capability(target)
        for kind in (t.name for t in DTYPES if t.bits >= 8):
            if kind in operation.spelling:
                for made in operation.forms(kind):
                    yield Variant(statement(made), target, cc >= made.target)
                continue
            for stem in operation.stems:
                registers = ", ".join(register(kind, i) for i in range(operation.arity + 1))
                reason = operation.not_offered.get(kind, "")
                yield Variant(
                    f"{stem.format(t=kind)} {registers};",
                    target,
                    False,
                    reason if _exists(operation, stem, kind, cc) else "",
                )


def _exists(operation: type[Arithmetic], stem: str, kind: str, cc: int) -> bool:
    """Whether a reason not to offer `kind` is about this stem and target: integers have stems of their own."""
    oldest, _ = operation.needs.get(kind, (0, (0, 0)))
    integer = dtype(kind).kind != "float"
    rounded = ".rn" in stem or ".approx" in stem or ".full" in stem
    return cc >= oldest and not (integer and rounded)


def card(operation: type[Arithmetic], name: str, meaning: str, illegal: str, refusal: str) -> Card:
    """The card of one operation.

    meaning  one line of NumPy
    illegal  a kind for which it does not exist, and for which the first of `stems` is refused
    refusal  the assembler's words
    """
    instruction = operation(next(iter(operation.spelling)))
    example = specimen(instruction)
    operands = _operands(operation)
    fixed = [f"{letter} is {kind}" for letter, _, _, kind in operands if kind in ("u32", "s32")]
    sentence = f"operands have one type: {_listed(list(operation.spelling))}"
    types = Guarantee(f"{name} types", "; ".join([sentence, *fixed]), "assembler")
    registers = ", ".join(register(illegal, i) for i in range(operation.arity + 1))
    bad = _unrun(f"{name}: on {illegal}", f"{operation.stems[0].format(t=illegal)} {registers};")
    young = [operation(kind) for kind, (target, _) in operation.needs.items() if target > OLDEST_TARGET]
    twins = [target_twin(instruction, example), Twin(types.name, "assembler", example, bad, refusal)]
    for y in young:
        legal = specimen(y)
        old = replace(legal, target=_BEFORE[y.target])
        words = f"requires .target sm_{y.target} or higher"
        twins.append(Twin(y.target_rule().name, "assembler", legal, old, words))
    return Card(
        name=name,
        instruction=instruction,
        operands=operands,
        rules=(instruction.target_rule(), *(y.target_rule() for y in young)),
        guarantees=(types,),
        meaning=meaning,
        cost=f"one slot of the {operation.unit} unit per element",
        example=example,
        twins=tuple(twins),
        variants=lambda: variants(operation),
        pictures=lambda: (("Types", _table(operation)),),
    )


def _operands(operation: type[Arithmetic]) -> tuple[tuple[str, str, str, str], ...]:
    """(operand, memory, shape, type) of the operands and the result."""
    kinds = list(operation.spelling)
    types = {kind: operation(kind).types() for kind in kinds}
    out = []
    for i, letter in enumerate(_LETTERS[: operation.arity]):
        taken = [types[kind][0][i] for kind in kinds]
        out.append((letter, "RMEM", "one per element", _listed(kinds) if taken == kinds else taken[0]))
    return (*out, ("result", "RMEM", "one per element", "the type of a"))


def _unrun(title: str, body: str) -> Specimen:
    """A statement that the assembler refuses."""
    return Specimen(title, body, (Field("out", "f32", 1, "out"),), lambda: None)


def _table(operation: type[Arithmetic]) -> str:
    rows = []
    for kind in operation.spelling:
        made = operation(kind)
        text = made.text().format(d="d", a="a", b="b", c="c", e="e")
        error = str(made.error()) if dtype(kind).is_float else "exact"
        rows.append((kind, f"`{text}`", f"sm_{max(made.target, 80)}", version(made.isa), error))
    return markdown_table(("type", "PTX", "from target", "from .version", "result"), rows)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
