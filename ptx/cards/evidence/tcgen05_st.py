"""Evidence for the rules of tcgen05.st: the spellings that were tried, kernels around one store, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, blocked
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_ld import specimen as stored_and_loaded
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
    TARGETS,
    Card,
    Guarantee,
    Twin,
    Variant,
    exists_on,
    markdown_table,
)
from tinygpu.ptx.isa.tcgen05_st import Tcgen05St


def variants() -> Iterator[Variant]:
    """Every repetition with every number of registers near it, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05St(), target)
        for count, more in itertools.product((1, 2, 3, 4, 8, 16, 32, 64, 128), (-1, 0, 1)):
            registers = ", ".join(f"%r{i}" for i in range(1, 1 + count + more))
            text = f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%r0], {{{registers}}};"
            yield Variant(text, target, exists and not more and count in Tcgen05St.counts)


def _table() -> tuple[tuple[str, str], ...]:
    rows = [(f"x{count}", count, count) for count in Tcgen05St.counts]
    return (("Repetitions", markdown_table(("repetition", "columns", "registers"), rows)),)


def cards() -> Iterator[Card]:
    """The card of tcgen05.st."""
    instruction, kind = Tcgen05St(), dtype("f16")
    tile = Tile("x", TMEM, kind, (ROWS, COLUMNS), (expr(0), expr(0)))
    held = blocked((128, COLUMNS), threads=128, vector=2, across=1)
    target, label = instruction.target_rule(), instruction.label
    lanes, cells = instruction.legality(tile, held)
    waits = Guarantee(f"{label} completion", "tcgen05.wait::st stands before the columns are read", "emulator")
    exists = Guarantee(f"{label} repetitions", "there are as many registers as the repetition says", "assembler")
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
            ("value", "RMEM", "row t in thread t of a warpgroup", "f32, s32, u32, f16, bf16"),
            ("x (128 x columns)", "TMEM", "row r in lane r; of 16 bits two to a column", "the same"),
        ),
        rules=(target, lanes, cells),
        guarantees=(exists, waits),
        meaning="x = value",
        cost="an instruction of each warp, and a wait for it",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
