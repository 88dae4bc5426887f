"""Evidence for the rules of tcgen05.mma of 64 rows in each CTA: what differs from the products of 128 rows.

Rules of operands in shared memory are those of 128 rows, and so is their evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.evidence import tcgen05_mma, tcgen05_mma_pair
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    Card,
    Guarantee,
    Twin,
    Variant,
    exists_on,
    markdown_table,
    swizzled_operand,
)
from tinygpu.ptx.isa.shared_operands import MOST_COLUMNS
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_mma import KINDS, Tcgen05Mma
from tinygpu.ptx.isa.tcgen05_mma_64 import Tcgen05Mma64, Tcgen05MmaPair64

ONE, PAIR = Tcgen05Mma64(), Tcgen05MmaPair64()
SPLIT = Tcgen05Ld("16x32bx2")


def _variants(instruction: Tcgen05Mma, word: str) -> Iterator[Variant]:
    """Every kind, for every target: how many rows there are is said in a descriptor, which no assembler reads."""
    for target, _ in TARGETS:
        exists, kinds = exists_on(instruction, target), [k.name for k in KINDS]
        for kind, d in itertools.product((*kinds, "f32"), ("[%r0]", "%r0")):
            text = f"tcgen05.mma.cta_group::{instruction.ctas}.kind::{kind} {d}, %d0, %d1, {word}, %p0;"
            yield Variant(text, target, exists and kind in kinds and d == "[%r0]")


def _tables(instruction: Tcgen05Mma) -> tuple[tuple[str, str], ...]:
    rows = []
    for kind in KINDS:
        step, also = instruction.step(kind), instruction.also(kind)
        columns = f"{step} to {MOST_COLUMNS}, in steps of {step}" + "".join(f", or {few}" for few in also)
        rows.append((f"`kind::{kind.name}`", ", ".join(kind.codes), kind.accumulator, columns))
    kinds = markdown_table(("kind", "a and b", "accumulator", "columns N"), rows)
    path = instruction.path(64)
    drawn = path.project({"lane": 0, "column": 1})
    shown = Layout.of(drawn[0].steps, drawn[1].steps)
    picture = holder_picture(shown, (128, shown.along(1).cosize), (128, 4))
    said = f"Element (row, column) of 64 columns lies where `{path}` says; a cell shows T*row*:V*column*."
    return ("Kinds", kinds), ("Data path", f"{said}\n\n```text\n{picture}\n```")


def _one() -> Card:
    made = partial(tcgen05_mma.specimen, of=Tcgen05Mma64, ld=SPLIT)
    instruction, label = Tcgen05Mma64(symbol("n")), ONE.label
    target = instruction.target_rule()
    (floats,), (_, integers) = (instruction.type_rules(*(dtype(kind),) * 2) for kind in ("f16", "s8"))
    bytes_along_n = swizzled_operand(dtype("e4m3"), "b")
    along_n = next(rule for rule in instruction.rules_of("b", bytes_along_n, 0) if rule.name.endswith("along n"))
    lanes = Guarantee(f"{label} lanes", "the accumulator begins at lane 0 or 16, and 16 rows follow there", "emulator")
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 64 rows", "emulator")
    good = made("tcgen05.mma: 64 x 32 of f16", n=32)
    integer = made("tcgen05.mma: 64 x 32 of s8", n=32, kinds=("s8", "s8"))
    elsewhere = good.respelled("kind::f16 [%r32]", "kind::f16 [%r32+524288]")
    word = Tcgen05Mma64(32).instruction_descriptor(dtype("f16"), dtype("f16"), (False, False))
    many = good.respelled(f"{word:#010x}", f"{word & ~(0x1F << 24) | 6 << 24:#010x}")
    narrow = made("tcgen05.mma: 64 x 32 of e4m3", n=32, kinds=("e4m3", "e4m3"))
    wide = dtype("e4m3")
    plain = Tcgen05Mma64(32).instruction_descriptor(wide, wide, (False, False))
    across = Tcgen05Mma64(40).instruction_descriptor(wide, wide, (False, True))
    turned = narrow.respelled(f"{plain:#010x}", f"{across:#010x}")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(floats.name, "emulator", good, made("tcgen05.mma: 264 columns", n=32, said=264), "N is 264"),
        Twin(
            integers.name, "emulator", integer, made("tcgen05.mma: 40 of s8", n=32, kinds=("s8", "s8"), said=40),
            "N is 40",
        ),
        Twin(along_n.name, "emulator", narrow, turned, "an N-major B of 8-bit elements takes N = 16"),
        Twin(lanes.name, "emulator", good, elsewhere, "at lane 8"),
        Twin(rows.name, "emulator", good, many, "M is 96"),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (64 x k)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes; k is 32 bytes", "see the table"),
            ("b (k x n)", "SMEM", "the same", "of the same kind; of kind::f16 the same type"),
            ("c (64 x n)", "TMEM", "row r in lane 32 (r / 16) + r % 16", "f32 or s32"),
        ),
        rules=(target, floats, integers, along_n),
        guarantees=(lanes, rows),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="twice 2 m n k operations of the tensor cores, since half of the lanes are idle, and the operands' bytes",
        example=good,
        twins=twins,
        variants=lambda: _variants(ONE, "0x04080010"),
        pictures=lambda: _tables(ONE),
    )


def _pair() -> Card:
    made = partial(tcgen05_mma_pair.specimen, of=Tcgen05MmaPair64)
    instruction, label = Tcgen05MmaPair64(symbol("n")), PAIR.label
    target = instruction.target_rule()
    (floats,), (_, integers) = (instruction.type_rules(*(dtype(kind),) * 2) for kind in ("f16", "s8"))
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 128 rows: 64 of each CTA", "emulator")
    below = Guarantee(f"{label} halves", "the right half of the columns is read in lanes 64 to 127", "emulator")
    good, integer = made("tcgen05.mma: 128 x 32 of f16", n=32), made("tcgen05.mma: 128 x 64 of s8", n=64, kind="s8")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(floats.name, "emulator", good, made("tcgen05.mma: 40 columns", n=32, said=40), "N is 40"),
        Twin(integers.name, "emulator", integer, made("tcgen05.mma: 48 of s8", n=64, kind="s8", said=48), "N is 48"),
        Twin(
            rows.name, "emulator", good, made("tcgen05.mma: 256 rows in two CTAs", n=32, rows=256), "is out of bounds",
        ),
        Twin(
            below.name, "emulator", good, replace(good.respelled("[%r33+0]", "[%r33+16]"), title="tcgen05.ld: beside"),
            "never initialised",
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (64 x k of each CTA)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "see the table"),
            ("b (k x n / 2 of each)", "SMEM", "the same; the first CTA has the left columns", "as a"),
            ("c (64 x n of each)", "TMEM", "row r in lane r, its right half in lane r + 64", "f32 or s32"),
        ),
        rules=(target, floats, integers),
        guarantees=(rows, below),
        meaning="c += a.astype(accumulator) @ concatenate(b of both CTAs).astype(accumulator)",
        cost="2 m n k operations of the tensor cores of each CTA's SM, and the operands' bytes from its SMEM",
        example=good,
        twins=twins,
        variants=lambda: _variants(PAIR, "0x08080010"),
        pictures=lambda: _tables(PAIR),
    )


def cards() -> Iterator[Card]:
    """The cards of tcgen05.mma of 64 rows, by one CTA and by pairs."""
    yield _one()
    yield _pair()
