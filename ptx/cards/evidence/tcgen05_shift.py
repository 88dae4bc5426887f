"""Evidence for tcgen05.shift with new rows behind: kernels of one CTA and of two around one piece, illegal twins."""

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
    AFTER,
    BEFORE,
    COMMIT,
    COMMIT_OF_PAIR,
    COMMIT_TO_ONE,
    MEET,
    NO_FENCE,
    Frame,
    PairFrame,
    described,
    of_completion,
    told_and_read,
)
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image, fragments
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
from tinygpu.ptx.isa.tcgen05_shift import Tcgen05Shift, Tcgen05ShiftPair

WORDS = 8  # of a row, in one piece
ROW_BYTES = 4 * WORDS
LANES = (0, 32, 64, 96)
BEYOND = "it would run into the next row"
WAIT = "tcgen05.wait::st.sync.aligned;"


def variants(group: int) -> Iterator[Variant]:
    """Both instructions with other directions, shapes and operands, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05Shift(), target)
        for way, to in itertools.product((".down", ".up", ""), ("[%r0]", "%r0")):
            text = f"tcgen05.shift.cta_group::{group}{way} {to};"
            yield Variant(text, target, exists and (way, to) == (".down", "[%r0]"))
        for shape in ("4x256b", "4x128b", "4x256b.warpx2", "8x256b"):
            text = f"tcgen05.cp.cta_group::{group}.{shape} [%r0], %d0;"
            yield Variant(text, target, exists and shape == "4x256b")


def specimen(
    title: str, of: type[Tcgen05Shift] = Tcgen05Shift, *, laid: int = 128, further: int = 0, lane: int = 0,
    last: int = 31, late: bool = False, wait: str = WAIT, commit: str = "", after: str = AFTER, told: bool = True,
) -> Specimen:  # fmt: skip
    """Threads store rows and lay new ones into shared memory; one thread shifts, and each reads the row of its lane.

    laid     threads that lay a row
    further  bytes behind the first row where the new ones are said to begin
    lane     of each 32 at which the shift is said to begin
    last     to which the new rows are copied
    late     whether the shift stands behind the copy
    told     whether a commit tells that they are over, and is waited for
    """
    instruction, pair = of(), of.ctas > 1
    new = Image("y", "f32", 128, ROW_BYTES, 0)
    d, base, own, free = [f"%r{i}" for i in range(WORDS)], f"%r{WORDS}", f"%r{WORDS + 1}", WORDS + 2
    frame = (PairFrame if pair else Frame)(new.size, 32, WORDS)
    *begun, issues = frame.begin() if pair else (*frame.begin(), "@%p1 bra $issued;")
    lines = [f"setp.ge.u32 %p3, %t, {laid};", "@%p3 bra $bare;", *new.written(free), "$bare:"]
    lines += ["fence.proxy.async.shared::cta;", *begun, *fragments("ld.global.v4.b32 {}, [%x{}];", d)]
    lines += [f"tcgen05.st.sync.aligned.32x32b.x{WORDS}.b32 [{own}], {{{', '.join(d)}}};", wait]
    lines += [BEFORE, *(MEET if pair else ("bar.sync 0;",)), AFTER, issues, *(["mov.u16 %h1, 3;"] if pair else [])]
    shifts = []
    for first in LANES:
        shifts += [f"add.u32 %r{free}, {base}, {first + lane << 16};", instruction.shift(f"[%r{free}]")]
    copy = [*described(new, "%d0", free, 0, further), f"add.u32 %r{free}, {base}, {last << 16};"]
    copy.append(instruction.statement(f"[%r{free}]", "%d0"))
    lines += [*copy, *shifts] if late else [*shifts, *copy]
    tells = (commit or (COMMIT_OF_PAIR if pair else COMMIT)) if told else ""
    lines += told_and_read(frame, f"%r{free}", own, d, tells, after)

    def meaning(x: Any, y: Any) -> Any:
        ctas = zip(np.split(np.asarray(x), of.ctas), np.split(np.asarray(y), of.ctas), strict=True)
        return np.concatenate([instruction.combine(old, rows[: len(LANES)]) for old, rows in ctas])

    fields = (Field("x", "f32", WORDS), new.field, Field("out", "f32", WORDS, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, new.size + 16, (), 1024, of.ctas, True)


def cards() -> Iterator[Card]:
    """The cards of tcgen05.shift by one CTA and by pairs."""
    yield _of_one()
    yield _of_pairs()


def _rules(instruction: Tcgen05Shift) -> tuple[Any, Any, Any]:
    kind = dtype("f16")
    cells = Tile("x", TMEM, kind, (symbol("rows_there"), COLUMNS), (expr(0), expr(0)))
    rows, columns = instruction.legality(swizzled_operand(kind), cells)
    return instruction.target_rule(), rows, columns


def _of_one() -> Card:
    instruction = Tcgen05Shift()
    (target, rows, columns), label = _rules(instruction), instruction.label
    way = Guarantee(f"{label} way", "rows move down", "assembler")
    lanes = Guarantee(f"{label} lanes", "each shift begins at the first lane of a warp", "emulator")
    last = Guarantee(f"{label} last", "new rows come to the last lane of each warp", "emulator")
    order = Guarantee(f"{label} order", "new rows are copied behind the shift, by the same thread", "emulator")
    stored = Guarantee(f"{label} stored", "the rows that are there are complete", "emulator")
    waits, fence = of_completion(label)
    good = specimen("tcgen05.shift: 128 rows of 32 bytes, and four new ones")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(rows.name, "emulator", good, specimen("tcgen05.shift: three new rows", laid=3), "never initialised"),
        Twin(columns.name, "emulator", good, specimen("tcgen05.shift: half a row further", further=16), BEYOND),
        Twin(way.name, "assembler", good, good.respelled(".down", ".up"), ".up"),
        Twin(
            lanes.name, "emulator", good, specimen("tcgen05.shift: from lane 16 on", lane=16),
            "the lane must be 0, 32, 64 or 96",
        ),
        Twin(last.name, "emulator", good, specimen("tcgen05.shift: new rows in lane 30", last=30), WRONG_VALUES),
        Twin(
            order.name, "emulator", good, specimen("tcgen05.shift: behind the copy", late=True),
            "these two are not carried out in order of issue",
        ),
        Twin(stored.name, "emulator", good, specimen("tcgen05.shift: stores are not waited for", wait=""), "wait::st"),
        Twin(waits.name, "emulator", good, specimen("tcgen05.shift: not told of", told=False), "reads lanes 0 to 31"),
        Twin(
            fence.name, "emulator", good, specimen("tcgen05.shift: no fence behind the wait", after=""),
            NO_FENCE,
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (4 x columns)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "any, not padded"),
            ("x (128 x columns)", "TMEM", "row r in lane r, its bytes along the columns", "the same"),
        ),
        rules=(target, rows, columns),
        guarantees=(way, lanes, last, order, stored, waits, fence),
        meaning="x[32 w : 32 w + 31], x[32 w + 31] = x[32 w + 1 : 32 w + 32], stage[w] for each w of 4",
        cost="the bytes of the rows from SMEM; four shifts and a copy for each 32 bytes of a row",
        example=good,
        twins=twins,
        variants=lambda: variants(1),
    )


def _of_pairs() -> Card:
    instruction = Tcgen05ShiftPair()
    (target, rows, columns), label = _rules(instruction), instruction.label
    way = Guarantee(f"{label} way", "rows move down", "assembler")
    both = Guarantee(f"{label} completion", "a commit arrives at a barrier of each CTA that waits", "emulator")
    good = specimen("tcgen05.shift: 128 rows of 32 bytes in each of two CTAs", Tcgen05ShiftPair)
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            rows.name, "emulator", good, specimen("tcgen05.shift: three new rows, pair", Tcgen05ShiftPair, laid=3),
            "never initialised",
        ),
        Twin(
            columns.name, "emulator", good,
            specimen("tcgen05.shift: half a row further, pair", Tcgen05ShiftPair, further=16), BEYOND,
        ),
        Twin(way.name, "assembler", good, good.respelled(".down", ".up"), ".up"),
        Twin(
            both.name, "emulator", good,
            specimen("tcgen05.shift: one CTA is told", Tcgen05ShiftPair, commit=COMMIT_TO_ONE), "wait",
        ),
    )  # fmt: skip
    return Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (4 x columns of each CTA)", "SMEM", "as of one CTA", "any, not padded"),
            ("x (128 x columns of each CTA)", "TMEM", "row r in lane r, its bytes along the columns", "the same"),
        ),
        rules=(target, rows, columns),
        guarantees=(way, both),
        meaning="x[32 w : 32 w + 31], x[32 w + 31] = x[32 w + 1 : 32 w + 32], stage[w] for each w of 4, in each CTA",
        cost="the bytes of the rows from each CTA's SMEM; four shifts and a copy for each 32 bytes of a row",
        example=good,
        twins=twins,
        variants=lambda: variants(2),
    )
