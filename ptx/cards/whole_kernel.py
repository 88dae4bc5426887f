"""A whole matmul on tensor memory, step by step, for docs/blackwell.md: who does what, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.ptx.cards.specimen import markdown_table

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


def whole_kernel() -> Iterator[str]:
    """The section, part by part, as Markdown."""
    yield "## A whole kernel"
    yield (
        "A matmul puts the pieces together. Roles of warps go on beside each other, each with its own loop over tiles "
        "and rounds, its own stage and phase; what they tell each other goes over mbarriers:"
    )
    yield markdown_table(("who", "what", "before that"), STEPS)
    yield (
        "Written out, every line of it, it is the smallest kernel of "
        "[matmul_basic_blackwell](machines/matmul_basic_blackwell.md#smallest-kernel); `tinygpu emit` writes it for "
        "other sizes and tiles, and `tinygpu emulate` runs yours. How pairs, clusters, taking over and block scales "
        "change it is what [matmul_blackwell](machines/matmul_blackwell.md) and "
        "[matmul_blackwell_mx](machines/matmul_blackwell_mx.md) have beside it."
    )
