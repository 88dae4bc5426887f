"""Where the variables of a kernel lie within the shared, local, const or param space."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array

# Since sm_80 the system keeps the first kilobyte of a CTA's shared memory (CUDA C++ Programming Guide, "Shared Memory"
# of compute capability 8.x: 1 KB reserved per block), so address 0 belongs to no variable.
SHARED_BASE = 1024
_GUARD_BYTES = 128


@dataclass(frozen=True, slots=True)
class Placed:
    """A variable at [start, end) of its space."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class SpaceLayout:
    """Variables of one space, with unused guard bytes between them so that running past one is seen."""

    space: str
    base: int = 0
    guard_bytes: int = _GUARD_BYTES
    placed: list[Placed] = field(default_factory=list)
    used_bytes: int = 0

    def place(self, name: str, size_bytes: int, align_bytes: int) -> int:
        """The address of a new variable."""
        start = self.base if not self.placed else self.placed[-1].end + self.guard_bytes
        align = max(align_bytes, min(self.guard_bytes, 128))
        start = (start + align - 1) // align * align
        self.placed.append(Placed(name, start, start + size_bytes))
        self.used_bytes += size_bytes
        return start

    def address(self, name: str) -> int | None:
        """Where the variable lies, or None."""
        for item in self.placed:
            if item.name == name:
                return item.start
        return None

    @property
    def extent_bytes(self) -> int:
        """Bytes from address 0 to the end of the last variable, a multiple of 128."""
        end = max((item.end for item in self.placed), default=0)
        return (end + 127) // 128 * 128

    def holds(self, low: int, high: int) -> bool:
        """Whether one variable holds all of [low, high)."""
        return any(item.start <= low and high <= item.end for item in self.placed)

    def inside(self, addresses: Array, size: int) -> NDArray[np.bool_]:
        """Per address whether one variable holds all of its `size` bytes."""
        wide = addresses.astype(np.int64)
        result = np.zeros(addresses.shape, np.bool_)
        for item in self.placed:
            result |= (wide >= item.start) & (wide <= item.end - size)
        return result

    def describe(self, address: int, size: int) -> str:
        """What lies at or next to an address that no variable holds, in words."""
        if not self.placed:
            return f"the kernel has no {self.space} memory"
        nearest = min(self.placed, key=lambda i: min(abs(address - i.start), abs(address - i.end)))
        extent = f"{nearest.name} has {nearest.end - nearest.start} bytes"
        if address >= nearest.start:
            return f"{extent}, and this is byte {address - nearest.start} to {address - nearest.start + size - 1}"
        return f"{extent}, and this is {nearest.start - address} bytes before it"
