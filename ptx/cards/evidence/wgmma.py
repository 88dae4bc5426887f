"""Evidence for the rules of wgmma: the spellings that were tried, kernels around one multiplication, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.ptx.cards.evidence.wgmma_kernels import (
    Image,
    across_widths,
    added,
    fragments,
    picture_of,
    refused_forms,
    right_factor,
    right_operand,
    sum_held_by,
)
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
    markdown_table,
    swizzled_operand,
)
from tinygpu.ptx.isa.shared_operands import K_BYTES, MOST_COLUMNS
from tinygpu.ptx.isa.wgmma import ROWS, TYPES, Wgmma

_KINDS = tuple(TYPES)
_SUMS = ("f32", "f16", "s32")
_FLAGS = ("", ", 1, 1", ", 1, 1, 0, 0", ", 1, 1, 1, 1", ", 1, 1, 0")
# Architectures that have it, that have it not yet, and that no longer do.
_TARGETS = ("sm_90a", *(target for target, _ in TARGETS))


def variants() -> Iterator[Variant]:
    """Every pair of types by every sum, depth and ending; every number of columns up to 264 for each kind of sum."""
    for target in _TARGETS:
        exists = exists_on(Wgmma(), target)
        pairs = [(a, b) for a in _KINDS for b in (_KINDS if exists else TYPES[a][0])]
        for (a, b), d, k, flags in itertools.product(pairs, _SUMS, (8, 16, 32), _FLAGS):
            if exists or (d, k, flags) == (TYPES[a][1], 256 // dtype(a).bits, Wgmma().flags(dtype(a))):
                yield _variant(ROWS, 16, k, d, a, b, flags, target)
        for m, n in itertools.product((32, ROWS, 128), (16, 32)):
            yield _variant(m, n, 16, "f32", "f16", "f16", ", 1, 1, 0, 0", target)
        if exists:
            for (a, b), n in itertools.product(
                (("f16", "f16"), ("tf32", "tf32"), ("e4m3", "e5m2"), ("s8", "s8"), ("u8", "s8")), range(1, 265)
            ):
                flags = Wgmma().flags(dtype(a))
                yield _variant(ROWS, n, 256 // dtype(a).bits, TYPES[a][1], a, b, flags, target)


def _variant(m: int, n: int, k: int, d: str, a: str, b: str, flags: str, target: str) -> Variant:
    registers = ", ".join(f"%r{i}" for i in range(-(-n * dtype(d).bits // 64)))
    text = f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{d}.{a}.{b} {{{registers}}}, %d0, %d1, %p0{flags};"
    legal = exists_on(Wgmma(), target) and offered(m, n, k, d, a, b, flags)
    return Variant(text, target, legal, "" if legal else _left_out(m, n, k, d, a, b, flags, target))


def offered(m: int, n: int, k: int, d: str, a: str, b: str, flags: str) -> bool:
    """Whether a Wgmma is this combination, where there are any."""
    kinds, instruction = (dtype(a), dtype(b)), Wgmma(symbol("n"))
    try:
        accumulator = instruction.accumulator(*kinds)
    except TypeError:
        return False
    columns = evaluator(instruction.type_rules(*kinds)[0].condition.sympy)
    shape = Wgmma(n).shape(*kinds)
    endings = [instruction.flags(kinds[0], (x, y)) for x in (False, True) for y in (False, True)]
    return shape == (m, n, k) and accumulator.name == d and bool(columns({"n": n})) and flags in endings


def _left_out(m: int, n: int, k: int, d: str, a: str, b: str, flags: str, target: str) -> str:
    """Why a combination that exists is no Wgmma."""
    half = d == "f16" and (a == b == "f16" or a in ("e4m3", "e5m2"))
    if half and exists_on(Wgmma(), target) and offered(m, n, k, "f32", a, b, flags):
        return "sums in f16 lose bits that sums in f32 keep"
    return ""


def picture() -> str:
    """thread:value at the first rows and columns of the accumulator."""
    cells = {sum_held_by(t, v): f"{t}:{v}" for t in range(128) for v in range(8)}
    return picture_of(cells, (*range(3), 7, 8, 9, 15, 16, 17, 63), 16)


def _pictures() -> tuple[tuple[str, str], ...]:
    rows = []
    for a, (others, sums) in TYPES.items():
        kind = dtype(a)
        steps = "in steps of 8" if kind.is_float else "8, 16, 24 or 32, beyond in steps of 16"
        majors = "k, m or n" if kind.bits == 16 else "k"
        columns = f"8 to {MOST_COLUMNS}, {steps}" if kind.is_float else f"{steps} up to {MOST_COLUMNS}"
        rows.append((a, ", ".join(others), sums, f"m64nNk{256 // kind.bits}", columns, majors))
    titles = ("a", "b", "accumulator", "shape", "columns N", "contiguous along")
    return (
        ("Types and shapes", markdown_table(titles, rows)),
        ("The accumulator, thread:value at some rows; 4 values for every 8 columns", picture()),
    )


def specimen(
    title: str,
    n: int = 8,
    kinds: tuple[str, str] = ("f16", "f16"),
    swizzle: int = 32,
    *,
    transposed: bool = False,
    columns: int = 0,
    steps: tuple[int, int] = (K_BYTES, K_BYTES),
    code: int = 0,
    proxy: str = "fence.proxy.async.shared::cta;",
    ready: str = "bar.sync 0;",
    fence: str = "wgmma.fence.sync.aligned;",
    wait: str = "wgmma.wait_group.sync.aligned 0;",
    guard: str = "",
    overwrites: str = "",
    exchanged: bool = False,
) -> Specimen:
    """A warpgroup lays out two operands, multiplies them and adds a fragment that it finds thread by thread.

    swizzle     bytes of a row of a, and of b where it is contiguous along k; each 32 bytes are an instruction's
    transposed  b is contiguous along n: of rows of `columns` the second instruction's are multiplied
    steps       bytes from one instruction's a and b to the next one's along k
    code        of the swizzle of a, where it is not the one of its rows
    overwrites  what stands between the instructions and the wait for them
    exchanged   the first two registers of the accumulator
    """
    instruction, wide = Wgmma(n), (dtype(kinds[0]), dtype(kinds[1]))
    sums = instruction.accumulator(*wide).name
    a = Image("a", kinds[0], ROWS, 32 if transposed else swizzle, 0)
    b = right_operand(kinds[1], n, swizzle, a.size, transposed, columns)
    count = n // 2
    d = [f"%r{i}" for i in range(count)]
    named = [d[1], d[0], *d[2:]] if exchanged else d
    lines = [*a.written(count), *b.written(count), proxy, ready]
    lines += fragments("ld.global.v4.b32 {}, [%c{}];", d)
    lines += [guard, fence]
    for number in range(a.swizzle_bytes // K_BYTES):
        lines += a.described("%d0", count, code, number * steps[0])
        lines += b.described("%d1", count, 0, number * steps[1])
        flags = instruction.flags(wide[0], (False, transposed))
        lines.append(f"{instruction.text(*wide)} {{{', '.join(named)}}}, %d0, %d1, 1{flags};")
    lines += ["wgmma.commit_group.sync.aligned;", overwrites, wait, "$together:" if guard else ""]
    lines += fragments("st.global.v4.b32 [%out{1}], {0};", d)

    def meaning(x: Any, y: Any, c: Any) -> Any:
        return added(c, a.matrix(x).astype(np.float64) @ right_factor(b, y, n, transposed, columns))

    fields = (a.field, b.field, Field("c", sums, count), Field("out", sums, count, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(
        title, body, fields, meaning, 90, instruction.available(*wide)[1], 128, a.size + b.size, (), 1024, 1, True
    )


def cards() -> Iterator[Card]:
    """The card of wgmma."""
    instruction = Wgmma(symbol("n"))
    f16, s8 = dtype("f16"), dtype("s8")
    target = instruction.target_rule()
    floats, integers = (instruction.type_rules(kind, kind)[0] for kind in (f16, s8))
    operands = instruction.operand_rules(swizzled_operand(f16, "a"), swizzled_operand(f16, "b"))
    step_a, step_b, major, widths = operands
    label = instruction.label
    exists = Guarantee(f"{label} types", "operand types and accumulator are one of the table below", "assembler")
    fragment = Guarantee(
        f"{label} fragment", "the registers hold the accumulator pictured below, in their order", "emulator"
    )
    layout = Guarantee(f"{label} layout", "the descriptors name the swizzle in which the operands lie", "emulator")
    proxy = Guarantee(
        f"{label} proxy", "who wrote the operands by st.shared fences its writes for the asynchronous proxy", "emulator"
    )
    written = Guarantee(f"{label} written", "the operands are complete before they are multiplied", "emulator")
    fence = Guarantee(f"{label} fence", "wgmma.fence stands before the first instruction on its registers", "emulator")
    waits = Guarantee(f"{label} completion", "the group is waited for before its registers are used", "emulator")
    kept = Guarantee(f"{label} slot", "the operands stay as they are until the group is complete", "emulator")
    together = Guarantee(f"{label} convergence", "all threads of the warpgroup execute it together", "emulator")
    good = specimen("wgmma: 64 x 8 of f16")
    integer = specimen("wgmma: 64 x 32 of s8", 32, ("s8", "s8"))
    eight = specimen("wgmma: 64 x 16 of e4m3", 16, ("e4m3", "e4m3"))
    two = "wgmma: two instructions along k, {} bytes apart"
    rows = "wgmma: columns {} to {} of 96, in rows along n"
    half = "setp.ge.u32 %p0, %t, 64;\n@%p0 bra $together;"
    twins = (
        *refused_forms(good, integer, target, floats, integers, exists),
        Twin(
            step_a.name,
            "emulator",
            specimen(two.format(32), swizzle=64),
            specimen(two.format("of a 16"), swizzle=64, steps=(16, 32)),
            WRONG_VALUES,
        ),
        Twin(
            step_b.name,
            "emulator",
            specimen(two.format(32), swizzle=64),
            specimen(two.format("of b 16"), swizzle=64, steps=(32, 16)),
            WRONG_VALUES,
        ),
        Twin(major.name, "assembler", eight, eight.respelled("1, 1, 1;", "1, 1, 1, 0, 1;"), "wgmma"),
        across_widths(widths, rows, specimen),
        Twin(
            fragment.name,
            "emulator",
            good,
            specimen("wgmma: two registers of the accumulator exchanged", exchanged=True),
            WRONG_VALUES,
        ),
        Twin(layout.name, "emulator", good, specimen("wgmma: a as if swizzled 64 bytes wide", code=2), WRONG_VALUES),
        Twin(
            proxy.name,
            "emulator",
            good,
            specimen("wgmma: without a proxy fence", proxy=""),
            "without fence.proxy.async between the two",
        ),
        Twin(
            written.name, "emulator", good, specimen("wgmma: without a barrier", ready=""), "no barrier orders the two"
        ),
        Twin(
            fence.name,
            "emulator",
            good,
            specimen("wgmma: without its fence", fence=""),
            "is the first of its warpgroup and no wgmma.fence comes before it",
        ),
        Twin(
            waits.name, "emulator", good, specimen("wgmma: not waited for", wait=""), "wgmma.wait_group must come first"
        ),
        Twin(
            kept.name,
            "emulator",
            good,
            specimen("wgmma: a overwritten at once", overwrites="st.shared.b32 [%s], %t;"),
            "(wgmma of warps 0 to 3) may still be reading",
        ),
        Twin(
            together.name,
            "emulator",
            good,
            specimen("wgmma: half a warpgroup", guard=half),
            "waits at line",
        ),
    )
    yield Card(
        name="wgmma",
        instruction=instruction,
        operands=(
            ("a (64 x k)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes; k is 32 bytes", "see the table"),
            ("b (k x n)", "SMEM", "the same", "the same, or its partner in the table"),
            ("c (64 x n)", "RMEM", "n / 2 registers per thread of the warpgroup", "f32 or s32"),
        ),
        rules=(target, floats, integers, *operands),
        guarantees=(exists, fragment, layout, proxy, written, fence, waits, kept, together),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores per warpgroup (`tensor_flops`), and the operands' bytes from SMEM",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_pictures,
    )
