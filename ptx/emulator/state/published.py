"""What had been published at a place when a warp wrote there: what a strong read that comes before the write learns."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.emulator.state.clocks import Clock, both
from tinygpu.ptx.emulator.state.scopes import Scope

NO_GROUP = -1


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Within the CTA and within the cluster of the warp.

    groups  their numbers
    told    what had been told within each of them (None: nothing)
    """

    groups: tuple[int, int]
    told: tuple[Clock | None, Clock | None]

    def within(self, scope: Scope, group: int, now: Clock | None) -> Clock | None:
        """What had been told within a group then; what counts now, where that is not known."""
        return self.told[scope] if self.groups[scope] == group else now

    def joined(self, told: Clock | None) -> Published:
        """With what one more warp tells its cluster; what it tells its own CTA is taken from what counts now."""
        return Published((NO_GROUP, self.groups[Scope.CLUSTER]), (None, both(self.told[Scope.CLUSTER], told)))
