"""Evidence for the rules of element-wise instructions: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tinygpu.dtypes import DTYPES, PREDICATE, dtype
from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.cards.specimen import (
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
from tinygpu.ptx.isa.elementwise import Arithmetic

_LETTERS = "abce"
# The target before the one that brought 8-bit floats, and before the one that brought bf16 arithmetic.
_BEFORE = {89: 87, 90: 89}


@dataclass(frozen=True, slots=True)
class Tried:
    """How an operation would be spelled for the kinds for which it is not listed.

    stems        opcodes with {t} for the type
    order        letters of the operands as they are written, the result first
    not_offered  kind -> why it is not listed although it exists
    """

    stems: tuple[str, ...]
    not_offered: Mapping[str, str] = field(default_factory=dict)
    order: str = ""

    def text(self, operation: type[Arithmetic], stem: str, kind: str) -> str:
        """A spelling for a kind; operands that have a type of their own keep it."""
        first = next(iter(operation.spelling))
        takes, gives = operation(first).types()
        own = {"d": gives, **dict(zip(_LETTERS, takes, strict=False))}
        fixed = {letter: own[letter] if own[letter] == PREDICATE.name else kind for letter in own}
        names = [register(fixed[letter], "dabce".index(letter)) for letter in self.order or own]
        return f"{stem.format(t=kind)} {', '.join(names)};"


def register(kind: str, number: int) -> str:
    """A register of a specimen that holds one element."""
    return f"%{ {64: 'd', 16: 'h', 1: 'p'}.get(dtype(kind).bits, 'r') }{number}".replace(" ", "")


def statement(instruction: Elementwise) -> str:
    """The instruction over registers 0 (result) and 1 to 4."""
    takes, gives = instruction.types()
    names = {letter: register(kind, i + 1) for i, (letter, kind) in enumerate(zip(_LETTERS, takes, strict=False))}
    return instruction.text().replace("\n", " ").format(d=register(gives, 0), **names)


def specimen(instruction: Elementwise, title: str = "", body: str = "") -> Specimen:
    """Loads one element of each operand, applies the instruction, and stores the result."""
    takes, gives = instruction.types()
    fields = [Field(letter, in_memory(kind), 1) for letter, kind in zip(_LETTERS, takes, strict=False)]
    numbered = [(i + 1, f.name, kind) for i, (f, kind) in enumerate(zip(fields, takes, strict=False))]
    lines = [line for number, name, kind in numbered for line in _load(kind, number, name)]
    names = {name: register(kind, number) for number, name, kind in numbered}
    lines += (body or instruction.text().format(d=register(gives, 0), **names)).split("\n")
    if gives == PREDICATE.name:
        lines += ["selp.u32 %r9, 1, 0, %p0;", "st.global.u8 [%out], %r9;"]
    else:
        lines.append(f"st.global.b{dtype(gives).bits} [%out], {register(gives, 0)};")
    kinds = [dtype(kind).numpy for kind in takes]

    def meaning(*values: Any) -> Any:
        return instruction.meaning(*(v.astype(kind) for v, kind in zip(values, kinds, strict=True)))

    return Specimen(
        title or f"{instruction.label}",
        "\n".join(lines),
        (*fields, Field("out", in_memory(gives), 1, "out")),
        meaning,
        max(instruction.target, 80),
        instruction.isa,
    )


def in_memory(kind: str) -> str:
    """The type of an operand's elements in memory: predicates lie there as bytes."""
    return "u8" if kind == PREDICATE.name else kind


def _load(kind: str, number: int, name: str) -> list[str]:
    bits = dtype(kind).bits
    if kind == PREDICATE.name:
        return [f"ld.global.u8 %r{number}, [%{name}];", f"setp.ne.u32 {register(kind, number)}, %r{number}, 0;"]
    form = ("s" if dtype(kind).kind == "signed" else "u") if bits == 8 else "b"
    return [f"ld.global.{form}{bits} {register(kind, number)}, [%{name}];"]


def variants(operation: type[Arithmetic], tried: Tried) -> Iterator[Variant]:
    """Every element type: those on offer as they are spelled, the others as they would be."""
    for target, _ in TARGETS:
        cc = compute_capability(target)
        for kind in (t.name for t in (*DTYPES, PREDICATE) if t.bits >= 8 or t.name in operation.spelling):
            if kind in operation.spelling:
                for made in operation.forms(kind):
                    yield Variant(statement(made), target, cc >= made.target)
                continue
            for stem in tried.stems:
                reason = tried.not_offered.get(kind, "")
                yield Variant(
                    tried.text(operation, stem, kind),
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


def card(
    operation: type[Arithmetic], name: str, meaning: str, illegal: str, refusal: str, tried: Tried
) -> Card:
    """The card of one operation.

    meaning  one line of NumPy
    illegal  a kind for which it does not exist, and for which the first of the stems that are tried is refused
    refusal  the assembler's words
    """
    instruction = operation(next(iter(operation.spelling)))
    example = specimen(instruction)
    operands = _operands(operation)
    alone = {"u32", "s32", PREDICATE.name}
    fixed = [f"{letter} is {kind}" for letter, _, _, kind in operands[: operation.arity] if kind in alone]
    sentence = f"operands have one type: {_listed(list(operation.spelling))}"
    types = Guarantee(f"{name} types", "; ".join([sentence, *fixed]), "assembler")
    bad = _unrun(f"{name}: on {illegal}", tried.text(operation, tried.stems[0], illegal))
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
        variants=lambda: variants(operation, tried),
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
    gives = {types[kind][1] for kind in kinds}
    of = "the type of a" if gives == set(kinds) else _listed(sorted(gives))
    if types[kinds[0]][1] != types[kinds[0]][0][0] and len(gives) > 1:
        of = f"the type of {_LETTERS[operation.arity - 1]}"
    return (*out, ("result", "RMEM", "one per element", of))


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
