"""Evidence for the rules of tcgen05.cp of rows: spellings that were tried, kernels around copies, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, COMMIT, NO_FENCE, Frame, of_completion, told_and_read
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
    markdown_table,
    swizzled_operand,
)
from tinygpu.ptx.isa.tcgen05_cp import SHAPES, Tcgen05CpRows

LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%x_map, {0, 0}]"
SWIZZLE = 64
WHOLE = "128x256b"


def variants() -> Iterator[Variant]:
    """The shapes among others that do not exist, for every target."""
    known = [shape.name for shape in SHAPES]
    others = ("128x256b.warpx2", "128x128b.warpx2::02_13", "64x128b", "64x128b.warpx2", "256x128b", "128x512b")
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05CpRows(), target)
        for group, shape, to in itertools.product((0, 1, 3), (*known, *others), ("[%r0]", "%r0")):
            text = f"tcgen05.cp.cta_group::{group}.{shape} {to}, %d0;"
            yield Variant(text, target, exists and shape in known and (group, to) == (1, "[%r0]"))


def specimen(
    title: str,
    shape: str = WHOLE,
    *,
    rows: int = 0,
    step_bytes: int = 0,
    lane: int = 0,
    named: int = 0,
    waits: bool = True,
    commit: str = COMMIT,
    after: str = AFTER,
) -> Specimen:
    """TMA brings rows, one thread has them copied, and each thread reads the row of its lane.

    shape       128 rows have 64 bytes of which one instruction copies 32; of other shapes rows have 16
    rows        that are brought, where they are fewer
    step_bytes  of a row, from one piece to the next, where they are others than those of an instruction
    lane        to which the rows are copied
    named       width of the swizzle in the descriptors, where it is another
    waits       whether the rows are waited for before they are copied
    """
    instruction = Tcgen05CpRows(shape)
    width = SWIZZLE if shape == WHOLE else instruction.row_bytes
    words, each, brought_rows = width // 4, instruction.row_bytes, rows or instruction.rows
    d, frame = [f"%r{i}" for i in range(words)], Frame(128 * width, 32, words)
    brought, free = frame.at + 16, words + 2
    low, high = (instruction.descriptor(named or width, 0, False) >> shift & 0xFFFFFFFF for shift in (0, 32))
    lines = ["setp.ne.u32 %p0, %t, 0;", f"@!%p0 mbarrier.init.shared.b64 [%s+{brought}], 1;", *frame.begin()]
    lines += ["@%p1 bra $issued;"]
    lines += [f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+{brought}], {brought_rows * width};"]
    lines += [f"{LOAD}, [%s+{brought}];"]
    if waits:
        lines += ["$brought:", f"mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+{brought}], 0;"]
        lines += ["@!%p4 bra $brought;"]
    for number in range(width // each):
        lines += [f"add.u32 %r{free}, %s, {number * (step_bytes or each)};", f"shr.u32 %r{free}, %r{free}, 4;"]
        lines += [f"or.b32 %r{free}, %r{free}, {low:#x};", f"mov.b32 %r{free + 1}, {high:#010x};"]
        lines += [f"mov.b64 %d0, {{%r{free}, %r{free + 1}}};"]
        lines += [f"add.u32 %r{free}, %r{words}, {(lane << 16) + number * each // 4};"]
        lines += [instruction.statement(f"[%r{free}]", "%d0")]
    lines += told_and_read(frame, f"%r{free}", f"%r{words + 1}", d, commit, after)

    def meaning(x: Any) -> Any:
        lanes = instruction.path(1).coordinates(("lane", "column"))[:, 0]
        out = np.empty_like(x)
        out[lanes] = np.asarray(x)[np.arange(128) % instruction.rows]
        return out

    fields = (Field("x", "f32", words), Field("out", "f32", words, "out"))
    maps = (FieldMap("x", (words, 128), (words, brought_rows), SWIZZLE if width == SWIZZLE else 0),)
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, brought + 8, maps, 1024, 1, True)


def shapes() -> tuple[tuple[str, str], ...]:
    """What each shape copies, and to which lanes."""
    rows = []
    for shape in SHAPES:
        one = Tcgen05CpRows(shape.name)
        rows.append((f"`.{shape.name}`", one.rows, one.row_bytes, f"`{one.path(one.row_bytes // 4)}`"))
    title = "Shapes: (row, column) of cells to (lane, column); a third mode counts lanes with the same rows"
    return ((title, markdown_table(("shape", "rows", "bytes of each", "path"), rows)),)


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
    waits, fence = of_completion(label)
    again = Guarantee(f"{label} copies", "of fewer rows each is in the lanes that its shape's path says", "emulator")
    good = specimen("tcgen05.cp: 128 rows of 64 bytes")
    two = specimen("tcgen05.cp: 64 rows of 16 bytes", "64x128b.warpx2::02_13")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(rows.name, "emulator", good, specimen("tcgen05.cp: 64 rows are brought", rows=64), "never initialised"),
        Twin(
            columns.name, "emulator", good, specimen("tcgen05.cp: 16 bytes further", step_bytes=16), WRONG_VALUES,
        ),
        Twin(lanes.name, "emulator", good, specimen("tcgen05.cp: rows to lane 32", lane=32), "lane 32"),
        Twin(exists.name, "assembler", good, good.respelled("128x256b", "128x512b"), "128x512b"),
        Twin(
            again.name, "emulator", two, replace(two.respelled("02_13", "01_23"), title="tcgen05.cp: to other lanes"),
            WRONG_VALUES,
        ),
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
            NO_FENCE,
        ),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (128 x columns)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "any, not padded"),
            ("x (128 x columns)", "TMEM", "row r in lane r, its bytes along the columns", "the same"),
            ("stage (64 or 32 x columns)", "SMEM", "the same, or rows of 16 bytes", "32 bits"),
            ("x (64 or 32 x columns)", "TMEM", "row r in the lanes that the path of the shape says", "the same"),
        ),
        rules=(target, rows, columns),
        guarantees=(lanes, exists, again, layout, brought, waits, fence),
        meaning="x = stage",
        cost="the bytes of the rows from SMEM; an instruction for each 32 or 16 bytes of a row",
        example=good,
        twins=twins,
        variants=variants,
        pictures=shapes,
    )
