"""Evidence for the rules of tcgen05.cp: the spellings that were tried, kernels around one copy, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, expr, symbol
from tinygpu.language import SMEM, TMEM
from tinygpu.language.buffer import Buffer
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, COMMIT, NO_FENCE, Frame, of_completion, told_and_read
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
)
from tinygpu.ptx.isa.tcgen05_cp import Tcgen05Cp

PROXY = "fence.proxy.async.shared::cta;"
CHUNK = 512  # bytes of 32 rows of 16


def variants() -> Iterator[Variant]:
    """The shape with each way of doubling it, for every target."""
    doubled = ("", ".warpx2", ".warpx2::02_13", ".warpx4")
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05Cp(), target)
        for group, warps, to in itertools.product((0, 1, 3), doubled, ("[%r0]", "%r0")):
            text = f"tcgen05.cp.cta_group::{group}.32x128b{warps} {to}, %d0;"
            yield Variant(text, target, exists and (group, warps, to) == (1, ".warpx4", "[%r0]"))


def described(to: str, first: int, at: int, apart: int = 8) -> Iterator[str]:
    """The descriptor of a chunk `at` bytes behind the start; `apart`: from eight rows to the next, in 16 bytes."""
    word = Tcgen05Cp().descriptor() >> 32 & ~0x3FFF | apart
    yield f"add.u32 %r{first}, %s, {at};"
    yield f"shr.u32 %r{first}, %r{first}, 4;"
    yield f"mov.b32 %r{first + 1}, {word:#010x};"
    yield f"mov.b64 {to}, {{%r{first}, %r{first + 1}}};"


def specimen(
    title: str,
    *,
    lane: int = 0,
    apart: int = 8,
    columns: int = 4,
    proxy: str = PROXY,
    commit: str = COMMIT,
    after: str = AFTER,
) -> Specimen:
    """A warpgroup writes a chunk, one thread has it copied, and each thread reads the row of its lane.

    lane     to which it is copied
    apart    from eight rows of the chunk to the next, in 16 bytes
    columns  from the columns of the chunk to those that are read, and 4
    """
    d, frame = [f"%r{i}" for i in range(4)], Frame(CHUNK, 32, 8)
    lines = ["ld.global.b32 %r0, [%x];", "shl.b32 %r1, %t, 2;", "add.u32 %r1, %r1, %s;", "st.shared.b32 [%r1], %r0;"]
    lines += [proxy, *frame.begin(), "@%p1 bra $issued;", *described("%d0", 10, 0, apart)]
    lines += [f"add.u32 %r12, %r8, {lane << 16};", Tcgen05Cp().statement("[%r12]", "%d0")]
    lines += told_and_read(frame, "%r12", f"%r9+{columns - 4}", d, commit, after)

    def meaning(x: Any) -> Any:
        return np.tile(np.asarray(x).reshape(32, 4), (4, 1))

    fields = (Field("x", "f32", 1), Field("out", "f32", 4, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, frame.at + 16, (), 1024, 1, True)


def chunks(kind: str, extents: tuple[Expr, ...]) -> Tile:
    """Chunks in shared memory, as a ring hands them over."""
    buffer = Buffer("stage", SMEM, dtype(kind), extents, 3, expr(0), "", expr(1), expr(16))
    return Tile("stage", SMEM, dtype(kind), extents, (expr(0),) * 4, buffer=buffer)


def cards() -> Iterator[Card]:
    """The card of tcgen05.cp."""
    instruction, kind = Tcgen05Cp(), dtype("u8")
    source = chunks("u8", (symbol("along"), symbol("down"), expr(32), expr(16)))
    target_tile = Tile("x", TMEM, kind, (expr(32), symbol("bytes")), (expr(0), expr(0)))
    target, label = instruction.target_rule(), instruction.label
    (columns,) = instruction.legality(source, target_tile)
    lanes = Guarantee(f"{label} lanes", "a chunk is copied to lane 0 of its columns", "emulator")
    exists = Guarantee(f"{label} shape", "32 rows are copied to the lanes of four warps", "assembler")
    layout = Guarantee(f"{label} layout", "rows follow one another in 16 bytes, without swizzle", "emulator")
    proxy = Guarantee(
        f"{label} proxy", "who wrote a chunk by st.shared fences its writes for the asynchronous proxy", "emulator"
    )
    waits, fence = of_completion(label)
    good = specimen("tcgen05.cp: a chunk")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            columns.name, "emulator", good, specimen("tcgen05.cp: five columns of a chunk", columns=5),
            "never initialised",
        ),
        Twin(lanes.name, "emulator", good, specimen("tcgen05.cp: to lane 32", lane=32), "lane 32"),
        Twin(exists.name, "assembler", good, good.respelled("32x128b.warpx4", "32x128b"), "32x128b"),
        Twin(
            layout.name, "emulator", good, specimen("tcgen05.cp: eight rows in 64 bytes", apart=4), WRONG_VALUES,
        ),
        Twin(proxy.name, "emulator", good, specimen("tcgen05.cp: no proxy fence", proxy=""), "fence.proxy.async"),
        Twin(waits.name, "emulator", good, specimen("tcgen05.cp: not waited for", commit=""), "reads lanes 0 to 31"),
        Twin(
            fence.name, "emulator", good, specimen("tcgen05.cp: no fence behind the wait", after=""),
            NO_FENCE,
        ),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("stage (along x down x 32 x 16 bytes)", "SMEM", "chunks, rows one behind the other", "8 bits"),
            ("x (32 x bytes)", "TMEM", "row r in the lanes r, r + 32, r + 64 and r + 96", "the same"),
        ),
        rules=(target, columns),
        guarantees=(lanes, exists, layout, proxy, waits, fence),
        meaning="x = stage.transpose(2, 1, 0, 3).reshape(32, -1)",
        cost="the bytes of the chunks from SMEM",
        example=good,
        twins=twins,
        variants=variants,
    )
