"""Pictures: every cell says what the layout says; the SVG is well-formed and self-contained; refusals."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts

from tinygpu.expressions import symbol
from tinygpu.layouts import (
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    Picture,
    Swizzle,
    bank_picture,
    banks_together,
    compose,
    holder_picture,
    offset_picture,
)

P = Layout.parse
SVG = "{http://www.w3.org/2000/svg}"


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


def test_text_of_the_three_pictures():
    assert str(offset_picture(P("(2,3):(3,1)"))).splitlines() == [
        "(2,3):(3,1)",
        "  0 1 2",
        "0 0 1 2",
        "1 3 4 5",
    ]
    partition = P("((2,2),2):((2@1,1@0),1@1)")
    assert str(holder_picture(partition, (2, 5))).splitlines() == [
        "((2,2),2):((2@1,1@0),1@1) in 2 x 5",
        "      0     1     2     3 4",
        "0 T0:V0 T0:V1 T1:V0 T1:V1",
        "1 T2:V0 T2:V1 T3:V0 T3:V1",
    ]
    lines = str(bank_picture(P("(2,64):(64,1)"), 16)).splitlines()
    assert lines[0] == "(2,64):(64,1), elements of 16 bits, by bank"
    assert lines[2].split()[:4] == ["0", "B", "0,0..0,1", "0,2..0,3"]
    assert lines[3].split()[:4] == ["128", "B", "1,0..1,1", "1,2..1,3"]


@given(any_layouts(most=12, modes=2), any_layouts(most=12, modes=2))
def test_offsets_stand_at_their_coordinates(a, b):
    layout = Layout((a.shape, b.shape), (a.stride, b.stride))
    picture = offset_picture(layout)
    for i in range(a.size):
        for j in range(b.size):
            assert picture.cells[i][j] == str(layout(i, j))


@settings(max_examples=100)
@given(any_layouts(most=16, modes=2), any_layouts(most=6, modes=2), st.integers(1, 9))
def test_every_holder_is_named_or_counted(threads, values, rows):
    flat = Layout((threads.shape, values.shape), (threads.stride, values.stride))
    columns = -(-flat.cosize // rows)
    try:
        partition = compose(Layout.identity((rows, columns)), flat)
    except LayoutError:
        return
    picture = holder_picture(partition, (rows, columns))
    holders = {}
    for v in range(values.size):
        for t in range(threads.size):
            holders.setdefault(partition.coordinate(t, v, axes=(0, 1)), []).append((t, v))
    for row in range(rows):
        for column in range(columns):
            here = holders.get((row, column), [])
            found = re.fullmatch(r"(?:T(\d+):V(\d+)(?:\+(\d+))?)?", picture.cells[row][column])
            assert found is not None
            if not here:
                assert found[0] == ""
            else:
                assert (int(found[1]), int(found[2])) == here[0]
                assert int(found[3] or 0) == len(here) - 1


@settings(max_examples=60)
@given(st.permutations(range(2)), st.sampled_from([4, 8, 16, 32, 64]), st.integers(0, 2))
def test_elements_stand_in_their_banks(order, bits, swizzle_bits):
    strides = (1, 8) if order[0] else (16, 1)
    layout = ComposedLayout(Swizzle(swizzle_bits, 2, 3), Layout((8, 16), strides))
    picture = bank_picture(layout, bits)
    for i in range(8):
        for j in range(16):
            first, last = layout(i, j) * bits // 32, (layout(i, j) * bits + bits - 1) // 32
            for word in range(first, last + 1):
                cell = picture.cells[word // 32][word % 32]
                ends = cell.split("..")
                assert f"{i},{j}" in ends or (bits < 16 and len(ends) == 2)
    shown = sum(cell != "" for line in picture.cells for cell in line)
    assert shown == max(1, 8 * 16 * bits // 32)


@settings(max_examples=80)
@given(st.booleans(), st.sampled_from([8, 16, 32, 64]), st.integers(0, 6), st.integers(0, 2), st.integers(0, 3))
def test_cells_of_several_banks_are_runs_whose_ends_say_all(rows_first, bits, pad, swizzle_bits, base):
    """And no wider cells would be."""
    strides = (1, 8 + pad) if rows_first else (16 + pad, 1)
    layout = ComposedLayout(Swizzle(swizzle_bits, base, 4), Layout((8, 16), strides))
    together = banks_together(layout, bits)

    def held(banks):
        cells = {}
        for i in range(8):
            for j in range(16):
                cells.setdefault(layout(i, j) * bits // (32 * banks), {})[layout(i, j)] = (i, j)
        return {cell: [at for _, at in sorted(found.items())] for cell, found in cells.items()}

    def is_run(elements):
        steps = {(after[0] - one[0], after[1] - one[1]) for one, after in itertools.pairwise(elements)}
        return steps in (set(), {(0, 1)}, {(1, 0)})

    assert all(map(is_run, held(together).values())) or together == 1
    assert together == 4 or not all(map(is_run, held(2 * together).values()))
    if together > 1:
        picture = bank_picture(layout, bits, together=together)
        for cell, elements in held(together).items():
            line, column = divmod(cell, 32 // together)
            ends = picture.cells[line][column].split("..")
            assert {tuple(map(int, end.split(","))) for end in ends} == {elements[0], elements[-1]}
        assert picture.columns == tuple(str(together * column) for column in range(32 // together))


def test_a_window_of_a_large_tile_is_drawn():
    """What is left out counts for nothing: a window shows what the same window of a smaller tile shows."""
    large = holder_picture(P("(256,128):(1@0,1@1)"), (256, 128), (4, 5))
    small = holder_picture(P("(256,5):(1@0,1@1)"), (256, 5), (4, 5))
    assert large.cells == small.cells
    assert large.title.endswith("; the first 4 of 256 rows and 5 of 128 columns")


def test_svg_is_self_contained_and_shows_every_cell():
    partition = P("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))")
    for picture in (
        holder_picture(partition, (17, 8)),
        offset_picture(ComposedLayout(Swizzle(2, 0, 3), P("(8,8):(8,1)"))),
        bank_picture(P("(4,32):(33,1)"), 32),
    ):
        svg = picture.svg()
        root = ET.fromstring(svg)
        texts = [node.text for node in root.iter(f"{SVG}text")]
        cells = [cell for line in picture.cells for cell in line if cell]
        assert [t for t in texts if t in set(cells)].count(cells[0]) >= 1
        assert texts[0] == picture.title
        assert len(texts) == 1 + len(picture.columns) + len(picture.rows) + len(cells)
        assert len(list(root.iter(f"{SVG}rect"))) == len(picture.rows) * len(picture.columns)
        assert "prefers-color-scheme:dark" in svg
        assert "href" not in svg
        assert picture._repr_svg_() == svg
        width, height = float(root.get("width")), float(root.get("height"))
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("x")) + float(rect.get("width")) <= width
            assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_svg_escapes_its_texts():
    picture = Picture('a < "b" & c', ("<",), (">",), (("&",),), ((0,),))
    root = ET.fromstring(picture.svg())
    assert [node.text for node in root.iter(f"{SVG}text")] == ['a < "b" & c', "<", ">", "&"]
    assert root.get("aria-label") == 'a < "b" & c'


def test_every_refusal():
    refuses("4:1 has 1 mode; a picture needs two, for its rows and columns", offset_picture, P("4:1"))
    refuses(
        "(2,2,2):(1,2,4) has 3 modes; a picture needs two, for its rows and columns",
        offset_picture,
        P("(2,2,2):(1,2,4)"),
    )
    refuses(
        "(1024,1024):(1,1024): 1024 x 1024 cells are more than the 16384 of a picture; take a tile of it",
        offset_picture,
        P("(1024,1024):(1,1024)"),
    )
    refuses(
        "(4,2):(1@0,2@lane): (4,4) has 2 axes from 0 on, and no 'lane'",
        holder_picture,
        P("(4,2):(1@0,2@lane)"),
        (4, 4),
    )
    grid = Layout.identity((4, 8))
    refuses(
        "(4,8):(1@0,1@1): axis 0 reaches 3, outside [0, 3) of the tensor (3,8)", holder_picture, grid, (3, 8)
    )
    refuses(
        "elements of 6 bits do not fill banks of 32 bits; the width must divide 32 or be a multiple of it",
        bank_picture,
        P("(4,8):(8,1)"),
        6,
    )
    refuses(
        "picture 'x': every row needs 2 cells, and there must be 1 rows",
        Picture,
        "x",
        ("a", "b"),
        ("r",),
        (("1",),),
        ((0, 0),),
    )


# -- notebooks -----------------------------------------------------------------------------------------------------


def table_of(value):
    """The notation, the title and the cells of what a notebook shows; the last two are None without a picture."""
    page = ET.fromstring(value._repr_html_())
    assert page.tag == "div"
    drawing = page.find(f"{SVG}svg")
    if drawing is None:
        return page.findtext("code"), None, None
    title, *labels = drawing.findall(f"{SVG}text")
    first = next(k for k, label in enumerate(labels) if label.get("class") == "row")
    columns = {label.get("x"): k for k, label in enumerate(labels[:first])}
    lines = []
    for label in labels[first:]:
        if label.get("class") == "row":
            lines.append([""] * len(columns))
        else:
            lines[-1][columns[label.get("x")]] = label.text
    return page.findtext("code"), title.text, lines


@given(any_layouts(most=12, modes=2), any_layouts(most=12, modes=2))
def test_a_notebook_shows_the_offsets_of_two_modes(a, b):
    layout = Layout((a.shape, b.shape), (a.stride, b.stride))
    notation, _, cells = table_of(layout)
    assert notation == str(layout)
    assert cells == [[str(layout(i, j)) for j in range(b.size)] for i in range(a.size)]


@settings(max_examples=50)
@given(any_layouts(most=8, modes=2), any_layouts(most=8, modes=2))
def test_a_notebook_shows_who_holds_what_of_one_or_two_axes(threads, values):
    """Both modes step along the axes that their leaves number: even leaves down, odd leaves across."""
    steps = [
        [(s, d * E(k % 2)) for k, (s, d) in enumerate(part.leaves) if d < 6] for part in (threads, values)
    ]
    layout = Layout.of(*steps)
    _, caption, cells = table_of(layout)
    if not layout.axes:
        assert caption == "offsets"
        return
    named = [f"axis {a} {way}" for a, way in zip(layout.axes, ("down", "across")[-len(layout.axes) :], strict=True)]
    assert caption.split("; the first")[0] == f"who holds what: {', '.join(named)}"
    shown = {}
    for v in range(layout[1].size):
        for t in range(layout[0].size):
            at = (0, *layout.coordinate(t, v))[-2:]
            shown.setdefault(at, []).append(f"T{t}:V{v}")
    for (row, column), holders in shown.items():
        if row < 16 and column < 32:
            more = f"+{len(holders) - 1}" if len(holders) > 1 else ""
            assert cells[row][column] == holders[0] + more


def test_what_has_no_picture_is_shown_as_its_notation():
    n = symbol("n")
    for value in (Layout((n, 8), (8, 1)), Layout((4, 8), (n, 1)), P("(2,2,2):(1,2,4)"), P("(4,2):(1@a+1@b,1@c)")):
        assert table_of(value) == (str(value), None, None)
    assert table_of(Layout((1 << 20, 1 << 20), (1, 1 << 20)))[1] is None
    assert table_of(Layout((2, 2), (1, 1 << 63)))[1] is None


def test_notebooks_cut_large_pictures_and_escape_notations():
    _, caption, cells = table_of(Layout.row_major((100, 8)))
    assert caption == "offsets; the first 16 of 100 rows"
    assert len(cells) == 16
    swizzled = ComposedLayout(Swizzle(1, 0, 1), P("(4,4):(4,1)"))
    notation, caption, cells = table_of(swizzled)
    assert notation == "Sw<1,0,1> o (4,4):(4,1)"
    assert cells == [[str(swizzled(i, j)) for j in range(4)] for i in range(4)]
    assert table_of(P("4:2"))[2] == [["0", "2", "4", "6"]]
    assert table_of(P("():()"))[2] == [["0"]]


def test_the_style_of_a_picture_reaches_no_other_drawing_of_the_page():
    style = ET.fromstring(offset_picture(P("(2,2):(1,2)")).svg()).findtext(f"{SVG}style")
    inner = style.replace("@media(prefers-color-scheme:dark){", "").removesuffix("}")
    assert all(rule.startswith(".tinygpu-picture ") for rule in inner.split("}") if rule)
