"""Evidence for the rules of tcgen05.mma: the spellings that were tried, kernels around one product, illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import symbol
from tinygpu.language.data_paths import columns_taken
from tinygpu.ptx.cards.evidence.tcgen05_kernels import (
    AFTER,
    COMMIT,
    FREE,
    NO_FENCE,
    Frame,
    described,
    held_of,
    loaded,
    waited,
)
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image, fragments, right_factor, right_operand
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
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_mma import KINDS, Tcgen05Mma


def variants() -> Iterator[Variant]:
    """Every kind, with operands of the right and of other forms, for every target."""
    for target, _ in TARGETS:
        exists = exists_on(Tcgen05Mma(), target)
        kinds = [k.name for k in KINDS]
        for kind, group, d in itertools.product((*kinds, "f32", "f64"), (0, 1, 3), ("[%r0]", "%r0", "[0]")):
            text = f"tcgen05.mma.cta_group::{group}.kind::{kind} {d}, %d0, %d1, 0x08040010, %p0;"
            yield Variant(text, target, exists and kind in kinds and (group, d) == (1, "[%r0]"))


def specimen(
    title: str,
    n: int = 16,
    kinds: tuple[str, str] = ("f16", "f16"),
    swizzle: int = 32,
    *,
    transposed: bool = False,
    columns: int = 0,
    steps: tuple[int, int] = (K_BYTES, K_BYTES),
    code: int = 0,
    said: int = 0,
    proxy: str = "fence.proxy.async.shared::cta;",
    begins: str = "setp.ne.u32 %p3, 0, 0;",
    commit: str = COMMIT,
    after: str = AFTER,
    overwrites: str = "",
    free: str = FREE,
    of: Callable[..., Tcgen05Mma] = Tcgen05Mma,
    ld: Tcgen05Ld | None = None,
    dense: bool = False,
    half: bool = False,
) -> Specimen:
    """A warpgroup lays out two operands, one thread has them multiplied, and each thread reads its row of the sums.

    swizzle     bytes of a row of a, and of b where it is contiguous along k; each 32 bytes are an instruction's
    transposed  b is contiguous along n: of rows of `columns` the second instruction's are multiplied
    steps       bytes from one instruction's a and b to the next one's along k
    code        of the swizzle of a, where it is not the one of its rows
    said        columns in the instruction descriptor, where it says others
    begins      whether something was added up before the first instruction
    overwrites  what stands behind the commit
    of, ld      the instructions that multiply and load
    half        sums are of f16
    dense       elements narrower than a byte are meant as if they lay one behind the other
    """
    wide = dtype(kinds[0]), dtype(kinds[1])
    ld = Tcgen05Ld(packed=half) if ld is None else ld
    sums = of(half=half).accumulator(*wide).name
    a = Image("a", kinds[0], of().rows, 32 if transposed else swizzle, 0)
    atom = of().atom(wide[1], transposed)
    b = right_operand(kinds[1], n, swizzle, a.size, transposed, columns, atom)
    taken = int(columns_taken(of().path(n)))
    each = taken // ld.windows
    d = [f"%r{i}" for i in range(each // ld.per_register)]
    frame = Frame(a.size + b.size, max(32, 1 << (n - 1).bit_length()), n, free=free)
    lines = [*a.written(n + 2), *b.written(n + 2), proxy, *frame.begin(), "@%p1 bra $issued;", begins]
    instruction = of(said or n, half=half)
    for number in range(a.swizzle_bytes // K_BYTES):
        lines += described(a, "%d0", n + 2, code, number * steps[0])
        lines += described(b, "%d1", n + 2, 0, number * steps[1])
        lines += [instruction.issue(*wide, f"%r{n}", "%d0", "%d1", (False, transposed), "%p3")]
        lines += ["setp.eq.u32 %p3, 0, 0;"]
    lines += [f"add.u32 %r{n + 2}, %s, {frame.at};", commit.format(f"%r{n + 2}"), overwrites, "$issued:"]
    lines += [*waited(frame.at)] if commit else ["bar.sync 0;"]
    lines += [after]
    lines += loaded(ld, d, f"%r{n + 1}", taken)
    lines += [*fragments("st.global.v4.b32 [%out{1}], {0};", d), *frame.end()]

    def meaning(x: Any, y: Any) -> Any:
        if dense:
            x, y = (unpadded(v, wide[i]) for i, v in enumerate((x, y)))
        product = a.matrix(x).astype(np.float64) @ right_factor(b, y, n, transposed, columns)
        return held_of(ld, product, of(n).path(n))

    fields = (a.field, b.field, Field("out", sums, each, "out"))
    body = "\n".join(line for line in lines if line)
    size = frame.at + 16
    return Specimen(title, body, fields, meaning, 100, (8, 6), 128, size, (), 1024, 1, True)


def unpadded(x: Any, kind: DType) -> Any:
    """Rows of 32 bytes in which 32 elements lie one behind the other, as if they had been padded."""
    size = 16 * kind.bits // 8
    rows = np.zeros((np.size(x) // K_BYTES, 2, 16), np.uint8)
    rows[:, :, :size] = np.reshape(x, (-1, K_BYTES))[:, : 2 * size].reshape(-1, 2, size)
    return rows.reshape(np.shape(x))


def _table() -> tuple[tuple[str, str], ...]:
    rows = []
    for kind in KINDS:
        bits = kind.bits
        majors = "k, m or n"
        if any(dtype(name).bits < 8 for name in kind.codes):
            majors = "k; of 8 bits also m or n"
        columns = f"16 to {MOST_COLUMNS}, in steps of 16"
        on = ", ".join(f"sm_{cc}" for cc in kind.targets)
        rows.append((f"`kind::{kind.name}`", ", ".join(kind.codes), kind.accumulator, 256 // bits, columns, majors, on))
    titles = ("kind", "a and b", "accumulator", "K", "columns N", "contiguous along", "on")
    return (("Kinds", markdown_table(titles, rows)),)


def cards() -> Iterator[Card]:
    """The card of tcgen05.mma."""
    instruction = Tcgen05Mma(symbol("n"))
    f16, s8, narrow = dtype("f16"), dtype("s8"), dtype("e2m1")
    target = instruction.target_rule()
    (floats,), (having, integers) = (instruction.type_rules(kind, kind) for kind in (f16, s8))
    operands = instruction.operand_rules(*(swizzled_operand(narrow, name, padded=True) for name in "ab"))
    step_a, step_b, major, widths = operands
    label = instruction.label
    exists = Guarantee(f"{label} types", "operand types are one of the table's pairs", "assembler")
    lanes = Guarantee(f"{label} lanes", "the accumulator begins at lane 0, and row r is in lane r", "emulator")
    begins = Guarantee(f"{label} begins", "the first product overwrites what is in the columns", "emulator")
    layout = Guarantee(f"{label} layout", "the descriptors name the swizzle in which the operands lie", "emulator")
    proxy = Guarantee(
        f"{label} proxy", "who wrote the operands by st.shared fences its writes for the asynchronous proxy", "emulator"
    )
    waits = Guarantee(f"{label} completion", "a commit is waited for before the sums are read", "emulator")
    kept = Guarantee(f"{label} slot", "the operands stay as they are until the commit has arrived", "emulator")
    fence = Guarantee(f"{label} fence", "tcgen05.fence::after_thread_sync stands behind the wait", "emulator")
    padded = Guarantee(
        f"{label} padding", "each 16 elements of 4 or 6 bits have 16 bytes, of which they fill the first", "emulator"
    )
    pairs = Guarantee(
        f"{label} atoms", "elements of 32 bits across k lie under a swizzle of 128 bytes that leaves 32 together",
        "emulator",
    )  # fmt: skip
    short = Guarantee(
        f"{label} sums", "of f16 by f16 they may be f16, each in the lower half of a cell", "emulator"
    )
    freed = Guarantee(f"{label} columns", "columns that were allocated are freed before the CTA ends", "emulator")
    good = specimen("tcgen05.mma: 128 x 16 of f16")
    integer = specimen("tcgen05.mma: 128 x 32 of s8", 32, ("s8", "s8"))
    two = "tcgen05.mma: two instructions along k, {} bytes apart"
    rows = "tcgen05.mma: columns {} to {} of 96, in rows along n"
    wide, long = (specimen(rows.format(n, 2 * n - 1), n, swizzle=64, transposed=True, columns=96) for n in (32, 48))
    fours, halves = ("e2m1", "e2m1"), Tcgen05Mma(16, half=True)
    mixed = specimen("tcgen05.mma: 128 x 16 of e2m1", 16, fours)
    word = f"{Tcgen05Mma(16).instruction_descriptor(narrow, narrow, (False, False)):#010x}"
    turned = f"{Tcgen05Mma(16).instruction_descriptor(narrow, narrow, (False, True)):#010x}"
    words = [f"{mma.instruction_descriptor(f16, f16, (False, False)):#010x}" for mma in (halves, Tcgen05Mma(16))]
    turn = specimen("tcgen05.mma: e2m1, b as if contiguous along n", 16, fours).respelled(word, turned)
    single = specimen("tcgen05.mma: 128 x 32 of tf32, b contiguous along n", 32, ("tf32", "tf32"), 128, transposed=True)
    chunks = specimen(
        "tcgen05.mma: tf32, b as if 16 bytes stayed together", 32, ("tf32", "tf32"), 128, transposed=True
    ).respelled("0x20004020", "0x40004040")
    adding = "setp.eq.u32 %p3, 0, 0;"
    elsewhere = good.respelled("kind::f16 [%r16]", "kind::f16 [%r16+2097152]")
    early = specimen("tcgen05.mma: a overwritten at once", overwrites="st.shared.b32 [%s], %t;")
    twins = (
        Twin(target.name, "assembler", good, replace(good, target=90), "tcgen05"),
        Twin(floats.name, "emulator", good, specimen("tcgen05.mma: 264 columns", said=264), "N is 264"),
        Twin(
            integers.name, "emulator", integer, specimen("tcgen05.mma: 40 columns", 32, ("s8", "s8"), said=40),
            "N is 40",
        ),
        Twin(
            having.name, "assembler", integer, replace(integer, target=103, isa=(8, 8)), "not supported on .target",
        ),
        Twin(exists.name, "assembler", good, good.respelled("kind::f16", "kind::f32"), "kind::f32"),
        Twin(
            step_a.name, "emulator", specimen(two.format(32), swizzle=64),
            specimen(two.format("of a 16"), swizzle=64, steps=(16, 32)), WRONG_VALUES,
        ),
        Twin(
            step_b.name, "emulator", specimen(two.format(32), swizzle=64),
            specimen(two.format("of b 16"), swizzle=64, steps=(32, 16)), WRONG_VALUES,
        ),
        Twin(widths.name, "emulator", wide, long, "bytes along N from byte"),
        Twin(major.name, "emulator", mixed, turn, "B is N-major, but e2m1 operands are K-major"),
        Twin(
            padded.name, "emulator", mixed,
            specimen("tcgen05.mma: e2m1 one behind the other", 16, fours, dense=True), WRONG_VALUES,
        ),
        Twin(pairs.name, "emulator", single, chunks, "N-major with 32-bit elements"),
        Twin(
            short.name, "emulator", specimen("tcgen05.mma: sums of f16", half=True),
            specimen("tcgen05.mma: sums of f32 as if of f16", half=True).respelled(*words), WRONG_VALUES,
        ),
        Twin(lanes.name, "emulator", good, elsewhere, "at lane 32"),
        Twin(
            begins.name, "emulator", good, specimen("tcgen05.mma: adds at once", begins=adding),
            "a value that was never initialised",
        ),
        Twin(layout.name, "emulator", good, specimen("tcgen05.mma: a as if 64 bytes wide", code=4), WRONG_VALUES),
        Twin(proxy.name, "emulator", good, specimen("tcgen05.mma: no proxy fence", proxy=""), "fence.proxy.async"),
        Twin(
            waits.name, "emulator", good, specimen("tcgen05.mma: not waited for", commit=""),
            "reads lanes 0 to 31, columns 0 to 15",
        ),
        Twin(kept.name, "emulator", good, early, "may still be reading"),
        Twin(
            fence.name, "emulator", good, specimen("tcgen05.mma: no fence behind the wait", after=""),
            NO_FENCE,
        ),
        Twin(freed.name, "emulator", good, specimen("tcgen05.mma: columns are kept", free=""), "the CTA exits with"),
    )  # fmt: skip
    yield Card(
        name="tcgen05.mma",
        instruction=instruction,
        operands=(
            ("a (128 x k)", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes; k is 32 bytes", "see the table"),
            ("b (k x n)", "SMEM", "the same", "of the same kind; of kind::f16 the same type"),
            ("c (128 x n)", "TMEM", "row r in lane r, a column of 32 bits for each of n", "f32, s32 or f16"),
        ),
        rules=(target, floats, having, integers, *operands),
        guarantees=(exists, lanes, begins, layout, padded, pairs, short, proxy, waits, kept, fence, freed),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores (`tensor_flops`), and the operands' bytes from SMEM",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_table,
    )
