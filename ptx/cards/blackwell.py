"""Blackwell by hand, docs/blackwell.md: python -m tinygpu.ptx.cards.blackwell [--check] [FILE].

Its pictures are drawn from layouts, its rules, examples and illegal twins are those that the judges judge, and its
tables of readings are those that witnesses judge.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.collect import card
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.cards.evidence import launch_control
from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, BEFORE
from tinygpu.ptx.cards.page import shown_twin
from tinygpu.ptx.cards.readings import READINGS, UNJUDGED, counted, table
from tinygpu.ptx.cards.specimen import Card, Specimen, Twin, markdown_table
from tinygpu.ptx.cards.whole_kernel import beginning, whole_kernel
from tinygpu.ptx.cards.words import operand_words, product_words
from tinygpu.ptx.emulator.state.tensor_order import IN_ORDER
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS, MmaForm, legal_m, legal_n
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES
from tinygpu.ptx.isa import tcgen05_ld
from tinygpu.schedulers.launch_control import ANSWERS

FILE = Path("docs/blackwell.md")

# (row, column of D) -> lane and column, for one CTA and N = 64 (PTX ISA, "Data Path Layout Organization").
ACCUMULATORS = {
    "A": ("M = 256, of a pair", Layout.parse("(128,64):(1@lane,1@column)")),
    "B": ("M = 128, of a pair", Layout.parse("(64,(32,2)):(1@lane,(1@column,64@lane))")),
    "C": ("M = 128, of a pair, sparse", Layout.parse("((16,4),64):((1@lane,32@lane),1@column)")),
    "D": ("M = 128", Layout.parse("(128,64):(1@lane,1@column)")),
    "E": ("M = 64 of .ws", Layout.parse("(64,(32,2)):(1@lane,(1@column,64@lane))")),
    "F": ("M = 64", Layout.parse("((16,4),64):((1@lane,32@lane),1@column)")),
    "G": ("M = 32 of .ws", Layout.parse("(32,(16,4)):(1@lane,(1@column,32@lane))")),
}
# Fields of the instruction descriptor: name as the emulator calls it, lowest and highest bit, unit.
PLAIN_FIELDS = (
    ("sparsity_selector", 0, 1, 1), ("sparse", 2, 2, 1), ("saturate", 3, 3, 1), ("d_type", 4, 5, 1),
    ("a_type", 7, 9, 1), ("b_type", 10, 12, 1), ("negate_a", 13, 13, 1), ("negate_b", 14, 14, 1),
    ("a_mn_major", 15, 15, 1), ("b_mn_major", 16, 16, 1), ("n", 17, 22, 8), ("m", 24, 28, 16), ("max_shift", 30, 31, 1),
)  # fmt: skip
SCALED_FIELDS = (
    ("sparse", 2, 2, 1), ("sfb_id", 4, 5, 1), ("a_type", 7, 9, 1), ("b_type", 10, 12, 1), ("negate_a", 13, 13, 1),
    ("negate_b", 14, 14, 1), ("a_mn_major", 15, 15, 1), ("b_mn_major", 16, 16, 1), ("n", 17, 22, 8),
    ("scale_type", 23, 23, 1), ("m", 27, 28, 128), ("sfa_id", 29, 30, 1),
)  # fmt: skip
# What is different in a pair (PTX ISA, tcgen05; CUTLASS and DeepGEMM for who expects the bytes).
PAIR_RULES = (
    ("launch", "clusters of an even number of CTAs: `.reqnctapercluster 2, 1, 1`"),
    (
        "allocation", "one warp of each CTA, the same number of columns, at the same offset of shared memory; each "
        "reads its own address, and they are alike",
    ),
    (
        "mbarrier of a load", "`cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".cta_group::2 [own shared memory], [map, {k, row}], [mbarrier];` with the even CTA's mbarrier in both: "
        "`mapa.shared::cluster.u32 mbarrier, own, even rank;`",
    ),
    (
        "bytes", "the even CTA's *full* takes one arrival, with the bytes of both CTAs; bytes that come before they "
        "are expected do no harm, as the phase cannot complete without the arrival",
    ),
    ("products", "one thread of the even CTA, with descriptors of its own shared memory; M is that of both"),
    (
        "*empty* of a stage, *full* of sums", "in each CTA, 1: `tcgen05.commit.cta_group::2.mbarrier::arrive::one"
        ".shared::cluster.multicast::cluster.b64 [own], mask;`, mask 3 in a cluster of two",
    ),
    (
        "*empty* of sums", "the even CTA's, which counts the warps of both: "
        "`mbarrier.arrive.release.cluster.shared::cluster.b64 _, [mapa of it];`, waited for with `.acquire.cluster`",
    ),
    ("beginning and end", "a cluster barrier behind `mbarrier.init`, and one before columns are freed and CTAs exit"),
)  # fmt: skip
_WIDE = {"32x32b": 4, "16x64b": 2, "16x128b": 1, "16x256b": 1}


def page() -> str:
    """The page, as Markdown: what it is, what is in it, and that."""
    title, what, worth, *sections = _sections()
    return "\n\n".join([title, what, worth, _contents(sections), *sections]) + "\n"


def _sections() -> Iterator[str]:
    yield "# Blackwell by hand"
    yield (
        "For who writes a kernel for sm_100a or sm_103a with tensor memory: instruction by instruction what it does, "
        "what lands where, the rules with who judges each, the smallest kernel around it and its illegal twin. "
        "`python -m tinygpu.ptx.cards.blackwell` writes this page from the data that cards, lowering and emulator "
        "use; a test compares it, assembles and runs every kernel and has every twin refused."
    )
    yield (
        "**What this page is worth.** Nothing here was run on a chip. The *assembler* knows spellings and no contents "
        "of descriptors. The *emulator* judges the rest, and it was written from the same manual as the lowering: an "
        "error in both would prove itself. So each thing that it reads has *witnesses*, kernels of other compilers "
        "(`CuTe`: nvcc with CUTLASS's headers; `Triton`) of sources in `tests/ptx/emulator`, whose result is wrong, or "
        "which are refused, when the emulator reads it otherwise. They show that others understand it so, too. "
        f"{counted()} What is {UNJUDGED} rests on the manual alone. A right kernel can show that a wait suffices, "
        "never that it is needed."
    )
    yield from beginning()
    yield from whole_kernel()
    yield from _memory()
    yield from _allocation()
    yield from _registers()
    yield from _descriptors()
    yield from _products()
    yield from _scales()
    yield from _copies()
    yield from _completion()
    yield from _pairs()
    yield from _tma()
    yield "## What is left out"
    yield (
        "Sparse kinds (`.sp`), `tcgen05.ld.red` and K = 96 of sm_103a: no machine uses them. Sums of f16 of "
        "kind::f8f6f4: one table of the manual has them and another has not. `.ashift`, collector buffers, the mask of "
        "lanes and that of zero columns are emulated, and nobody judges them: see the operands above. No machine takes "
        "`.ws`: as far as is known each column of B costs 128 rows of A there, however few there are, and "
        "`matmul_skinny_blackwell`, which takes the product transposed, has it for 16 to 64. What "
        "`tcgen05.shift` does, and `tcgen05.cp` of 4 and of 64 rows, of rows of 16 bytes, and of elements that it "
        "spreads, are shown here by hand alone: no machine has a use for them."
    )


def _memory() -> Iterator[str]:
    yield "## Tensor memory"
    yield (
        "128 lanes x 512 columns of 32 bits for each SM. An address has the lane in bits 31:16 and the column in bits "
        "15:0, so lanes are 0x10000 apart. A warp reaches the lanes of its place in the warpgroup only:"
    )
    yield _text(
        f"lanes {32 * q:3} to {32 * q + 31:3} | warps with w % 4 = {q} | add {32 * q << 16:#010x}" for q in range(4)
    )
    yield _readings("address")


def _allocation() -> Iterator[str]:
    yield "## tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"
    yield (
        "One warp, all 32 lanes together, asks for columns (all 128 lanes of them); it waits while another CTA of the "
        "SM has them. The address comes to shared memory, so a barrier stands between it and who reads it. The same "
        "warp frees them. Of the columns: 32, 64, 128, 256 or 512, and never more than the allocation before."
    )
    yield _readings("allocation")
    yield from _kernel(kernels.GOOD)
    yield from _twins(kernels.ALLOCATION_TWINS)


def _registers() -> Iterator[str]:
    yield "## tcgen05.st and tcgen05.ld"
    yield (
        "A warp moves cells of its lanes from or to registers; `.xN` goes on along the columns. A cell of a picture "
        "says which register V of which thread T lies there; rows are lanes, columns columns, from the address on. "
        "Sixteen-lane shapes begin at the quarter's first lane or 16 further. All of them, packed ones too, are in "
        "[fragments](fragments.md). `.32x32b` gives each thread its row; `.16x256b` gives the fragment of `mma.sync`."
    )
    for shape in tcgen05_ld.SHAPES:
        drawn = shape.repeated(_WIDE[shape.name]).project({"lane": 0, "column": 1})
        extents = drawn.along(0).cosize, drawn.along(1).cosize
        yield f"`.{shape.name}.x{_WIDE[shape.name]}`, the first eight lanes:"
        yield f"```text\n{holder_picture(drawn, extents, (8, 8))}\n```"
    yield (
        "`.16x32bx2` has two windows of columns: lanes 0 to 15 of the warp's threads the first, 16 to 31 the one that "
        "the immediate says further. `.pack::16b` puts the low halves of two neighbouring columns into one register."
    )
    yield _readings("ld", "st")
    yield from _carded(card("tcgen05.st"))
    yield from _carded(card("tcgen05.ld"), kernel=False)
    yield from _twins(kernels.STORE_TWINS)


def _descriptors() -> Iterator[str]:
    yield "## The matrix descriptor"
    yield (
        "64 bits that say where an operand lies in shared memory. Offsets and addresses are in units of 16 bytes. "
        "Along k the address alone moves on: 32 bytes of each row are an instruction's, whatever the type."
    )
    bits = [
        ("13:0", "start address / 16"), ("29:16", "leading offset / 16"), ("45:32", "stride offset / 16"),
        ("48:46", "0b001"), ("51:49", "base offset"), ("52", "leading offset is an address (sm_103a)"),
        ("63:61", "swizzle: 0 none, 1 128B with 32-byte atoms, 2 128B, 4 64B, 6 32B"),
    ]  # fmt: skip
    yield markdown_table(("bits", "field"), bits)
    yield "Where 16-byte chunks lie under a swizzle: line l of 128 bytes, and in it the chunk that was number c."
    for name in ("32B", "64B", "128B", "128B_ATOM_32B"):
        yield f"`{name}`:"
        yield _text(_swizzle(name))
    yield "### Operands as TMA lays them"
    yield (
        "A stage is a box, or boxes one behind the other. Of rows that are longer than the swizzle is wide each box "
        "has all rows, and the next box what follows along k; of an operand that is contiguous along m or n each box "
        "has all steps of k. Every box begins at a multiple of 1024 bytes: swizzles permute bits of addresses. The "
        "start address / 16 is added to the word, and along k so many bytes / 16 are. An operand that is contiguous "
        "along m or n has its bit in the instruction descriptor. The words, with a start of 0:"
    )
    yield operand_words()
    yield (
        "Copies of scales (`tcgen05.cp.32x128b.warpx4`) read rows of 16 bytes without a swizzle: "
        "`0x0000400800000000`. A copy of rows for A in tensor memory (`.128x256b`) takes the word of an operand that "
        "is contiguous along k, and moves along it the same way."
    )
    yield _readings("matrix descriptor", "swizzle")
    yield "## The instruction descriptor"
    yield "32 bits. Of the kinds without block scales:"
    yield markdown_table(("bits", "field", "unit"), _fields(PLAIN_FIELDS))
    yield "Of `mxf8f6f4`, `mxf4` and `mxf4nvf4`:"
    yield markdown_table(("bits", "field", "unit"), _fields(SCALED_FIELDS))
    yield "All other bits are 0. The assembler does not look into it: a descriptor of M = 96 assembles."
    yield "### Words of common products"
    yield (
        "N / 8 << 17, M / 16 << 24 (of scaled kinds M / 128 << 27), the codes of the types at bits 7 and 10 (below), "
        "and 1 << 4 for sums in f32. In scaled kinds bits 5:4 are the number of b's scale; sums are f32 there without "
        "being asked. M is that of both CTAs of a pair. It may be an immediate."
    )
    yield product_words()
    yield _readings("instruction descriptor")


def _products() -> Iterator[str]:
    yield "## tcgen05.mma"
    yield (
        "One thread multiplies for the whole CTA: D (+)= A B, A in shared or in tensor memory, B in shared memory, D "
        "in tensor memory. It returns at once. The predicate says whether D is added to. A dense instruction takes 32 "
        "bytes of k of each row."
    )
    rows = []
    for kind in KINDS.values():
        block = next(iter(kind.blocks), "") if kind.scaled else ""
        one, two = (MmaForm(kind.name, group, block=block) for group in (1, 2))
        types = ", ".join(kind.types.values())
        rows.append(
            (f"`{kind.name}`", types, ", ".join(kind.d_types), kind.k, _listed(legal_m(one)), _listed(legal_n(one)),
             _listed(legal_m(two)), _listed(legal_n(two)))
        )  # fmt: skip
    yield markdown_table(("kind", "a, b", "d", "K", "M", "N", "M of a pair", "N of a pair"), rows)
    yield _readings("depth", "type", "sums")
    yield "### Where D lies"
    yield "For N = 64. Each line is 16 lanes; r are rows of the CTA's part of D, c its columns, and . is not touched."
    for name, (of, layout) in ACCUMULATORS.items():
        yield f"Layout {name}: {of}, `{layout}`"
        yield _text(_places(layout))
    yield _readings("layout")
    yield "### Its other operands"
    yield _readings("operand")
    yield "### A in tensor memory"
    yield (
        "Row r of A lies in the lane of row r of D, k-major: 8 columns are an instruction's. 16-bit elements lie two "
        "to a cell, 8-bit ones four, the first along k in the low bits."
    )
    yield _readings("operand in tensor memory", "operand in shared memory")
    yield from _carded(card("tcgen05.mma"))
    yield "### 64 rows"
    yield (
        "With M = 64 a product by one CTA has the 16 rows of a slab in the lower half of its lanes, and takes the time "
        "of 128 rows. A load of 32 lanes would bring cells that nobody wrote: `.16x32bx2` gives the lower half of a "
        "warp's threads the left columns of its 16 lanes and the upper half the right ones, so that all have work."
    )
    yield from _carded(card("tcgen05.mma.m64"))
    yield "### Few rows that fill all lanes: tcgen05.mma.ws"
    yield (
        "Of 32 and 64 rows `.ws` has the columns in four parts or in two, one below the other (layouts G and E above), "
        "so that `.32x32b` reads sums in every lane. Columns are 64, 128 or 256; there are no pairs and no block "
        "scales."
    )
    yield from _carded(card("tcgen05.mma.ws"))


def _scales() -> Iterator[str]:
    yield "## Block scales"
    yield (
        "`mxf8f6f4`, `mxf4` and `mxf4nvf4` multiply a scale factor, a byte, to each 32 or 16 elements of k of A and B. "
        "They lie in tensor memory: those of 32 rows in 32 lanes, the next 32 rows in the next column, four along k in "
        "a cell, and the same in each quarter of the lanes. `tcgen05.cp.32x128b.warpx4` puts them there."
    )
    picture = [
        "lane l, column c, byte j:  scale j of row 32 c + l      (l = 0 to 31)",
        "lanes 32 to 63, 64 to 95, 96 to 127: the same again",
        "in shared memory, 128 rows x 4 scales = 512 bytes: scale j of row m at 16 (m % 32) + 4 (m / 32) + j",
    ]
    yield _text(picture)
    yield (
        "128 rows x 4 scales are four columns, of A and of B; N = 256 takes eight of B, two copies. One product of "
        "`mxf8f6f4` takes one byte of each cell, so that four products, 128 of k, share the columns: the descriptor "
        "names the byte, 0 to 3. With block32 `mxf4` takes two (0 or 2), with block16 `mxf4nvf4` all four (0). The "
        "descriptor's numbers count; bits 31:30 of the address may repeat them, as CUTLASS does, or are 0. Copies go "
        "to other columns than those that products under way read: columns for each stage, as [here]"
        "(#what-block-scales-change), or a commit and its wait in between. The byte of a scale that is brought by TMA "
        "lies in global memory as in shared memory: whoever makes the scales lays them out so."
    )
    yield _readings("scales")


def _copies() -> Iterator[str]:
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
    yield _readings("cp")
    yield (
        "Rows for A in tensor memory, copied once and multiplied several times, are `isa.Tcgen05CpRows` in a program: "
        "`p.copy(cp, stage.a, cells.a)` in a role of its own, which tells the multiplier by a commit. By hand one "
        "thread may do both, without a wait between copy and product."
    )
    yield from _carded(card("tcgen05.cp.rows"))
    yield "### Other shapes"
    yield from _kernel(kernels.COPY)
    yield from _twins(kernels.COPY_TWINS)
    yield "## tcgen05.shift"
    yield (
        "One thread moves 32 bytes (8 columns) of each of 32 lanes to the lane below: lane l gets what lane l + 1 had, "
        "and the last one keeps its own."
    )
    yield _readings("shift")
    yield from _kernel(kernels.SHIFT)
    yield from _twins(kernels.SHIFT_TWINS)


def _completion() -> Iterator[str]:
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
    yield _readings("order", "completion")
    product = card("tcgen05.mma")
    yield "The kernel is that of [tcgen05.mma](instructions/tcgen05.mma.md); its twins:"
    yield from _twins(t for t in product.twins if t.rule.split()[-1] in ("completion", "slot", "fence"))


def _pairs() -> Iterator[str]:
    yield "## Pairs of CTAs: cta_group::2"
    yield (
        "The CTAs of ranks 2 i and 2 i + 1 of a cluster multiply together. Each has its half of the rows of A and half "
        "of the columns of B in its shared memory, at the same offsets, and its rows of D in the same columns of its "
        "tensor memory (layouts A and B above). One thread of the even CTA issues products, copies and commits for "
        "both; alloc and dealloc are executed by one warp of each. All tcgen05 instructions of a kernel have the same "
        "`.cta_group`. A commit with `.multicast::cluster` and the mask of both CTAs tells both."
    )
    yield (
        "Where several pairs of a cluster need the same columns of B, even CTAs need one half and odd ones the other: "
        "each brings a part of its half to all of its parity. A load with `.cta_group::2` and `.multicast::cluster` "
        "signals in every pair of its mask the CTA with the parity of the one whose mbarrier it names, so that each "
        "even CTA hears of all bytes of its pair. A slot is free when every pair that a CTA writes to has committed: "
        "the mask of that commit has both CTAs of each."
    )
    yield "[What a pair changes](#what-a-pair-changes) in a whole kernel, line by line; in words:"
    yield markdown_table(("what", "in a pair"), PAIR_RULES)
    yield _readings("pair")
    yield (
        "With M = 128, 64 rows in each CTA, all lanes are busy: the right half of the columns of D lies below the left "
        "one, in as many columns of tensor memory, and `.32x32b` reads both."
    )
    yield from _carded(card("tcgen05.mma.pair.m64"))


def _tma() -> Iterator[str]:
    yield "## TMA in its Blackwell forms"
    yield (
        "Tiles come and go as on Hopper: [load](instructions/cp.async.bulk.tensor.load.md) and "
        "[store](instructions/cp.async.bulk.tensor.store.md). New are a destination `.shared::cta`; `.cta_group::2`, "
        "with which a load may signal the mbarrier of the other CTA of the pair, so that one thread waits for the "
        "tiles of both; and `tile::gather4` and `tile::scatter4`, which move four rows of a matrix that are named one "
        "by one: boxes of one row, five coordinates (the column, then the rows). In shared memory they follow each "
        "other:"
    )
    yield _text(["16 f16 of row y0 | 16 f16 of row y1 | 16 f16 of row y2 | 16 f16 of row y3      (box 16 x 1)"])
    yield _readings("TMA")
    yield from _kernel(kernels.GATHER)
    yield from _twins(kernels.GATHER_TWINS)
    yield "## Cluster launch control"
    yield (
        "A running cluster takes over the work of one that has not started, which then never starts. The answer, 16 "
        "bytes, comes to shared memory and to an mbarrier like a load; `query_cancel` says whether there was one, and "
        "which CTA is its first. After a no, nobody asks again."
    )
    yield _readings("launch control")
    yield from _kernel(launch_control.ASK)
    yield from _twins(launch_control.ASK_TWINS)
    yield "### A walk over tiles"
    yield (
        "A grid has a cluster for each tile, and every CTA begins with its own. The first CTA of a cluster asks for "
        "the next where it begins a tile; with `.multicast::cluster::all` the answer comes to the same place in all of "
        "them, and to the mbarrier of each. A machine says `p.grid(..., persistent=True, launch_control=1)` "
        "([language](language.md#launch-control)), and lowering writes, and "
        "[proves](handovers.md#launch-control):"
    )
    yield markdown_table(
        ("what", "who", "in the kernel"),
        (
            ("room", "every CTA", f"{ANSWERS} answers of 16 bytes, and two mbarriers for each: full and empty"),
            (
                "full", "1 arrival and 16 bytes, in every CTA",
                "one lane for each CTA: `mbarrier.arrive.expect_tx.release.cluster.shared::cluster`, on its barrier",
            ),
            (
                "empty", "an arrival of each warp that goes through the tiles, of all CTAs",
                "`mbarrier.arrive.release.cluster.shared::cluster` on the barrier of the first CTA",
            ),
            (
                "asks", "the first warp of the first role, in the first CTA, at the beginning of a tile",
                "waits for empty (`.acquire.cluster`), expects, `try_cancel` by the elected thread",
            ),
            (
                "hears", "every warp of every role, behind a tile",
                "waits for full, `ld.shared.b128`, `query_cancel`, `fence.proxy.async`, `bar.warp.sync`, gives it back",
            ),
            (
                "goes on", "all roles of all CTAs alike",
                "the tile of cluster `ctaid / CTAs of a cluster`, with the own rank; after a no all roles end",
            ),
            ("ends", "the CTAs of a cluster", "`barrier.cluster` behind all roles: each may be told until the last no"),
        ),
    )
    yield "With one place for answers, one warp in each CTA and two CTAs in a cluster that is:"
    yield from _kernel(launch_control.TAKE)
    yield from _twins(launch_control.TAKE_TWINS)


def _contents(sections: Iterable[str]) -> str:
    """Links to the headings, but to those of kernels and twins, which each section has."""
    lines = []
    for section in sections:
        heading = re.fullmatch(r"(##|###) (.+)", section)
        if heading and not heading[2].startswith(("The smallest kernel", "Illegal twin")):
            lines.append(f"{'  ' * (len(heading[1]) - 2)}- [{heading[2]}](#{anchor(heading[2])})")
    return "\n".join(lines)


def anchor(heading: str) -> str:
    """How a heading is linked to: small letters, digits and hyphens, hyphens for blanks."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


# ---- parts ----------------------------------------------------------------------------------------------------------


def _text(lines: Iterable[str]) -> str:
    return "```text\n" + "\n".join(lines) + "\n```"


def _readings(*groups: str) -> str:
    return table(tuple(r for r in READINGS if r.group in groups))


def _kernel(specimen: Specimen) -> Iterator[str]:
    yield "### The smallest kernel"
    maps = "".join(f" Tensor map {m}." for m in specimen.maps)
    yield f"It assembles for {specimen.architecture}, and runs in the emulator.{maps}"
    yield f"```ptx\n{specimen.ptx}```"


def _twins(twins: Iterable[Twin]) -> Iterator[str]:
    for twin in twins:
        heading, *rest = shown_twin(twin)
        yield heading.replace("### ", "### Illegal twin: ", 1)
        yield from rest


def _carded(shown: Card, kernel: bool = True) -> Iterator[str]:
    """The rules of a card, its kernel, and the first of its illegal twins that the emulator judges."""
    rows = [(r.name, r.sentence, r.judge) for r in shown.rules]
    rows += [(g.name, g.sentence, g.judge) for g in shown.guarantees]
    yield f"The rules, from [the card of {shown.name}](instructions/{shown.name}.md), which has a twin for each:"
    yield markdown_table(("rule", "what must hold", "judge"), rows)
    if kernel:
        yield from _kernel(shown.example)
        yield from _twins([next(t for t in shown.twins if t.judge == "emulator")])


def _fields(fields: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[str, str, str]]:
    for name, low, high, unit in fields:
        yield f"{high}:{low}" if high > low else f"{low}", f"`{name}`", f"in units of {unit}" if unit > 1 else ""


def _swizzle(name: str) -> Iterator[str]:
    """Which chunk of its line lies at each place, for all lines until the pattern repeats."""
    swizzle = SWIZZLES[name]
    for line in range(swizzle.line_mask + 1):
        places = swizzle.apply(128 * line + 16 * np.arange(8, dtype=np.int64))
        yield f"line {line} | " + " ".join(str(int(p) % 128 // 16) for p in places)


def _places(layout: Layout) -> Iterator[str]:
    """Bands of 16 lanes: which rows and columns of D they hold in each 16 columns of tensor memory."""
    rows, columns = layout[0].size, layout[1].size
    lanes, cells = layout.along("lane"), layout.along("column")
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for r in range(rows):
        for c in range(columns):
            found.setdefault((lanes(r, c) // 16, cells(r, c) // 16), []).append((r, c))
    width = max(column for _, column in found) + 1
    yield f"{'columns':>16} | " + " | ".join(f"{f'{16 * w} to {16 * w + 15}':<23}" for w in range(width)).rstrip()
    for band in range(8):
        texts = []
        for w in range(width):
            held = found.get((band, w))
            texts.append(f"{_span('r', [r for r, _ in held])} {_span('c', [c for _, c in held])}" if held else ".")
        yield f"{f'lanes {16 * band} to {16 * band + 15}':>16} | " + " | ".join(f"{x:<23}" for x in texts).rstrip()


def _span(letter: str, values: list[int]) -> str:
    return f"{letter} {min(values)} to {max(values)}"


def _listed(values: tuple[int, ...]) -> str:
    """8 to 256 by 8, or the values where they are few."""
    if len(values) <= 4:
        return ", ".join(map(str, values))
    step = values[-1] - values[-2]
    even = all(b - a == step for a, b in pairwise(values))
    if even:
        return f"{values[0]} to {values[-1]} by {step}"
    return f"{', '.join(map(str, values[:4]))}, then to {values[-1]} by {step}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; 0 where all is well, 1 where --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.cards.blackwell", description="Write the page.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help=f"where the page is ({FILE})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    options = parser.parse_args(arguments)
    file: Path = options.file
    if not options.check:
        file.write_text(page(), encoding="utf-8")
        print(f"{file}: {counted()}")
        return 0
    if file.is_file() and file.read_text(encoding="utf-8") == page():
        return 0
    wrong = "is not what the instructions say" if file.is_file() else "is missing"
    print(f"{file} {wrong}; run python -m tinygpu.ptx.cards.blackwell {file}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
