"""What a caller passes for device memory: whole arrays, or a few backed windows of a huge tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import LaunchError

ALIGNMENT_BYTES = 256
"""cudaMalloc aligns to at least this (CUDA C++ Programming Guide, "Device Memory Accesses")."""


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


@dataclass(eq=False)
class DeviceBuffer:
    """An array in device memory; the kernel gets the address of its first byte plus `offset`.

    array        any dtype, contiguous; changed in place
    offset       bytes added to the pointer that the kernel gets
    base         device address to lay the array at, a multiple of 256; None picks one
    initialised  False: reading a byte that the kernel has not written gives an uninitialised value
    name         how faults call it; the parameter's name where None
    """

    array: NDArray[Any]
    offset: int = 0
    base: int | None = None
    initialised: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        if self.base is not None and (self.base <= 0 or self.base % ALIGNMENT_BYTES):
            raise LaunchError(f"base must be a positive multiple of {ALIGNMENT_BYTES} bytes, not {self.base:#x}")
        memory_bytes(self.array, self.name or "this buffer")


@dataclass(eq=False)
class SparseBuffer:
    """An allocation of `size_bytes` of which only some windows are backed by arrays.

    size_bytes  size of the whole allocation; may exceed the host's memory
    regions     {byte offset: array}; windows must not overlap; changed in place
    offset      bytes added to the pointer that the kernel gets
    base        device address to lay the allocation at, a multiple of 256; None picks one
    name        how faults call it; the parameter's name where None

    An access inside the allocation but outside every window is a fault of its own kind.
    """

    size_bytes: int
    regions: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    offset: int = 0
    base: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.size_bytes >= 1 << 46:
            raise LaunchError(f"size_bytes must be between 1 and 2^46, not {self.size_bytes}")
        if self.base is not None and (self.base <= 0 or self.base % ALIGNMENT_BYTES):
            raise LaunchError(f"base must be a positive multiple of {ALIGNMENT_BYTES} bytes, not {self.base:#x}")
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
