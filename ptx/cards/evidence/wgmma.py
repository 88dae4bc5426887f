"""Evidence for the rules of wgmma: the spellings that were tried, kernels around one multiplication, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
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
from tinygpu.ptx.isa.wgmma import K_BYTES, MOST_COLUMNS, ROWS, TYPES, Wgmma

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
    columns = evaluator(instruction.target_rule_for(*kinds).condition.sympy)
    shape = Wgmma(n).shape(*kinds)
    endings = [instruction.flags(kinds[0], (x, y)) for x in (False, True) for y in (False, True)]
    return shape == (m, n, k) and accumulator.name == d and bool(columns({"n": n})) and flags in endings


def _left_out(m: int, n: int, k: int, d: str, a: str, b: str, flags: str, target: str) -> str:
    """Why a combination that exists is no Wgmma."""
    half = d == "f16" and (a == b == "f16" or a in ("e4m3", "e5m2"))
    if half and exists_on(Wgmma(), target) and offered(m, n, k, "f32", a, b, flags):
        return "sums in f16 lose bits that sums in f32 keep"
    return ""


def held_by(thread: int, value: int) -> tuple[int, int]:
    """(row, column) of an element of the accumulator: the value-th of a thread of the warpgroup.

    PTX ISA, wgmma register fragment D: of every 8 columns a thread holds two neighbours in each of two rows.
    """
    warp, group, place = thread // 32, thread % 32 // 4, thread % 4
    return 16 * warp + group + 8 * (value // 2 % 2), 8 * (value // 4) + 2 * place + value % 2


def picture() -> str:
    """thread:value at the first rows and columns of the accumulator."""
    cells = {held_by(t, v): f"{t}:{v}" for t in range(128) for v in range(8)}
    lines = ["     " + " ".join(f"{c:>5}" for c in range(16))]
    for row in (*range(3), 7, 8, 9, 15, 16, 17, 63):
        lines.append(f"{row:>4} " + " ".join(f"{cells[row, c]:>5}" for c in range(16)))
    return "\n".join(lines)


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


@dataclass(frozen=True, slots=True)
class Image:
    """An operand in shared memory as a specimen has it: `rows` as wide as the swizzle, `blocks` times.

    at     bytes from the start of shared memory
    start  bytes from there to what the instruction reads first
    """

    name: str
    kind: str
    rows: int
    swizzle_bytes: int
    at: int
    blocks: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        if self.size % (128 * dtype(self.kind).bytes):
            raise ValueError(
                f"{self.size} bytes of {self.name} are not whole elements of {self.kind} for each of 128 threads"
            )

    @property
    def size(self) -> int:
        return self.rows * self.swizzle_bytes * self.blocks

    @property
    def field(self) -> Field:
        return Field(self.name, self.kind, self.size // 128 // dtype(self.kind).bytes)

    def written(self, first: int) -> Iterator[str]:
        """Every thread writes its part, with registers from `first` on."""
        part = self.size // 128
        piece = next(w for w in (16, 8, 4, 2) if part % w == 0)
        at, bits, value = f"%r{first}", f"%r{first + 1}", [f"%r{first + 2 + i}" for i in range(4)]
        words = ", ".join(value[: piece // 4])
        move = {16: f"v4.b32 {{{words}}}", 8: f"v2.b32 {{{words}}}", 4: f"b32 {words}", 2: "b16 %h0"}[piece]
        kind, registers = move.split(" ", 1)
        for offset in range(0, part, piece):
            yield f"mad.lo.u32 {at}, %t, {part}, {offset};" if offset else f"mul.lo.u32 {at}, %t, {part};"
            yield f"shr.u32 {bits}, {at}, 3;"
            yield f"and.b32 {bits}, {bits}, {self.swizzle_bytes - 16};"
            yield f"xor.b32 {at}, {at}, {bits};"
            yield f"add.u32 {at}, {at}, %s;"
            yield f"ld.global.{kind} {registers}, [%{self.name}{_near(offset)}];"
            yield f"st.shared.{kind} [{at}{_near(self.at)}], {registers};"

    def described(self, to: str, first: int, code: int = 0, further: int = 0) -> Iterator[str]:
        """The descriptor of an instruction's operand, `further` bytes behind the start."""
        word = 8 * self.swizzle_bytes // 16 | (code or {128: 1, 64: 2, 32: 3}[self.swizzle_bytes]) << 30
        bytes_in = self.at + self.start + further
        if bytes_in:
            yield f"add.u32 %r{first}, %s, {bytes_in};"
        yield f"shr.u32 %r{first}, {f'%r{first}' if bytes_in else '%s'}, 4;"
        if self.blocks > 1:
            yield f"or.b32 %r{first}, %r{first}, {self.rows * self.swizzle_bytes // 16 << 16};"
        yield f"mov.b32 %r{first + 1}, {word:#010x};"
        yield f"mov.b64 {to}, {{%r{first}, %r{first + 1}}};"

    def matrix(self, x: Any) -> Any:
        """(rows, elements of a row) from the field's array."""
        return np.asarray(x).reshape(self.blocks, self.rows, -1).transpose(1, 0, 2).reshape(self.rows, -1)


def _near(offset: int) -> str:
    return f"+{offset}" if offset else ""


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
    if transposed:
        width = n * wide[1].bytes
        blocks = columns * wide[1].bytes // swizzle
        start = width // swizzle * 16 * swizzle + width % swizzle if columns > n else 0
        b = Image("b", kinds[1], 16, swizzle, a.size, blocks, start)
    else:
        b = Image("b", kinds[1], n, swizzle, a.size)
    count = n // 2
    d = [f"%r{i}" for i in range(count)]
    named = [d[1], d[0], *d[2:]] if exchanged else d
    lines = [*a.written(count), *b.written(count), proxy, ready]
    lines += [f"ld.global.v4.b32 {{{', '.join(d[i : i + 4])}}}, [%c{_near(4 * i)}];" for i in range(0, count, 4)]
    lines += [guard, fence]
    for number in range(a.swizzle_bytes // K_BYTES):
        lines += a.described("%d0", count, code, number * steps[0])
        lines += b.described("%d1", count, 0, number * steps[1])
        flags = instruction.flags(wide[0], (False, transposed))
        lines.append(f"{instruction.text(*wide)} {{{', '.join(named)}}}, %d0, %d1, 1{flags};")
    lines += ["wgmma.commit_group.sync.aligned;", overwrites, wait, "$together:" if guard else ""]
    lines += [f"st.global.v4.b32 [%out{_near(4 * i)}], {{{', '.join(d[i : i + 4])}}};" for i in range(0, count, 4)]

    def meaning(x: Any, y: Any, c: Any) -> Any:
        right = b.matrix(y).astype(np.float64)
        right = right[:, n : 2 * n] if columns > n else right if transposed else right.T
        product = a.matrix(x).astype(np.float64) @ right
        return c + np.array([[product[held_by(t, v)] for v in range(count)] for t in range(128)])

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
    floats, integers = (instruction.target_rule_for(kind, kind) for kind in (f16, s8))
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
        Twin(target.name, "assembler", good, replace(good, target=100), "not supported on .target 'sm_100a'"),
        Twin(floats.name, "assembler", good, _spelled(good, "m64n8k16", "m64n12k16"), "m64n12k16"),
        Twin(integers.name, "assembler", integer, _spelled(integer, "m64n32k32", "m64n40k32"), "m64n40k32"),
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
        Twin(major.name, "assembler", eight, _spelled(eight, "1, 1, 1;", "1, 1, 1, 0, 1;"), "wgmma"),
        Twin(
            widths.name,
            "emulator",
            specimen(rows.format(16, 31), 16, swizzle=64, transposed=True, columns=96),
            specimen(rows.format(24, 47), 24, swizzle=64, transposed=True, columns=96),
            "it would run into the next row",
        ),
        Twin(exists.name, "assembler", good, _spelled(good, "f32.f16.f16", "f32.f16.bf16"), "wgmma"),
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


def _spelled(s: Specimen, old: str, new: str) -> Specimen:
    return replace(s, body=s.body.replace(old, new))
