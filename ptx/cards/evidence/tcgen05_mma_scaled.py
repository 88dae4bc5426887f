"""Evidence for the rules of tcgen05.mma with block scales: spellings, kernels with one product, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.ptx.cards.evidence.tcgen05_cp import CHUNK, PROXY
from tinygpu.ptx.cards.evidence.tcgen05_cp import described as described_chunk
from tinygpu.ptx.cards.evidence.tcgen05_kernels import COMMIT, Frame, described, multiplied_and_read
from tinygpu.ptx.cards.evidence.tcgen05_mma import unpadded
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image
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
    swizzled_operand,
)
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.tcgen05_cp import Tcgen05Cp
from tinygpu.ptx.isa.tcgen05_mma_scaled import FORMS, Tcgen05MmaScaled

N = 32  # columns of the kernels
FIRST = 48  # where the scales of a begin, behind the sums; those of b are behind them


def variants() -> Iterator[Variant]:
    """Every kind with every block, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaScaled(), target)
        known = {(form.kind.name, form.block) for form in FORMS}
        known.add(("mxf4nvf4", 32))  # kind::mxf4 has the same form
        for kind, block, group in itertools.product(("mxf8f6f4", "mxf4", "mxf4nvf4", "f16"), (8, 16, 32), (0, 1)):
            text = (
                f"tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale.block{block} [%r0], %d0, %d1, 0x08840000, "
                "[%r1], [%r2], %p0;"
            )
            yield Variant(text, target, exists and (kind, block) in known and group == 1)


def specimen(
    title: str,
    kinds: tuple[str, str] = ("e4m3", "e4m3"),
    swizzle: int = 32,
    *,
    n: int = 0,
    scales: tuple[int, int] = (0, 4),
    first: int = 0,
    steps: tuple[int, int] = (K_BYTES, K_BYTES),
    copied: int = 2,
    code: int = 0,
    dense: bool = False,
) -> Specimen:
    """A warpgroup lays out two operands and chunks of scales, one thread has these copied and those multiplied.

    swizzle  bytes of a row of a and b; each 32 of them are an instruction's
    n        columns that are said
    scales   columns where those of a and b are said to be, behind the first
    first    which of four the first instruction is said to begin with
    steps    bytes from one instruction's a and b to the next one's along k
    copied   how many of the two chunks are
    code     of the type of scales, exchanged
    dense    elements narrower than a byte are meant as if they lay one behind the other
    """
    wide = dtype(kinds[0]), dtype(kinds[1])
    a, b = Image("a", kinds[0], 128, swizzle, 0), Image("b", kinds[1], N, swizzle, 128 * swizzle)
    at = a.size + b.size
    frame, d = Frame(at + 2 * CHUNK, 64, N), [f"%r{i}" for i in range(N)]
    lines = [*a.written(N + 2), *b.written(N + 2), "shl.b32 %r1, %t, 2;", "add.u32 %r1, %r1, %s;"]
    for number, name in enumerate(("sa", "sb")):  # powers of two from 2^-3 to 1
        lines += [f"ld.global.b32 %r0, [%{name}];", "and.b32 %r0, %r0, 0x03030303;", "or.b32 %r0, %r0, 0x7c7c7c7c;"]
        lines += [f"st.shared.b32 [%r1+{at + number * CHUNK}], %r0;"]
    lines += [PROXY, *frame.begin(), "@%p1 bra $issued;"]
    for number in range(copied):
        lines += described_chunk("%d0", N + 2, at + number * CHUNK)
        lines += [f"add.u32 %r{N + 4}, %r{N}, {FIRST + 4 * number};"]
        lines += [Tcgen05Cp().statement(f"[%r{N + 4}]", "%d0")]
    instruction, held = Tcgen05MmaScaled(n or N), (f"%r{N + 4}", f"%r{N + 5}")
    lines += [f"add.u32 {held[i]}, %r{N}, {FIRST + scales[i]};" for i in range(2)]
    lines += ["setp.ne.u32 %p3, 0, 0;"]
    for number in range(swizzle // K_BYTES):
        lines += [*described(a, "%d0", N + 2, 0, number * steps[0]), *described(b, "%d1", N + 2, 0, number * steps[1])]
        sums, (sx, sy), begins = f"%r{N}", held, first + number
        issued = instruction.issue_scaled(*wide, sums, "%d0", "%d1", (False, False), "%p3", sx, sy, begins)
        word = instruction.descriptor_word(*wide, (False, False), first + number)
        lines += [issued.replace(f"{word:#010x}", f"{word ^ code << 23:#010x}"), "setp.eq.u32 %p3, 0, 0;"]
    lines += multiplied_and_read(frame, f"%r{N + 2}", d, COMMIT)

    def numbers(codes: Any, rows: int) -> Any:
        """(rows, k) of a chunk: row r is in the bytes from 16 (r % 32) + 4 (r / 32) on."""
        four = np.asarray(codes).reshape(32, 4, 4).transpose(1, 0, 2).reshape(128, 4)[:rows, : swizzle // K_BYTES]
        return np.repeat(2.0 ** ((four & 3 | 0x7C) - 127.0), 32, axis=1)

    def meaning(x: Any, y: Any, sx: Any, sy: Any) -> Any:
        if dense:
            x, y = (unpadded(v, kind) if kind.bits < 8 else v for v, kind in ((x, wide[0]), (y, wide[1])))
        left, right = (image.matrix(v).astype(np.float64) for image, v in ((a, x), (b, y)))
        return (left * numbers(sx, 128)) @ (right * numbers(sy, N)).T

    fields = (a.field, b.field, Field("sa", "u8", 4), Field("sb", "u8", 4), Field("out", "f32", N, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 8), 128, frame.at + 16, (), 1024, 1, True)


def _table() -> tuple[tuple[str, str], ...]:
    rows = [
        (f"`kind::{form.kind.name}`", form.block, ", ".join(form.kind.codes), 256 // form.kind.bits, form.held)
        for form in FORMS
    ]
    title = "Kinds, of which operands of several have the first; beside 8-bit types, narrower ones are padded"
    return ((title, markdown_table(("kind", "a scale for", "a and b", "K", "scales held as"), rows)),)


def cards() -> Iterator[Card]:
    """The card of tcgen05.mma with block scales."""
    instruction, kind = Tcgen05MmaScaled(symbol("n")), dtype("e4m3")
    target, label = instruction.target_rule(), instruction.label
    (columns,) = instruction.type_rules(kind, kind)
    step_a, step_b = (
        rule for rule in instruction.operand_rules(swizzled_operand(kind, "a"), swizzled_operand(kind, "b", 0))
        if "step" in rule.name
    )  # fmt: skip
    (chunks,) = instruction.scale_rules(symbol("rows"), symbol("columns"))
    exists = Guarantee(f"{label} types", "operand types are those of a kind with scales of this block", "assembler")
    there = Guarantee(f"{label} scales", "the scales of a and b are in the columns that are named", "emulator")
    which = Guarantee(f"{label} first", "the descriptor names the first of four scales in a cell", "emulator")
    padding = Guarantee(
        f"{label} padding", "beside 8-bit elements, each 16 of 4 or 6 bits have 16 bytes, of which they fill the first",
        "emulator",
    )  # fmt: skip
    form = Guarantee(f"{label} form", "the descriptor names the type of the scales", "emulator")
    good, two = specimen("tcgen05.mma: 128 x 32 of mxfp8"), "tcgen05.mma: two blocks of mxfp8, {}"
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(columns.name, "emulator", good, specimen("tcgen05.mma: 264 columns of mxfp8", n=264), "N is 264"),
        Twin(
            step_a.name, "emulator", specimen(two.format("32 bytes apart"), swizzle=64),
            specimen(two.format("of a 16 bytes apart"), swizzle=64, steps=(16, 32)), WRONG_VALUES,
        ),
        Twin(
            step_b.name, "emulator", specimen(two.format("32 bytes apart"), swizzle=64),
            specimen(two.format("of b 16 bytes apart"), swizzle=64, steps=(32, 16)), WRONG_VALUES,
        ),
        Twin(
            chunks.name, "emulator", good, specimen("tcgen05.mma: columns of scales further", scales=(1, 4)),
            WRONG_VALUES,
        ),
        Twin(exists.name, "assembler", good, good.respelled("block32", "block16"), "block16"),
        Twin(there.name, "emulator", good, specimen("tcgen05.mma: no scales of b", copied=1), "never initialised"),
        Twin(which.name, "emulator", good, specimen("tcgen05.mma: the second of four scales", first=1), WRONG_VALUES),
        Twin(form.name, "emulator", good, specimen("tcgen05.mma: scales that are ue4m3", code=1), "scale"),
        Twin(
            padding.name, "emulator", specimen("tcgen05.mma: mx, e4m3 by e3m2", ("e4m3", "e3m2")),
            specimen("tcgen05.mma: mx, e3m2 one behind the other", ("e4m3", "e3m2"), dense=True), WRONG_VALUES,
        ),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (128 x k)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes; k is 32 bytes", "see the table"),
            ("b (k x n)", "SMEM", "the same", "of the same kind"),
            ("scales of a, of b", "TMEM", "row r of a chunk in lane r % 32 of every warp, column r / 32", "u8; e4m3"),
            ("c (128 x n)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32"),
        ),
        rules=(target, columns, step_a, step_b, chunks),
        guarantees=(exists, there, which, form, padding),
        meaning="c += (a * scales of a) @ (b * scales of b)",
        cost="2 m n k operations of the tensor cores (`tensor_flops`), and the operands' bytes from SMEM",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
