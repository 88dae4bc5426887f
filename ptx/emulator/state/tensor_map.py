"""What a caller passes for a tensor map: an array, and how a tensor copy sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.state.buffers import ALIGNMENT_BYTES, DeviceBuffer, SparseBuffer
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tensor_maps import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    MAP_BYTES,
    MODES,
    MOST_DIMENSIONS,
    Fill,
    Interleave,
    L2Promotion,
    Mode,
    TensorMapFields,
)

_ELEMENT_OF_DTYPE: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "u8", np.dtype(np.uint8): "u8", np.dtype(np.int8): "u8", np.dtype(np.uint16): "u16",
    np.dtype(np.int16): "u16", np.dtype(np.uint32): "u32", np.dtype(np.int32): "s32", np.dtype(np.uint64): "u64",
    np.dtype(np.int64): "s64", np.dtype(np.float16): "f16", np.dtype(np.float32): "f32", np.dtype(np.float64): "f64",
    np.dtype(ml_dtypes.bfloat16): "bf16",
}  # fmt: skip
# Tensor maps have no 8-bit floating types; the driver's users pass their bytes.
_ELEMENT_OF_DTYPE |= {
    np.dtype(getattr(ml_dtypes, name)): "u8"
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(ml_dtypes, name)
}


class TensorMap:
    """A tensor map over an array, as cuTensorMapEncodeTiled, ...Im2col and ...Im2colWide make it.

    All lists are FASTEST DIMENSION FIRST, as in the driver's functions: for a C-contiguous array of shape (rows,
    columns), dims is (columns, rows), and a box of 64 columns x 128 rows is `box=(64, 128)`.

    array              NumPy array, DeviceBuffer (whose offset moves element 0) or SparseBuffer
    box                elements per dimension that one copy moves (tile mode)
    dims               elements per dimension; by default the array's shape, reversed where it is C-contiguous
    strides            bytes between neighbours in dimensions 1, 2, ...; by default dense
    element_strides    take every n-th element of a dimension; the box then holds ceil(box / element_strides) elements
    dtype              element type: u8 u16 u32 s32 u64 s64 f16 bf16 f32 f32_ftz f64 tf32 tf32_ftz, or the packed
                       16u4_align8b 16u4_align16b 16u6_align16b; by default the array's (8-bit floats are u8)
    swizzle            none, 32B, 64B, 96B, 128B, 128B_ATOM_32B, 128B_ATOM_32B_FLIP_8B, 128B_ATOM_64B
    interleave         none, 16B or 32B: layout NC/8DHWC8 or NC/16DHWC16 of the channels, which are dimension 0. The
                       slices of one image follow each other: strides[rank-3] * dims[rank-2] bytes apart
    oob                what elements outside the tensor read as: "zeros" or "nan"
    l2_promotion       none, 64B, 128B or 256B: a hint
    mode               "tile", "im2col", "im2col_w" or "im2col_w128"; tile where a box is given, else im2col
    pixel_box_lower    im2col: lower and upper corners of the box in dimensions 1, 2, ... (W, H, D), without the last
    pixel_box_upper    dimension (N); one number in the modes im2col_w and im2col_w128
    channels_per_pixel im2col: elements along dimension 0 that one copy moves
    pixels_per_column  im2col: pixels that one copy moves

    What the driver's functions would refuse raises LaunchError. Whether the tensor lies within its array is judged when
    the kernel touches it, as on the device.

    `emulate(args=...)` takes a TensorMap for a parameter of 128 bytes, for a pointer (the map is then laid into device
    memory) and inside a Struct. `bytes(tensor_map)` are its 128 bytes, for an array of maps; its buffer is then listed
    in `emulate(buffers=...)`.

    >>> x = np.zeros((8, 64), np.float16)
    >>> TensorMap(x, (64, 8), swizzle="128B")
    TensorMap(float16[8, 64], box=(64, 8), dims=(64, 8), strides=(128,), dtype='f16', swizzle='128B')
    """

    __slots__ = ("_fields", "buffer")

    def __init__(
        self,
        array: NDArray[Any] | DeviceBuffer | SparseBuffer,
        box: Sequence[int] | None = None,
        *,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        dtype: str | None = None,
        swizzle: str = "none",
        interleave: Interleave = "none",
        oob: Fill = "zeros",
        l2_promotion: L2Promotion = "none",
        mode: Mode | None = None,
        pixel_box_lower: Sequence[int] | None = None,
        pixel_box_upper: Sequence[int] | None = None,
        channels_per_pixel: int | None = None,
        pixels_per_column: int | None = None,
    ) -> None:
        self.buffer: DeviceBuffer | SparseBuffer = DeviceBuffer(array) if isinstance(array, np.ndarray) else array
        if not isinstance(self.buffer, (DeviceBuffer, SparseBuffer)):
            raise LaunchError(f"a tensor map is of an array, a DeviceBuffer or a SparseBuffer, not of {array!r}")
        for what, choice, choices in (
            ("swizzle", swizzle, tuple(SWIZZLES)), ("interleave", interleave, INTERLEAVES), ("oob", oob, FILLS),
            ("l2_promotion", l2_promotion, L2_PROMOTIONS), ("mode", mode, (None, *MODES)),
        ):  # fmt: skip
            if choice not in choices:
                raise LaunchError(f"tensor map: {what} is one of {', '.join(str(c) for c in choices)}, not {choice!r}")
        mode = mode or ("tile" if box is not None else "im2col")
        element = self._element(dtype)
        extents = self._dims(dims, element)
        rank = len(extents)
        if strides is None:
            strides = _dense(extents, ELEMENT_TYPES[element].bits)
        wide = mode in ("im2col_w", "im2col_w128")
        lists = {"strides": (strides, rank - 1), "element_strides": (element_strides, rank)}
        if mode == "tile":
            lists["box"] = (box, rank)
        else:
            corners = 1 if wide else rank - 2
            lists |= {"pixel_box_lower": (pixel_box_lower, corners), "pixel_box_upper": (pixel_box_upper, corners)}
        given: dict[str, tuple[int, ...]] = {}
        for what, (items, length) in lists.items():
            if items is None:
                if what != "element_strides":
                    raise LaunchError(f"tensor map: mode {mode} needs {what}")
                items = (1,) * rank
            given[what] = tuple(int(i) for i in items)
            if rank >= 3 or mode == "tile":
                _check_length(what, given[what], length, rank)
        numbers = {"channels_per_pixel": channels_per_pixel, "pixels_per_column": pixels_per_column}
        for what, number in numbers.items():
            if mode != "tile" and number is None and not (mode == "im2col_w128" and what == "pixels_per_column"):
                raise LaunchError(f"tensor map: mode {mode} needs {what}")
        for what, other in {**numbers, "pixel_box_lower": pixel_box_lower, "pixel_box_upper": pixel_box_upper}.items():
            if mode == "tile" and other is not None:
                raise LaunchError(f"tensor map: mode tile takes no {what}")
        if mode != "tile" and box is not None:
            raise LaunchError(f"tensor map: mode {mode} takes no box")
        chosen = SWIZZLES[swizzle]
        fields = TensorMapFields(
            mode, element, rank, ALIGNMENT_BYTES, extents, given["strides"], given.get("box", (1,) * rank),
            given["element_strides"], interleave, chosen.mode, chosen.atomicity, oob, l2_promotion,
            given.get("pixel_box_lower", ()), given.get("pixel_box_upper", ()), channels_per_pixel or 0,
            pixels_per_column or 0,
        )  # fmt: skip
        sentence = fields.violation()
        if sentence is None:
            # The buffer itself lies at a multiple of 256 bytes.
            alignment, why = fields.alignment
            if self.buffer.offset % alignment or self.buffer.offset < 0:
                sentence = f"the buffer's offset {self.buffer.offset} must be a multiple of {alignment} bytes {why}"
        if sentence is not None:
            raise LaunchError(f"tensor map: {sentence}")
        self._fields = fields

    def fields(self, address: int) -> TensorMapFields:
        """What the map says when element 0 lies at this address."""
        return replace(self._fields, address=address)

    def __bytes__(self) -> bytes:
        """The 128 bytes. This fixes the address of the map's buffer."""
        return self.fields(self.buffer.address).encode()

    def __len__(self) -> int:
        return MAP_BYTES

    def __repr__(self) -> str:
        f = self._fields
        array = getattr(self.buffer, "array", None)
        what = f"SparseBuffer({self.buffer.size_bytes})" if array is None else f"{array.dtype}{list(array.shape)}"
        parts = [what]
        if f.mode == "tile":
            parts.append(f"box={f.box}")
        parts += [f"dims={f.dims}", f"strides={f.strides}", f"dtype={f.element!r}"]
        if f.mode != "tile":
            parts += [
                f"mode={f.mode!r}", f"pixel_box_lower={f.lower}", f"pixel_box_upper={f.upper}",
                f"channels_per_pixel={f.channels}", f"pixels_per_column={f.pixels}",
            ]  # fmt: skip
        if any(s != 1 for s in f.element_strides):
            parts.append(f"element_strides={f.element_strides}")
        for name, value, default in (
            ("swizzle", f.swizzle.name if f.swizzle else "?", "none"), ("interleave", f.interleave, "none"),
            ("oob", f.fill, "zeros"), ("l2_promotion", f.l2_promotion, "none"),
        ):  # fmt: skip
            if value != default:
                parts.append(f"{name}={value!r}")
        return f"TensorMap({', '.join(parts)})"

    def _element(self, dtype: str | None) -> str:
        if dtype is not None:
            if dtype not in ELEMENT_TYPES:
                raise LaunchError(f"tensor map: dtype is one of {', '.join(ELEMENT_TYPES)}, not {dtype!r}")
            return dtype
        if isinstance(self.buffer, SparseBuffer):
            raise LaunchError("tensor map: a SparseBuffer has no element type: say it with dtype=")
        known = _ELEMENT_OF_DTYPE.get(self.buffer.array.dtype)
        if known is None:
            raise LaunchError(
                f"tensor map: no element type for an array of {self.buffer.array.dtype}: say it with dtype="
            )
        return known

    def _dims(self, dims: Sequence[int] | None, element: str) -> tuple[int, ...]:
        if dims is not None:
            if not 1 <= len(dims) <= MOST_DIMENSIONS:
                raise LaunchError(f"tensor map: a tensor map has 1 to 5 dimensions, not {len(dims)}")
            return tuple(int(d) for d in dims)
        if isinstance(self.buffer, SparseBuffer):
            raise LaunchError("tensor map: a SparseBuffer has no shape: say it with dims=")
        array, bits = self.buffer.array, ELEMENT_TYPES[element].bits
        if array.dtype.itemsize * 8 != bits:
            raise LaunchError(
                f"tensor map: elements of type {element} have {bits} bits, but those of the array have "
                f"{array.dtype.itemsize * 8}: say with dims= how many there are"
            )
        shape = array.shape[::-1] if array.flags.c_contiguous else array.shape
        if not 1 <= len(shape) <= MOST_DIMENSIONS:
            raise LaunchError(f"tensor map: a tensor map has 1 to 5 dimensions, not {len(shape)}")
        return shape


def _dense(dims: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Strides in bytes of a tensor without gaps; rows of packed elements end at a whole byte."""
    strides = []
    size = (dims[0] * bits + 7) // 8
    for extent in dims[1:]:
        strides.append(size)
        size *= extent
    return tuple(strides)


def _check_length(what: str, items: tuple[int, ...], length: int, rank: int) -> None:
    if len(items) != length:
        raise LaunchError(
            f"tensor map: {what} has {len(items)} numbers, but a tensor of {rank} dimensions needs {length}"
        )
