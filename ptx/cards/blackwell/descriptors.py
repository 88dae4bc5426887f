"""The words that say where an operand lies in shared memory, and what a product multiplies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tinygpu.ptx.cards.blackwell.parts import readings, text
from tinygpu.ptx.cards.specimen import markdown_table
from tinygpu.ptx.cards.words import operand_words, product_words
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES

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


def descriptors() -> Iterator[str]:
    """The matrix descriptor with its swizzles, and the instruction descriptor."""
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
        yield text(_swizzle(name))
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
    yield readings("matrix descriptor", "swizzle")
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
    yield readings("instruction descriptor")


def _fields(fields: Sequence[tuple[str, int, int, int]]) -> Iterator[tuple[str, str, str]]:
    for name, low, high, unit in fields:
        yield f"{high}:{low}" if high > low else f"{low}", f"`{name}`", f"in units of {unit}" if unit > 1 else ""


def _swizzle(name: str) -> Iterator[str]:
    """Which chunk of its line lies at each place, for all lines until the pattern repeats."""
    swizzle = SWIZZLES[name]
    for line in range(swizzle.line_mask + 1):
        places = swizzle.apply(128 * line + 16 * np.arange(8, dtype=np.int64))
        yield f"line {line} | " + " ".join(str(int(p) % 128 // 16) for p in places)
