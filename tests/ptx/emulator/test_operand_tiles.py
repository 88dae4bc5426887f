"""Operand tiles: addresses against the manual's canonical layouts, evaluated coordinate by coordinate, and against TMA.

The oracle is written from the layouts as shape:stride (PTX ISA, "Canonical Layouts"), not from the offset formulas that
the code uses; the second one places a box as TMA does and reads it back through a descriptor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinygpu.ptx.emulator.units.matrix_descriptors import (
    NO_SWIZZLE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    MatrixDescriptor,
    Unit,
)
from tinygpu.ptx.emulator.units.operand_tiles import Chunks, k_major_chunks, mn_major_chunks
from tinygpu.ptx.emulator.units.swizzles import Swizzle

SWIZZLES = {0: NO_SWIZZLE, 1: SWIZZLE_32B, 2: SWIZZLE_64B, 3: SWIZZLE_128B}
strides = st.integers(0, 511).map(lambda x: 16 * x)


def layout_offset(coordinate: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Offset of a coordinate in one mode of a layout, first sub-mode fastest; the last sub-mode is unbounded."""
    offset = 0
    for size, step in zip(shape[:-1], stride[:-1], strict=True):
        offset += coordinate % size * step
        coordinate //= size
    return offset + coordinate * stride[-1]


def canonical(
    bits: int, mn_major: bool, element: int, leading: int, stride: int, mn: int, k: int
) -> int:
    """Byte offset of an element before swizzling, for Swizzle<bits, 4, 3>; strides in bytes, T in elements."""
    t, wide = 16 // element, 1 << bits
    lead, step = leading // element, stride // element
    modes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    if mn_major and bits == 0:
        modes = ((t, 1, 0), (1, t, step)), ((8, 0), (t, lead))
    elif mn_major:
        modes = ((t, wide, 0), (1, t, lead)), ((8, 0), (wide * t, step))
    elif bits == 0:
        modes = ((8, 0), (t, step)), ((t, 0), (1, lead))
    else:
        modes = ((8, 0), (wide * t, step)), ((t, 0), (1, t))
    return element * (layout_offset(mn, *modes[0]) + layout_offset(k, *modes[1]))


def swizzled(address: int, bits: int, first_line: int) -> int:
    """Swizzle<bits, 4, 3> of a byte address, for a pattern that starts at line `first_line`."""
    line = (address >> 7) - first_line
    for bit in range(bits):
        address ^= (line >> bit & 1) << (4 + bit)
    return address


def element_addresses(chunks: Chunks, mn_major: bool, element: int) -> NDArray[np.int64]:
    """(mn, k) byte address of each element."""
    bytes_ = chunks.addresses[:, :, None] + np.arange(0, 16, element)
    flat = bytes_.reshape(bytes_.shape[0], -1)
    return flat.T if mn_major else flat


@settings(max_examples=120, deadline=None)
@given(
    bits=st.integers(0, 3), mn_major=st.booleans(), element=st.sampled_from([1, 2, 4]), leading=strides, stride=strides,
    start=st.integers(0, 4095).map(lambda x: 16 * x), groups=st.integers(1, 8), data=st.data(),
)  # fmt: skip
def test_every_element_lies_where_the_canonical_layout_puts_it(
    bits: int, mn_major: bool, element: int, leading: int, stride: int, start: int, groups: int, data: st.DataObject
) -> None:
    first_line = data.draw(st.integers(0, (1 << bits) - 1)) if bits else 0
    descriptor = MatrixDescriptor("wgmma", start, leading, stride, first_line, SWIZZLES[bits])
    extent, k = 8 * groups, 32 // element
    if mn_major:
        chunks = mn_major_chunks(descriptor, extent * element, k)
    else:
        chunks = k_major_chunks(descriptor, extent, k * element)
    got = element_addresses(chunks, mn_major, element)
    for mn in range(extent):
        for step in range(k):
            offset = canonical(bits, mn_major, element, leading, stride, mn, step)
            assert got[mn, step] == swizzled(start + offset, bits, first_line)
    assert chunks.base % 1024 == 0
    low, high = chunks.range_bytes
    assert (low, high) == (int(chunks.offsets.min()), int(chunks.offsets.max()) + 16)


def place_box(memory: NDArray[np.uint8], at: int, box: NDArray[Any], swizzle: Swizzle) -> None:
    """Write a box (rows, inner) as TMA does: densely, dim 0 fastest, swizzled on the absolute address."""
    raw = np.ascontiguousarray(box).view(np.uint8).reshape(-1)
    for byte, value in enumerate(raw.tolist()):
        address = at + byte
        line = address // 128
        address ^= (line & swizzle.line_mask) * swizzle.atom_bytes
        memory[address] = value


def gather(memory: NDArray[np.uint8], chunks: Chunks, dtype: Any) -> NDArray[Any]:
    rows = np.take(memory.reshape(-1, 16), chunks.addresses // 16, axis=0)
    return rows.reshape(chunks.offsets.shape[0], -1).view(dtype)


@pytest.mark.parametrize("swizzle", [SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B], ids=lambda s: s.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("start", [1024, 7 * 1024])
def test_k_major_tiles_that_tma_wrote_are_read_back(swizzle: Swizzle, dtype: Any, start: int) -> None:
    """A box {span of K, rows}; each instruction advances the start address by 32 bytes within the span."""
    rng = np.random.default_rng(3)
    element = np.dtype(dtype).itemsize
    rows, inner = 64, swizzle.width_bytes // element
    box = rng.integers(0, 256, (rows, swizzle.width_bytes), np.uint8).view(dtype)
    memory = np.zeros(1 << 15, np.uint8)
    place_box(memory, start, box, swizzle)
    per_step = 32 // element
    for step in range(inner // per_step):
        descriptor = MatrixDescriptor("wgmma", start + 32 * step, 16, 8 * swizzle.width_bytes, 0, swizzle)
        got = gather(memory, k_major_chunks(descriptor, rows, 32), dtype)
        np.testing.assert_array_equal(got, box[:, step * per_step : (step + 1) * per_step])
    # The second half of the rows, as another warpgroup reads them.
    descriptor = MatrixDescriptor("wgmma", start + 32 * swizzle.width_bytes, 16, 8 * swizzle.width_bytes, 0, swizzle)
    got = gather(memory, k_major_chunks(descriptor, 32, 32), dtype)
    np.testing.assert_array_equal(got, box[32:, :per_step])


@pytest.mark.parametrize("swizzle", [SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B], ids=lambda s: s.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_mn_major_tiles_that_tma_wrote_are_read_back(swizzle: Swizzle, dtype: Any) -> None:
    """Boxes {span of N, BK rows of K} side by side: SBO is 8 rows, LBO one box."""
    rng = np.random.default_rng(4)
    element = np.dtype(dtype).itemsize
    depth, n_bytes, start = 64, 256, 2048
    whole = rng.integers(0, 256, (depth, n_bytes), np.uint8)
    memory = np.zeros(1 << 15, np.uint8)
    width = swizzle.width_bytes
    for block in range(n_bytes // width):
        place_box(memory, start + block * depth * width, whole[:, block * width : (block + 1) * width], swizzle)
    for k in (0, 16, 48):
        descriptor = MatrixDescriptor("wgmma", start + k * width, depth * width, 8 * width, 0, swizzle)
        got = gather(memory, mn_major_chunks(descriptor, n_bytes, 16), dtype)
        np.testing.assert_array_equal(got, whole[k : k + 16].view(dtype))
        assert got.shape == (16, n_bytes // element)


def test_n_major_tf32_with_32_byte_atoms_is_read_back() -> None:
    rng = np.random.default_rng(5)
    depth, start = 16, 4096
    unit: Unit = "tcgen05"
    box = rng.integers(0, 2**32, (2, depth, 32), np.uint32)
    memory = np.zeros(1 << 14, np.uint8)
    for block in range(2):
        place_box(memory, start + block * depth * 128, box[block], SWIZZLE_128B_ATOM_32B)
    for k in (0, 8):
        descriptor = MatrixDescriptor(unit, start + k * 128, depth * 128, 512, 0, SWIZZLE_128B_ATOM_32B)
        got = gather(memory, mn_major_chunks(descriptor, 256, 8), np.uint32)
        np.testing.assert_array_equal(got, np.concatenate([box[0], box[1]], axis=1)[k : k + 8])


def test_unswizzled_tiles_of_core_matrices_are_read_back() -> None:
    """Core matrices of 8 rows x 16 bytes, stacked along the rows first."""
    rng = np.random.default_rng(6)
    rows, start = 64, 1040
    tile = rng.integers(0, 2**16, (rows, 16), np.uint16)
    memory = np.zeros(1 << 13, np.uint8)
    cores = np.ascontiguousarray(tile.reshape(8, 8, 2, 8).transpose(2, 0, 1, 3)).view(np.uint8).reshape(-1)
    memory[start : start + cores.size] = cores
    descriptor = MatrixDescriptor("wgmma", start, rows * 16, 128, 0, NO_SWIZZLE)
    np.testing.assert_array_equal(gather(memory, k_major_chunks(descriptor, rows, 32), np.uint16), tile)
    # Read as M-major, the tile's rows are steps of K: LBO and SBO change roles.
    swapped = MatrixDescriptor("wgmma", start, 128, rows * 16, 0, NO_SWIZZLE)
    np.testing.assert_array_equal(gather(memory, mn_major_chunks(swapped, 32, 16), np.uint16), tile[:16])


def test_equal_layouts_share_one_table() -> None:
    one = MatrixDescriptor("wgmma", 1024 + 32, 16, 1024, 0, SWIZZLE_128B)
    other = MatrixDescriptor("wgmma", 9 * 1024 + 32, 16, 1024, 0, SWIZZLE_128B)
    first, second = k_major_chunks(one, 128, 32), k_major_chunks(other, 128, 32)
    assert first.offsets is second.offsets
    assert (first.base, second.base) == (1024, 9216)
    assert not first.offsets.flags.writeable
