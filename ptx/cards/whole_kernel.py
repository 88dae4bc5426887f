"""A whole matmul on tensor memory, step by step, for docs/blackwell.md: who does what, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.ptx.cards.evidence.whole_matmul import MATMUL, PAIR, SCALED
from tinygpu.ptx.cards.evidence.whole_matmul_mistakes import OF_A_PAIR, OF_ONE, OF_SCALES
from tinygpu.ptx.cards.page import difference
from tinygpu.ptx.cards.specimen import WRONG_VALUES, markdown_table

# (who, what, what must have happened before)
STEPS = (
    (
        "host", "tensor maps of a and b: boxes of a stage's tile, whose contiguous side is as wide as the swizzle that "
        "the matrix descriptors name too; what lies beyond the tensors comes as zeros",
        "pointers and strides are multiples of 16 bytes",
    ),
    (
        "one thread",
        "`mbarrier.init`: of each stage *full* (1 arrival, and the bytes of both tiles) and *empty* (1: a commit); of "
        "each slot of sums *full* (1: a commit) and *empty* (an arrival of each warp that reads it); then "
        "`fence.mbarrier_init.release.cluster`",
        "",
    ),
    (
        "one warp", "`tcgen05.alloc` of a power of two of columns, and `tcgen05.relinquish_alloc_permit`",
        "all 32 lanes are together",
    ),
    (
        "all threads", "read the address of the columns from shared memory",
        "`tcgen05.fence::before_thread_sync`, `bar.sync`, `tcgen05.fence::after_thread_sync`",
    ),
    (
        "producer, one thread of a warp", "for each round: `mbarrier.arrive.expect_tx` at *full*, then both TMA loads",
        "*empty* of the stage, in the phase of its turn; the first turn of a fresh barrier waits for parity 1, and "
        "passes",
    ),
    (
        "multiplier, one thread of a warp",
        "for each round and each 32 bytes of k: `tcgen05.mma` with the two descriptors moved along k (rows along k: "
        "by 2, which is 32 bytes; rows along m or n: by that many rows); the first of a tile does not add to d",
        "*empty* of the slot of sums, *full* of the stage, and `tcgen05.fence::after_thread_sync` behind each wait",
    ),
    (
        "the same thread", "`tcgen05.commit` to *empty* of the stage; behind the last round one to *full* of the sums",
        "nothing: a commit arrives when all products before it are complete",
    ),
    (
        "epilogue, four warps, of which warp w has w % 4 = its quarter of the lanes",
        "`tcgen05.ld` of its lanes, a piece of the columns at a time, and `tcgen05.wait::ld` before values are used",
        "*full* of the sums, and `tcgen05.fence::after_thread_sync`",
    ),
    (
        "epilogue", "`mbarrier.arrive` at *empty* of the sums, one lane of each warp; converts and stores",
        "`tcgen05.wait::ld` behind the last load, and `tcgen05.fence::before_thread_sync`",
    ),
    (
        "the warp that allocated", "`tcgen05.dealloc`",
        "`tcgen05.fence::before_thread_sync`, `bar.sync` of all, `tcgen05.fence::after_thread_sync`",
    ),
)  # fmt: skip


# (what to decide or write, where it is told)
ORDER = (
    ("the kind, and M, N of an instruction: a tile of sums has M rows, or 2 M by a pair", "[tcgen05.mma](#tcgen05mma)"),
    (
        "columns of tensor memory: N for each slot of sums, 4 for each 128 x 4 scales; a power of two in all",
        "[Tensor memory](#tensor-memory), [Block scales](#block-scales)",
    ),
    (
        "how operands lie in shared memory, and with it boxes and swizzles of tensor maps, bytes of a stage, how many "
        "stages fit (227 KB, stages at multiples of 1024 bytes), and the matrix descriptors",
        "[Operands as TMA lays them](#operands-as-tma-lays-them)",
    ),
    ("the instruction descriptor", "[Words of common products](#words-of-common-products)"),
    ("who does what, and which mbarriers there are, with their counts", "[A whole kernel](#a-whole-kernel)"),
    ("the loops of the producer and of the multiplier", "[Written out](#written-out)"),
    (
        "what waits for what",
        "[what is complete when](#tcgen05commit-tcgen05wait-and-tcgen05fence-what-is-complete-when)",
    ),
    ("how sums come to registers", "[tcgen05.st and tcgen05.ld](#tcgen05st-and-tcgen05ld)"),
    (
        "two CTAs, block scales",
        "[What a pair changes](#what-a-pair-changes), [what scales change](#what-block-scales-change)",
    ),
    ("assembling and running it", "[Running a kernel of your own](#running-a-kernel-of-your-own)"),
    ("what is wrong with it", "[What goes wrong](#what-goes-wrong)"),
)  # fmt: skip
RUNNING = """\
from pathlib import Path

import numpy as np

from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import TensorMap, emulate

ptx = Path("matmul.ptx").read_text()
cubin = assemble(ptx, "sm_100a")  # or an AssemblerError, which names lines of the text
assert cubin.registers <= 128
rng = np.random.default_rng(0)
a, b = (rng.integers(-3, 4, (rows, 256)).astype(np.float16) for rows in (384, 128))  # whole numbers: sums are exact
for order in ("late", "early", "random", "spurious"):
    c = np.full((384, 128), np.nan, np.float32)
    maps = [TensorMap(rows, box=(64, 128), swizzle="128B") for rows in (a, b)]  # the contiguous side first
    report = emulate(ptx, grid=1, block=256, args=[a, b, c, *maps], dynamic_smem=98432, order=order)
    assert (report.faults, report.advisories, report.unfinished) == ((), (), ())
    assert (c == a.astype(np.float32) @ b.T.astype(np.float32)).all()"""
COMMAND = """\
tinygpu emulate matmul.ptx --grid 1 --block 256 --smem 98432 \\
    --arg 'a=integers:f16[384,256][-3..3]' --arg 'b=integers:f16[128,256][-3..3]' --arg 'out=empty:f32[384,128]' \\
    --arg 'a_map=tensormap:a box=64,128 swizzle=128B' --arg 'b_map=tensormap:b box=64,128 swizzle=128B' \\
    --save out=c.npy"""


def beginning() -> Iterator[str]:
    """How to go through the page, and how to run what one has written."""
    yield "## In the order in which one writes"
    yield markdown_table(("what", "where"), ORDER)
    yield "## Running a kernel of your own"
    yield (
        "The assembler is the one of CUDA, in this process (nvJitLink); it knows spellings, types and `.version`: 8.6 "
        "for all that is here, 8.8 for `.block16` and `.block32`. [The emulator](emulator.md) runs the text on NumPy "
        "arrays. Asynchronous work lands late, early or at random there, and attempts fail: each of the four orders "
        "finds what others leave. Parameters come in the order of the text; a tensor map stands for "
        "`.param .align 64 .b8 x[128]`. The kernel is that of [Written out](#written-out), in a file:"
    )
    yield f"```python\n{RUNNING}\n```"
    yield "From a shell:"
    yield f"```console\n{COMMAND}\n```"
    yield (
        "A kernel declares 48 KB of shared memory at most (`.shared`); more is dynamic (`.extern .shared`), and its "
        "launch asks for it."
    )


def whole_kernel() -> Iterator[str]:
    """The section, part by part, as Markdown."""
    yield "## A whole kernel"
    yield (
        "A matmul puts the pieces together. Roles of warps go on beside each other, each with its own loop over tiles "
        "and rounds, its own stage and phase; what they tell each other goes over mbarriers:"
    )
    yield markdown_table(("who", "what", "before that"), STEPS)
    yield "### Written out"
    yield (
        f"`{MATMUL.title}`, by one CTA that goes through three tiles of 128 rows, each of four rounds of 64 of k. It "
        f"assembles for {MATMUL.architecture}, and runs in the emulator, in every order. It reads a and b through "
        f"their maps alone.{''.join(f' Tensor map {m}.' for m in MATMUL.maps)}"
    )
    yield f"```ptx\n{MATMUL.ptx}```"
    yield (
        "`tinygpu emit` writes such kernels for other sizes, tiles and types; where edges, clusters and taking over "
        "come in is what [matmul_basic_blackwell](machines/matmul_basic_blackwell.md#smallest-kernel), "
        "[matmul_blackwell](machines/matmul_blackwell.md) and "
        "[matmul_blackwell_mx](machines/matmul_blackwell_mx.md) have beside it."
    )
    yield "### What a pair changes"
    yield (
        f"`{PAIR.title}` by two CTAs of a cluster: a tile has 256 rows, 128 in each CTA, and each brings 64 of the 128 "
        "rows of b. `-` is the kernel above, `+` what stands there instead."
    )
    yield f"```diff\n{difference(MATMUL, PAIR)}\n```"
    yield "### What block scales change"
    yield (
        f"`{SCALED.title}` of e4m3, with a ue8m0 for each 32 of k: a round is 128 of k, and brings 128 x 4 scales of "
        "each operand, laid out as a copy takes them."
    )
    yield f"```diff\n{difference(MATMUL, SCALED)}\n```"
    yield "### What goes wrong"
    yield (
        "One mistake each in the kernels above, and what the emulator says of it. Where it says nothing the result is "
        "wrong: it does not know what the kernel is for. A deadlock tells, for each warp, which mbarrier it waits for, "
        "on which line that was initialised, and how many phases, arrivals and bytes it has seen."
    )
    for name, mistakes in (("one CTA", OF_ONE), ("a pair", OF_A_PAIR), ("block scales", OF_SCALES)):
        yield f"Of the kernel of {name}:"
        rows = [(m.twin.rule, _shown(m.right), _shown(m.wrong), _said(m.twin.refusal)) for m in mistakes]
        yield markdown_table(("rule", "instead of", "there stands", "the emulator says"), rows)


def _shown(text: str) -> str:
    return "<br>".join(f"`{line}`" for line in text.splitlines()) or "nothing"


def _said(refusal: str) -> str:
    return "nothing" if refusal == WRONG_VALUES else f"“{refusal}”"
