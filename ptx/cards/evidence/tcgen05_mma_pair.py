"""Evidence for the rules of tcgen05.mma by pairs of CTAs: kernels of a cluster of two around one product, twins.

Rules of operands that are contiguous along m or n are those of the product of one CTA, and so is their evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.language.data_paths import columns_taken
from tinygpu.ptx.cards.evidence.tcgen05_kernels import (
    COMMIT_OF_PAIR,
    COMMIT_TO_ONE,
    PairFrame,
    described,
    held_of,
    multiplied_and_read,
)
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image as SharedImage
from tinygpu.ptx.cards.evidence.wgmma_kernels import right_factor, right_operand
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
from tinygpu.ptx.isa.shared_operands import K_BYTES, MOST_COLUMNS
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_mma import KINDS, Tcgen05MmaPair

NEVER_SET = "a value that was never initialised"


def variants() -> Iterator[Variant]:
    """Every kind for pairs, and as if a pair issued what one CTA alone has, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaPair(), target)
        kinds = [k.name for k in KINDS]
        for kind, form in itertools.product((*kinds, "f32"), ("", ".ws", ".sp")):
            text = f"tcgen05.mma{form}.cta_group::2.kind::{kind} [%r0], %d0, %d1, 0x10040010, %p0;"
            yield Variant(text, target, exists and kind in kinds and not form)


def specimen(
    title: str, n: int = 32, kind: str = "f16", swizzle: int = 32, *, steps: tuple[int, int] = (K_BYTES, K_BYTES),
    said: int = 0, rows: int = 0, commit: str = COMMIT_OF_PAIR, of: type[Tcgen05MmaPair] = Tcgen05MmaPair,
) -> Specimen:
    """Two CTAs lay out their rows of a and half of b's columns each; one thread has them multiplied for both.

    swizzle  bytes of a row; each 32 bytes are an instruction's
    steps    bytes from one instruction's a and b to the next one's along k
    said     columns in the instruction descriptor, where it says others
    rows     there
    of       the instruction that multiplies
    """
    wide = dtype(kind)
    a = SharedImage("a", kind, of.rows, swizzle, 0)
    b = right_operand(kind, n // 2, swizzle, a.size, False, 0)
    barrier, columns = a.size + b.size, max(32, 1 << (n - 1).bit_length())
    frame = PairFrame(barrier, columns, n)
    ld, path = Tcgen05Ld(), of(n).path(n)
    each = int(columns_taken(path))
    d, base, free = [f"%r{i}" for i in range(each)], f"%r{n}", n + 2
    instruction = of(said or n)
    issued = instruction.issue(wide, wide, base, "%d0", "%d1", (False, False), "%p3")
    word = f"{instruction.instruction_descriptor(wide, wide, (False, False)):#010x}"
    other = f"{int(word, 16) & ~(0x1F << 24) | (rows or 2 * of.rows) >> 4 << 24:#010x}"
    products: list[str] = []
    for number in range(swizzle // K_BYTES):
        products += described(a, "%d0", free, 0, number * steps[0])
        products += described(b, "%d1", free, 0, number * steps[1])
        products += [issued.replace(word, other), "setp.eq.u32 %p3, 0, 0;"]
    lines = [
        *a.written(free), *b.written(free), "fence.proxy.async.shared::cta;",
        *frame.begin(), "setp.ne.u32 %p3, 0, 0;", "mov.u16 %h1, 3;",
        *products, *multiplied_and_read(frame, f"%r{free}", d, commit, n),
    ]  # fmt: skip

    def meaning(x: Any, y: Any) -> Any:
        left, right = (np.split(np.asarray(half), 2) for half in (x, y))
        columns = np.concatenate([right_factor(b, half, n // 2, False, 0) for half in right], axis=1)
        return np.concatenate([held_of(ld, a.matrix(half).astype(np.float64) @ columns, path) for half in left])

    fields = (a.field, b.field, Field("out", instruction.accumulator(wide, wide).name, each, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, barrier + 16, (), 1024, 2, True)


def _table() -> tuple[tuple[str, str], ...]:
    rows = []
    for kind in KINDS:
        step = Tcgen05MmaPair().step(kind)
        columns = f"{step} to {MOST_COLUMNS}, in steps of {step}"
        rows.append((f"`kind::{kind.name}`", ", ".join(kind.codes), kind.accumulator, 256 // kind.bits, columns))
    return (("Kinds", markdown_table(("kind", "a and b", "accumulator", "K", "columns N"), rows)),)


def cards() -> Iterator[Card]:
    """The card of tcgen05.mma by pairs."""
    instruction = Tcgen05MmaPair(symbol("n"))
    f16, s8 = dtype("f16"), dtype("s8")
    target = instruction.target_rule()
    (floats,), (_, integers) = (instruction.type_rules(kind, kind) for kind in (f16, s8))
    operands = instruction.operand_rules(swizzled_operand(f16, "a"), swizzled_operand(f16, "b"))
    step_a, step_b = (rule for rule in operands if " step of " in rule.name)
    label = instruction.label
    exists = Guarantee(f"{label} types", "operand types are one of the table's pairs", "assembler")
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 256 rows: 128 of each CTA", "emulator")
    alike = "tcgen05 instructions of a kernel are all of one CTA, or all of two"
    group = Guarantee(f"{label} group", alike, "assembler")
    both = Guarantee(f"{label} completion", "a commit arrives at a barrier of each CTA that waits", "emulator")
    good, integer = specimen("tcgen05.mma: 256 x 32 of f16"), specimen("tcgen05.mma: 256 x 64 of s8", 64, "s8")
    two = "tcgen05.mma by a pair: two instructions along k, {} bytes apart"
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(floats.name, "emulator", good, specimen("tcgen05.mma: 40 columns", said=40), "N is 40"),
        Twin(integers.name, "emulator", integer, specimen("tcgen05.mma: 48 of s8", 64, "s8", said=48), "N is 48"),
        Twin(
            step_a.name, "emulator", specimen(two.format(32), swizzle=64),
            specimen(two.format("of a 16"), swizzle=64, steps=(16, 32)), WRONG_VALUES,
        ),
        Twin(
            step_b.name, "emulator", specimen(two.format(32), swizzle=64),
            specimen(two.format("of b 16"), swizzle=64, steps=(32, 16)), WRONG_VALUES,
        ),
        Twin(exists.name, "assembler", good, good.respelled("kind::f16", "kind::f32"), "kind::f32"),
        Twin(rows.name, "emulator", good, specimen("tcgen05.mma: 128 rows in two CTAs", rows=128), NEVER_SET),
        Twin(
            group.name, "assembler", good, good.respelled("tcgen05.commit.cta_group::2", "tcgen05.commit.cta_group::1"),
            "CTA pair granularity",
        ),
        Twin(both.name, "emulator", good, specimen("tcgen05.mma: one CTA is told", commit=COMMIT_TO_ONE), "wait"),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (128 x k of each CTA)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "see the table"),
            ("b (k x n / 2 of each)", "SMEM", "the same; the first CTA has the left columns", "as a"),
            ("c (128 x n of each)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32 or s32"),
        ),
        rules=(target, floats, integers, step_a, step_b),
        guarantees=(exists, rows, group, both),
        meaning="c += a.astype(accumulator) @ concatenate(b of both CTAs).astype(accumulator)",
        cost="2 m n k operations of the tensor cores of each CTA's SM, and the operands' bytes from its SMEM",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
