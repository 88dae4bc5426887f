"""Where windows of a tensor can lie along one of its axes: intervals, of whatever is known of what says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.expressions import compile_with, expr
from tinygpu.language.tile import Tile
from tinygpu.program.nodes import Repeated

# What nothing is known of lies in here.
ANYTHING = Interval(0, (1 << 31) - 1)


class Known(dict[str, Interval]):
    """What expressions name; what is not known is anything."""

    def __missing__(self, name: str) -> Interval:
        return ANYTHING


class Lies:
    """Where a window of a tensor can lie along one of the tensor's axes.

    home   the axis
    loops  around the statement that reads or writes the window
    """

    def __init__(self, window: Tile, home: int, loops: Sequence[Repeated]) -> None:
        reach = expr(1)
        for axis, step in window.along(home):
            reach = reach + (window.shape[axis] - 1) * step
        self._anywhere = window.pick is not None and window.pick.home == home
        self._loops = [(loop.index, compile_with(INTERVAL_NAMES, loop.first, loop.trips)) for loop in loops]
        self._bounds = compile_with(INTERVAL_NAMES, window.begins[home], reach)

    def among(self, known: Mapping[str, Interval]) -> tuple[int, int]:
        """The first element that it may have, and one past the last."""
        if self._anywhere:
            return 0, ANYTHING.hi
        known = Known(known)
        for index, rounds in self._loops:
            first, trips = (r + Interval(0, 0) if isinstance(r, Interval) else Interval(r, r) for r in rounds(known))
            known[index] = Interval(first.lo, first.hi + max(trips.hi, 1) - 1)
        begins, reach = (Interval(0, 0) + b for b in self._bounds(known))
        return begins.lo, begins.hi + reach.hi
