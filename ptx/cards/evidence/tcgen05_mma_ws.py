"""Evidence for the rules of tcgen05.mma.ws: spellings that were tried, kernels around one product, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.evidence import tcgen05_mma
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    Card,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    markdown_table,
)
from tinygpu.ptx.isa.tcgen05_mma import KINDS
from tinygpu.ptx.isa.tcgen05_mma_ws import COLUMNS, ROWS, Tcgen05MmaWs

N = 64
_MASK = "columns of b may be said to be zero, and nobody judges what such a mask means"


def variants() -> Iterator[Variant]:
    """Every kind, by one CTA and by pairs, with and without a mask of zero columns and scales, for every target."""
    kinds = [k.name for k in KINDS]
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaWs(), target)
        for kind, group, more in itertools.product((*kinds, "mxf8f6f4", "f32"), (1, 2), ("", ", %d2", ", %r3")):
            text = f"tcgen05.mma.ws.cta_group::{group}.kind::{kind} [%r0], %d0, %d1, 0x02100010, %p0{more};"
            there = exists and kind in kinds and group == 1
            yield Variant(text, target, there and not more, _MASK if there and more == ", %d2" else "")


def _made(title: str, m: int = 32, n: int = N, kind: str = "f16", said: int = 0) -> Specimen:
    return tcgen05_mma.specimen(title, n, (kind, kind), of=partial(Tcgen05MmaWs, m=m), said=said)


def _pictures() -> tuple[tuple[str, str], ...]:
    rows = [(f"`kind::{k.name}`", ", ".join(k.codes), k.accumulator, ", ".join(map(str, COLUMNS))) for k in KINDS]
    found = [("Kinds", markdown_table(("kind", "a and b", "accumulator", "columns N"), rows))]
    for m in ROWS:
        path = Tcgen05MmaWs(N, m).path(N)
        drawn = path.project({"lane": 0, "column": 1})
        shown = Layout.of(drawn[0].steps, drawn[1].steps)
        picture = holder_picture(shown, (128, shown.along(1).cosize), (128, 4))
        said = f"Element (row, column) of {N} columns lies where `{path}` says; a cell shows T*row*:V*column*."
        found.append((f"Data path of {m} rows", f"{said}\n\n```text\n{picture}\n```"))
    return tuple(found)


def cards() -> Iterator[Card]:
    """The card of tcgen05.mma.ws."""
    instruction, label = Tcgen05MmaWs(symbol("n")), Tcgen05MmaWs().label
    f16 = dtype("f16")
    target = instruction.target_rule()
    (columns,) = instruction.type_rules(f16, f16)
    form = Guarantee(f"{label} form", "32 rows are those of .ws alone", "emulator")
    rows = Guarantee(f"{label} rows", "the instruction descriptor says 32, 64 or 128 rows", "emulator")
    parts = Guarantee(
        f"{label} parts", "columns are in as many parts as the rows go into the lanes, one below the other", "emulator"
    )
    scales = Guarantee(f"{label} scales", "there are no block scales", "assembler")
    good, half = _made("tcgen05.mma.ws: 32 x 64 of f16"), _made("tcgen05.mma.ws: 64 x 64 of f16", 64)
    word = f"{Tcgen05MmaWs(N).instruction_descriptor(f16, f16, (False, False)):#010x}"
    many = f"{int(word, 16) & ~(0x1F << 24) | 6 << 24:#010x}"
    other = f"{Tcgen05MmaWs(N, 64).instruction_descriptor(f16, f16, (False, False)):#010x}"
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(columns.name, "emulator", good, _made("tcgen05.mma.ws: 96 columns", said=96), "N is 96"),
        Twin(
            form.name, "emulator", good,
            replace(good.respelled("tcgen05.mma.ws", "tcgen05.mma"), title="tcgen05.mma: 32 rows"), "M is 32",
        ),
        Twin(rows.name, "emulator", good, replace(good.respelled(word, many), title="tcgen05.mma.ws: 96"), "M is 96"),
        Twin(
            parts.name, "emulator", half,
            replace(half.respelled("mma.ws", "mma"), title="tcgen05.mma: 64 rows, in half of the lanes"),
            "never initialised",
        ),
        Twin(
            parts.name, "emulator", _made("tcgen05.mma.ws: 128 x 64 of f16", 128),
            replace(
                _made("tcgen05.mma.ws: 128 x 64 of f16", 128).respelled(
                    f"{Tcgen05MmaWs(N, 128).instruction_descriptor(f16, f16, (False, False)):#010x}", other
                ), title="tcgen05.mma.ws: 64 rows as if 128",
            ), "never initialised",
        ),
        Twin(scales.name, "assembler", good, good.respelled("kind::f16", "kind::mxf8f6f4"), "mxf8f6f4"),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (32, 64 or 128 x k)", "SMEM", "as tcgen05.mma", "as tcgen05.mma"),
            ("b (k x n)", "SMEM", "the same", "as tcgen05.mma"),
            ("c (as many rows x n)", "TMEM", "parts of the columns, below each other, fill all lanes", "f32 or s32"),
        ),
        rules=(target, columns),
        guarantees=(form, rows, parts, scales),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores, as if of 128 rows: no source says that it is faster",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_pictures,
    )
