"""Evidence for the rules of red: spellings, twins and the card."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import DTYPES, dtype
from tinygpu.expressions import symbol
from tinygpu.ptx.cards.evidence.memory import width_rule
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    gmem_operand,
    held_partition,
    markdown_table,
    target_twin,
)
from tinygpu.ptx.isa.atomics import OPERATIONS, RedGlobal

_YOUNGER = "it exists from sm_90 on; machines use what all of their targets have"
ZEROS = {16: "mov.b16 %h9, 0;", 32: "mov.b32 %r9, 0;", 64: "mov.b64 %d9, 0;"}
LETTERS = {16: "h", 32: "r", 64: "d"}


def variants() -> Iterator[Variant]:
    """Every operation on every type, of one and of two elements at once."""
    for op, (kinds, _) in OPERATIONS.items():
        for kind in DTYPES:
            if kind.bits not in LETTERS:
                continue
            of = f"b{kind.bits}" if op in ("and", "or", "xor") else kind.name
            for vector in (1, 2):
                fits = evaluator(width_rule(RedGlobal(op, symbol("vector")), kind, True).condition.sympy)
                admits = kind.name in kinds and bool(fits({"vector": vector}))
                text = _text(op, of, kind.bits, vector)
                for target, _ in TARGETS:
                    reason = "" if admits else _not_offered(op, kind.name, vector, compute_capability(target))
                    yield Variant(text, target, admits, reason)


def _not_offered(op: str, kind: str, vector: int, cc: int) -> str:
    """Why machines have no spelling that the assembler takes; "" where it takes none."""
    if cc >= 90 and ((op, kind) == ("add", "bf16") or (op, kind, vector) == ("add", "f32", 2)):
        return _YOUNGER
    if op in ("and", "or", "xor") and vector == 1 and kind in ("f32", "tf32", "f64"):
        return "bits of floating-point numbers are combined as those of s32 and u32"
    return ""


def _text(op: str, of: str, bits: int, vector: int) -> str:
    if bits == 16:
        return f"red.global.{op}.noftz.{of} [%x], %h0;" if vector == 1 else f"red.global.{op}.noftz.{of}x2 [%x], %r0;"
    letter = LETTERS[bits]
    if vector == 1:
        return f"red.global.{op}.{of} [%x], %{letter}0;"
    return f"red.global.{op}.v2.{of} [%x], {{%{letter}0, %{letter}1}};"


def _specimen(title: str, body: str, kind: str, held: int = 1) -> Specimen:
    """Each thread's values are added to zeros."""
    bits = dtype(kind).bits
    letter = LETTERS[bits]
    lines = [ZEROS[bits]]
    for i in range(held):
        lines += [f"st.global.b{bits} [%out+{i * bits // 8}], %{letter}9;"]
        lines += [f"ld.global.b{bits} %{letter}{i}, [%x+{i * bits // 8}];"]
    fields = (Field("x", kind, held), Field("out", kind, held, "out"))
    return Specimen(title, "\n".join([*lines, body]), fields, lambda x: x)


def cards() -> Iterator[Card]:
    """The card of red.global."""
    instruction = RedGlobal("add", symbol("vector"))
    rules = (instruction.target_rule(), *instruction.legality(gmem_operand(dtype("f32"), "y"), held_partition()))
    label = instruction.label
    one = _specimen(f"{label}.f32", "red.global.add.f32 [%out], %r0;", "f32")
    several = "red.global.add.f32 [%out], %r0;\nred.global.add.f32 [%out+4], %r1;"
    two = _specimen(f"{label}.f32: two elements", several, "f32", 2)
    together = two.respelled(several, "red.global.add.v2.f32 [%out], {%r0, %r1};")
    off = one.respelled("[%out], %r0", "[%out+2], %r0")
    pack = "mov.b32 %r1, {%h0, %h1};\n"
    halves = _specimen(f"{label}.f16: two neighbours", f"{pack}red.global.add.noftz.f16x2 [%out], %r1;", "f16", 2)
    crossed = halves.respelled("{%h0, %h1}", "{%h1, %h0}")
    found = [
        ("width", two, together, "requires .target sm_90 or higher"),
        ("alignment", one, off, "it must be a multiple of 4, but the remainder is 2"),
        ("vector", halves, crossed, WRONG_VALUES),
    ]
    twins = [target_twin(instruction, one)]
    for word, legal, illegal, refusal in found:
        rule = next(r for r in rules if f" {word} " in r.name)
        twins.append(Twin(rule.name, rule.judge, legal, illegal, refusal))
    bad = one.respelled("red.global.add.f32", "red.global.min.f32")
    twins.append(Twin("red.global types", "assembler", one, bad, "Operation .min requires .u32 or .s32 or"))
    yield Card(
        name="red.global",
        instruction=instruction,
        operands=(
            ("tensor in GMEM", "GMEM", "vector neighbours along the contiguous axis", "as the operation has it"),
            ("registers", "RMEM", "vector", "the same"),
        ),
        rules=rules,
        guarantees=(Guarantee("red.global types", "the operation exists for the type of the values", "assembler"),),
        meaning="memory[i] = op(memory[i], register), for every thread, in any order",
        cost="one request per warp; distinct 32-byte sectors that its lanes touch; not that those to one place wait",
        example=one,
        twins=tuple(twins),
        variants=variants,
        pictures=lambda: (("Operations", _table()),),
    )


def _table() -> str:
    rows = [(f"`RedGlobal({op!r})`", ", ".join(kinds)) for op, (kinds, _) in OPERATIONS.items()]
    return markdown_table(("instruction", "types"), rows)
