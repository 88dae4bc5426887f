"""Copies into tensor memory, shifts within it, and what is complete when."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.ptx.cards.blackwell.parts import carded, readings, smallest_kernel, twins
from tinygpu.ptx.cards.collect import card
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, BEFORE
from tinygpu.ptx.cards.specimen import markdown_table
from tinygpu.ptx.emulator.state.tensor_order import IN_ORDER
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES


def copies() -> Iterator[str]:
    """tcgen05.cp and tcgen05.shift."""
    yield "## tcgen05.cp"
    yield "One thread copies rows from shared memory, as a matrix descriptor says (k-major), to lanes."
    rows = []
    for name, shape in COPY_SHAPES.items():
        firsts = "; ".join(", ".join(str(lane) for lane in lanes[:3]) + ", ..." for lanes in shape.lanes)
        rows.append((f"`.{name}`", shape.rows, shape.row_bytes, shape.columns, firsts))
    yield markdown_table(("shape", "rows", "bytes of each", "columns", "lanes of rows 0, 1, 2, of each copy"), rows)
    yield (
        "With `.b8x16.b6x16_p32` and `.b8x16.b4x16_p64` every 16 elements of 6 or 4 bits, padded to 16 bytes in shared "
        "memory, become 16 bytes in tensor memory, with their bits in the middle. Every shape takes both forms: a test "
        "assembles and runs all of them."
    )
    yield readings("cp")
    yield (
        "Rows for A in tensor memory, copied once and multiplied several times, are `isa.Tcgen05CpRows` in a program: "
        "`p.copy(cp, stage.a, cells.a)` in a role of its own, which tells the multiplier by a commit; "
        "`isa.Tcgen05CpRowsPair` does it in both CTAs of a pair. By hand one thread may do both, without a wait "
        "between copy and product. The shapes of 16 bytes of a row bring what belongs to each row of a product "
        "into the lanes of its sums: of 128 rows, with `.02_13` of 64 whose sums fill all lanes (layouts B and E), "
        "with `.warpx4` of 32 (layout G)."
    )
    yield from carded(card("tcgen05.cp.rows"))
    yield "### Other shapes"
    yield from smallest_kernel(kernels.COPY)
    yield from twins(kernels.COPY_TWINS)
    yield "## tcgen05.shift"
    yield (
        "One thread moves 32 bytes (8 columns) of each of 32 lanes to the lane below: lane l gets what lane l + 1 had, "
        "and the last one keeps its own."
    )
    yield readings("shift")
    yield from smallest_kernel(kernels.SHIFT)
    yield from twins(kernels.SHIFT_TWINS)
    yield "### Rows that slide"
    yield (
        "What a window over rows needs next are the rows that it has, but for the first, and one more: a shift in the "
        "lanes of each warp, and behind it `tcgen05.cp.4x256b` to lane 31, which brings a row to the last lane of "
        "each. In a program that is `isa.Tcgen05Shift`, `p.copy(shift, rows, cells)` inside `produce()` of the ring "
        "with one slot in which the rows lie, and `isa.Tcgen05ShiftPair` in a pair. The table below orders the two, "
        "the product behind them, and a shift behind that; it does not order a shift behind the shift or the copy "
        "before, of which it moves what they wrote. So each step is a turn of the ring, whose waits stand in between: "
        "they cost a handover, and no source says whether hardware needs them."
    )
    yield from carded(card("tcgen05.shift"))


def completion() -> Iterator[str]:
    """tcgen05.commit, tcgen05.wait and tcgen05.fence."""
    yield "## tcgen05.commit, tcgen05.wait and tcgen05.fence: what is complete when"
    yield "In the order in which one thread issues them, without any wait:"
    yield markdown_table(("first", "then"), sorted(IN_ORDER))
    yield (
        "Two products are so only with the same accumulator and the same shape. Whether order goes on over a third, "
        "the manual does not say, and the emulator takes each pair by itself: of a copy, a product and a shift of what "
        "was copied, the shift waits for the copy, although cp, mma and mma, shift are in the table. Everything else "
        "needs one of these:"
    )
    before, after = BEFORE.rstrip(";"), AFTER.rstrip(";")
    rows = [
        ("mma, cp, shift", "ld, st, or another thread", f"tcgen05.commit, wait for its mbarrier, {after}"),
        ("ld", "whoever writes the cells, or frees them", f"tcgen05.wait::ld, {before}, a barrier, {after}"),
        ("st", "mma or ld", "tcgen05.wait::st, and as above where it is another thread"),
        ("st.shared", "mma or cp that reads it", f"fence.proxy.async by who wrote, a barrier, {after}"),
        ("TMA", "mma or cp that reads it", "wait for the mbarrier of the load"),
        ("mma that reads shared memory", "TMA over it", "tcgen05.commit on the mbarrier that the producer waits for"),
    ]
    yield markdown_table(("first", "then", "between them"), rows)
    yield readings("order", "completion")
    product = card("tcgen05.mma")
    yield "The kernel is that of [tcgen05.mma](instructions/tcgen05.mma.md); its twins:"
    yield from twins(t for t in product.twins if t.rule.split()[-1] in ("completion", "slot", "fence"))
