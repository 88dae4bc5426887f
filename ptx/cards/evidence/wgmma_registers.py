"""Evidence for the rules of wgmma with its left operand in registers: spellings, kernels, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.ptx.cards.evidence.wgmma_kernels import (
    across_widths,
    added,
    fragments,
    picture_of,
    refused_forms,
    right_factor,
    right_operand,
)
from tinygpu.ptx.cards.specimen import WRONG_VALUES, Card, Field, Guarantee, Specimen, Twin, Variant, swizzled_operand
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.wgmma import ROWS, TYPES
from tinygpu.ptx.isa.wgmma_registers import WgmmaRegisters

_FLAGS = ("", ", 1, 1", ", 1, 1, 0", ", 1, 1, 1", ", 1, 1, 0, 0")
WORD_BYTES = 4
WORDS = 4  # of one instruction's a in each thread


def variants() -> Iterator[Variant]:
    """Every pair of types by every depth and ending; every number of columns up to 264 for each kind of sum."""
    for (a, b), k, flags in itertools.product(itertools.product(TYPES, TYPES), (8, 16, 32), _FLAGS):
        yield _variant(16, k, a, b, flags)
    pairs = (("f16", "f16"), ("tf32", "tf32"), ("e4m3", "e5m2"), ("s8", "s8"))
    for (a, b), n in itertools.product(pairs, range(1, 265)):
        yield _variant(n, 256 // dtype(a).bits, a, b, WgmmaRegisters().flags(dtype(a)))
    for target in ("sm_90", "sm_100a", "sm_120"):
        yield replace(_variant(16, 16, "f16", "f16", ", 1, 1, 0"), target=target, legal=False)


def _variant(n: int, k: int, a: str, b: str, flags: str) -> Variant:
    sums = TYPES[a][1]
    registers = ", ".join(f"%r{i}" for i in range(4, 4 + -(-n // 2)))
    text = (
        f"wgmma.mma_async.sync.aligned.m{ROWS}n{n}k{k}.{sums}.{a}.{b} {{{registers}}}, {{%r0, %r1, %r2, %r3}}, %d1, "
        f"%p0{flags};"
    )
    return Variant(text, "sm_90a", offered(n, k, a, b, flags))


def offered(n: int, k: int, a: str, b: str, flags: str) -> bool:
    """Whether a WgmmaRegisters is this combination."""
    kinds, instruction = (dtype(a), dtype(b)), WgmmaRegisters(symbol("n"))
    try:
        instruction.accumulator(*kinds)
    except TypeError:
        return False
    columns = evaluator(instruction.type_rules(*kinds)[0].condition.sympy)
    endings = [instruction.flags(kinds[0], (False, major)) for major in (False, True)]
    return k == 256 // kinds[0].bits and bool(columns({"n": n})) and flags in endings


def held_by(thread: int, element: int, kind: str) -> tuple[int, int]:
    """(row, column) of an element of a: the element-th of a thread of the warpgroup.

    PTX ISA, wgmma register fragment A: of 16 rows of each warp, pieces of 4 bytes in two rows, 8 apart, and then the
    same 16 bytes further along k.
    """
    warp, group, place = thread // 32, thread % 32 // 4, thread % 4
    per = WORD_BYTES // dtype(kind).bytes
    word, within = element // per, element % per
    return 16 * warp + group + 8 * (word % 2), per * (4 * (word // 2) + place) + within


def picture(kind: str = "f16") -> str:
    """thread:element at the first rows of a."""
    elements = WORDS * WORD_BYTES // dtype(kind).bytes
    cells = {held_by(t, e, kind): f"{t}:{e}" for t in range(128) for e in range(elements)}
    columns = K_BYTES // dtype(kind).bytes
    return picture_of(cells, (0, 1, 7, 8, 9, 15, 16, 63), columns)


def specimen(
    title: str,
    n: int = 8,
    kinds: tuple[str, str] = ("f16", "f16"),
    swizzle: int = 32,
    *,
    transposed: bool = False,
    columns: int = 0,
    step: int = K_BYTES,
    fence: str = "wgmma.fence.sync.aligned;",
    overwrites: str = "",
    exchanged: bool = False,
) -> Specimen:
    """A warpgroup loads fragments of a thread by thread, lays out b, multiplies, and adds a fragment that it finds.

    swizzle     bytes of a row of b where it is contiguous along k; each 32 bytes are an instruction's
    transposed  b is contiguous along n: of rows of `columns` the second instruction's are multiplied
    step        bytes from one instruction's b to the next one's along k
    overwrites  what stands between the instructions and the wait for them
    exchanged   the first two registers of a
    """
    instruction, wide = WgmmaRegisters(n), (dtype(kinds[0]), dtype(kinds[1]))
    sums = instruction.accumulator(*wide).name
    b = right_operand(kinds[1], n, swizzle, 0, transposed, columns)
    products = 1 if transposed else swizzle // K_BYTES
    count = n // 2
    d = [f"%r{i}" for i in range(count)]
    a = [f"%r{count + i}" for i in range(WORDS * products)]
    scratch = count + len(a)
    lines = [*b.written(scratch), "fence.proxy.async.shared::cta;", "bar.sync 0;"]
    lines += fragments("ld.global.v4.b32 {}, [%c{}];", d)
    lines += fragments("ld.global.v4.b32 {}, [%a{}];", a)
    lines.append(fence)
    flags = instruction.flags(wide[0], (False, transposed))
    for number in range(products):
        lines += b.described("%d1", scratch, 0, number * step)
        own = a[WORDS * number : WORDS * (number + 1)]
        own = [own[1], own[0], *own[2:]] if exchanged else own
        lines.append(f"{instruction.text(*wide)} {{{', '.join(d)}}}, {{{', '.join(own)}}}, %d1, 1{flags};")
    lines += ["wgmma.commit_group.sync.aligned;", overwrites, "wgmma.wait_group.sync.aligned 0;"]
    lines += fragments("st.global.v4.b32 [%out{1}], {0};", d)
    each = WORDS * WORD_BYTES // wide[0].bytes

    def meaning(x: Any, y: Any, c: Any) -> Any:
        left = np.zeros((ROWS, products * K_BYTES // wide[0].bytes))
        for t, e in itertools.product(range(128), range(each * products)):
            row, column = held_by(t, e % each, kinds[0])
            left[row, e // each * (K_BYTES // wide[0].bytes) + column] = x[t, e]
        return added(c, left @ right_factor(b, y, n, transposed, columns))

    fields = (
        Field("a", kinds[0], each * products), b.field, Field("c", sums, count), Field("out", sums, count, "out"),
    )  # fmt: skip
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning, 90, instruction.available(*wide)[1], 128, b.size, (), 1024, 1, True)


def cards() -> Iterator[Card]:
    """The card of wgmma with a in registers."""
    instruction = WgmmaRegisters(symbol("n"))
    f16, s8 = dtype("f16"), dtype("s8")
    target = instruction.target_rule()
    floats, integers = (instruction.type_rules(kind, kind)[0] for kind in (f16, s8))
    extents = (symbol("rows"), symbol("columns"))
    held = Tile("a", RMEM, f16, extents, (expr(0), expr(0)))
    step, major, widths = instruction.operand_rules(held, swizzled_operand(f16, "b"))
    label = instruction.label
    exists = Guarantee(f"{label} types", "operand types and accumulator are one of wgmma's table", "assembler")
    fragment = Guarantee(f"{label} fragment", "the registers hold a as pictured below, in their order", "emulator")
    fence = Guarantee(f"{label} fence", "wgmma.fence stands between writing a and the first instruction", "emulator")
    kept = Guarantee(f"{label} kept", "the registers of a stay as they are until the group is complete", "emulator")
    good = specimen("wgmma: 64 x 8 of f16, a in registers")
    integer = specimen("wgmma: 64 x 32 of s8, a in registers", 32, ("s8", "s8"))
    eight = specimen("wgmma: 64 x 16 of e4m3, a in registers", 16, ("e4m3", "e4m3"))
    two = "wgmma: two instructions along k, a in registers, b {} bytes apart"
    rows = "wgmma: a in registers, columns {} to {} of 96, in rows along n"
    twins = (
        *refused_forms(good, integer, target, floats, integers, exists),
        Twin(
            step.name,
            "emulator",
            specimen(two.format(32), swizzle=64),
            specimen(two.format(16), swizzle=64, step=16),
            WRONG_VALUES,
        ),
        Twin(major.name, "assembler", eight, eight.respelled("1, 1, 1;", "1, 1, 1, 1;"), "wgmma"),
        across_widths(widths, rows, specimen),
        Twin(
            fragment.name,
            "emulator",
            good,
            specimen("wgmma: two registers of a exchanged", exchanged=True),
            WRONG_VALUES,
        ),
        Twin(
            fence.name,
            "emulator",
            good,
            specimen("wgmma: a in registers, without a fence", fence=""),
            "is the first of its warpgroup and no wgmma.fence comes before it",
        ),
        Twin(
            kept.name,
            "emulator",
            good,
            specimen("wgmma: a register of a overwritten at once", overwrites="mov.u32 %r4, 0;"),
            "wgmma.wait_group must come first",
        ),
    )
    yield Card(
        name=label,
        instruction=instruction,
        operands=(
            ("a (64 x k)", "RMEM", "4 registers per thread of the warpgroup; k is 32 bytes", "as wgmma"),
            ("b (k x n)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "as wgmma"),
            ("c (64 x n)", "RMEM", "n / 2 registers per thread of the warpgroup", "f32 or s32"),
        ),
        rules=(target, floats, integers, step, major, widths),
        guarantees=(exists, fragment, fence, kept),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores per warpgroup (`tensor_flops`), and the bytes of b from SMEM",
        example=good,
        twins=twins,
        variants=variants,
        pictures=lambda: (("a of 16-bit elements, thread:element at some rows", picture()),),
    )
