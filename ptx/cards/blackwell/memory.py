"""Tensor memory: its addresses, who allocates it, and how registers and its lanes exchange cells."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.layouts.draw import holder_picture
from tinygpu.ptx.cards.blackwell.parts import carded, readings, smallest_kernel, text, twins
from tinygpu.ptx.cards.collect import card
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.isa import tcgen05_ld

_WIDE = {"32x32b": 4, "16x64b": 2, "16x128b": 1, "16x256b": 1}


def memory() -> Iterator[str]:
    """Lanes and columns, and which warp reaches which."""
    yield "## Tensor memory"
    yield (
        "128 lanes x 512 columns of 32 bits for each SM. An address has the lane in bits 31:16 and the column in bits "
        "15:0, so lanes are 0x10000 apart. A warp reaches the lanes of its place in the warpgroup only:"
    )
    yield text(
        f"lanes {32 * q:3} to {32 * q + 31:3} | warps with w % 4 = {q} | add {32 * q << 16:#010x}" for q in range(4)
    )
    yield readings("address")


def allocation() -> Iterator[str]:
    """Who has columns, and for how long."""
    yield "## tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"
    yield (
        "One warp, all 32 lanes together, asks for columns (all 128 lanes of them); it waits while another CTA of the "
        "SM has them. The address comes to shared memory, so a barrier stands between it and who reads it. The same "
        "warp frees them. Of the columns: 32, 64, 128, 256 or 512, and never more than the allocation before."
    )
    yield readings("allocation")
    yield from smallest_kernel(kernels.GOOD)
    yield from twins(kernels.ALLOCATION_TWINS)


def registers() -> Iterator[str]:
    """tcgen05.st and tcgen05.ld, with pictures of the shapes."""
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
    yield readings("ld", "st")
    yield from carded(card("tcgen05.st"))
    yield from carded(card("tcgen05.ld"), kernel=False)
    yield from twins(kernels.STORE_TWINS)
