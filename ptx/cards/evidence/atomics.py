"""Evidence for the rules of red: spellings, twins and the cards."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import DTYPES, dtype
from tinygpu.expressions import symbol
from tinygpu.language.tile import Tile
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
    smem_operand,
    target_twin,
)
from tinygpu.ptx.isa.atomics import OPERATIONS, Red, RedGlobal, RedShared

_YOUNGER = "it exists from sm_90 on; machines use what all of their targets have"
ZEROS = {16: "mov.b16 %h9, 0;", 32: "mov.b32 %r9, 0;", 64: "mov.b64 %d9, 0;"}
LETTERS = {16: "h", 32: "r", 64: "d"}


def variants(of_class: type[Red]) -> Iterator[Variant]:
    """Every operation on every type, of one and of two elements at once."""
    for op, (kinds, _) in OPERATIONS.items():
        for kind in DTYPES:
            if kind.bits not in LETTERS:
                continue
            of = f"b{kind.bits}" if op in ("and", "or", "xor") else kind.name
            for vector in (1, 2):
                rule = width_rule(of_class(op, symbol("vector")), kind, of_class is RedGlobal)
                fits = evaluator(rule.condition.sympy)
                admits = kind.name in kinds and bool(fits({"vector": vector}))
                text = _text(of_class.opcode, op, of, kind.bits, vector)
                for target, _ in TARGETS:
                    cc = compute_capability(target)
                    reason = "" if admits else _not_offered(of_class, op, kind.name, vector, cc)
                    yield Variant(text, target, admits, reason)


def _not_offered(of_class: type[Red], op: str, kind: str, vector: int, cc: int) -> str:
    """Why machines have no spelling that the assembler takes; "" where it takes none."""
    in_vectors = of_class is RedGlobal and (op, kind, vector) == ("add", "f32", 2)
    if cc >= 90 and ((op, kind) == ("add", "bf16") or in_vectors):
        return _YOUNGER
    if op in ("and", "or", "xor") and vector == 1 and kind in ("f32", "tf32", "f64"):
        return "bits of floating-point numbers are combined as those of s32 and u32"
    return ""


def _text(opcode: str, op: str, of: str, bits: int, vector: int) -> str:
    at = "%x" if opcode == RedGlobal.opcode else "%s"
    if bits == 16:
        return f"{opcode}.{op}.noftz.{of} [{at}], %h0;" if vector == 1 else f"{opcode}.{op}.noftz.{of}x2 [{at}], %r0;"
    letter = LETTERS[bits]
    if vector == 1:
        return f"{opcode}.{op}.{of} [{at}], %{letter}0;"
    return f"{opcode}.{op}.v2.{of} [{at}], {{%{letter}0, %{letter}1}};"


def _specimen(opcode: str, title: str, body: str, kind: str, held: int = 1) -> Specimen:
    """Each thread's values are added to zeros, in GMEM or in SMEM, and lie in GMEM then."""
    bits = dtype(kind).bits
    letter, shared = LETTERS[bits], opcode == RedShared.opcode
    each = held * bits // 8
    lines = [ZEROS[bits], *([f"mad.lo.u32 %r8, %t, {each}, %s;"] if shared else [])]
    for i in range(held):
        at = i * bits // 8
        lines.append(f"st.{'shared' if shared else 'global'}.b{bits} [%{'r8' if shared else 'out'}+{at}], %{letter}9;")
        lines.append(f"ld.global.b{bits} %{letter}{i}, [%x+{at}];")
    behind = []
    for i in range(held if shared else 0):
        at = i * bits // 8
        behind += [f"ld.shared.b{bits} %{letter}9, [%r8+{at}];", f"st.global.b{bits} [%out+{at}], %{letter}9;"]
    fields = (Field("x", kind, held), Field("out", kind, held, "out"))
    smem = 32 * each if shared else 0
    return Specimen(title, "\n".join([*lines, body, *behind]), fields, lambda x: x, smem_bytes=smem)


def cards() -> Iterator[Card]:
    """The cards of red.global and red.shared."""
    yield _card(RedGlobal("add", symbol("vector")), gmem_operand(dtype("f32"), "y"), "out")
    yield _card(RedShared("add", symbol("vector")), smem_operand(dtype("f32")), "r8")


def _card(instruction: Red, side: Tile, at: str) -> Card:
    """The card of one of them.

    at  what the address of the thread's values is called in its specimens
    """
    rules = (instruction.target_rule(), *instruction.legality(side, held_partition()))
    opcode, shared = instruction.opcode, at == "r8"
    one = _specimen(opcode, f"{opcode}.add.f32", f"{opcode}.add.f32 [%{at}], %r0;", "f32")
    several = f"{opcode}.add.f32 [%{at}], %r0;\n{opcode}.add.f32 [%{at}+4], %r1;"
    two = _specimen(opcode, f"{opcode}.add.f32: two elements", several, "f32", 2)
    together = two.respelled(several, f"{opcode}.add.v2.f32 [%{at}], {{%r0, %r1}};")
    off = one.respelled(f"add.f32 [%{at}], %r0", f"add.f32 [%{at}+2], %r0")
    pack = f"mov.b32 %r1, {{%h0, %h1}};\n{opcode}.add.noftz.f16x2 [%{at}], %r1;"
    halves = _specimen(opcode, f"{opcode}.add.f16: two neighbours", pack, "f16", 2)
    crossed = halves.respelled("{%h0, %h1}", "{%h1, %h0}")
    found = [
        ("width", two, together, ".v2" if shared else "requires .target sm_90 or higher"),
        ("alignment", one, off, "it must be a multiple of 4, but the remainder is 2"),
        ("vector", halves, crossed, WRONG_VALUES),
    ]
    twins = [target_twin(instruction, one)]
    for word, legal, illegal, refusal in found:
        rule = next(r for r in rules if f" {word} " in r.name)
        twins.append(Twin(rule.name, rule.judge, legal, illegal, refusal))
    bad = one.respelled(f"{opcode}.add.f32", f"{opcode}.min.f32")
    twins.append(Twin(f"{opcode} types", "assembler", one, bad, "Operation .min requires .u32 or .s32 or"))
    place = "buffer in SMEM" if shared else "tensor in GMEM"
    touched = "wavefronts" if shared else "distinct 32-byte sectors that its lanes touch"
    return Card(
        name=opcode,
        instruction=instruction,
        operands=(
            (place, place[-4:], "vector neighbours along the contiguous axis", "as the operation has it"),
            ("registers", "RMEM", "vector", "the same"),
        ),
        rules=rules,
        guarantees=(Guarantee(f"{opcode} types", "the operation exists for the type of the values", "assembler"),),
        meaning="memory[i] = op(memory[i], register), for every thread, in any order",
        cost=f"one request per warp; {touched}; not that those to one place wait",
        example=one,
        twins=tuple(twins),
        variants=lambda: variants(type(instruction)),
        pictures=lambda: (("Operations", _table(type(instruction).__name__)),),
    )


def _table(name: str) -> str:
    rows = [(f"`{name}({op!r})`", ", ".join(kinds)) for op, (kinds, _) in OPERATIONS.items()]
    return markdown_table(("instruction", "types"), rows)
