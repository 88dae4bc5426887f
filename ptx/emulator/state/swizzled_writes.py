"""The swizzles by which tensor copies wrote shared memory.

Where a product reads a tile with another swizzle than its tensor map has, rows come mixed up. Nothing but the numbers
shows that, and no rule of the manual forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(frozen=True, slots=True)
class SwizzledWrite:
    """What a tensor copy on a line wrote: `swizzle` as in TensorMap."""

    swizzle: str
    line: int


class SwizzledWrites:
    """All that tensor copies have written, by the tick at which each completed."""

    def __init__(self) -> None:
        self._by_tick: dict[int, SwizzledWrite] = {}

    @staticmethod
    def of(residents: Residents) -> SwizzledWrites:
        """Those of resident CTAs; made on first use."""
        found = residents.extensions.get("swizzled writes")
        if found is None:
            found = residents.extensions["swizzled writes"] = SwizzledWrites()
        if not isinstance(found, SwizzledWrites):
            raise TypeError("another extension has taken the name of swizzled writes")
        return found

    def wrote(self, tick: int, swizzle: str, line: int) -> None:
        """A copy has completed, and nobody else did anything at that tick."""
        self._by_tick[tick] = SwizzledWrite(swizzle, line)

    def otherwise(self, tick: int, swizzle: str) -> SwizzledWrite | None:
        """The copy that completed at a tick, where it wrote with another swizzle."""
        found = self._by_tick.get(tick)
        return None if found is None or found.swizzle == swizzle else found
