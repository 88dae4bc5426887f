"""The page of all fragments, docs/fragments.md: python -m tinygpu.ptx.cards.fragments [--check] [FILE]."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.language.matrix_fragments import ADDRESSED, HELD, TRANSPOSED
from tinygpu.layouts.algebra import coalesce
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.ptx.cards.generated import GeneratedPage
from tinygpu.ptx.cards.specimen import markdown_table
from tinygpu.ptx.isa import mma, tcgen05_ld
from tinygpu.ptx.isa.byte_matrices import BYTE_MATRICES
from tinygpu.ptx.isa.wgmma import accumulators
from tinygpu.ptx.isa.wgmma_registers import WgmmaRegisters

CARDS = {"mma.sync": "mma.sync.md", "wgmma": "wgmma.md", "ldmatrix": "ldmatrix.md", "stmatrix": "stmatrix.md"}
ROWS, COLUMNS = 32, 32  # of a picture; what repeats beyond them is cut


@dataclass(frozen=True)
class Fragment:
    """What the threads of one instruction hold of one operand.

    instruction  as PTX writes it, without the types
    types        of the operand
    operand      which one, and its axes: "a (m x k)"
    layout       (threads, values) -> coordinates; extents may be symbols
    rows         what the rows of the picture are
    columns      what its columns are
    drawn        the layout of the picture: numbers along axes 0, the rows, and 1, the columns
    ships        the instruction is one that machines can use
    """

    instruction: str
    types: str
    operand: str
    layout: Layout
    rows: str
    columns: str
    drawn: Layout
    ships: bool = True

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns that the picture covers."""
        return self.drawn.along(0).cosize, self.drawn.along(1).cosize

    def __str__(self) -> str:
        types = f" on {self.types}" if self.types else ""
        return f"{self.operand} of {self.instruction}{types}"


# Shapes of mma.sync that the PTX ISA has and that no instruction here offers: m, k, bits, types.
OTHER_SHAPES = (
    (8, 4, 64, "f64"),
    (16, 4, 64, "f64"),
    (16, 8, 64, "f64"),
    (16, 16, 64, "f64"),
    (8, 16, 8, "s8, u8"),
    (16, 64, 4, "s4, u4, e2m1"),
    (16, 256, 1, "b1"),
)


def products() -> Iterator[Fragment]:
    """Operands of mma.sync: types of one width are held alike, and sums whatever k is."""
    types: dict[tuple[int, int, int], list[str]] = {}
    for shape in mma.SHAPES:
        types.setdefault((shape.m, shape.k, shape.bits), []).extend(shape.types)
    offered = set(types)
    for m, k, bits, names in OTHER_SHAPES:
        types.setdefault((m, k, bits), []).append(names)
    for (m, k, bits), kinds in types.items():
        name, ships = f"mma.sync.m{m}n8k{k}", (m, k, bits) in offered
        left, right, _ = map(tidy, mma.fragments(m, k, bits))
        yield Fragment(name, ", ".join(kinds), "a (m x k)", left, "m", "k", left, ships)
        yield Fragment(name, ", ".join(kinds), "b (k x n)", right, "k", "n", right, ships)
    for m, k, totals in ((16, 16, "f32, s32, f16, f64"), (8, 16, "s32, f64")):
        sums = tidy(mma.fragments(m, k, 8)[2])
        yield Fragment(f"mma.sync.m{m}n8kK", totals, "c, d (m x n)", sums, "m", "n", sums, m == 16)


def warpgroups() -> Iterator[Fragment]:
    """Operands of wgmma in registers."""
    for k, kinds in ((16, ("f16", "bf16")), (8, ("tf32",)), (32, ("s8", "u8", "e4m3", "e5m2"))):
        left = WgmmaRegisters().fragments(dtype(kinds[0]), dtype(kinds[0]))[0]
        if left is None:
            raise ValueError("wgmma has a fragment of a where a lies in registers")
        held = tidy(left)
        yield Fragment(f"wgmma.m64nNk{k}", ", ".join(kinds), "a (m x k)", held, "m", "k", held)
    whole = accumulators(8 * symbol("N/8"))
    yield Fragment("wgmma.m64nNkK", "all types", "c, d (m x n)", whole, "m", "n", accumulators(16))


def matrices() -> Iterator[Fragment]:
    """Matrices of ldmatrix and stmatrix: data in registers, and the lanes that point at rows."""
    wide = 8 * E(1)
    where = "matrix m (columns 8 m to 8 m + 7) and column"
    for instruction in ("ldmatrix", "stmatrix"):
        for form, held in ((".x4", HELD), (".x4.trans", HELD.project(TRANSPOSED))):
            drawn = held.project({0: 0, 1: 1, "m": wide})
            yield Fragment(f"{instruction}.m8n8{form}", "16-bit types", "data", held, "row", where, drawn)
        pointed = ADDRESSED.project({0: 0, "m": 1})
        yield Fragment(f"{instruction}.m8n8.x4", "", "row addresses", ADDRESSED, "row", "matrix m", pointed)
    for shape in BYTE_MATRICES:
        drawn = shape.held.project({0: 0, 1: 1, "m": 16 * E(1)})
        where = "matrix m (columns 16 m to 16 m + 15) and byte"
        yield Fragment(shape.text, "bytes", "data", shape.held, "row", where, drawn, False)
        pointed = shape.addressed.project({0: 0, "m": 1})
        yield Fragment(shape.text, "", "row addresses", shape.addressed, "row", "matrix m", pointed, False)


def tensor_memory() -> Iterator[Fragment]:
    """Shapes of tcgen05.ld and tcgen05.st."""
    plain = [(s.name, s.repeated(symbol("N")), s.repeated(4 if s.columns < 4 else 2)) for s in tcgen05_ld.SHAPES]
    split = tcgen05_ld.split(symbol("S"), symbol("N")), tcgen05_ld.split(8, 4)
    for name, layout, drawn in [*plain, ("16x32bx2", *split)]:
        for pack, kinds in ((False, "32-bit columns"), (True, "halves of columns")):
            held, shown = layout, drawn
            if pack and layout is split[0]:
                held = tcgen05_ld.split(symbol("S"), symbol("N"), halves=True)
                shown = tcgen05_ld.split(8, 4, halves=True)
            elif pack:
                held, shown = tcgen05_ld.packed(layout), tcgen05_ld.packed(drawn)
            wide = tidy(shown).project({"lane": 0, "column": 1})
            text = f"tcgen05.ld.{name}.xN{'.pack::16b' if pack else ''}"
            yield Fragment(text, kinds, "registers", tidy(held), "lane", "column", wide, False)


def tidy(layout: Layout) -> Layout:
    """The same threads and values in the fewest modes."""
    return Layout.of(coalesce(layout[0]).steps, coalesce(layout[1]).steps)


SECTIONS = (
    (
        "mma.sync",
        products,
        "A warp multiplies a by b and adds c. Sums lie alike whatever k is; two f16 ones share a register.",
    ),
    (
        "wgmma",
        warpgroups,
        "A warpgroup of 128 threads: T32 w to T32 w + 31 are warp w, which has rows 16 w to 16 w + 15. N is 8 to 256; "
        "pictures are of N = 16.",
    ),
    (
        "ldmatrix and stmatrix",
        matrices,
        "Axis 0 is the row of a matrix in shared memory, axis 1 the element in it, m the number of the matrix; .x1 and "
        ".x2 have the first matrices, and their values come first. *Row addresses* say at which row each lane points.",
    ),
    (
        "tcgen05.ld and tcgen05.st",
        tensor_memory,
        "Cells of tensor memory, from the address on; a warp reaches the lanes 32 (w mod 4) to 32 (w mod 4) + 31. "
        "Packed registers hold the low halves of two columns. Pictures show x4 or x2, and S = 8.",
    ),
)


def page() -> str:
    """The page, as Markdown."""
    parts = [
        "# Fragments",
        "Who holds what of every matrix instruction, as a [layout](math.md) `(threads, values) -> coordinates`: "
        "first modes fastest, `2@1` two steps along axis 1. Values count elements in the order of the registers, low "
        "bits first. A picture has one cell for each coordinate, to hold beside the manual's: `T5:V2` is value 2 of "
        "thread 5.",
        "`python -m tinygpu.ptx.cards.fragments` writes this page from the layouts that instructions have, and a test "
        "compares them. Tests hold each layout to the manual's formula and to the emulator's own tables, which were "
        "written apart from it, and all but those of e2m1 and of packed tensor memory to the emulator executing the "
        "instruction (`tests/ptx/isa/test_fragment_page.py`, for wgmma `test_wgmma_rules.py`). Instructions without a "
        "card are those that the manual and the emulator have, and that no machine issues yet.",
    ]
    for title, fragments, sentence in SECTIONS:
        listed = list(fragments())
        rows = [(_named(f), f.types, f.operand, f"`{f.layout}`", _axes(f)) for f in listed]
        parts += [f"## {title}", sentence]
        parts.append(markdown_table(("instruction", "types", "operand", "layout", "axes"), rows))
        for alike in _pictured(listed):
            first = alike[0]
            parts.append(f"### `{first.layout}`")
            parts.append(f"{_sentence(alike)} Rows are {first.rows}, columns are {first.columns}.")
            picture = holder_picture(first.drawn, first.extents, (ROWS, COLUMNS))
            parts.append(f"```text\n{picture}\n```")
    return "\n\n".join(parts) + "\n"


def _named(f: Fragment) -> str:
    family = f.instruction.split(".m")[0]
    return f"[{f.instruction}](instructions/{CARDS[family]})" if f.ships else f.instruction


def _axes(f: Fragment) -> str:
    names = {0: f.rows, 1: f.columns} if f.drawn.axes and set(f.layout.axes) <= {0, 1} else {}
    return ", ".join(f"{axis} = {names[axis]}" if axis in names else str(axis) for axis in f.layout.axes)


def _pictured(listed: Sequence[Fragment]) -> list[list[Fragment]]:
    """Fragments with the same picture, in the order in which they come."""
    found: dict[tuple[str, str, str], list[Fragment]] = {}
    for f in listed:
        found.setdefault((str(f.drawn), f.rows, f.columns), []).append(f)
    return list(found.values())


def _sentence(alike: Sequence[Fragment]) -> str:
    return "; ".join(dict.fromkeys(map(str, alike))) + "."


def counted() -> str:
    return f"{len([f for _, fragments, _ in SECTIONS for f in fragments()])} fragments"


GENERATED = GeneratedPage("tinygpu.ptx.cards.fragments", Path("docs/fragments.md"), page, counted)

if __name__ == "__main__":
    sys.exit(GENERATED.main())
