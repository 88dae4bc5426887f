"""Evidence for what unpacks and packs narrow elements: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.ptx.cards.evidence.elementwise import register
from tinygpu.ptx.cards.specimen import (
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
from tinygpu.ptx.isa.unpack import PACKED, UNPACKED, Pack, Unpack


def together(instruction: Unpack) -> str:
    """The statements that unpack a register, over registers of a specimen."""
    count = 32 // dtype(instruction.origin).bits * dtype(instruction.to).bits // 32
    results = {f"d{i}": f"%r{2 + i}" for i in range(count)}
    return instruction.unpacked_text().format(a="%r1", **results)


def alone(instruction: Unpack | Pack) -> str:
    """The statements for one value."""
    return instruction.text().format(d=register(instruction.to, 0), a=register(instruction.origin, 1))


def whole(instruction: Pack) -> str:
    """The statements that pack a register, over registers of a specimen."""
    count = 32 // dtype(instruction.to).bits
    values = {f"a{i}": register(instruction.origin, 1 + i) for i in range(count)}
    return instruction.packed_text().format(d="%r0", **values)


def _unpacked_variants() -> Iterator[Variant]:
    for target, _ in TARGETS:
        for kind in ("s4", "u4", "e2m1", "s8"):  # what an instruction of its own would be called
            yield Variant(f"cvt.rn.f16x2.{kind}x2 %r2, %h1;", target, False)
        for pair in UNPACKED:
            made = Unpack(*pair)
            legal = compute_capability(target) >= made.target
            yield Variant(alone(made), target, legal or pair[0] == "e5m2")
            if made.unpacked_text():
                yield Variant(together(made).replace("\n", " "), target, legal)


def _packed_variants() -> Iterator[Variant]:
    for target, _ in TARGETS:
        for kind in ("s4", "u4"):
            yield Variant(f"cvt.rni.{kind}.f32 %r0, %r1;", target, False)
        for pair in PACKED:
            made = Pack(*pair)
            legal = compute_capability(target) >= made.target
            yield Variant(alone(made), target, legal)
            if made.packed_text():
                yield Variant(whole(made), target, legal)


def cards() -> Iterator[Card]:
    """The cards of what unpacks and packs."""
    yield _unpacking()
    yield _packing()


def _unpacking() -> Card:
    instruction, young = Unpack("s8", "f16"), Unpack("e4m3", "f16")
    example = _specimen(instruction)
    pairs = Guarantee("unpack pairs", "the pair of types is one of the table below", "assembler")
    bad = Specimen(
        "unpack: two s8 to f16 by cvt", "cvt.rn.f16x2.s8x2 %r2, %h1;", (Field("out", "f16", 2, "out"),), lambda: None
    )
    legal = _specimen(young)
    old = Specimen(legal.title, legal.body, legal.fields, legal.meaning, 87, legal.isa)
    twins = (
        target_twin(instruction, example),
        Twin(pairs.name, "assembler", example, bad, "cvt"),
        Twin(young.target_rule().name, "assembler", legal, old, "requires .target sm_89 or higher"),
    )
    return Card(
        name="unpack",
        instruction=instruction,
        operands=(
            ("a", "RMEM", "4 or 8 neighbours in each register", "from"),
            ("result", "RMEM", "1 or 2 neighbours in each register", "to"),
        ),
        rules=(instruction.target_rule(), young.target_rule()),
        guarantees=(pairs,),
        meaning="d = a.astype(to), exactly",
        cost="its statements on the alu unit, for each register of a that a thread holds whole; else value by value",
        example=example,
        twins=twins,
        variants=_unpacked_variants,
        pictures=lambda: (("Pairs", _table()),),
    )


def _packing() -> Card:
    instruction, young = Pack("f32", "s8"), Pack("f32", "e4m3")
    example = _packed_specimen(instruction)
    pairs = Guarantee("pack pairs", "the pair of types is one of the table below", "assembler")
    bad = Specimen("pack: f32 to s4 by cvt", "cvt.rni.s4.f32 %r0, %r1;", (Field("out", "s8", 1, "out"),), lambda: None)
    legal = _packed_specimen(young)
    old = Specimen(legal.title, legal.body, legal.fields, legal.meaning, 87, legal.isa)
    return Card(
        name="pack",
        instruction=instruction,
        operands=(
            ("a", "RMEM", "1 or 2 neighbours in each register", "from"),
            ("result", "RMEM", "4 or 8 neighbours in each register", "to"),
        ),
        rules=(instruction.target_rule(), young.target_rule()),
        guarantees=(pairs,),
        meaning="d = a.astype(to): integers to the nearest, saturated, of a NaN 0; floats saturate",
        cost="its statements on the alu unit, for each register of d that a thread holds whole; else value by value",
        example=example,
        twins=(
            target_twin(instruction, example),
            Twin(pairs.name, "assembler", example, bad, ".s4"),
            Twin(young.target_rule().name, "assembler", legal, old, "requires .target sm_89 or higher"),
        ),
        variants=_packed_variants,
        pictures=lambda: (("Pairs", _packed_table()),),
    )


def _packed_specimen(instruction: Pack) -> Specimen:
    """Loads four neighbours, packs them, and stores the register."""
    loads = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%a];"
    fields = (Field("a", instruction.origin, 4), Field("out", instruction.to, 4, "out"))
    body = f"{loads}\n{whole(instruction)}\nst.global.b32 [%out], %r0;"
    return Specimen(
        instruction.label, body, fields, instruction.meaning, max(instruction.target, 80), instruction.isa
    )


def _packed_table() -> str:
    rows = []
    for origin, to in PACKED:
        made = Pack(origin, to)
        text = whole(made) if made.packed_text() else f"value by value: {alone(made)}"
        rows.append((origin, to, f"`{text}`", f"sm_{max(made.target, 80)}", version(made.isa)))
    return markdown_table(("from", "to", "PTX for a register of d (%r0)", "from target", "from .version"), rows)


def _specimen(instruction: Unpack) -> Specimen:
    """Loads four neighbours, unpacks them, and stores what becomes of them."""
    to = dtype(instruction.to).numpy
    lines = ["ld.global.b32 %r1, [%a];", together(instruction), "st.global.v2.b32 [%out], {%r2, %r3};"]

    def meaning(a: Any) -> Any:
        return a.astype(np.float32).astype(to)

    fields = (Field("a", instruction.origin, 4), Field("out", instruction.to, 4, "out"))
    return Specimen(instruction.label, "\n".join(lines), fields, meaning, max(instruction.target, 80), instruction.isa)


def _table() -> str:
    rows = []
    for origin, to in UNPACKED:
        made = Unpack(origin, to)
        text = together(made).replace("\n", " ") if made.unpacked_text() else made.text().format(d="d", a="a")
        rows.append((origin, to, f"`{text}`", f"sm_{max(made.target, 80)}", version(made.isa)))
    return markdown_table(("from", "to", "PTX for a register of a (%r1)", "from target", "from .version"), rows)
