"""Which bytes a tensor copy moves: chunks of a box in global memory, and where each lies in shared memory.

A box is cut into chunks of 16 bytes (8 where the swizzle flips halves of 16 bytes; 8 or 12 bytes of packed elements
that become 16 in shared memory; fewer where the box starts between multiples of 16 bytes). Chunk k of a tile lies at
logical byte 16 k of the tile, dimension 0 fastest; the swizzle then acts on the shared-memory address itself (PTX ISA,
"Tensors").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.units.swizzles import Swizzle
from tinygpu.ptx.emulator.units.tensor_maps import SLICE_BYTES, TensorMapFields

Ints = NDArray[np.int64]
Runs = tuple[Ints, Ints]

# The fill of oob="nan" is a NaN in every floating type. Which one is not documented; tests of others on Hopper report
# 0x7FF7 in each 16 bits, whatever the type.
NAN_PATTERN = 0x7FF7
# Ranges of the im2col offsets, by rank (PTX ISA, "im2col mode").
_OFFSET_BITS = {3: 16, 4: 8, 5: 5}
W128_PIXELS = 128
W128_GROUP = 32


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The chunks of one tensor copy.

    addresses          (n,) global byte address of each chunk; meaningless where nothing of it is valid
    offsets            (n,) byte offset of each chunk from the tile's shared-memory address, swizzled
    valid              (n,) how many leading bytes of each chunk lie inside the tensor; None when all do
    chunk_bytes        bytes of a chunk in global memory
    pitch_bytes        bytes of a chunk in shared memory
    shared_bytes       size of the tile in shared memory
    transaction_bytes  what the copy completes on an mbarrier: the full box, also what is outside the tensor. The
                       padding of packed elements does not count
    runs               first byte and bytes of each contiguous run of the chunks, where that is known
    """

    addresses: Ints
    offsets: Ints
    valid: Ints | None
    chunk_bytes: int
    pitch_bytes: int
    shared_bytes: int
    transaction_bytes: int
    runs: Runs | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """One loop of a box.

    dimension  which dimension's coordinate it moves; 0 for the chunks along dimension 0
    steps      (count,) elements (bytes of dimension 0) from the start
    distances  (count,) global bytes from the start
    """

    dimension: int
    steps: Ints
    distances: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """How dimension 0 is cut: see Box; `outer` are slices of an interleaved layout, else one."""

    chunk_bytes: int
    pitch_bytes: int
    outer: _Axis
    inner: _Axis


def tile_box(m: TensorMapFields, coordinates: Sequence[int], shared_address: int) -> Box:
    """A box in tile mode.

    coordinates     of the box's first element, fastest first, in elements; may lie outside the tensor
    shared_address  byte address of the tile in shared memory
    """
    unit = _unit(m, coordinates[0])
    axes, relative, (starts, sizes) = _tile_axes(m, unit)
    base = _base(m, coordinates)
    if _all_inside(m, axes, coordinates, unit):
        return _box(m, relative + base, None, shared_address, unit, (starts + base, sizes))
    return _box(m, relative + base, _valid_bytes(m, axes, coordinates, unit), shared_address, unit)


def gather_box(m: TensorMapFields, column: int, rows: Sequence[int], shared_address: int) -> Box:
    """Four rows of a 2-D tensor, as tile::gather4 and tile::scatter4 move them."""
    unit = _unit(m, column)
    cut = _chunks(m, unit)
    where = np.array(rows, np.int64)
    row_axis = _Axis(1, where, where * m.strides[0])
    axes = [row_axis, cut.inner]
    addresses = np.add.outer(row_axis.distances, cut.inner.distances).reshape(-1) + _base(m, (column, 0))
    valid = None
    if not _all_inside(m, axes, (column, 0), unit):
        valid = _valid_bytes(m, axes, (column, 0), unit)
    return _box(m, addresses, valid, shared_address, unit)


def im2col_box(m: TensorMapFields, coordinates: Sequence[int], offsets: Sequence[int], shared_address: int) -> Box:
    """Pixels of the bounding box from the filter base `coordinates` on, each moved by `offsets` (W, H, D)."""
    spatial = range(1, m.rank - 1)
    bounds = [(m.lower[d - 1], m.dims[d] - 1 + m.upper[d - 1], m.element_strides[d]) for d in spatial]
    pixels = _odometer(np.arange(m.pixels, dtype=np.int64), coordinates[1:], bounds)
    for d in spatial:
        pixels[d - 1] = pixels[d - 1] + offsets[d - 1]
    return _pixel_box(m, coordinates[0], pixels, shared_address)


def im2col_wide_box(m: TensorMapFields, coordinates: Sequence[int], halo: int, offset: int, shared_address: int) -> Box:
    """Pixels along W only, as im2col::w and im2col::w::128 load them.

    halo    further pixels that follow the last one, or in the mode im2col_w128 every 32 pixels
    offset  added to W and to both corners of the bounding box
    """
    if m.mode == "im2col_w128":
        groups = np.arange(W128_PIXELS // W128_GROUP, dtype=np.int64)[:, None] * W128_GROUP
        order = (groups + np.arange(W128_GROUP + halo)).reshape(-1)
    else:
        order = np.arange(m.pixels + halo, dtype=np.int64)
    starts = list(coordinates[1:])
    starts[0] += offset
    # In D and H the box is one element wide.
    bounds = [(m.lower[0] + offset, m.dims[1] - 1 + m.upper[0] + offset, m.element_strides[1])]
    bounds += [(starts[d], starts[d], 1) for d in range(1, m.rank - 2)]
    return _pixel_box(m, coordinates[0], _odometer(order, starts, bounds), shared_address)


def transaction_bytes(m: TensorMapFields, rows: int = 1, halo: int = 0) -> int:
    """Bytes that a copy completes on an mbarrier. `rows` is 4 for gather4; `halo` as in im2col_wide_box."""
    inner = m.inner_elements * m.element_type.bits // 8
    if m.interleave != "none":
        inner = -(-inner // SLICE_BYTES[m.interleave]) * SLICE_BYTES[m.interleave]
    if m.mode == "im2col_w128":
        return inner * (W128_PIXELS + W128_PIXELS // W128_GROUP * halo)
    if m.mode != "tile":
        return inner * (m.pixels + halo)
    count = rows
    for box, stride in zip(m.box[1 : m.rank], m.element_strides[1 : m.rank], strict=True):
        count *= -(-box // stride)
    return inner * count


def packed_sixes(chunks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 12 bytes that a store makes of 16 bytes with 6 bits each: (n, 16) -> (n, 12)."""
    four = (chunks & np.uint8(0x3F)).astype(np.uint32).reshape(-1, 4, 4)
    word = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
    return np.stack([word & 0xFF, word >> 8 & 0xFF, word >> 16], axis=-1).astype(np.uint8).reshape(-1, 12)


def illegal_use(
    m: TensorMapFields, mode: str, coordinates: Sequence[int], *, dimensions: int, store: bool = False,
    reduce: bool = False, offsets: Sequence[int] = (),
) -> str | None:
    """Why an instruction may not use this (in itself legal) map so, as a sentence; None when it may.

    mode         "tile", "gather4" (also scatter4), "im2col", "im2col_w" or "im2col_w128"
    coordinates  as the instruction has them: for gather4 the column and four rows
    dimensions   of the instruction
    offsets      im2col offsets, or (halo, offset)
    """  # fmt: skip
    kind = m.element_type
    wanted = "tile" if mode == "gather4" else mode
    if m.mode != wanted:
        return f"the tensor map is of mode {m.mode}, but the instruction is of mode {wanted}"
    if m.rank != dimensions:
        return f"the tensor map has {m.rank} dimensions, but the instruction is .{dimensions}d"
    if mode == "gather4" and (m.box[1] != 1 or m.interleave != "none"):
        return (
            f"gather4 and scatter4 need box[1] = 1 and no interleave, but box[1] is {m.box[1]} and interleave is "
            f"{m.interleave}"
        )
    if store and kind.name == "16u4_align16b":
        return "elements of type 16u4_align16b can be loaded only"
    if not store and kind.name == "16u6_align16b" and m.swizzle is not None and m.swizzle.name == "128B_ATOM_64B":
        return "elements of type 16u6_align16b can only be stored with swizzle 128B_ATOM_64B"
    if reduce and kind.bits < 8:
        return f"elements of type {kind.name} cannot be reduced"
    if kind.padded and coordinates[0] % 128:
        return f"coordinate 0 is {coordinates[0]}, but for elements of type {kind.name} it must be a multiple of 128"
    if kind.bits < 8 or m.interleave != "none":
        sentence = unaligned_start(m, coordinates)
        if sentence is not None:
            return sentence
    if store and any(c < 0 for c in coordinates):
        return f"the box starts at {tuple(coordinates)}, but a store takes no negative coordinates"
    if mode.startswith("im2col"):
        return _illegal_im2col(m, mode, coordinates, store, offsets)
    return None


def unaligned_start(m: TensorMapFields, coordinates: Sequence[int]) -> str | None:
    """What is wrong with where a box starts in its row, as a sentence; None when nothing is.

    For interleaved and packed tensors it makes the use illegal. Boxes of whole bytes may start anywhere on hardware
    (tiles of stencils begin one element before their own), though the manual wants a multiple of 16 bytes.
    """
    # PTX ISA, "Bounding Box": the address of the box must be a multiple of 16 bytes.
    kind = m.element_type
    start_bits, align = coordinates[0] * kind.bits, max(16, SLICE_BYTES[m.interleave])
    if kind.padded or start_bits % (8 * align) == 0:
        return None
    return (
        f"coordinate 0 is {coordinates[0]}, so that the box starts {start_bits / 8:g} bytes into a row, but it "
        f"must start at a multiple of {align} bytes"
    )


def _illegal_im2col(
    m: TensorMapFields, mode: str, coordinates: Sequence[int], store: bool, offsets: Sequence[int]
) -> str | None:
    if store and (any(c < 0 for c in m.lower) or any(c > 0 for c in m.upper)):
        return (
            f"a store needs corners within the tensor, but the lower ones are {m.lower[: m.rank - 2]} and the upper "
            f"ones {m.upper[: m.rank - 2]}"
        )
    if mode == "im2col":
        limit = 1 << _OFFSET_BITS[m.rank]
        for n, value in enumerate(offsets):
            if not 0 <= value < limit:
                return f"im2col offset {n} is {value}, but with {m.rank} dimensions it is 0 to {limit - 1}"
        for d in range(1, m.rank - 1):
            low, high = m.lower[d - 1], m.dims[d] - 1 + m.upper[d - 1]
            if not low <= coordinates[d] <= high:
                return (
                    f"coordinate {d} is {coordinates[d]}, which is outside the bounding box of dimension {d}: {low} to "
                    f"{high}"
                )
        return None
    halo, offset = offsets
    most = 512 if mode == "im2col_w" else 32
    if not 0 <= halo < most:
        return f"wHalo is {halo}, but in mode {mode} it is 0 to {most - 1}"
    if not 0 <= offset < 32:
        return f"wOffset is {offset}, but it is 0 to 31"
    high = m.dims[1] - 1 + m.upper[0]
    if coordinates[1] > high:
        return f"coordinate 1 is {coordinates[1]}, which is beyond the bounding box: it ends at {high}"
    return None


# ---- how boxes are cut ----------------------------------------------------------------------------------------------


def _swizzle(m: TensorMapFields) -> Swizzle:
    swizzle = m.swizzle
    if swizzle is None:
        raise ValueError("the tensor map's swizzle is illegal")
    return swizzle


def _unit(m: TensorMapFields, coordinate: int) -> int:
    """Bytes of a chunk in global memory, of a box that starts at this coordinate of dimension 0."""
    kind = m.element_type
    chunk = 8 if _swizzle(m).flip_8b else kind.unit_bytes
    start = coordinate * kind.bits // 8
    if kind.padded or start % chunk == 0:
        return chunk
    return start & -start


@lru_cache(maxsize=64)
def _chunks(m: TensorMapFields, chunk: int) -> _Chunks:
    kind = m.element_type
    pitch = 16 if kind.padded else chunk
    inner_bytes = m.inner_elements * kind.bits // 8
    slice_bytes = SLICE_BYTES[m.interleave]
    if not slice_bytes:
        places = np.arange(0, inner_bytes, chunk, dtype=np.int64)
        return _Chunks(chunk, pitch, _Axis(0, np.zeros(1, np.int64), np.zeros(1, np.int64)), _Axis(0, places, places))
    slices = np.arange(-(-inner_bytes // slice_bytes), dtype=np.int64)
    places = np.arange(0, slice_bytes, chunk, dtype=np.int64)
    outer = _Axis(0, slices * slice_bytes, slices * _slice_stride(m))
    return _Chunks(chunk, pitch, outer, _Axis(0, places, places))


def _slice_stride(m: TensorMapFields) -> int:
    """Bytes from one slice of channels to the next: NC/8DHWC8 has the pixels of an image between them."""
    return m.strides[m.rank - 3] * m.dims[m.rank - 2]


@lru_cache(maxsize=64)
def _tile_axes(m: TensorMapFields, unit: int) -> tuple[list[_Axis], Ints, Runs]:
    """The loops of a tile, slowest first, the flattened sum of their distances, and the contiguous runs of these."""
    cut = _chunks(m, unit)
    axes = [cut.inner]
    for d in range(1, m.rank):
        if m.interleave != "none" and d == m.rank - 1:
            axes.append(cut.outer)
        steps = np.arange(0, m.box[d], m.element_strides[d], dtype=np.int64)
        axes.append(_Axis(d, steps, steps * m.strides[d - 1]))
    axes.reverse()
    total = np.zeros((), np.int64)
    for axis in axes:
        total = np.add.outer(total, axis.distances)
    relative = np.ascontiguousarray(total).reshape(-1)
    relative.flags.writeable = False
    return axes, relative, contiguous_runs(relative, cut.chunk_bytes)


def contiguous_runs(addresses: Ints, size: int) -> Runs:
    """(first byte, bytes) of each contiguous run of accesses of `size` bytes, in their order."""
    breaks = np.flatnonzero(np.diff(addresses) != size) + 1
    first = np.concatenate([[0], breaks])
    return addresses[first], np.diff(np.append(first, addresses.size)) * size


def _base(m: TensorMapFields, coordinates: Sequence[int]) -> int:
    """Global address of the element at the coordinates."""
    start = coordinates[0] * m.element_type.bits // 8
    if m.interleave != "none":
        size = SLICE_BYTES[m.interleave]
        start = start // size * _slice_stride(m) + start % size
    for coordinate, stride in zip(coordinates[1:], m.strides, strict=False):
        start += coordinate * stride
    return m.address + start


def _row_bytes(m: TensorMapFields) -> int:
    return m.dims[0] * m.element_type.bits // 8


def _all_inside(m: TensorMapFields, axes: list[_Axis], coordinates: Sequence[int], unit: int) -> bool:
    start = coordinates[0] * m.element_type.bits // 8
    last = 0
    for axis in axes:
        if axis.dimension == 0:
            last += int(axis.steps[-1])
            continue
        first = coordinates[axis.dimension]
        # The rows of gather4 come in any order.
        if first + axis.steps.min() < 0 or first + axis.steps.max() >= m.dims[axis.dimension]:
            return False
    return start >= 0 and start + last + unit <= _row_bytes(m)


def _valid_bytes(m: TensorMapFields, axes: list[_Axis], coordinates: Sequence[int], unit: int) -> Ints:
    """(n,) leading bytes of each chunk that are inside the tensor."""
    inside = np.ones((), np.bool_)
    place = np.full((), coordinates[0] * m.element_type.bits // 8, np.int64)
    for axis in axes:
        if axis.dimension:
            at = axis.steps + coordinates[axis.dimension]
            good = (at >= 0) & (at < m.dims[axis.dimension])
            inside = np.logical_and.outer(inside, good)
            place = np.add.outer(place, np.zeros(axis.steps.size, np.int64))
        else:
            inside = np.logical_and.outer(inside, np.ones(axis.steps.size, np.bool_))
            place = np.add.outer(place, axis.steps)
    left = np.clip(_row_bytes(m) - place, 0, unit)
    return np.where(inside & (place >= 0), left, 0).reshape(-1)


def _odometer(index: Ints, starts: Sequence[int], bounds: Sequence[tuple[int, int, int]]) -> list[Ints]:
    """Coordinates (W, H, D, N) of the index-th pixels from `starts` on.

    bounds  (first, last, step) of W, H, D: past the last one a dimension starts over and the next one moves on
    """
    out = []
    for start, (low, high, step) in zip(starts, bounds, strict=False):
        fresh = (high - start) // step + 1
        length = (high - low) // step + 1
        later = index - fresh
        begun = later < 0
        out.append(np.where(begun, start + index * step, low + later % length * step))
        index = np.where(begun, 0, 1 + later // length)
    out.append(starts[-1] + index)
    return out


def _pixel_box(m: TensorMapFields, channel: int, pixels: list[Ints], shared_address: int) -> Box:
    """The box of pixels at these (W, H, D, N)."""
    unit = _unit(m, channel)
    cut = _chunks(m, unit)
    inside = np.ones(pixels[0].size, np.bool_)
    distance = np.zeros(pixels[0].size, np.int64)
    for d, at in enumerate(pixels, 1):
        inside &= (at >= 0) & (at < m.dims[d])
        distance += at * m.strides[d - 1]
    base = _base(m, (channel,))
    # Slices of channels are slowest, then pixels, then the chunks of a slice (or of all channels).
    addresses = np.add.outer(cut.outer.distances, np.add.outer(distance, cut.inner.distances)).reshape(-1) + base
    place = np.add.outer(cut.outer.steps, np.add.outer(np.zeros_like(distance), cut.inner.steps))
    place = place + channel * m.element_type.bits // 8
    left = np.clip(_row_bytes(m) - place, 0, cut.chunk_bytes)
    valid = np.where(inside[None, :, None] & (place >= 0), left, 0).reshape(-1)
    return _box(m, addresses, None if bool((valid == cut.chunk_bytes).all()) else valid, shared_address, unit)


def _box(
    m: TensorMapFields, addresses: Ints, valid: Ints | None, shared_address: int, unit: int, runs: Runs | None = None
) -> Box:
    cut = _chunks(m, unit)
    swizzle = _swizzle(m)
    count = addresses.size
    offsets = _offsets(count, cut.pitch_bytes, swizzle, shared_address % swizzle.period_bytes)
    return Box(
        addresses, offsets, valid, cut.chunk_bytes, cut.pitch_bytes, count * cut.pitch_bytes, count * cut.chunk_bytes,
        runs,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _offsets(count: int, pitch_bytes: int, swizzle: Swizzle, phase: int) -> Ints:
    """(count,) offsets of a tile's chunks whose tile starts `phase` bytes into the pattern."""
    logical = np.arange(count, dtype=np.int64) * pitch_bytes
    offsets = swizzle.apply(logical + phase) - phase
    offsets.flags.writeable = False
    return offsets
