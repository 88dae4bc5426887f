"""Evidence for the rules of mma.sync with block scales: spellings, a kernel around one product, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.ptx.cards.evidence.mma import gather, picture, scatter
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    markdown_table,
)
from tinygpu.ptx.isa.mma import fragments
from tinygpu.ptx.isa.mma_scaled import FORMS, SCALES_A, SCALES_B, Form, MmaScaled

_REGISTERS = "{%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r0, %r1, %r2, %r3}, %r10, {0, 0}, %r11, {0, 0};"
_TYPES = ("e4m3", "e5m2", "e2m3", "e2m1", "s8")


def variants() -> Iterator[Variant]:
    """Every kind by vector, depth, types and scales; blocks of 16 scaled by ue8m0 are left out: assemblers differ."""
    for target in (*(name for name, _ in TARGETS), "sm_120a", "sm_121a"):
        there = exists_on(MmaScaled(), target)
        kinds, types = ("mxf8f6f4", "mxf4nvf4", "mxf4", "f16"), itertools.product(_TYPES, _TYPES)
        for kind, vector, k, (a, b), scale in itertools.product(kinds, (1, 2, 4), (32, 64), types, ("ue8m0", "ue4m3")):
            if (vector, scale) == (4, "ue8m0"):
                continue
            head = f"mma.sync.aligned.kind::{kind}.block_scale.scale_vec::{vector}X"
            text = f"{head}.m16n8k{k}.row.col.f32.{a}.{b}.f32.{scale}"
            said = (kind, vector, k, scale)
            legal = there and any(_offers(form, said, a, b) for form in FORMS)
            yield Variant(f"{text} {_REGISTERS}", target, legal, "" if legal or not there else _left_out(said, a, b))


def _offers(form: Form, said: tuple[str, int, int, str], a: str, b: str) -> bool:
    return said == (form.kind, form.vector, form.k, form.scale) and a in form.types and b in form.types


def _left_out(said: tuple[str, int, int, str], a: str, b: str) -> str:
    """Why a form that exists is no MmaScaled."""
    if said == ("mxf4", 2, 64, "ue8m0") and a == b == "e2m1":
        return "kind::mxf4nvf4 has the same form"
    if said == ("mxf8f6f4", 1, 32, "ue8m0") and "s8" not in (a, b):
        return "no machine has factors of 6 bits, or of 4 bits in bytes of their own, yet"
    return ""


def specimen(title: str, selector: str = "{0, 0}", byte: int = 0, guard: str = "") -> Specimen:
    """A warp multiplies fragments of e4m3 that it finds in GMEM lane by lane; scales are powers from 1/4 to 4.

    selector  byte and thread of the scales of a
    byte      of its register in which a lane has the scale that counts
    """
    form, kind = FORMS[0], dtype("e4m3")
    lines = ["ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%a];", "ld.global.v2.b32 {%r8, %r9}, [%b];"]
    lines += ["ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%c];"]
    for name, register in (("sa", "%r10"), ("sb", "%r11")):
        lines += [f"ld.global.b32 {register}, [%{name}];", f"add.u32 {register}, {register}, 0x7d7d7d7d;"]
    lines += [guard] if guard else []
    d, x, y = "{%r0, %r1, %r2, %r3}", "{%r4, %r5, %r6, %r7}", "{%r8, %r9}"
    text = MmaScaled().scaled(kind, kind, d, x, y, "%r10", "%r11", 0)
    lines += [text.replace("%r10, {0, 0}", f"%r10, {selector}")]
    lines += ["$together:"] if guard else []
    lines += ["st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};"]

    def meaning(a: Any, b: Any, c: Any, sa: Any, sb: Any) -> Any:
        da, db, dc = fragments(16, form.k, kind.bits)
        rows, columns = np.zeros((16, 1)), np.zeros((1, 8))
        for g in range(8):
            rows[g], rows[g + 8] = (2.0 ** (int(sa[4 * g + side, byte]) - 2) for side in (0, 1))
            columns[0, g] = 2.0 ** (int(sb[4 * g, 0]) - 2)
        x, y, old = (scatter(v.astype(np.float64), held) for v, held in ((a, da), (b, db), (c, dc)))
        return gather(old + (x * rows) @ (y * columns), dc)

    fields = (
        Field("a", "e4m3", 16), Field("b", "e4m3", 8), Field("c", "f32", 4), Field("sa", "u8", 4), Field("sb", "u8", 4),
        Field("out", "f32", 4, "out"),
    )  # fmt: skip
    return Specimen(title or form.kind, "\n".join(lines), fields, meaning, 120, (8, 8), specific=True)


def cards() -> Iterator[Card]:
    """The card of mma.sync with block scales."""
    instruction = MmaScaled()
    label, rule = instruction.label, instruction.target_rule()
    together = "types, blocks and scales go with each other as the table below says"
    forms = Guarantee(f"{label} forms", together, "assembler")
    lanes = Guarantee(f"{label} lanes", "lanes 4 g and 4 g + 1 have the scales of rows g and g + 8", "emulator")
    first = Guarantee(f"{label} selector", "the selector names the byte with the scale of the first block", "emulator")
    meet = Guarantee(f"{label} convergence", "all lanes of the warp execute it together", "emulator")
    good = specimen(f"{label}: e4m3")
    half = specimen(f"{label}: half a warp", guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $together;")
    twins = (
        Twin(rule.name, "assembler", good, replace(good, target=100), "block_scale"),
        Twin(forms.name, "assembler", good, good.respelled("ue8m0", "ue4m3"), "mma"),
        Twin(lanes.name, "emulator", good, specimen(f"{label}: lanes of other rows", "{0, 1}"), WRONG_VALUES),
        Twin(first.name, "emulator", good, specimen(f"{label}: another byte", "{1, 0}"), WRONG_VALUES),
        Twin(meet.name, "emulator", good, half, "must execute it together"),
    )
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (m x k)", "RMEM", "4 registers per lane", "see the table"),
            ("b (k x n)", "RMEM", "2 registers per lane", "the same kind"),
            ("c (m x n)", "RMEM", "4 registers per lane", "f32"),
            ("scales of a (m x blocks), of b (blocks x n)", "RMEM", "a register of four each", "see the table"),
        ),
        rules=(rule,),
        guarantees=(forms, lanes, first, meet),
        meaning="c += (a * np.repeat(sa, block, 1)) @ (b * np.repeat(sb, block, 0))",
        cost="2 m n k operations of the tensor cores per warp (`tensor_flops`)",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_pictures,
    )


def _pictures() -> tuple[tuple[str, str], ...]:
    """The table of forms, fragments of 4 bits (those of 8 are mma.sync's), and who gives which scale."""
    columns = ("kind", "a and b", "neighbours to a scale", "scales", "in elements of", "K", "scales of a row at once")
    listed = [(f"`{f.kind}`", ", ".join(f.types), f.block, f.scale, f.held, f.k, f.vector) for f in FORMS]
    a, b, _ = fragments(16, 64, 4)
    rows_of = f"a: {SCALES_A}  (lane, byte) -> row @0, block @1"
    given = "\n".join(("```text", rows_of, f"b: {SCALES_B}  (lane, byte) -> block @0, column @1", "```"))
    return (
        ("Forms; types on one line may be mixed", markdown_table(columns, listed)),
        ("a of m16n8k64 (e2m1): lane and value, row m by column k", picture(a)),
        ("b of m16n8k64 (e2m1): lane and value, row k by column n", picture(b)),
        ("Scales, with thread 0 in both selectors", given),
    )
