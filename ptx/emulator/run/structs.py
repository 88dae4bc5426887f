"""A struct argument: fields laid out as C lays them out, with the addresses of buffers among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.state.buffers import DeviceBuffer, SparseBuffer
from tinygpu.ptx.emulator.state.tensor_map import TensorMap
from tinygpu.ptx.emulator.units.tensor_maps import MAP_ALIGNMENT_BYTES


class Struct:
    """The value of a struct parameter.

    fields  in order: NumPy scalars (their size is that of their type), arrays, DeviceBuffer and SparseBuffer (a pointer
            of 8 bytes), TensorMap (128 bytes), bytes (as they are), another Struct, or a list of any of these (a C
            array)
    packed  no padding between fields

    Each field starts at a multiple of its size, and the whole is padded to a multiple of the largest, as in C.

    >>> Struct(np.int32(1), np.float64(2.0)).size_bytes
    16
    """

    __slots__ = ("fields", "packed")

    def __init__(self, *fields: Any, packed: bool = False) -> None:
        self.fields = fields
        self.packed = packed
        self._layout()

    @property
    def size_bytes(self) -> int:
        places, align = self._layout()
        end = max((start + size for start, size, _ in places), default=0)
        return end if self.packed else (end + align - 1) // align * align

    @property
    def align_bytes(self) -> int:
        return self._layout()[1]

    def items(self) -> Iterator[Any]:
        """All values in it, also those of lists and inner structs."""
        for field in self.fields:
            yield from _leaves(field)

    def encode(self, pointer: Callable[[Any], bytes]) -> bytes:
        """Its bytes; `pointer` gives the bytes of an array, buffer or tensor map."""
        places, _ = self._layout()
        data = bytearray(self.size_bytes)
        for start, size, value in places:
            if isinstance(value, bytes):
                data[start : start + size] = value
            elif isinstance(value, np.generic):
                data[start : start + size] = value.tobytes()
            elif isinstance(value, Struct):
                data[start : start + size] = value.encode(pointer)
            else:
                data[start : start + size] = pointer(value)
        return bytes(data)

    def _layout(self) -> tuple[list[tuple[int, int, Any]], int]:
        """[(start, size, value)] without lists, and the alignment."""
        places: list[tuple[int, int, Any]] = []
        largest, end = 1, 0
        for value in self._flat():
            size, align = _size(value)
            align = 1 if self.packed else align
            start = (end + align - 1) // align * align
            places.append((start, size, value))
            largest, end = max(largest, align), start + size
        return places, largest

    def _flat(self) -> Iterator[Any]:
        def walk(value: Any) -> Iterator[Any]:
            if isinstance(value, (list, tuple)):
                for item in value:
                    yield from walk(item)
            elif isinstance(value, np.ndarray) and value.ndim == 0:
                yield value[()]
            elif isinstance(value, (bytearray, memoryview)):
                yield bytes(value)
            else:
                yield value

        for field in self.fields:
            yield from walk(field)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Struct):
        yield from value.items()
    else:
        yield value


def _size(value: Any) -> tuple[int, int]:
    """(size, alignment) of one field in bytes."""
    if isinstance(value, np.generic):
        return value.itemsize, value.itemsize
    if isinstance(value, (np.ndarray, DeviceBuffer, SparseBuffer)):
        return 8, 8
    if isinstance(value, TensorMap):
        return len(value), MAP_ALIGNMENT_BYTES
    if isinstance(value, Struct):
        return value.size_bytes, value.align_bytes
    if isinstance(value, bytes):
        return len(value), 1
    raise LaunchError(
        f"a field of a Struct cannot be {value!r}: pass a NumPy scalar (such as np.int32), an array, a DeviceBuffer, a "
        "SparseBuffer, a TensorMap, bytes, a Struct or a list of these"
    )
