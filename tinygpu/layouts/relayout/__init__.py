"""Relayouts: how values get from the holders of one distribution to those of another, in the fewest rounds."""

from tinygpu.layouts.relayout.plan import Pick, RelayoutPlan, Shuffle
from tinygpu.layouts.relayout.planning import counts, relayout

__all__ = ["Pick", "RelayoutPlan", "Shuffle", "counts", "relayout"]
