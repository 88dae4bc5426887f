"""CTAs together: pairs that multiply, TMA in its Blackwell forms, and cluster launch control."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.ptx.cards.blackwell.parts import carded, readings, smallest_kernel, text, twins
from tinygpu.ptx.cards.collect import card
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.cards.evidence import launch_control
from tinygpu.ptx.cards.specimen import markdown_table
from tinygpu.schedulers.launch_control import ANSWERS

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
    (
        "beginning and end",
        "a cluster barrier behind `mbarrier.init`, and one before columns are freed and CTAs exit; where stages "
        "are given back behind the last commit of sums, each CTA's producer first waits until all of its stages are "
        "empty: a commit that reaches a CTA which has exited is an error",
    ),
)  # fmt: skip


def pairs() -> Iterator[str]:
    """What is different where two CTAs multiply."""
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
    yield readings("pair")
    yield (
        "With M = 128, 64 rows in each CTA, all lanes are busy: the right half of the columns of D lies below the left "
        "one, in as many columns of tensor memory, and `.32x32b` reads both."
    )
    yield from carded(card("tcgen05.mma.pair.m64"))


def tensor_maps() -> Iterator[str]:
    """TMA, and how a cluster takes over the work of another."""
    yield "## TMA in its Blackwell forms"
    yield (
        "Tiles come and go as on Hopper: [load](instructions/cp.async.bulk.tensor.load.md) and "
        "[store](instructions/cp.async.bulk.tensor.store.md). New are a destination `.shared::cta`; `.cta_group::2`, "
        "with which a load may signal the mbarrier of the other CTA of the pair, so that one thread waits for the "
        "tiles of both; and `tile::gather4` and `tile::scatter4`, which move four rows of a matrix that are named one "
        "by one: boxes of one row, five coordinates (the column, then the rows). In shared memory they follow each "
        "other:"
    )
    yield text(["16 f16 of row y0 | 16 f16 of row y1 | 16 f16 of row y2 | 16 f16 of row y3      (box 16 x 1)"])
    yield readings("TMA")
    yield from smallest_kernel(kernels.GATHER)
    yield from twins(kernels.GATHER_TWINS)
    yield "## Cluster launch control"
    yield (
        "A running cluster takes over the work of one that has not started, which then never starts. The answer, 16 "
        "bytes, comes to shared memory and to an mbarrier like a load; `query_cancel` says whether there was one, and "
        "which CTA is its first. After a no, nobody asks again."
    )
    yield readings("launch control")
    yield from smallest_kernel(launch_control.ASK)
    yield from twins(launch_control.ASK_TWINS)
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
    yield from smallest_kernel(launch_control.TAKE)
    yield from twins(launch_control.TAKE_TWINS)
