"""Device-wide memory: allocations with bounds, backed by windows of bytes, in a sparse 64-bit address space."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import FaultKind, LaunchError
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.shadows import GlobalShadow

# Allocations are spread so far apart that an offset error of gigabytes still lands outside every one of them.
_FIRST_BASE = 0x0000_1000_0000_0000
_GAP_BYTES = 1 << 36
# Generic addresses of the other spaces (PTX ISA, "Generic Addressing": windows within the generic address space; where
# they lie is up to the implementation).
SHARED_WINDOW = 0x0000_7F00_0000_0000
LOCAL_WINDOW = 0x0000_7E00_0000_0000
CONST_WINDOW = 0x0000_7D00_0000_0000
PARAM_WINDOW = 0x0000_7C00_0000_0000
WINDOW_BYTES = 0x0000_0100_0000_0000
_WINDOW_ALIGNMENT_BYTES = 32
# Between allocations of the device heap, and their alignment.
_HEAP_GAP_BYTES = 128

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(eq=False, slots=True)
class Allocation:
    """One allocation as the program sees it: [base, base + size_bytes)."""

    name: str
    base: int
    size_bytes: int
    space: str = "global"
    writable: bool = True

    @property
    def end(self) -> int:
        return self.base + self.size_bytes

    @property
    def why_read_only(self) -> str:
        """Why a store here is refused, in words."""
        if self.space == "global":
            return "whose array is not writeable"
        return f"which is {'constant' if self.space == 'const' else self.space} memory and cannot be written"


class Window:
    """Backed bytes of an allocation, with typed views.

    base, end  device addresses that are backed
    origin     device address of data[0]: a multiple of 32 bytes, so that aligned vectors are whole elements of a view
    data       the bytes; a window that starts elsewhere works on a padded copy, which write_back() copies back
    valid      which bytes are initialised, or None when all are
    shadow     who read and wrote what last; None until a race check needs it
    """

    __slots__ = ("_source", "_views", "allocation", "base", "data", "end", "origin", "shadow", "valid")

    def __init__(
        self, allocation: Allocation, base: int, data: NDArray[np.uint8], initialised: bool | NDArray[np.bool_] = True
    ) -> None:
        self.allocation = allocation
        self.base = base
        self.end = base + data.size
        self.origin = base // _WINDOW_ALIGNMENT_BYTES * _WINDOW_ALIGNMENT_BYTES
        self._source: NDArray[np.uint8] | None = None
        if self.origin != base:
            self._source = data
            data = np.concatenate([np.zeros(base - self.origin, np.uint8), data])
        self.data = data
        self.valid: NDArray[np.bool_] | None = None
        if isinstance(initialised, np.ndarray):
            self.valid = initialised
        elif not initialised:
            self.valid = np.zeros(data.size, np.bool_)
        self.shadow: GlobalShadow | None = None
        self._views: dict[tuple[int, int], Array] = {}

    def write_back(self) -> None:
        """Copy a padded copy back to where its bytes came from."""
        if self._source is not None and self._source.flags.writeable:
            self._source[...] = self.data[self.base - self.origin :]

    def view(self, width: int, count: int) -> Array:
        """The bytes as aligned elements of `width` bytes: (elements,) or, for vectors, (vectors, count)."""
        found = self._views.get((width, count))
        if found is None:
            whole = self.data.size // (width * count) * (width * count)
            found = self.data[:whole].view(_UNSIGNED[width])
            if count > 1:
                found = found.reshape(-1, count)
            self._views[width, count] = found
        return found


class GlobalMemory:
    """All allocations and windows, searched by address."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.windows: list[Window] = []
        self._window_bases: list[int] = []
        self._allocation_bases: list[int] = []
        self._next = _FIRST_BASE
        # Of all windows, worked out when they are asked for.
        self._bounds: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None

    def add(self, allocation: Allocation, windows: list[Window]) -> None:
        """Enter an allocation; refuses one that overlaps another."""
        position = bisect_right(self._allocation_bases, allocation.base)
        for other in self.allocations[max(0, position - 1) : position + 1]:
            if allocation.base < other.end and other.base < allocation.end:
                raise LaunchError(f"{allocation.name} at {allocation.base:#x} overlaps {other.name} at {other.base:#x}")
        self.allocations.insert(position, allocation)
        self._allocation_bases.insert(position, allocation.base)
        for window in windows:
            position = bisect_right(self._window_bases, window.base)
            self.windows.insert(position, window)
            self._window_bases.insert(position, window.base)
        self._bounds = None

    def allocate(self, name: str, size_bytes: int, first: int, last: int) -> int:
        """The base of a new, uninitialised allocation behind all others in [first, last); 0 where there is no room."""
        position = bisect_right(self._allocation_bases, last) - 1
        base = first
        if position >= 0 and self.allocations[position].base >= first:
            base = self.allocations[position].end + _HEAP_GAP_BYTES
        base = (base + _HEAP_GAP_BYTES - 1) // _HEAP_GAP_BYTES * _HEAP_GAP_BYTES
        if size_bytes == 0 or base + size_bytes > last:
            return 0
        allocation = Allocation(name, base, size_bytes)
        self.add(allocation, [Window(allocation, base, np.zeros(size_bytes, np.uint8), False)])
        return base

    def remove(self, base: int, name: str) -> bool:
        """Take an allocation of this name out; False where none starts at `base`."""
        position = bisect_right(self._allocation_bases, base) - 1
        if position < 0 or self.allocations[position].base != base or self.allocations[position].name != name:
            return False
        allocation = self.allocations.pop(position)
        del self._allocation_bases[position]
        kept = [window for window in self.windows if window.allocation is not allocation]
        self.windows[:] = kept
        self._window_bases[:] = [window.base for window in kept]
        self._bounds = None
        return True

    def place(self, size_bytes: int) -> int:
        """A fresh base address for an allocation of this size."""
        base = self._next
        self._next += (size_bytes + 2 * _GAP_BYTES - 1) // _GAP_BYTES * _GAP_BYTES
        return base

    def window_of(self, low: int, high: int) -> Window | None:
        """The window that holds all of [low, high), or None."""
        position = bisect_right(self._window_bases, low) - 1
        if position < 0:
            return None
        window = self.windows[position]
        return window if high <= window.end else None

    def allocation_of(self, address: int) -> Allocation | None:
        """The allocation that holds this byte, or None."""
        position = bisect_right(self._allocation_bases, address) - 1
        if position < 0:
            return None
        allocation = self.allocations[position]
        return allocation if address < allocation.end else None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation whose bounds are nearest to an address outside all of them."""
        if not self.allocations:
            return None
        return min(self.allocations, key=lambda a: min(abs(address - a.base), abs(address - a.end)))

    def describe_missing(self, address: int, size: int, what: str) -> tuple[FaultKind, str]:
        """(kind of fault, sentence) for an access that no window holds; `what` as in "load of 4 bytes"."""
        what = f"{what} at global address {address:#x}"
        inside = self.allocation_of(address)
        if inside is not None and address + size <= inside.end:
            return "outside backed windows", (
                f"{what} is byte {address - inside.base} of {inside.name}, which is inside the buffer but in none of "
                "its backed windows: back these bytes with an array, or do not run this CTA"
            )
        near = inside or self.nearest(address)
        if near is None:
            where = "the launch has no buffers"
        elif address >= near.base:
            where = (
                f"{near.name} has {near.size_bytes} bytes, and this is byte {address - near.base} to "
                f"{address - near.base + size - 1} of it"
            )
        else:
            where = f"it is {near.base - address} bytes before {near.name}"
        return "out of bounds", f"{what} is out of bounds: {where}"

    def window_indices(self, addresses: Array, size: int) -> NDArray[np.int64]:
        """Per address the index of the window that holds all `size` bytes, or -1."""
        if not self.windows:
            return np.full(addresses.shape, -1, np.int64)
        if self._bounds is None:
            ends = np.array([window.end for window in self.windows], np.uint64)
            self._bounds = np.array(self._window_bases, np.uint64), ends
        bases, ends = self._bounds
        found = np.searchsorted(bases, addresses, side="right").astype(np.int64) - 1
        inside = (found >= 0) & (addresses + np.uint64(size) <= ends[np.maximum(found, 0)])
        # An address near 2^64 must not wrap into a window.
        inside &= addresses < np.uint64(1 << 63)
        return np.where(inside, found, -1)
