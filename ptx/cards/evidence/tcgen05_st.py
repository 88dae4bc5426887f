"""Evidence for the rules of tcgen05.st: the spellings that were tried, kernels around one store, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, blocked
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_ld import NAMES, halves_of_cells, shaped, table_of
from tinygpu.ptx.cards.evidence.tcgen05_ld import specimen as stored_and_loaded
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
    TARGETS,
    WRONG_VALUES,
    Card,
    Guarantee,
    Twin,
    Variant,
    exists_on,
)
from tinygpu.ptx.isa.tcgen05_st import Tcgen05St


def variants() -> Iterator[Variant]:
    """Every shape, repetition and number of registers near it, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05St(), target)
        counts = (1, 2, 3, 4, 8, 16, 32, 64, 128)
        for name, packed, count, more in itertools.product(NAMES, (False, True), counts, (-1, 0, 1)):
            st, form = Tcgen05St(name, packed), ".unpack::16b" if packed else ""
            each = st.access(1)[1].size // st.per_register
            registers = ", ".join(f"%r{i}" for i in range(1, 1 + count * each + more))
            middle = ", 8" if st.windows > 1 else ""
            text = f"tcgen05.st.sync.aligned.{name}.x{count}{form}.b32 [%r0]{middle}, {{{registers}}};"
            yield Variant(text, target, exists and not more and count in st.counts)


def _table() -> tuple[tuple[str, str], ...]:
    return table_of(Tcgen05St)


def cards() -> Iterator[Card]:
    """The card of tcgen05.st."""
    instruction, kind = Tcgen05St(), dtype("f16")
    tile = Tile("x", TMEM, kind, (ROWS, COLUMNS), (expr(0), expr(0)))
    held = blocked((128, COLUMNS), threads=128, vector=2, across=1)
    target, label = instruction.target_rule(), instruction.label
    lanes, cells = instruction.legality(tile, held)
    pairs = Tcgen05St(packed=True).cells_rule(halves_of_cells())
    apart = shaped("tcgen05.st: halves to cells of their own", "16x64b", "32x32b", packed=True)
    waits = Guarantee(f"{label} completion", "tcgen05.wait::st stands before the columns are read", "emulator")
    exists = Guarantee(f"{label} repetitions", "there are as many registers as the repetition says", "assembler")
    shape = Guarantee(f"{label} shape", "the registers are the cells that the shape says", "emulator")
    wide = shaped("tcgen05.st: eight columns from fragments", "16x256b", "32x32b")
    beside = replace(wide.respelled("16x256b.x1", "16x128b.x2"), title="tcgen05.st: as if of 128 bits")
    good, store = stored_and_loaded("tcgen05.st: four columns"), "tcgen05.st.sync.aligned.32x32b"
    whole, half = ".x4.b32 [%r9], {%r0, %r1, %r2, %r3}", ".x2.unpack::16b.b32 [%r9], {%r0, %r1}"
    halves = good.respelled(store + whole, store + half)
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            lanes.name, "emulator", good,
            stored_and_loaded("tcgen05.st: lane 0 in every warp", "shr.u32 {0}, {0}, 5;"), "of warp 1 addresses lane 0",
        ),
        Twin(cells.name, "emulator", good, replace(halves, title="tcgen05.st: halves of cells"), "never initialised"),
        Twin(
            pairs.name, "emulator", apart,
            replace(apart.respelled(".unpack::16b", ""), title="tcgen05.st: two halves to a cell"), "never initialised",
        ),
        Twin(shape.name, "emulator", wide, beside, WRONG_VALUES),
        Twin(
            waits.name, "emulator", good,
            replace(good.respelled("tcgen05.wait::st.sync.aligned;", ""), title="tcgen05.st: not waited for"),
            "wait::st",
        ),
        Twin(
            exists.name, "assembler", good, good.respelled(f"{store}.x4", f"{store}.x8"),
            "vector size mismatch",
        ),
    )  # fmt: skip
    yield Card(
        name="tcgen05.st",
        instruction=instruction,
        operands=(
            ("value", "RMEM", "of .32x32b row t in thread t of a warpgroup", "f32, s32, u32, f16, bf16"),
            ("x (128 x columns)", "TMEM", "row r in lane r; of 16 bits two to a column, or `packed` one", "the same"),
        ),
        rules=(target, lanes, cells, pairs),
        guarantees=(exists, shape, waits),
        meaning="x = value",
        cost="an instruction of each warp, and a wait for it",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
