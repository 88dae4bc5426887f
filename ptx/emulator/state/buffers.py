"""What a caller passes for device memory: whole arrays, or a few backed windows of a huge tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.state.memory import PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES

ALIGNMENT_BYTES = 256
"""cudaMalloc aligns to at least this (CUDA C++ Programming Guide, "Device Memory Accesses")."""
# Buffers whose address was asked for lie above 2^49, each at a place of its own for as long as the process lives: what
# was asked may be written into any other buffer. All others are laid out anew by each launch, below.
_FIRST_ADDRESS = 1 << 49
_GAP_BYTES = 1 << 36
_END_ADDRESS = 1 << 62
_places = count()


def memory_bytes(array: NDArray[Any], what: str) -> NDArray[np.uint8]:
    """The bytes of an array as they lie in memory, without a copy: (size in bytes,) uint8."""
    if array.flags.c_contiguous:
        dense = array
    elif array.flags.f_contiguous:
        dense = array.T
    else:
        raise LaunchError(
            f"{what} is a view with gaps (shape {array.shape}, strides {array.strides}): pass a contiguous array"
        )
    return dense.reshape(-1).view(np.uint8) if dense.size else np.zeros(0, np.uint8)


def _fresh_address(size_bytes: int) -> int:
    """An address that no other buffer of this process has, followed by a gap."""
    places = (size_bytes + _GAP_BYTES - 1) // _GAP_BYTES + 1
    first = next(_places)
    for _ in range(places - 1):
        next(_places)
    address = _FIRST_ADDRESS + first * _GAP_BYTES
    if address + size_bytes >= _END_ADDRESS:
        raise LaunchError("this process has asked for the addresses of too many buffers: give each a base=")
    return address


@dataclass(eq=False)
class DeviceBuffer:
    """An array in device memory; the kernel gets the address of its first byte plus `offset`.

    array        any dtype, contiguous; changed in place
    offset       bytes added to the pointer that the kernel gets
    base         device address to lay the array at, a multiple of 256; None picks one
    initialised  False: reading a byte that the kernel has not written gives an uninitialised value; or which bytes are,
                 as an array of booleans that is changed in place: the next launch knows what this one wrote
    name         how faults call it; the parameter's name where None

    `address` is the pointer that the kernel gets, to be written into structs and other buffers. A buffer that is
    reached only through such pointers is listed in `emulate(buffers=...)`.
    """

    array: NDArray[Any]
    offset: int = 0
    base: int | None = None
    initialised: bool | NDArray[np.bool_] = True
    name: str | None = None
    _fixed: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_base(self.base, memory_bytes(self.array, self.name or "this buffer").size)
        if isinstance(self.initialised, np.ndarray) and self.initialised.shape != (self.array.nbytes,):
            raise LaunchError(
                f"{self.name or 'this buffer'} has {self.array.nbytes:,} bytes, and {self.initialised.size:,} flags of "
                "which are initialised; give one for each byte"
            )

    @property
    def size_bytes(self) -> int:
        return self.array.nbytes

    @property
    def address(self) -> int:
        """The device address of byte `offset`; once asked for, it stays."""
        if self.base is None and self._fixed is None:
            self._fixed = _fresh_address(self.size_bytes)
        return (self.fixed_base or 0) + self.offset

    @property
    def fixed_base(self) -> int | None:
        """Where the array must lie; None where nobody has fixed that yet."""
        return self.base if self.base is not None else self._fixed


@dataclass(eq=False)
class SparseBuffer:
    """An allocation of `size_bytes` of which only some windows are backed by arrays.

    size_bytes  size of the whole allocation; may exceed the host's memory
    regions     {byte offset: array}; windows must not overlap; changed in place
    offset      bytes added to the pointer that the kernel gets
    base        device address to lay the allocation at, a multiple of 256; None picks one
    name        how faults call it; the parameter's name where None

    An access inside the allocation but outside every window is a fault of its own kind. `address` as in DeviceBuffer.
    """

    size_bytes: int
    regions: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    offset: int = 0
    base: int | None = None
    name: str | None = None
    _fixed: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.size_bytes >= 1 << 46:
            raise LaunchError(f"size_bytes must be between 1 and 2^46, not {self.size_bytes}")
        _check_base(self.base, self.size_bytes)
        end = 0
        for start, array in sorted(self.regions.items(), key=lambda item: item[0]):
            size = memory_bytes(array, f"the window at byte {start}").size
            if start < end:
                raise LaunchError(f"the window at byte {start} overlaps the one before it, which ends at byte {end}")
            end = start + size
            if end > self.size_bytes:
                raise LaunchError(
                    f"the window at byte {start} ends at byte {end}, but the buffer has {self.size_bytes} bytes"
                )

    @property
    def address(self) -> int:
        """The device address of byte `offset`; once asked for, it stays."""
        if self.base is None and self._fixed is None:
            self._fixed = _fresh_address(self.size_bytes)
        return (self.fixed_base or 0) + self.offset

    @property
    def fixed_base(self) -> int | None:
        """Where the allocation must lie; None where nobody has fixed that yet."""
        return self.base if self.base is not None else self._fixed


def _check_base(base: int | None, size_bytes: int) -> None:
    if base is None:
        return
    if base <= 0 or base % ALIGNMENT_BYTES:
        raise LaunchError(f"base must be a positive multiple of {ALIGNMENT_BYTES} bytes, not {base:#x}")
    first, end = PARAM_WINDOW, SHARED_WINDOW + WINDOW_BYTES
    if base < end and base + size_bytes > first:
        raise LaunchError(
            f"addresses from {first:#x} to {end:#x} are those of parameters, constants, local and shared memory here, "
            f"and with base {base:#x} a buffer reaches into them; give it another"
        )
