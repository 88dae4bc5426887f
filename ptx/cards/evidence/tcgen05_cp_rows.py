"""Evidence for the rules of tcgen05.cp of rows: spellings that were tried, kernels around copies, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM
from tinygpu.language.instruction import ROW_BYTES
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, COMMIT, Frame, told_and_read
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    FieldMap,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    swizzled_operand,
)
from tinygpu.ptx.isa.tcgen05_cp import Tcgen05CpRows

LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%x_map, {0, 0}]"
SWIZZLE = 64
CELLS = ROW_BYTES // 4


def variants() -> Iterator[Variant]:
    """The shape among others that do not exist, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05CpRows(), target)
        shapes = ("128x256b", "128x256b.warpx2", "256x128b", "128x512b")
        for group, shape, to in itertools.product((0, 1, 3), shapes, ("[%r0]", "%r0")):
            text = f"tcgen05.cp.cta_group::{group}.{shape} {to}, %d0;"
            yield Variant(text, target, exists and (group, shape, to) == (1, "128x256b", "[%r0]"))


def specimen(
    title: str,
    *,
    rows: int = 128,
    steps: tuple[int, int] = (CELLS, ROW_BYTES),
    lane: int = 0,
    named: int = SWIZZLE,
    waits: bool = True,
    commit: str = COMMIT,
    after: str = AFTER,
) -> Specimen:
    """TMA brings 128 rows of 64 bytes, one thread has them copied, and each thread reads the row of its lane.

    rows    that are brought
    steps   columns, and bytes of a row, from one piece to the next
    lane    to which the rows are copied
    named   width of the swizzle in the descriptors
    waits   whether the rows are waited for before they are copied
    """
    instruction, words = Tcgen05CpRows(), SWIZZLE // 4
    d, frame = [f"%r{i}" for i in range(words)], Frame(128 * SWIZZLE, 32, words)
    brought, free = frame.at + 16, words + 2
    low, high = (instruction.descriptor(named, 0, False) >> shift & 0xFFFFFFFF for shift in (0, 32))
    lines = ["setp.ne.u32 %p0, %t, 0;", f"@!%p0 mbarrier.init.shared.b64 [%s+{brought}], 1;", *frame.begin()]
    lines += ["@%p1 bra $issued;"]
    lines += [f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+{brought}], {rows * SWIZZLE};"]
    lines += [f"{LOAD}, [%s+{brought}];"]
    if waits:
        lines += ["$brought:", f"mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+{brought}], 0;"]
        lines += ["@!%p4 bra $brought;"]
    for number in range(SWIZZLE // ROW_BYTES):
        lines += [f"add.u32 %r{free}, %s, {number * steps[1]};", f"shr.u32 %r{free}, %r{free}, 4;"]
        lines += [f"or.b32 %r{free}, %r{free}, {low:#x};", f"mov.b32 %r{free + 1}, {high:#010x};"]
        lines += [f"mov.b64 %d0, {{%r{free}, %r{free + 1}}};"]
        lines += [f"add.u32 %r{free}, %r{words}, {(lane << 16) + number * steps[0]};"]
        lines += [instruction.statement(f"[%r{free}]", "%d0")]
    lines += told_and_read(frame, f"%r{free}", f"%r{words + 1}", d, commit, after)

    def meaning(x: Any) -> Any:
        return x

    fields = (Field("x", "f32", words), Field("out", "f32", words, "out"))
    maps = (FieldMap("x", (words, 128), (words, rows), SWIZZLE),)
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, brought + 8, maps, 1024, 1, True)


def cards() -> Iterator[Card]:
    """The card of tcgen05.cp of rows."""
    instruction, kind = Tcgen05CpRows(), dtype("f16")
    source, cells = swizzled_operand(kind), Tile("x", TMEM, kind, (ROWS, COLUMNS), (expr(0), expr(0)))
    target, label = instruction.target_rule(), instruction.label
    rows, columns = instruction.legality(source, cells)
    lanes = Guarantee(f"{label} lanes", "row 0 is copied to lane 0", "emulator")
    exists = Guarantee(f"{label} shape", "an instruction copies 32 bytes of 128 rows", "assembler")
    layout = Guarantee(f"{label} layout", "the descriptor names the swizzle under which the rows lie", "emulator")
    brought = Guarantee(f"{label} arrival", "the rows have come when they are copied", "emulator")
    waits = Guarantee(f"{label} completion", "a commit is waited for before others use the columns", "emulator")
    fence = Guarantee(f"{label} fence", "tcgen05.fence::after_thread_sync stands behind the wait", "emulator")
    good = specimen("tcgen05.cp: 128 rows of 64 bytes")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(rows.name, "emulator", good, specimen("tcgen05.cp: 64 rows are brought", rows=64), "never initialised"),
        Twin(
            columns.name, "emulator", good, specimen("tcgen05.cp: 16 bytes further", steps=(CELLS, 16)), WRONG_VALUES,
        ),
        Twin(lanes.name, "emulator", good, specimen("tcgen05.cp: rows to lane 32", lane=32), "lane 32"),
        Twin(exists.name, "assembler", good, good.respelled("128x256b", "128x512b"), "128x512b"),
        Twin(layout.name, "emulator", good, specimen("tcgen05.cp: as if under 32 bytes", named=32), WRONG_VALUES),
        Twin(
            brought.name, "emulator", good, specimen("tcgen05.cp: rows are not waited for", waits=False),
            "may still be writing",
        ),
        Twin(
            waits.name, "emulator", good, specimen("tcgen05.cp: rows, not told of", commit=""), "reads lanes 0 to 31"
        ),
        Twin(
            fence.name, "emulator", good, specimen("tcgen05.cp: rows, no fence behind the wait", after=""),
            "tcgen05.fence::after_thread_sync is missing after the wait",
        ),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (128 x columns)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "any, not padded"),
            ("x (128 x columns)", "TMEM", "row r in lane r, its bytes along the columns", "the same"),
        ),
        rules=(target, rows, columns),
        guarantees=(lanes, exists, layout, brought, waits, fence),
        meaning="x = stage",
        cost="the bytes of the rows from SMEM; an instruction for each 32 bytes of a row",
        example=good,
        twins=twins,
        variants=variants,
    )
