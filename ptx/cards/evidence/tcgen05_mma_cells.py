"""Evidence for the rules of tcgen05.mma with a in tensor memory: spellings, kernels with one product, illegal twins."""

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
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, BEFORE, COMMIT, Frame, described, multiplied_and_read
from tinygpu.ptx.cards.evidence.wgmma_kernels import fragments, right_factor, right_operand
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
    swizzled_operand,
)
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.tcgen05_mma import KINDS
from tinygpu.ptx.isa.tcgen05_mma_cells import Tcgen05MmaCells

WORDS = K_BYTES // 4  # columns of a that one instruction multiplies
WAIT = "tcgen05.wait::st.sync.aligned;"


def variants() -> Iterator[Variant]:
    """Every kind, with a as an address and otherwise, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05MmaCells(), target)
        kinds = [k.name for k in KINDS]
        for kind, group, a in itertools.product((*kinds, "f32", "f64"), (0, 1, 3), ("[%r1]", "%r1", "[0]")):
            text = f"tcgen05.mma.cta_group::{group}.kind::{kind} [%r0], {a}, %d1, 0x08040010, %p0;"
            yield Variant(text, target, exists and kind in kinds and (group, a) == (1, "[%r1]"))


def specimen(
    title: str,
    n: int = 16,
    kinds: tuple[str, str] = ("f16", "f16"),
    swizzle: int = 32,
    *,
    transposed: bool = False,
    columns: int = 0,
    steps: tuple[int, int] = (WORDS, K_BYTES),
    said: int = 0,
    lane: int = 0,
    wait: str = WAIT,
    before: str = BEFORE,
) -> Specimen:
    """Each thread of a warpgroup stores its row of a, one has it multiplied, and each reads its row of the sums.

    swizzle     bytes of a row of b where it is contiguous along k; each 32 bytes are an instruction's
    transposed  b is contiguous along n: of rows of `columns` the second instruction's are multiplied
    steps       columns of a, and bytes of b, from one instruction to the next along k
    said        columns in the instruction descriptor, where it says others
    lane        at which a is said to begin
    """
    wide = dtype(kinds[0]), dtype(kinds[1])
    instruction = Tcgen05MmaCells(said or n)
    sums = instruction.accumulator(*wide).name
    b = right_operand(kinds[1], n, swizzle, 0, transposed, columns)
    products = 1 if transposed else swizzle // K_BYTES
    d = [f"%r{i}" for i in range(n)]
    held = [f"%r{n + 4 + i}" for i in range(WORDS * products)]
    frame, first = Frame(b.size, 64, n), 48  # a lies behind the columns of the sums
    lines = [*b.written(n + 2), "fence.proxy.async.shared::cta;", *frame.begin()]
    lines += fragments("ld.global.v4.b32 {}, [%a{}];", held)
    lines.append(f"tcgen05.st.sync.aligned.32x32b.x{len(held)}.b32 [%r{n + 1}+{first}], {{{', '.join(held)}}};")
    lines += [wait, before, "bar.sync 0;", AFTER, "@%p1 bra $issued;", "setp.ne.u32 %p3, 0, 0;"]
    for number in range(products):
        lines += described(b, "%d1", n + 2, 0, number * steps[1])
        a = f"[%r{n}+{(lane << 16) + first + number * steps[0]}]"
        lines += [instruction.issue(*wide, f"%r{n}", a, "%d1", (False, transposed), "%p3")]
        lines += ["setp.eq.u32 %p3, 0, 0;"]
    lines += multiplied_and_read(frame, f"%r{n + 2}", d, COMMIT)

    def meaning(x: Any, y: Any) -> Any:
        return x.astype(np.float64) @ right_factor(b, y, n, transposed, columns)

    row = Field("a", kinds[0], products * K_BYTES // wide[0].bytes)
    fields = (row, b.field, Field("out", sums, n, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, frame.at + 16, (), 1024, 1, True)


def cards() -> Iterator[Card]:
    """The card of tcgen05.mma with a in tensor memory."""
    instruction = Tcgen05MmaCells(symbol("n"))
    f16, s8, bytes_of, narrow = dtype("f16"), dtype("s8"), dtype("e4m3"), dtype("e2m1")
    target = instruction.target_rule()
    (floats,), (having, integers) = (instruction.type_rules(kind, kind) for kind in (f16, s8))
    extents = (symbol("rows"), symbol("columns"))
    cells = Tile("a", TMEM, bytes_of, extents, (expr(0), expr(0)))
    step_a, step_b, major, widths = instruction.operand_rules(cells, swizzled_operand(narrow, "b", padded=True))
    label = instruction.label
    exists = Guarantee(f"{label} types", "operand types are one of tcgen05.mma's pairs", "assembler")
    lanes = Guarantee(f"{label} lanes", "a begins at lane 0 as the accumulator does, row r in lane r", "emulator")
    waits = Guarantee(f"{label} stored", "who stores a waits for its stores", "emulator")
    fence = Guarantee(
        f"{label} fence", "tcgen05.fence::before_thread_sync stands between the stores and the meeting", "emulator"
    )
    good = specimen("tcgen05.mma: 128 x 16 of f16, a in tensor memory")
    integer = specimen("tcgen05.mma: 128 x 32 of s8, a in tensor memory", 32, ("s8", "s8"))
    two = "tcgen05.mma: two instructions along k, a in tensor memory, {}"
    rows = "tcgen05.mma: a in tensor memory, columns {} to {} of 96, in rows along n"
    wide, long = (specimen(rows.format(n, 2 * n - 1), n, swizzle=64, transposed=True, columns=96) for n in (32, 48))
    single = specimen("tcgen05.mma: 128 x 16 of e4m3 in tensor memory by e2m1", 16, ("e4m3", "e2m1"))
    word_of = Tcgen05MmaCells(16).instruction_descriptor
    word, turned = (f"{word_of(bytes_of, narrow, (False, across)):#010x}" for across in (False, True))
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(
            floats.name, "emulator", good, specimen("tcgen05.mma: 264 columns, a in tensor memory", said=264),
            "N is 264",
        ),
        Twin(
            integers.name, "emulator", integer,
            specimen("tcgen05.mma: 40 columns, a in tensor memory", 32, ("s8", "s8"), said=40), "N is 40",
        ),
        Twin(
            having.name, "assembler", integer, replace(integer, target=103, isa=(8, 8)), "not supported on .target",
        ),
        Twin(
            step_a.name, "emulator", specimen(two.format("8 columns apart"), swizzle=64),
            specimen(two.format("4 columns apart"), swizzle=64, steps=(4, 32)), WRONG_VALUES,
        ),
        Twin(
            step_b.name, "emulator", specimen(two.format("b 32 bytes apart"), swizzle=64),
            specimen(two.format("b 16 bytes apart"), swizzle=64, steps=(8, 16)), WRONG_VALUES,
        ),
        Twin(widths.name, "emulator", wide, long, "bytes along N from byte"),
        Twin(
            major.name, "emulator", single,
            replace(single.respelled(word, turned), title="tcgen05.mma: e2m1, b as if contiguous along n"),
            "B is N-major, but e2m1 operands are K-major",
        ),
        Twin(exists.name, "assembler", good, good.respelled("kind::f16", "kind::f32"), "kind::f32"),
        Twin(lanes.name, "emulator", good, specimen("tcgen05.mma: a from lane 32 on", lane=32), "lane 32"),
        Twin(waits.name, "emulator", good, specimen("tcgen05.mma: stores are not waited for", wait=""), "wait::st"),
        Twin(
            fence.name, "emulator", good, specimen("tcgen05.mma: no fence behind the stores", before=""),
            "before_thread_sync",
        ),
    )  # fmt: skip
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (128 x k)", "TMEM", "row r in lane r, k along 8 columns", "as tcgen05.mma"),
            ("b (k x n)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "as tcgen05.mma"),
            ("c (128 x n)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32 or s32"),
        ),
        rules=(target, floats, having, integers, step_a, step_b, widths, major),
        guarantees=(exists, lanes, waits, fence),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores (`tensor_flops`), and the bytes of b from SMEM",
        example=good,
        twins=twins,
        variants=variants,
    )
