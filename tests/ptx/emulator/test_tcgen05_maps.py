"""Maps of tensor memory: every cell once, the formulas of the manual lane by lane, round trips between shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.block_scales import scale_cells, scale_columns, scale_values, spread_scales
from tinygpu.ptx.emulator.units.sparse_metadata import (
    chunk_elements,
    metadata_cells,
    metadata_columns,
    stored_positions,
)
from tinygpu.ptx.emulator.units.tensor_memory_maps import (
    ACCESS_SHAPES,
    COPY_SHAPES,
    LayoutId,
    access_cells,
    accumulator_cells,
    accumulator_columns,
    accumulator_slabs,
    join_address,
    layout_id,
    rows_per_cta,
    split_address,
)
from tinygpu.ptx.emulator.units.zero_columns import decode_zero_columns

# ---- accumulators -------------------------------------------------------------------------------------------------


def d_cell(layout: LayoutId, r: int, c: int, n: int, h: int) -> tuple[int, int]:
    """The table of layouts, one element at a time."""
    match layout:
        case "A" | "D":
            return r, c
        case "B" | "E":
            return r + 64 * (c >= n // 2), c % (n // 2)
        case "C" | "F":
            return 32 * (r // 16) + r % 16 + h, c
        case "G":
            return r + 32 * (c // (n // 4)), c % (n // 4)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from("ABCDEFG"), st.sampled_from([8, 16, 64, 96, 128, 256]), st.booleans())
def test_accumulators_lie_where_the_table_of_layouts_says(layout: LayoutId, n: int, upper: bool) -> None:
    if layout == "G" and n < 16:
        n = 64
    half = 16 if upper and layout in "CF" else 0
    lane, column = accumulator_cells(layout, n, half)
    rows = rows_per_cta(layout)
    assert lane.shape == column.shape == (rows, n)
    for r in range(0, rows, 7):
        for c in range(0, n, 3):
            assert (lane[r, c], column[r, c]) == d_cell(layout, r, c, n, half)
    cells = lane * 512 + column
    assert np.unique(cells).size == rows * n
    assert column.max() + 1 == accumulator_columns(layout, n)


@pytest.mark.parametrize(
    ("m", "cta_group", "ws", "sparse", "layout"),
    [
        (32, 1, True, False, "G"), (64, 1, True, True, "E"), (64, 1, False, True, "F"), (128, 1, True, False, "D"),
        (128, 1, False, False, "D"), (128, 2, False, False, "B"), (128, 2, False, True, "C"),
        (256, 2, False, True, "A"),
    ],
)  # fmt: skip
def test_the_layout_follows_from_m_and_form(m: int, cta_group: int, ws: bool, sparse: bool, layout: str) -> None:
    assert layout_id(m, cta_group, ws, sparse) == layout


def test_layouts_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError) as caught:
        layout_id(64, 2, False, False)
    assert str(caught.value) == "no data path layout for M = 64, cta_group::2"
    with pytest.raises(ValueError) as other:
        accumulator_slabs("D", 64, 16)
    assert str(other.value) == "an accumulator of layout D cannot start at lane 16"


@given(st.integers(0, 127), st.integers(0, 511))
def test_addresses_are_lane_and_column(lane: int, column: int) -> None:
    assert split_address(join_address(lane, column)) == (lane, column)
    assert join_address(lane, column) == lane * 65536 + column


# ---- ld and st ----------------------------------------------------------------------------------------------------


def cell_of(shape: str, t: int, register: int, split: int, packed: bool) -> tuple[int, int]:
    """(lane, column) from the figures of the manual: matrices of 8 lanes, threads in groups of four (or two)."""
    step = 2 if packed else 1
    if shape == "32x32b":
        return t, register * step
    if shape == "16x32bx2":
        return t % 16, register * step + (split if t >= 16 else 0)
    if shape == "16x64b":
        # Each quad holds lane q and lane q + 8; a lane has two threads of adjacent columns.
        quad, within = divmod(t, 4)
        upper, odd = within & 1, within >> 1
        return quad + 8 * upper, (2 * register + odd) * step
    if shape == "16x128b":
        quad, within = divmod(t, 4)
        block, half = divmod(register, 2)
        return quad + 8 * half, (4 * block + within) * step
    # 16x256b: the 16 x 8 accumulator fragment of mma.sync, side by side.
    block, element = divmod(register, 4)
    quad, within = divmod(t, 4)
    return quad + (8 if element >= 2 else 0), (8 * block + 2 * within + element % 2) * step


shapes = st.sampled_from(sorted(ACCESS_SHAPES))


@settings(max_examples=200, deadline=None)
@given(shapes, st.integers(0, 7), st.booleans(), st.integers(0, 300))
def test_registers_hold_the_cells_of_the_figures_each_once(shape: str, power: int, packed: bool, split: int) -> None:
    registers, most = ACCESS_SHAPES[shape]
    repeat = min(1 << power, most)
    width = repeat * (2 if packed else 1)
    # Two windows that overlap would make a store ambiguous.
    split = max(split, width) if shape == "16x32bx2" else 0
    cells = access_cells(shape, repeat, packed, split)
    assert cells.lane.shape == cells.column.shape == (32, registers * repeat)
    for t in range(32):
        for r in range(registers * repeat):
            assert (cells.lane[t, r], cells.column[t, r]) == cell_of(shape, t, r, split, packed)
    touched = (cells.lane * 4096 + cells.column).reshape(-1)
    touched = np.concatenate([touched, touched + 1]) if packed else touched
    assert np.unique(touched).size == touched.size
    lanes = 32 if shape == "32x32b" else 16
    assert cells.lanes == lanes
    per_lane = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 2}[shape] * width
    assert touched.size == lanes * per_lane
    assert cells.columns == (split + width if shape == "16x32bx2" else per_lane)


@settings(max_examples=60, deadline=None)
@given(shapes, shapes, st.randoms(use_true_random=False))
def test_what_one_shape_stores_another_loads(first: str, second: str, random: object) -> None:
    """Sixteen lanes times eight columns, stored by one shape and loaded by the other, against a plain table."""
    seed = int(np.abs(hash(random)) % 2**32)
    table = np.random.default_rng(seed).integers(0, 2**32, (32, 8), dtype=np.uint32)
    memory: dict[tuple[int, int], int] = {}
    for shape, writes in ((first, True), (second, False)):
        registers, _ = ACCESS_SHAPES[shape]
        per_one = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 2}[shape]
        repeat = 8 // per_one
        cells = access_cells(shape, repeat, False, 4 if shape == "16x32bx2" else 0)
        bases = (0,) if shape == "32x32b" else (0, 16)
        for base in bases:
            for t in range(32):
                for r in range(registers * repeat):
                    at = (int(cells.lane[t, r]) + base, int(cells.column[t, r]))
                    if writes:
                        memory[at] = int(table[at])
                    else:
                        assert memory[at] == table[at]
    assert len(memory) == 256


@pytest.mark.parametrize(
    ("shape", "repeat", "sentence"),
    [
        ("8x32b", 1, "unknown shape '8x32b'; known: 32x32b, 16x64b, 16x128b, 16x256b, 16x32bx2"),
        ("16x256b", 64, "16x256b repeats 1, 2, 4, ... 32 times, not 64"),
        ("32x32b", 3, "32x32b repeats 1, 2, 4, ... 128 times, not 3"),
    ],
)
def test_shapes_that_do_not_exist_are_refused(shape: str, repeat: int, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        access_cells(shape, repeat)
    assert str(caught.value) == sentence


# ---- cp -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COPY_SHAPES))
def test_copies_fill_each_lane_at_most_once_and_every_copy_has_all_rows(name: str) -> None:
    shape = COPY_SHAPES[name]
    lanes = [lane for copy in shape.lanes for lane in copy]
    assert len(set(lanes)) == len(lanes)
    assert all(len(copy) == shape.rows for copy in shape.lanes)
    assert set(lanes) == (set(range(0, 128, 32)) if name == "4x256b" else set(range(128)))
    size = int(name.split("x")[1].split("b")[0])
    assert shape.columns == size // 32


def test_multicast_pairs_get_the_same_half() -> None:
    """02_13: warps 0 and 2 hold the same rows; 01_23: warps 0 and 1 do."""

    def rows(name: str) -> list[list[int]]:
        found: list[list[int]] = [[], [], [], []]
        for copy in COPY_SHAPES[name].lanes:
            for row, lane in enumerate(copy):
                found[lane // 32].append(row)
        return found

    first, second = list(range(32)), list(range(32, 64))
    assert rows("64x128b.warpx2::02_13") == [first, second, first, second]
    assert rows("64x128b.warpx2::01_23") == [first, first, second, second]
    assert rows("32x128b.warpx4") == [first] * 4


# ---- scale factors ------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]), st.data())
def test_the_block_that_a_copy_replicates_is_what_the_scale_map_reads(
    seed: int, count: int, data: st.DataObject
) -> None:
    """The 512-byte block of 128 rows x 4 scale factors, copied by 32x128b.warpx4, read back through the map."""
    scales = np.random.default_rng(seed).integers(0, 256, (128, 4), dtype=np.uint8)
    block = np.zeros(512, np.uint8)
    for m in range(128):
        for j in range(4):
            block[16 * (m % 32) + 4 * (m // 32) + j] = scales[m, j]
    memory = np.zeros((128, 4, 4), np.uint8)
    for copy in COPY_SHAPES["32x128b.warpx4"].lanes:
        for row, lane in enumerate(copy):
            memory[lane] = block[16 * row : 16 * row + 16].reshape(4, 4)
    first = data.draw(st.sampled_from(range(0, 4, count)))
    for slab in accumulator_slabs("D", 128):
        rows = scale_cells(slab, "A", count, first)
        found = memory[rows.lane, rows.column, rows.byte]
        assert (found == scales[slab.row : slab.row + 32, first : first + count]).all()
        columns = scale_cells(slab, "B", count, first)
        assert (memory[columns.lane, columns.column, columns.byte] == scales[:, first : first + count]).all()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([16, 32, 64, 96, 128, 256]), st.sampled_from([1, 2, 4]))
def test_slabs_of_a_pair_read_the_scales_of_their_own_columns(n: int, count: int) -> None:
    """Layout B: slabs 2 and 3 multiply the upper half of B's columns, whose scale factors lie in lanes 64 to 127."""
    assert scale_columns("B", "B", 64, n) == -(-(n // 2) // 32)
    for slab in accumulator_slabs("B", n):
        cells = scale_cells(slab, "B", count, 0)
        for index in range(n // 2):
            c = slab.column + index
            hi = c >= n // 2
            lane = cells.lane[index, 0]
            assert lane % 32 == (c % (n // 2)) % 32
            assert lane // 64 == hi
            assert cells.column[index, 0] == (c % (n // 2)) // 32
        rows = scale_cells(slab, "A", count, 0)
        assert (rows.lane[:, 0] == slab.lane + np.arange(32)).all()
        assert (rows.column == slab.row // 32).all()


def test_scale_factors_are_worth_what_their_formats_say() -> None:
    found = scale_values(np.array([0, 1, 127, 128, 254, 255], np.uint8), "ue8m0")
    assert (found[:5] == np.ldexp(1.0, [-127, -126, 0, 1, 127])).all()
    assert np.isnan(found[5])
    found = scale_values(np.array([0, 1, 8, 56, 57, 126, 127], np.uint8), "ue4m3")
    assert (found[:6] == [0, 2.0**-9, 2.0**-6, 1, 1.125, 448]).all()
    assert np.isnan(found[6])
    with pytest.raises(ValueError) as caught:
        scale_values(np.zeros(1, np.uint8), "e4m3")
    assert str(caught.value) == "scale factors are ue8m0 or ue4m3, not e4m3"


def test_a_scale_factor_covers_an_equal_share_of_k() -> None:
    spread = spread_scales(np.array([[1.0, 2.0], [3.0, 4.0]]), 8)
    assert spread.tolist() == [[1] * 4 + [2] * 4, [3] * 4 + [4] * 4]
    with pytest.raises(ValueError) as caught:
        spread_scales(np.ones((1, 3)), 64)
    assert str(caught.value) == "3 scale factors do not divide K = 64"


# ---- sparse metadata ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8", "mxf4", "mxf8f6f4"])
def test_indices_of_a_slab_fill_its_cells_without_overlap(kind: str) -> None:
    taken: set[tuple[int, int, int]] = set()
    for slab in accumulator_slabs("D", 64):
        cells = metadata_cells(slab, kind)
        assert ((cells.lane >= slab.lane) & (cells.lane < slab.lane + 32)).all()
        for lane, column, shift in zip(
            cells.lane.reshape(-1), cells.column.reshape(-1), cells.shift.reshape(-1), strict=True
        ):
            assert shift % 4 == 0
            assert 0 <= shift < 32
            taken.add((int(lane), int(column), int(shift)))
    assert len(taken) == 128 * metadata_columns(kind) * 8


@pytest.mark.parametrize("kind", ["f16", "tf32"])
def test_indices_of_16_and_32_bit_kinds_interleave_rows(kind: str) -> None:
    """Written out from the layout (8, 2, 8) : (1, 8 x 128 chunks, 16) with K halves eight lanes apart."""
    for slab in accumulator_slabs("D", 64):
        cells = metadata_cells(slab, kind, 1)
        for row in range(32):
            m = slab.row + row
            for chunk in range(8):
                virtual = m % 8 + 16 * (m // 16) + 8 * (chunk // 4)
                assert cells.lane[row, chunk] == virtual
                assert cells.shift[row, chunk] == 4 * (chunk % 4) + 16 * (m // 8 % 2)
                assert cells.column[row, chunk] == 1


def test_stored_elements_go_where_the_index_says() -> None:
    positions, bad = stored_positions(np.array([[0b0100, 0b1110]]), "f16")
    assert positions.tolist() == [[0, 1, 6, 7]]
    assert not bad.any()
    positions, bad = stored_positions(np.array([[0b0100, 0b1110]]), "tf32")
    assert positions.tolist() == [[0, 3]]
    assert not bad.any()
    positions, bad = stored_positions(np.array([[0b1000, 0b1101]]), "mxf4")
    assert positions.tolist() == [[0, 1, 4, 5, 10, 11, 14, 15]]
    assert not bad.any()
    assert chunk_elements("mxf4") == 8


@pytest.mark.parametrize("kind", ["f16", "tf32", "mxf4", "i8"])
def test_indices_that_the_manual_does_not_list_are_illegal(kind: str) -> None:
    _, bad = stored_positions(np.arange(16)[None, :], kind)
    legal = {i for i in range(16) if not bad[0, i]}
    # Rising pairs of positions, and of the falling ones 0b0110 alone; tf32 knows its two halves only.
    assert legal == ({4, 14} if kind == "tf32" else {i for i in range(16) if i >> 2 > (i & 3)} | {0b0110})


def test_metadata_of_half_used_layouts_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        metadata_cells(accumulator_slabs("F", 64)[0], "f16")
    assert str(caught.value) == "the metadata placement of layouts that use half of the lanes is not known"


# ---- zero columns -------------------------------------------------------------------------------------------------


def zero_word(
    starts: tuple[int, ...], spans: tuple[int, ...], enabled: int, skip: int, use: int, shift: int = 0
) -> int:
    """A descriptor from its fields; starts and spans are listed from sub-mask 0 on."""
    word = enabled << 39 | skip << 40 | use << 48 | shift << 56
    for part, (start, span) in enumerate(zip(starts, spans, strict=True)):
        word |= start << 8 * part | span << 32 + part
    return word


def bits(text: str) -> list[bool]:
    """The lowest bits of a mask as the manual prints it, lowest first."""
    return [b == "1" for b in reversed(text.replace(" ", ""))]


@pytest.mark.parametrize(
    ("m", "n", "word", "masks"),
    [
        (128, 64, zero_word((0, 0, 0, 0), (0, 0, 0, 0), 0, 4, 3), ["00000000000000"]),
        (128, 64, zero_word((0, 0, 0, 0), (0, 0, 0, 0), 1, 2, 3), ["111 0000 111 0000"]),
        (64, 64, zero_word((0, 0, 0, 0), (1, 0, 0, 0), 1, 2, 3), ["111 0000 111 0000 111", "0000 111 0000 111 0000"]),
        (
            32, 64, zero_word((0, 1, 2, 1), (1, 1, 0, 0), 1, 2, 3, 2),
            ["0000 111 0000 111", "0000 111 0000 11", "111 0000 111 00", "111 0000 111 000"],
        ),
    ],
)  # fmt: skip
def test_the_worked_examples_of_the_manual(m: int, n: int, word: int, masks: list[str]) -> None:
    decoded, problems = decode_zero_columns(word)
    assert problems == ()
    mask = decoded.mask(m, n)
    assert mask.shape == (n,)
    width = n // len(masks)
    for part, text in enumerate(masks):
        wanted = bits(text)
        assert mask[part * width : part * width + len(wanted)].tolist() == wanted


def test_reserved_bits_of_a_zero_column_mask_are_refused() -> None:
    assert decode_zero_columns(1 << 37)[1] == (
        "bits 38:36 of a zero-column mask descriptor are reserved and must be 0",
    )
    assert decode_zero_columns(1 << 62)[1] == (
        "bits 63:62 of a zero-column mask descriptor are reserved and must be 0",
    )
