"""Tensor maps: the 128-byte objects that tell a tensor copy where a tensor lies, which box it moves, and how.

The device's own format is not documented. Here a tensor map has a format of the emulator's own, with a magic number and
a checksum, so that bytes that are no tensor map are told from those that are. Its rules are those of
cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col and cuTensorMapEncodeIm2colWide (CUDA Driver API, "Tensor Map Object
Management") and of the PTX ISA ("Tensors", "Restriction on Tensor Copy instructions"). All lists are fastest dimension
first, as the driver has them.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from tinygpu.ptx.emulator.units.swizzles import SWIZZLES, Swizzle

MAP_BYTES = 128
MAP_ALIGNMENT_BYTES = 64
MOST_DIMENSIONS = 5
LARGEST_DIMENSION = 1 << 32

Mode = Literal["tile", "im2col", "im2col_w", "im2col_w128"]
Interleave = Literal["none", "16B", "32B"]
Fill = Literal["zeros", "nan"]
L2Promotion = Literal["none", "64B", "128B", "256B"]

MODES: tuple[Mode, ...] = ("tile", "im2col", "im2col_w", "im2col_w128")
INTERLEAVES: tuple[Interleave, ...] = ("none", "16B", "32B")
FILLS: tuple[Fill, ...] = ("zeros", "nan")
L2_PROMOTIONS: tuple[L2Promotion, ...] = ("none", "64B", "128B", "256B")
SLICE_BYTES: dict[str, int] = {"none": 0, "16B": 16, "32B": 32}
"""Bytes of one slice of channels in the interleaved layouts NC/8DHWC8 and NC/16DHWC16."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of tensor maps.

    name        as in TensorMap
    bits        width of an element in global memory
    floating    out-of-bounds elements may be filled with NaN
    unit_bytes  global bytes that become one chunk in shared memory
    padded      a chunk of 16 elements takes 16 bytes in shared memory, the rest of which is left as it was
    """

    name: str
    bits: int
    floating: bool = False
    unit_bytes: int = 16
    padded: bool = False


# In the order of .elemtype of tensormap.replace (PTX ISA, table "Tensormap new_val validity"), which is not the order
# of CUtensorMapDataType.
ELEMENT_TYPES: dict[str, ElementType] = {
    e.name: e
    for e in (
        ElementType("u8", 8), ElementType("u16", 16), ElementType("u32", 32), ElementType("s32", 32),
        ElementType("u64", 64), ElementType("s64", 64), ElementType("f16", 16, True), ElementType("f32", 32, True),
        ElementType("f32_ftz", 32, True), ElementType("f64", 64, True), ElementType("bf16", 16, True),
        ElementType("tf32", 32, True), ElementType("tf32_ftz", 32, True), ElementType("16u4_align8b", 4),
        ElementType("16u4_align16b", 4, False, 8, True), ElementType("16u6_align16b", 6, False, 12, True),
    )
}  # fmt: skip
_ELEMENT_NAMES = tuple(ELEMENT_TYPES)
# Corners of the im2col bounding box, by rank (CUDA Driver API, cuTensorMapEncodeIm2col).
_CORNER_RANGES = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}

_MAGIC = b"tgTM"
# magic, checksum; mode, elemtype, rank, interleave, swizzle mode, atomicity, fill, l2 promotion, dimensions that are
# 2^32; address; dims; strides; box; element strides; corners; channels, pixels
_FORMAT = struct.Struct("<4sI9B7xQ5I4Q5H5B3h3hHH")
_WIDE = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class TensorMapFields:
    """What a tensor map says. All of it may be illegal (after tensormap.replace) until `violation()` is None.

    mode               "tile" or one of the im2col modes
    element            name of the element type
    address            global address of element 0
    dims               elements per dimension
    strides            bytes between elements that are neighbours in dimensions 1, 2, ...
    box                elements per dimension that a tile copy traverses; all 1 in the im2col modes
    element_strides    every how many elements of a dimension one is taken
    interleave         layout of the channels (dimension 0)
    swizzle_mode       numbers of tensormap.replace, of which only some pairs
    swizzle_atomicity  mean something
    fill               what elements outside the tensor read as
    l2_promotion       a hint
    lower, upper       corners of the im2col bounding box in dimensions 1, 2, ... without the last one
    channels, pixels   elements along dimension 0, and pixels, that an im2col copy takes

    `dims`, `box` and `element_strides` have `rank` elements; all further ones are kept for tensormap.replace of the
    rank.
    """

    mode: Mode
    element: str
    rank: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = "none"
    swizzle_mode: int = 0
    swizzle_atomicity: int = 0
    fill: Fill = "zeros"
    l2_promotion: L2Promotion = "none"
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0

    @property
    def element_type(self) -> ElementType:
        return ELEMENT_TYPES[self.element]

    @property
    def swizzle(self) -> Swizzle | None:
        """The swizzle, None where mode and atomicity do not go together."""
        for swizzle in SWIZZLES.values():
            if (swizzle.mode, swizzle.atomicity) == (self.swizzle_mode, self.swizzle_atomicity):
                return swizzle
        return None

    @property
    def alignment(self) -> tuple[int, str]:
        """(alignment of address and strides in bytes, why)."""
        if self.interleave == "32B":
            return 32, "with interleave 32B"
        if self.element_type.padded:
            return 32, f"for elements of type {self.element}"
        return 16, "for a tensor map"

    @property
    def inner_elements(self) -> int:
        """Elements along dimension 0 that a copy takes."""
        return self.box[0] if self.mode == "tile" else self.channels

    def encode(self) -> bytes:
        """The 128 bytes. Numbers that are too large for their place become the largest that fits, which is illegal."""
        dims = _padded(self.dims, 5)
        body = _FORMAT.pack(
            _MAGIC, 0, MODES.index(self.mode), _ELEMENT_NAMES.index(self.element), min(self.rank, 255),
            INTERLEAVES.index(self.interleave), self.swizzle_mode, self.swizzle_atomicity, FILLS.index(self.fill),
            L2_PROMOTIONS.index(self.l2_promotion), sum((d == LARGEST_DIMENSION) << n for n, d in enumerate(dims)),
            self.address, *(d & _WIDE for d in dims), *_padded(self.strides, 4),
            *(min(b, 0xFFFF) for b in _padded(self.box, 5)), *(min(s, 0xFF) for s in _padded(self.element_strides, 5)),
            *_padded(self.lower, 3), *_padded(self.upper, 3), self.channels, self.pixels,
        ).ljust(MAP_BYTES, b"\0")  # fmt: skip
        return body[:4] + zlib.crc32(body[8:]).to_bytes(4, "little") + body[8:]

    def replaced(self, field: str, ordinal: int, value: int) -> TensorMapFields:
        """The map after tensormap.replace of one field; `value` is the number that the instruction gives.

        field    "global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride", "elemtype",
                 "interleave_layout", "swizzle_mode", "swizzle_atomicity" or "fill_mode"
        ordinal  which dimension, for the fields that have one

        Raises ValueError where field, ordinal or value is none that the instruction has.
        """
        lists = {"box_dim": ("box", 5), "global_dim": ("dims", 5), "element_stride": ("element_strides", 5),
                 "global_stride": ("strides", 4)}  # fmt: skip
        if field in lists:
            name, count = lists[field]
            if not 0 <= ordinal < count:
                raise ValueError(f"tensormap.replace.{field} has the ordinals 0 to {count - 1}, not {ordinal}")
            items = list(_padded(getattr(self, name), count))
            items[ordinal] = value
            return replace(self, **{name: tuple(items)})  # type: ignore[arg-type]
        if field == "global_address":
            return replace(self, address=value)
        if field == "rank":
            return replace(self, rank=value + 1)
        choices: dict[str, tuple[str, tuple[object, ...]]] = {
            "elemtype": ("element", _ELEMENT_NAMES), "interleave_layout": ("interleave", INTERLEAVES),
            "swizzle_mode": ("swizzle_mode", (0, 1, 2, 3, 4)), "swizzle_atomicity": ("swizzle_atomicity", (0, 1, 2, 3)),
            "fill_mode": ("fill", FILLS),
        }  # fmt: skip
        if field not in choices:
            raise ValueError(f"tensormap.replace has no field .{field}")
        name, values = choices[field]
        if not 0 <= value < len(values):
            raise ValueError(f"tensormap.replace.{field} takes 0 to {len(values) - 1}, not {value}")
        return replace(self, **{name: values[value]})  # type: ignore[arg-type]

    def violation(self) -> str | None:
        """The first rule that the map breaks, as a sentence with the numbers; None when it is legal."""
        return _violation(self)


def decode(data: bytes) -> TensorMapFields | None:
    """The fields of 128 bytes, None where they are no tensor map."""
    return _decode(bytes(data))


@lru_cache(maxsize=256)
def _decode(data: bytes) -> TensorMapFields | None:
    if len(data) != MAP_BYTES or data[:4] != _MAGIC or zlib.crc32(data[8:]).to_bytes(4, "little") != data[4:8]:
        return None
    (_, _, mode, element, rank, interleave, swizzle, atomicity, fill, promotion, wide, address, *rest) = (
        _FORMAT.unpack_from(data)
    )
    dims = tuple(LARGEST_DIMENSION if wide >> n & 1 else d for n, d in enumerate(rest[:5]))
    return TensorMapFields(
        MODES[mode], _ELEMENT_NAMES[element], rank, address, dims, tuple(rest[5:9]), tuple(rest[9:14]),
        tuple(rest[14:19]), INTERLEAVES[interleave], swizzle, atomicity, FILLS[fill], L2_PROMOTIONS[promotion],
        tuple(rest[19:22]), tuple(rest[22:25]), rest[25], rest[26],
    )  # fmt: skip


def _padded(items: tuple[int, ...], count: int) -> tuple[int, ...]:
    return items[:count] + (0,) * (count - len(items))


# ---- legality -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _violation(m: TensorMapFields) -> str | None:
    for rule in (_rank, _address, _dims, _strides, _element_strides, _box, _im2col, _layout, _fill):
        sentence = rule(m)
        if sentence is not None:
            return sentence
    return None


def _rank(m: TensorMapFields) -> str | None:
    if not 1 <= m.rank <= MOST_DIMENSIONS:
        return f"a tensor map has 1 to 5 dimensions, not {m.rank}"
    if m.interleave != "none" and m.rank < 3:
        return f"interleave {m.interleave} needs at least 3 dimensions, and the map has {m.rank}"
    if m.mode != "tile" and m.rank < 3:
        return f"mode {m.mode} needs at least 3 dimensions, and the map has {m.rank}"
    return None


def _address(m: TensorMapFields) -> str | None:
    alignment, why = m.alignment
    if m.address % alignment:
        return f"global address {m.address:#x} must be a multiple of {alignment} bytes {why}"
    return None


def _dims(m: TensorMapFields) -> str | None:
    for n in range(m.rank):
        if not 1 <= m.dims[n] <= LARGEST_DIMENSION:
            return f"dims[{n}] is {m.dims[n]}, but a dimension has 1 to 2^32 elements"
    multiple = 128 if m.element_type.padded else 2 if m.element == "16u4_align8b" else 1
    if m.dims[0] % multiple:
        return f"dims[0] is {m.dims[0]}, but it must be a multiple of {multiple} for elements of type {m.element}"
    return None


def _strides(m: TensorMapFields) -> str | None:
    alignment, why = m.alignment
    for n in range(m.rank - 1):
        stride = m.strides[n]
        if stride % alignment:
            return (
                f"strides[{n}] is {stride} bytes (of dimension {n + 1}), but a stride must be a multiple of "
                f"{alignment} bytes {why}: pad the rows"
            )
        if not 0 <= stride < 1 << 40:
            return f"strides[{n}] is {stride} bytes (of dimension {n + 1}), but a stride must be less than 2^40"
    return None


def _element_strides(m: TensorMapFields) -> str | None:
    # Without interleave the first one is ignored (CUDA Driver API, cuTensorMapEncodeTiled).
    for n in range(0 if m.interleave != "none" else 1, m.rank):
        if not 1 <= m.element_strides[n] <= 8:
            return f"element_strides[{n}] is {m.element_strides[n]}, but an element stride is 1 to 8"
    if m.interleave != "none" and m.element_strides[0] != 1:
        # The driver takes others, but which elements they choose from a slice is not documented.
        return f"element_strides[0] is {m.element_strides[0]}, but for interleaved layouts the emulator knows only 1"
    return None


def _box(m: TensorMapFields) -> str | None:
    if m.mode != "tile":
        return None
    for n in range(m.rank):
        if not 1 <= m.box[n] <= 256:
            return f"box[{n}] is {m.box[n]}, but a box dimension has 1 to 256 elements"
    return _inner(m, "box[0]")


def _inner(m: TensorMapFields, what: str) -> str | None:
    """Rules of the box along dimension 0, which are the same for tiles and im2col."""
    count, kind = m.inner_elements, m.element_type
    if kind.padded and count != 128:
        return f"{what} is {count}, but it must be 128 for elements of type {m.element}"
    if m.interleave == "none" and count * kind.bits % 128:
        return (
            f"{what} is {count} elements of {kind.bits} bits, which is {count * kind.bits / 8:g} bytes, but it must be "
            "a multiple of 16 bytes"
        )
    return None


def _im2col(m: TensorMapFields) -> str | None:
    if m.mode == "tile":
        return None
    wide = m.mode != "im2col"
    corners = 1 if wide else m.rank - 2
    low, high = (-32768, 32767) if wide else _CORNER_RANGES[m.rank]
    for n in range(corners):
        for what, corner in (("lower", m.lower[n]), ("upper", m.upper[n])):
            if not low <= corner <= high:
                return f"{what}[{n}] is {corner}, but with {m.rank} dimensions a corner is {low} to {high}"
        extent = m.dims[n + 1] + m.upper[n] - m.lower[n]
        if extent < 1:
            return (
                f"the bounding box of dimension {n + 1} is empty: {m.dims[n + 1]} elements, lower corner {m.lower[n]}, "
                f"upper corner {m.upper[n]}"
            )
    if not 1 <= m.channels <= 256:
        return f"channels_per_pixel is {m.channels}, but it must be 1 to 256"
    if not 1 <= m.pixels <= 1024 and m.mode != "im2col_w128":
        return f"pixels_per_column is {m.pixels}, but it must be 1 to 1024"
    if wide and m.interleave != "none":
        return f"mode {m.mode} has no interleaved layout, but interleave is {m.interleave}"
    return _inner(m, "channels_per_pixel")


def _layout(m: TensorMapFields) -> str | None:
    swizzle = m.swizzle
    if swizzle is None:
        return f"swizzle mode {m.swizzle_mode} does not go with swizzle atomicity {m.swizzle_atomicity}"
    if m.element_type.padded and m.interleave != "none":
        return f"elements of type {m.element} cannot be interleaved, but interleave is {m.interleave}"
    if m.interleave == "32B" and swizzle.name != "32B":
        return f"interleave 32B needs swizzle 32B, not {swizzle.name}"
    if m.element_type.padded and swizzle.name not in ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"):
        return (
            f"elements of type {m.element} allow swizzle none, 128B, 128B_ATOM_32B and 128B_ATOM_64B, "
            f"not {swizzle.name}"
        )
    if m.mode in ("im2col_w", "im2col_w128"):
        allowed = ("64B", "128B", "128B_ATOM_32B") + (("96B",) if m.mode == "im2col_w" else ())
        if swizzle.name not in allowed:
            return f"mode {m.mode} allows swizzle {', '.join(allowed)}, not {swizzle.name}"
    if swizzle.name == "96B" and m.interleave != "none":
        return f"swizzle 96B has no interleaved layout, but interleave is {m.interleave}"
    inner = m.inner_elements * (8 if m.element_type.padded else m.element_type.bits) // 8
    if m.interleave == "none" and swizzle.width_bytes and inner > swizzle.width_bytes:
        what = "box[0]" if m.mode == "tile" else "channels_per_pixel"
        return (
            f"{what} is {m.inner_elements} elements, which is {inner} bytes, but with swizzle {swizzle.name} it must "
            f"be at most {swizzle.width_bytes} bytes"
        )
    return None


def _fill(m: TensorMapFields) -> str | None:
    if m.fill == "nan" and not m.element_type.floating:
        return f'oob="nan" needs a floating-point element type, not {m.element}'
    return None
