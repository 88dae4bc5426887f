"""Descriptors of tcgen05 as words: what to write for operands as TMA lays them, and for common products.

Facts: PTX ISA, "Shared memory layout and swizzling", "Matrix descriptor", "Instruction descriptor", as
docs/blackwell.md has them field by field; a test reads every word by the emulator's own decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.cards.specimen import markdown_table


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """How a tile of an operand lies in shared memory, and the matrix descriptor of it.

    along          the side that is contiguous: "k", or "m or n"
    swizzle        as the tensor map calls it
    width_bytes    of the contiguous side of a box
    leading        in words: from where to where the leading offset goes
    leading_bytes  of the word that is shown
    stride         the same of the stride offset
    stride_bytes   of the word that is shown
    shown          what that word is of
    step           in words: how the start address moves to the next instruction along k
    """

    along: str
    swizzle: str
    width_bytes: int
    code: int
    leading: str
    leading_bytes: int
    stride: str
    stride_bytes: int
    shown: str
    step: str

    @property
    def word(self) -> int:
        """The descriptor with a start address of 0."""
        return self.leading_bytes >> 4 << 16 | self.stride_bytes >> 4 << 32 | 1 << 46 | self.code << 61


_UNUSED = "none: 16 bytes are written"
_IN_LINE = "32 bytes; behind a line's last, to the next box"
_ALONG, _ACROSS = "from box to box along k", "from box to box along m or n"
_EIGHT_ROWS, _EIGHT_STEPS, _FOUR_STEPS = "eight rows", "eight steps of k", "four steps of k"
_K_LINES = "a line for each of an instruction's K: of f16 16 lines"
_STAGE = "64 of k to a stage"
OPERANDS = (
    OperandLayout("k", "128B", 128, 2, _UNUSED, 16, _EIGHT_ROWS, 1024, "any rows", _IN_LINE),
    OperandLayout("k", "64B", 64, 4, _UNUSED, 16, _EIGHT_ROWS, 512, "any rows", _IN_LINE),
    OperandLayout("k", "32B", 32, 6, _UNUSED, 16, _EIGHT_ROWS, 256, "any rows", "to the next box"),
    OperandLayout("k", "none", 16, 0, _ALONG, 2048, _EIGHT_ROWS, 128, "128 rows", "to the next box but one"),
    OperandLayout("m or n", "128B", 128, 2, _ACROSS, 8192, _EIGHT_STEPS, 1024, _STAGE, _K_LINES),
    OperandLayout("m or n", "64B", 64, 4, _ACROSS, 4096, _EIGHT_STEPS, 512, _STAGE, _K_LINES),
    OperandLayout("m or n", "32B", 32, 6, _ACROSS, 2048, _EIGHT_STEPS, 256, _STAGE, _K_LINES),
    OperandLayout("m or n", "none", 16, 0, _EIGHT_STEPS, 128, _ACROSS, 1024, _STAGE, _K_LINES),
    OperandLayout(
        "m or n", "128B_ATOM_32B", 128, 1, _ACROSS, 4096, _FOUR_STEPS, 512, "tf32 alone, 32 of k to a stage", "8 lines"
    ),
)


@dataclass(frozen=True, slots=True)
class Product:
    """An instruction descriptor: the kind it is for, what it says, and the word."""

    kind: str
    said: str
    word: int
    pair: bool = False
    block: str = ""


PRODUCTS = (
    Product("f16", "f16 by f16 in f32, M = 128, N = 128", 1 << 4 | 128 // 8 << 17 | 128 // 16 << 24),
    Product("f16", "bf16 by bf16 in f32, M = 128, N = 256", 1 << 4 | 1 << 7 | 1 << 10 | 256 // 8 << 17 | 8 << 24),
    Product("f16", "the same of a pair, M = 256", 1 << 4 | 1 << 7 | 1 << 10 | 256 // 8 << 17 | 256 // 16 << 24, True),
    Product("f16", "f16, M = 128, N = 128, b contiguous along n", 1 << 4 | 1 << 16 | 16 << 17 | 8 << 24),
    Product("f8f6f4", "e4m3 by e4m3 in f32, M = 128, N = 128", 1 << 4 | 16 << 17 | 8 << 24),
    Product("i8", "s8 by s8 in s32, M = 128, N = 128", 2 << 4 | 1 << 7 | 1 << 10 | 16 << 17 | 8 << 24),
    Product(
        "mxf8f6f4", "e4m3 by e4m3, ue8m0, M = 128, N = 128, second scales of their cells",
        1 << 29 | 1 << 4 | 1 << 23 | 16 << 17 | 128 // 128 << 27, block="block32",
    ),
    Product(
        "mxf4nvf4", "e2m1 by e2m1, ue4m3, M = 128, N = 128", 1 << 7 | 1 << 10 | 16 << 17 | 1 << 27, block="block16"
    ),
)  # fmt: skip


def operand_words() -> str:
    """The table of operands."""
    rows = []
    for o in OPERANDS:
        box = f"{o.width_bytes} bytes along {o.along} x all {'rows' if o.along == 'k' else 'steps of k'}"
        rows.append((o.along, f"`{o.swizzle}`", box, o.leading, o.stride, o.step, f"`{o.word:#018x}` ({o.shown})"))
    columns = ("contiguous", "swizzle", "box", "leading offset", "stride offset", "step along k", "start at 0")
    return markdown_table(columns, rows)


def product_words() -> str:
    """The table of products."""
    rows = [(f"`{p.kind}`", f"`{p.word:#010x}`", p.said) for p in PRODUCTS]
    return markdown_table(("kind", "word", "what it says"), rows)
