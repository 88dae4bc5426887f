"""Evidence for tcgen05.cp and tcgen05.mma with block scales by pairs of CTAs: kernels of a cluster of two, twins.

Rules of operands along k are those of the product of one CTA, and so is their evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language import TMEM
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_cp import CHUNK, PROXY, chunks
from tinygpu.ptx.cards.evidence.tcgen05_cp import described as described_chunk
from tinygpu.ptx.cards.evidence.tcgen05_kernels import (
    COMMIT_OF_PAIR,
    COMMIT_TO_ONE,
    PairFrame,
    described,
    multiplied_and_read,
)
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
)
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.tcgen05_cp import Tcgen05CpPair
from tinygpu.ptx.isa.tcgen05_mma import ROWS
from tinygpu.ptx.isa.tcgen05_mma_scaled import FORMS, Tcgen05MmaScaledPair

N = 32  # columns of the kernels, half of them in each CTA
FIRST = 32  # where the scales of a begin, behind the sums; those of b are four columns further


def copies() -> Iterator[Variant]:
    """The shape for pairs with each way of doubling it, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05CpPair(), target)
        for warps in ("", ".warpx2", ".warpx4"):
            text = f"tcgen05.cp.cta_group::2.32x128b{warps} [%r0], %d0;"
            yield Variant(text, target, exists and warps == ".warpx4")


def products() -> Iterator[Variant]:
    """Every kind with every block for pairs, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaScaledPair(), target)
        known = {(form.kind.name, form.block) for form in FORMS}
        known.add(("mxf4nvf4", 32))  # kind::mxf4 has the same form
        for kind, block in itertools.product(("mxf8f6f4", "mxf4", "mxf4nvf4", "f16"), (8, 16, 32)):
            text = (
                f"tcgen05.mma.cta_group::2.kind::{kind}.block_scale.block{block} [%r0], %d0, %d1, 0x10840000, [%r1], "
                "[%r2], %p0;"
            )
            yield Variant(text, target, exists and (kind, block) in known)


def specimen(
    title: str, *, said: int = 0, rows: int = 2 * ROWS, scales: tuple[int, int] = (0, 4), first: int = 0,
    copied: int = 2, commit: str = COMMIT_OF_PAIR, apart: int = 8, beside: bool = True,
) -> Specimen:  # fmt: skip
    """Two CTAs lay out operands and chunks of scales; a thread of the first has these copied and those multiplied.

    said    columns in the instruction descriptor, where it says others
    rows    there
    scales  columns where those of a and b are said to be, behind the first
    first   which of four the instruction is said to begin with
    copied  how many of the two chunks are
    apart   from eight rows of a chunk to the next, in 16 bytes
    beside  whether the second CTA has the scales of b as well
    """
    kind = dtype("e4m3")
    a, b = Image("a", "e4m3", ROWS, K_BYTES, 0), Image("b", "e4m3", N // 2, K_BYTES, ROWS * K_BYTES)
    at = a.size + b.size
    barrier = at + 2 * CHUNK
    frame = PairFrame(barrier, 64, N)
    d, base, free = [f"%r{i}" for i in range(N)], f"%r{N}", N + 2
    lines = [*a.written(free), *b.written(free), "shl.b32 %r1, %t, 2;", "add.u32 %r1, %r1, %s;"]
    # Scales of b are those of all columns: both CTAs have what the first one is given.
    lines += ["mov.u32 %r2, %cluster_ctarank;", f"mul.wide.u32 %d0, %r2, {CHUNK};", "sub.s64 %d1, %sb, %d0;"]
    lines += ["setp.eq.u32 %p4, %r2, 0;"]
    for number, place in enumerate(("%sa", "%d1")):  # powers of two from 2^-3 to 1
        lines += [f"ld.global.b32 %r0, [{place}];", "and.b32 %r0, %r0, 0x03030303;", "or.b32 %r0, %r0, 0x7c7c7c7c;"]
        guard = "" if beside or not number else "@%p4 "
        lines += [f"{guard}st.shared.b32 [%r1+{at + number * CHUNK}], %r0;"]
    lines += [PROXY, *frame.begin(), "mov.u16 %h1, 3;"]
    for number in range(copied):
        lines += described_chunk("%d0", free, at + number * CHUNK, apart)
        lines += [f"add.u32 %r{free + 2}, {base}, {FIRST + 4 * number};"]
        lines += [Tcgen05CpPair().statement(f"[%r{free + 2}]", "%d0")]
    instruction, held = Tcgen05MmaScaledPair(said or N), (f"%r{free + 2}", f"%r{free + 3}")
    lines += [f"add.u32 {held[i]}, {base}, {FIRST + scales[i]};" for i in range(2)]
    lines += [*described(a, "%d0", free), *described(b, "%d1", free), "setp.ne.u32 %p3, 0, 0;"]
    issued = instruction.issue_scaled(kind, kind, base, "%d0", "%d1", (False, False), "%p3", *held, first)
    word = instruction.descriptor_word(kind, kind, (False, False), first)
    other = word & ~(3 << 27) | rows >> 7 << 27
    lines += [issued.replace(f"{word:#010x}", f"{other:#010x}")]
    lines += multiplied_and_read(frame, f"%r{free}", d, commit)

    def numbers(codes: Any, count: int) -> Any:
        """The first scale of each row: row r is in the bytes from 16 (r % 32) + 4 (r / 32) on."""
        four = np.asarray(codes).reshape(32, 4, 4).transpose(1, 0, 2).reshape(128, 4)[:count, :1]
        return 2.0 ** ((four & 3 | 0x7C) - 127.0)

    def meaning(x: Any, y: Any, sx: Any, sy: Any) -> Any:
        halves = slice(0, ROWS), slice(ROWS, 2 * ROWS)
        left = [a.matrix(x[half]).astype(np.float64) * numbers(sx[half], ROWS) for half in halves]
        right = np.concatenate([b.matrix(y[half]).astype(np.float64) for half in halves])
        return np.concatenate(left) @ (right * numbers(sy[halves[0]], N)).T

    fields = (a.field, b.field, Field("sa", "u8", 4), Field("sb", "u8", 4), Field("out", "f32", N, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 8), ROWS, barrier + 16, (), 1024, 2, True)


def cards() -> Iterator[Card]:
    """The cards of tcgen05.cp and of tcgen05.mma with block scales, by pairs."""
    good = specimen("tcgen05.mma: 256 x 32 of mxfp8, scales copied in both CTAs")
    yield _of_copies(good)
    yield _of_products(good)


def _of_copies(good: Specimen) -> Card:
    instruction, kind = Tcgen05CpPair(), dtype("u8")
    source = chunks("u8", (symbol("along"), symbol("down"), expr(32), expr(16)))
    into = Tile("x", TMEM, kind, (expr(32), symbol("bytes")), (expr(0), expr(0)))
    target, label = instruction.target_rule(), instruction.label
    (columns,) = instruction.legality(source, into)
    exists = Guarantee(f"{label} shape", "32 rows are copied to the lanes of four warps", "assembler")
    layout = Guarantee(f"{label} layout", "rows follow one another in 16 bytes, without swizzle", "emulator")
    both = Guarantee(f"{label} both", "each CTA of the pair has its own chunk at the same place", "emulator")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            columns.name, "emulator", good, specimen("tcgen05.cp: one chunk of two, in a pair", copied=1),
            "never initialised",
        ),
        Twin(exists.name, "assembler", good, good.respelled("32x128b.warpx4", "32x128b"), "32x128b"),
        Twin(layout.name, "emulator", good, specimen("tcgen05.cp: 64 bytes of rows, pair", apart=4), WRONG_VALUES),
        Twin(
            both.name, "emulator", good, specimen("tcgen05.cp: a chunk in the first CTA alone", beside=False),
            "never initialised",
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (along x down x 32 x 16 bytes of each CTA)", "SMEM", "chunks, rows one behind the other", "8 bits"),
            ("x (32 x bytes of each CTA)", "TMEM", "row r in the lanes r, r + 32, r + 64 and r + 96", "the same"),
        ),
        rules=(target, columns),
        guarantees=(exists, layout, both),
        meaning="x = stage.transpose(2, 1, 0, 3).reshape(32, -1), in each CTA",
        cost="the bytes of the chunks from each CTA's SMEM",
        example=good,
        twins=twins,
        variants=copies,
    )


def _of_products(good: Specimen) -> Card:
    instruction, kind = Tcgen05MmaScaledPair(symbol("n")), dtype("e4m3")
    target, label = instruction.target_rule(), instruction.label
    (columns,) = instruction.type_rules(kind, kind)
    (whole,) = instruction.scale_rules(symbol("rows"), symbol("columns"))
    exists = Guarantee(f"{label} types", "operand types are those of a kind with scales of this block", "assembler")
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 256 rows: 128 of each CTA", "emulator")
    all_of_b = Guarantee(f"{label} scales", "each CTA has the scales of all columns of b", "emulator")
    which = Guarantee(f"{label} first", "the descriptor names the first of four scales in a cell", "emulator")
    both = Guarantee(f"{label} completion", "a commit arrives at a barrier of each CTA that waits", "emulator")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(columns.name, "emulator", good, specimen("tcgen05.mma: 40 columns of mxfp8, pair", said=40), "N is 40"),
        Twin(
            whole.name, "emulator", good, specimen("tcgen05.mma: columns of scales further, pair", scales=(1, 4)),
            WRONG_VALUES,
        ),
        Twin(exists.name, "assembler", good, good.respelled("block32", "block16"), "block16"),
        Twin(
            rows.name, "emulator", good, specimen("tcgen05.mma: 128 rows of mxfp8 in two CTAs", rows=128),
            "never initialised",
        ),
        Twin(
            all_of_b.name, "emulator", good, specimen("tcgen05.mma: scales of b in the first CTA", beside=False),
            "never initialised",
        ),
        Twin(which.name, "emulator", good, specimen("tcgen05.mma: the second of four, pair", first=1), WRONG_VALUES),
        Twin(
            both.name, "emulator", good, specimen("tcgen05.mma: one CTA is told of mxfp8", commit=COMMIT_TO_ONE),
            "wait",
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (128 x k of each CTA)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "as of one CTA"),
            ("b (k x n / 2 of each)", "SMEM", "the same; the first CTA has the left columns", "as a"),
            ("scales of a, 128 rows of each CTA", "TMEM", "row r of a chunk in lane r % 32, column r / 32", "u8; e4m3"),
            ("scales of b, n columns in each CTA", "TMEM", "the same", "u8; e4m3"),
            ("c (128 x n of each)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32"),
        ),
        rules=(target, columns, whole),
        guarantees=(exists, rows, all_of_b, which, both),
        meaning="c += (a * scales of a) @ (concatenate(b of both CTAs) * scales of b)",
        cost="2 m n k operations of the tensor cores of each CTA's SM, and the operands' bytes from its SMEM",
        example=good,
        twins=twins,
        variants=products,
    )
