"""Evidence for tcgen05.cp of rows and tcgen05.mma of them by pairs of CTAs: kernels of a cluster of two, twins.

Rules of b contiguous along n are those of the product of one CTA, and so is their evidence.
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
from tinygpu.ptx.cards.evidence.tcgen05_kernels import (
    COMMIT_OF_PAIR,
    COMMIT_TO_ONE,
    PairFrame,
    described,
    multiplied_and_read,
)
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image, right_factor, right_operand
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    swizzled_operand,
)
from tinygpu.ptx.cards.specimen import ROWS as SOME_ROWS
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.tcgen05_cp import SHAPES, Tcgen05CpRowsPair
from tinygpu.ptx.isa.tcgen05_mma import KINDS, ROWS
from tinygpu.ptx.isa.tcgen05_mma_cells import Tcgen05MmaCellsPair

SWIZZLE = 64  # bytes of a row: two instructions
WORDS = K_BYTES // 4
NEVER_SET = "never initialised"


def copies() -> Iterator[Variant]:
    """The shapes for pairs among others that do not exist, for every target."""
    known = [shape.name for shape in SHAPES]
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05CpRowsPair(), target)
        for shape in (*known, "64x128b", "128x256b.warpx2", "256x256b"):
            yield Variant(f"tcgen05.cp.cta_group::2.{shape} [%r0], %d0;", target, exists and shape in known)


def products() -> Iterator[Variant]:
    """Every kind for pairs, with a as an address and otherwise, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaCellsPair(), target)
        kinds = [k.name for k in KINDS]
        for kind, form, a in itertools.product((*kinds, "f32"), ("", ".ws"), ("[%r1]", "%r1")):
            text = f"tcgen05.mma{form}.cta_group::2.kind::{kind} [%r0], {a}, %d1, 0x10040010, %p0;"
            yield Variant(text, target, exists and kind in kinds and (form, a) == ("", "[%r1]"))


def specimen(
    title: str, n: int = 32, kind: str = "f16", *, said: int = 0, rows: int = 2 * ROWS, copied: int = 2,
    bytes_apart: tuple[int, int] = (K_BYTES, K_BYTES), columns_apart: int = WORDS, code: int = 0, lane: int = 0,
    commit: str = COMMIT_OF_PAIR, beside: bool = True,
) -> Specimen:  # fmt: skip
    """Two CTAs lay out rows of a and half of b's columns each; one thread has a copied and multiplied for both.

    said           columns in the instruction descriptor, where it says others
    rows           there
    copied         how many pieces of a's rows are
    bytes_apart    from one piece of a, and from one instruction's b, to the next along k
    columns_apart  from one instruction's a to the next
    code           of the swizzle in the descriptors of the copies, where it is another
    lane           at which a is said to begin
    beside         whether the second CTA lays out rows of a as well
    """
    wide, instruction = dtype(kind), Tcgen05MmaCellsPair(said or n)
    a, b = Image("a", kind, ROWS, SWIZZLE, 0), right_operand(kind, n // 2, SWIZZLE, ROWS * SWIZZLE, False, 0)
    barrier, left = a.size + b.size, 1 << (n - 1).bit_length()
    frame = PairFrame(barrier, 2 * left, n)
    d, base, free = [f"%r{i}" for i in range(n)], f"%r{n}", n + 2
    lines = ["mov.u32 %r0, %cluster_ctarank;", "setp.ne.u32 %p4, %r0, 0;", "@%p4 bra $bare;"] if not beside else []
    lines += [*a.written(free), *([] if beside else ["$bare:"]), *b.written(free), "fence.proxy.async.shared::cta;"]
    lines += [*frame.begin(), "mov.u16 %h1, 3;"]
    for number in range(copied):
        lines += described(a, "%d0", free, code, number * bytes_apart[0])
        lines += [f"add.u32 %r{free}, {base}, {left + number * WORDS};"]
        lines += [Tcgen05CpRowsPair().statement(f"[%r{free}]", "%d0")]
    lines.append("setp.ne.u32 %p3, 0, 0;")
    word = instruction.instruction_descriptor(wide, wide, (False, False))
    other = word & ~(0x1F << 24) | rows >> 4 << 24
    for number in range(SWIZZLE // K_BYTES):
        lines += described(b, "%d1", free, 0, number * bytes_apart[1])
        at = f"[{base}+{(lane << 16) + left + number * columns_apart}]"
        issued = instruction.issue(wide, wide, base, at, "%d1", (False, False), "%p3")
        lines += [issued.replace(f"{word:#010x}", f"{other:#010x}"), "setp.eq.u32 %p3, 0, 0;"]
    lines += multiplied_and_read(frame, f"%r{free}", d, commit)

    def meaning(x: Any, y: Any) -> Any:
        left, right = (np.split(np.asarray(half), 2) for half in (x, y))
        columns = np.concatenate([right_factor(b, half, n // 2, False, 0) for half in right], axis=1)
        return np.concatenate([a.matrix(half).astype(np.float64) @ columns for half in left])

    fields = (a.field, b.field, Field("out", instruction.accumulator(wide, wide).name, n, "out"))
    return Specimen(title, "\n".join(lines), fields, meaning, 100, (8, 6), ROWS, barrier + 16, (), 1024, 2, True)


def cards() -> Iterator[Card]:
    """The cards of tcgen05.cp of rows and of tcgen05.mma of what was copied, by pairs."""
    good = specimen("tcgen05.cp and tcgen05.mma: 256 rows of 64 bytes by 32 columns")
    yield _of_copies(good)
    yield _of_products(good)


def _of_copies(good: Specimen) -> Card:
    instruction, kind = Tcgen05CpRowsPair(), dtype("f16")
    source, cells = swizzled_operand(kind), Tile("x", TMEM, kind, (SOME_ROWS, COLUMNS), (expr(0), expr(0)))
    target, label = instruction.target_rule(), instruction.label
    rows, columns = instruction.legality(source, cells)
    exists = Guarantee(f"{label} shape", "an instruction copies 32 bytes of 128 rows in each CTA", "assembler")
    layout = Guarantee(f"{label} layout", "the descriptor names the swizzle under which the rows lie", "emulator")
    both = Guarantee(f"{label} both", "each CTA of the pair has its own rows at the same place", "emulator")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            rows.name, "emulator", good, specimen("tcgen05.cp: one piece of two, in a pair", copied=1), NEVER_SET,
        ),
        Twin(
            columns.name, "emulator", good,
            specimen("tcgen05.cp: pieces 16 bytes apart, in a pair", bytes_apart=(16, K_BYTES)), WRONG_VALUES,
        ),
        Twin(exists.name, "assembler", good, good.respelled("128x256b", "128x512b"), "128x512b"),
        Twin(layout.name, "emulator", good, specimen("tcgen05.cp: as if of 32 bytes, pair", code=6), WRONG_VALUES),
        Twin(
            both.name, "emulator", good, specimen("tcgen05.cp: rows in the first CTA alone", beside=False), NEVER_SET,
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (128 x columns of each CTA)", "SMEM", "as of one CTA, whose shapes it has", "any, not padded"),
            ("x (128 x columns of each CTA)", "TMEM", "row r in lane r, its bytes along the columns", "the same"),
        ),
        rules=(target, rows, columns),
        guarantees=(exists, layout, both),
        meaning="x = stage, in each CTA",
        cost="the bytes of the rows from each CTA's SMEM; an instruction for each 32 or 16 bytes of a row",
        example=good,
        twins=twins,
        variants=copies,
    )


def _of_products(good: Specimen) -> Card:
    instruction, f16, s8 = Tcgen05MmaCellsPair(symbol("n")), dtype("f16"), dtype("s8")
    target, label = instruction.target_rule(), instruction.label
    (floats,), (_, integers) = (instruction.type_rules(kind, kind) for kind in (f16, s8))
    cells = Tile("a", TMEM, f16, (SOME_ROWS, COLUMNS), (expr(0), expr(0)))
    operands = instruction.operand_rules(cells, swizzled_operand(f16, "b"))
    step_a, step_b = (rule for rule in operands if " step of " in rule.name)
    exists = Guarantee(f"{label} types", "operand types are one of tcgen05.mma's pairs", "assembler")
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 256 rows: 128 of each CTA", "emulator")
    lanes = Guarantee(f"{label} lanes", "a begins at lane 0 as the accumulator does, row r in lane r", "emulator")
    both = Guarantee(f"{label} completion", "a commit arrives at a barrier of each CTA that waits", "emulator")
    integer = specimen("tcgen05.mma: 256 x 64 of s8 in tensor memory", 64, "s8")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(floats.name, "emulator", good, specimen("tcgen05.mma: 40 columns, a in cells, pair", said=40), "N is 40"),
        Twin(
            integers.name, "emulator", integer,
            specimen("tcgen05.mma: 48 columns, s8 in cells", 64, "s8", said=48), "N is 48",
        ),
        Twin(
            step_a.name, "emulator", good, specimen("tcgen05.mma: a 4 columns apart, pair", columns_apart=4),
            WRONG_VALUES,
        ),
        Twin(
            step_b.name, "emulator", good,
            specimen("tcgen05.mma: b 16 bytes apart, a in cells, pair", bytes_apart=(K_BYTES, 16)), WRONG_VALUES,
        ),
        Twin(exists.name, "assembler", good, good.respelled("kind::f16", "kind::f32"), "kind::f32"),
        Twin(rows.name, "emulator", good, specimen("tcgen05.mma: 128 rows in cells of two CTAs", rows=128), NEVER_SET),
        Twin(lanes.name, "emulator", good, specimen("tcgen05.mma: a from lane 32 on, pair", lane=32), "lane 32"),
        Twin(
            both.name, "emulator", good, specimen("tcgen05.mma: one CTA is told, a in cells", commit=COMMIT_TO_ONE),
            "wait",
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (128 x k of each CTA)", "TMEM", "row r in lane r, k along 8 columns", "as tcgen05.mma"),
            ("b (k x n / 2 of each)", "SMEM", "rows cut to a swizzle; the first CTA has the left columns", "the same"),
            ("c (128 x n of each)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32 or s32"),
        ),
        rules=(target, floats, integers, step_a, step_b),
        guarantees=(exists, rows, lanes, both),
        meaning="c += a.astype(accumulator) @ concatenate(b of both CTAs).astype(accumulator)",
        cost="2 m n k operations of the tensor cores of each CTA's SM, and the bytes of b from its SMEM",
        example=good,
        twins=twins,
        variants=products,
    )
