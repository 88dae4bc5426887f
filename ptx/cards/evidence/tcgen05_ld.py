"""Evidence for the rules of tcgen05.ld: the spellings that were tried, kernels around one load, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, blocked
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_kernels import Frame
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
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld


def variants() -> Iterator[Variant]:
    """Every repetition with every number of registers near it, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05Ld(), target)
        for count, more in itertools.product((1, 2, 3, 4, 8, 16, 32, 64, 128), (-1, 0, 1)):
            registers = ", ".join(f"%r{i}" for i in range(count + more))
            text = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{registers}}}, [%r0];"
            yield Variant(text, target, exists and not more and count in Tcgen05Ld.counts)


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


def _table() -> tuple[tuple[str, str], ...]:
    rows = [(f"x{count}", count, count) for count in Tcgen05Ld.counts]
    return (("Repetitions", markdown_table(("repetition", "columns", "registers"), rows)),)


def cards() -> Iterator[Card]:
    """The card of tcgen05.ld."""
    instruction, kind = Tcgen05Ld(), dtype("f32")
    tile = Tile("x", TMEM, kind, (ROWS, COLUMNS), (expr(0), expr(0)))
    held = blocked((128, COLUMNS), threads=128, vector=1, across=1)
    target, label = instruction.target_rule(), instruction.label
    lanes, cells = instruction.legality(tile, held)
    waits = Guarantee(f"{label} completion", "tcgen05.wait::ld stands before the registers are used", "emulator")
    exists = Guarantee(f"{label} repetitions", "there are as many registers as the repetition says", "assembler")
    good, load = specimen("tcgen05.ld: four columns"), "tcgen05.ld.sync.aligned.32x32b"
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            lanes.name, "emulator", good, specimen("tcgen05.ld: lane 0 in every warp", "shr.u32 {0}, {0}, 5;"),
            "of warp 1 addresses lane 0",
        ),
        Twin(cells.name, "emulator", good, specimen("tcgen05.ld: halves of cells", form=".pack::16b"), WRONG_VALUES),
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
            ("x (128 x columns)", "TMEM", "row r in lane r", "f32, s32, u32"),
            ("result", "RMEM", "row t in thread t of a warpgroup", "the same"),
        ),
        rules=(target, lanes, cells),
        guarantees=(exists, waits),
        meaning="result = x",
        cost="an instruction of each warp, and a wait for it",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
