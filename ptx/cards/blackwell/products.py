"""Products: the kinds, where sums, operands and scales of blocks lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.blackwell.parts import carded, readings, text
from tinygpu.ptx.cards.collect import card
from tinygpu.ptx.cards.specimen import markdown_table
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS, MmaForm, legal_m, legal_n

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


def products() -> Iterator[str]:
    """tcgen05.mma: its kinds, layouts and operands."""
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
    yield readings("depth", "type", "sums")
    yield "### Where D lies"
    yield "For N = 64. Each line is 16 lanes; r are rows of the CTA's part of D, c its columns, and . is not touched."
    for name, (of, layout) in ACCUMULATORS.items():
        yield f"Layout {name}: {of}, `{layout}`"
        yield text(_places(layout))
    yield readings("layout")
    yield "### Its other operands"
    yield readings("operand")
    yield "### A in tensor memory"
    yield (
        "Row r of A lies in the lane of row r of D, k-major: 8 columns are an instruction's. 16-bit elements lie two "
        "to a cell, 8-bit ones four, the first along k in the low bits."
    )
    yield readings("operand in tensor memory", "operand in shared memory")
    yield from carded(card("tcgen05.mma"))
    yield "### 64 rows"
    yield (
        "With M = 64 a product by one CTA has the 16 rows of a slab in the lower half of its lanes, and takes the time "
        "of 128 rows. A load of 32 lanes would bring cells that nobody wrote: `.16x32bx2` gives the lower half of a "
        "warp's threads the left columns of its 16 lanes and the upper half the right ones, so that all have work."
    )
    yield from carded(card("tcgen05.mma.m64"))
    yield "### Few rows that fill all lanes: tcgen05.mma.ws"
    yield (
        "Of 32 and 64 rows `.ws` has the columns in four parts or in two, one below the other (layouts G and E above), "
        "so that `.32x32b` reads sums in every lane. Columns are 64, 128 or 256; there are no pairs and no block "
        "scales."
    )
    yield from carded(card("tcgen05.mma.ws"))


def scales() -> Iterator[str]:
    """Where the scales of blocks lie."""
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
    yield text(picture)
    yield (
        "128 rows x 4 scales are four columns, of A and of B; N = 256 takes eight of B, two copies. One product of "
        "`mxf8f6f4` takes one byte of each cell, so that four products, 128 of k, share the columns: the descriptor "
        "names the byte, 0 to 3. With block32 `mxf4` takes two (0 or 2), with block16 `mxf4nvf4` all four (0). The "
        "descriptor's numbers count; bits 31:30 of the address may repeat them, as CUTLASS does, or are 0. Copies go "
        "to other columns than those that products under way read: columns for each stage, as [here]"
        "(#what-block-scales-change), or a commit and its wait in between. The byte of a scale that is brought by TMA "
        "lies in global memory as in shared memory: whoever makes the scales lays them out so."
    )
    yield readings("scales")


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
