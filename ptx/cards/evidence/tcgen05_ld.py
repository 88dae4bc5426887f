"""Evidence for the rules of tcgen05.ld: the spellings that were tried, kernels around one load, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.data_paths import rows_in_lanes
from tinygpu.language.memories import TMEM_LANES as LANES
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_kernels import Frame, held_of
from tinygpu.ptx.cards.evidence.wgmma_kernels import fragments
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
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
)
from tinygpu.ptx.isa.tcgen05_ld import SHAPES, SPLIT, Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_st import Tcgen05St

NAMES = (*(shape.name for shape in SHAPES), SPLIT)


def variants() -> Iterator[Variant]:
    """Every shape, repetition and number of registers near it, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05Ld(), target)
        counts = (1, 2, 3, 4, 8, 16, 32, 64, 128)
        for name, packed, count, more in itertools.product(NAMES, (False, True), counts, (-1, 0, 1)):
            ld, form = Tcgen05Ld(name, packed), ".pack::16b" if packed else ""
            each = ld.access(1)[1].size // ld.per_register
            registers = ", ".join(f"%r{i}" for i in range(count * each + more))
            tail = ", 8" if ld.windows > 1 else ""
            text = f"tcgen05.ld.sync.aligned.{name}.x{count}{form}.b32 {{{registers}}}, [%r0]{tail};"
            yield Variant(text, target, exists and not more and count in ld.counts)


def specimen(
    title: str, lanes: str = "shl.b32 {0}, {0}, 21;", form: str = "", wait: str = "tcgen05.wait::ld.sync.aligned;"
) -> Specimen:
    """A warpgroup stores four registers of each thread in its lane, and loads them again.

    lanes  how the address of a warp's own lanes is made of its number
    form   of the load: .pack::16b
    """
    d = [f"%r{i}" for i in range(4)]
    frame = Frame(0, 32, 8)
    held = ", ".join(d)
    lines = [*frame.begin(), *fragments("ld.global.v4.b32 {}, [%x{}];", d)]
    lines += [f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r9], {{{held}}};", "tcgen05.wait::st.sync.aligned;"]
    lines += [line.format("%r9") for line in ("shr.u32 {0}, %t, 5;", lanes, "add.u32 {0}, {0}, %r8;")]
    count, loaded = (2, "%r4, %r5") if form else (4, held)
    lines += [f"tcgen05.ld.sync.aligned.32x32b.x{count}{form}.b32 {{{loaded}}}, [%r9];", wait]
    lines += ["mov.b32 %r0, %r4;", "mov.b32 %r1, %r5;"] if form else []
    lines += [*fragments("st.global.v4.b32 [%out{1}], {0};", d), *frame.end()]

    def meaning(x: Any) -> Any:
        return x

    fields = (Field("x", "f32", 4), Field("out", "f32", 4, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, 16, (), 1024, 1, True)


def shaped(title: str, stored: str, loads: str, spelled: str = "", packed: bool = False) -> Specimen:
    """A warpgroup stores eight columns by one shape, of 16 lanes twice, and loads them by another one.

    spelled  the shape in the text of the load, where it is another one
    packed   columns have elements of 16 bits each
    """
    st, ld = Tcgen05St(stored, packed), Tcgen05Ld(loads, packed)
    tile = (LANES, 8)
    frame = Frame(0, 32, 8)
    d = [f"%r{i}" for i in range(8 // ld.per_register)]
    lines = [*frame.begin(), *fragments("ld.global.v4.b32 {}, [%x{}];", d)]
    for move in (st, ld):
        halves, apart = move.halves(rows_in_lanes(*tile)), 8 // move.windows
        for half in range(halves):
            mine, at = d[half * len(d) // halves :][: len(d) // halves], f"[%r9+{half << 20}]"
            if isinstance(move, Tcgen05St):
                lines.append(move.statement(at, mine, apart))
            else:
                lines.append(move.statement(mine, at, apart))
        lines.append(move.complete())
    lines += [*fragments("st.global.v4.b32 [%out{1}], {0};", d), *frame.end()]

    def meaning(x: Any) -> Any:
        where = st.held(tile).coordinates()
        held = np.empty(tile, x.dtype)
        held[where[:, :, 0], where[:, :, 1]] = x
        return held_of(ld, held, rows_in_lanes(*tile))

    body = "\n".join(lines)
    form = f"{loads}.x{ld.repetition(d[: len(d) // ld.halves(rows_in_lanes(*tile))])}"
    form += ".pack::16b" if packed else ""
    body = body.replace(f"tcgen05.ld.sync.aligned.{form}", f"tcgen05.ld.sync.aligned.{spelled or form}")
    kind = "f16" if packed else "f32"
    fields = (Field("x", kind, 8), Field("out", kind, 8, "out"))
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, 16, (), 1024, 1, True)


def halves_of_cells() -> Tile:
    """A tile of f16 in TMEM whose elements have a cell each."""
    extents, kind = (ROWS, COLUMNS), dtype("f16")
    buffer = Buffer("x", TMEM, kind, extents, 1, expr(0), "", expr(1), path=rows_in_lanes(ROWS, COLUMNS))
    return Tile("x", TMEM, kind, extents, (expr(0), expr(0)), buffer=buffer)


def table_of(of: type[Tcgen05Ld] | type[Tcgen05St]) -> tuple[tuple[str, str], ...]:
    """Shapes, with what one instruction of each moves."""
    rows = []
    for name in NAMES:
        one = of(name)
        windows = "" if one.windows == 1 else f", in {one.windows} windows"
        lanes = one.access(1, 1).along("lane").cosize
        rows.append((f"`.{name}`", lanes, f"{one.columns}{windows}", one.access(1)[1].size, f"1 to {max(one.counts)}"))
    title = "Shapes; with `packed` there are twice as many columns, and a register has the lower halves of two"
    return ((title, markdown_table(("shape", "lanes of a warp", "columns", "registers", "repetitions"), rows)),)


def _table() -> tuple[tuple[str, str], ...]:
    return table_of(Tcgen05Ld)


def cards() -> Iterator[Card]:
    """The card of tcgen05.ld."""
    instruction, kind = Tcgen05Ld(), dtype("f32")
    tile = Tile("x", TMEM, kind, (ROWS, COLUMNS), (expr(0), expr(0)))
    held = blocked((128, COLUMNS), threads=128, vector=1, across=1)
    target, label = instruction.target_rule(), instruction.label
    lanes, cells = instruction.legality(tile, held)
    pairs = Tcgen05Ld(packed=True).cells_rule(halves_of_cells())
    waits = Guarantee(f"{label} completion", "tcgen05.wait::ld stands before the registers are used", "emulator")
    exists = Guarantee(f"{label} repetitions", "there are as many registers as the repetition says", "assembler")
    shape = Guarantee(f"{label} shape", "the registers are the cells that the shape says", "emulator")
    wide = shaped("tcgen05.ld: eight columns as fragments", "32x32b", "16x256b")
    good, load = specimen("tcgen05.ld: four columns"), "tcgen05.ld.sync.aligned.32x32b"
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            lanes.name, "emulator", good, specimen("tcgen05.ld: lane 0 in every warp", "shr.u32 {0}, {0}, 5;"),
            "of warp 1 addresses lane 0",
        ),
        Twin(cells.name, "emulator", good, specimen("tcgen05.ld: halves of cells", form=".pack::16b"), WRONG_VALUES),
        Twin(
            pairs.name, "emulator",
            shaped("tcgen05.ld: halves, as fragments", "32x32b", "16x64b", packed=True),
            shaped("tcgen05.ld: whole cells of halves", "32x32b", "16x64b", "16x64b.x2", packed=True),
            "never initialised",
        ),
        Twin(
            shape.name, "emulator", wide, shaped("tcgen05.ld: as if by columns", "32x32b", "16x256b", "16x64b.x4"),
            WRONG_VALUES,
        ),
        Twin(waits.name, "emulator", good, specimen("tcgen05.ld: not waited for", wait=""), "wait::ld"),
        Twin(
            exists.name, "assembler", good, good.respelled(f"{load}.x4", f"{load}.x8"),
            "vector size mismatch",
        ),
    )
    yield Card(
        name="tcgen05.ld",
        instruction=instruction,
        operands=(
            ("x (128 x columns)", "TMEM", "row r in lane r", "f32, s32, u32; f16, bf16 with `packed`"),
            ("result", "RMEM", "of .32x32b row t in thread t of a warpgroup", "the same"),
        ),
        rules=(target, lanes, cells, pairs),
        guarantees=(exists, shape, waits),
        meaning="result = x",
        cost="an instruction of each warp, and a wait for it",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
