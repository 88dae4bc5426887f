"""docs/blackwell.md as a whole: what it is worth, its sections in their order, and what is left out.

Its pictures are drawn from layouts, its rules, examples and illegal twins are those that the judges judge, and its
tables of readings are those that witnesses judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tinygpu.ptx.cards.blackwell.clusters import pairs, tensor_maps
from tinygpu.ptx.cards.blackwell.copies import completion, copies
from tinygpu.ptx.cards.blackwell.descriptors import descriptors
from tinygpu.ptx.cards.blackwell.memory import allocation, memory, registers
from tinygpu.ptx.cards.blackwell.products import products, scales
from tinygpu.ptx.cards.readings import UNJUDGED, counted
from tinygpu.ptx.cards.whole_kernel import beginning, whole_kernel


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
    yield from memory()
    yield from allocation()
    yield from registers()
    yield from descriptors()
    yield from products()
    yield from scales()
    yield from copies()
    yield from completion()
    yield from pairs()
    yield from tensor_maps()
    yield "## What is left out"
    yield (
        "Sparse kinds (`.sp`), `tcgen05.ld.red` and K = 96 of sm_103a: no machine uses them. Sums of f16 of "
        "kind::f8f6f4: one table of the manual has them and another has not. `.ashift`, collector buffers, the mask of "
        "lanes and that of zero columns are emulated, and nobody judges them: see the operands above. No machine takes "
        "`.ws`: as far as is known each column of B costs 128 rows of A there, however few there are, and "
        "`matmul_skinny_blackwell`, which takes the product transposed, has it for 16 to 64. `tcgen05.cp` of elements "
        "that it spreads is shown here by hand alone: what it makes is a left operand of 4 or 6 bits in tensor memory, "
        "and no source says that it was tried where in a byte a product takes these bits there. With one that does, "
        "copies of rows would take padded buffers, and left operands in tensor memory these types. Left operands in "
        "tensor memory have 128 rows in each CTA. Those of a pair that has 64 lie in two lanes each, as "
        "`tcgen05.cp.64x128b.warpx2::02_13` lays them; a path says so of elements that fill cells, and would have to "
        "of those that lie side by side in one."
    )


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
