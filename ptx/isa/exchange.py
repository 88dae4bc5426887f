"""The ways in which threads exchange parts of one result, by instructions that ship: what a machine leaves open."""

from __future__ import annotations

from tinygpu.language.exchange import ExchangePlan
from tinygpu.language.parameters import Choice
from tinygpu.ptx.isa.warp import Redux, ShflUp


class Exchange(Choice):
    """How threads that hold parts of one result exchange them, a choice of the search.

    shuffles  lanes meet in pairs; every thread takes what all warps left, in their order
    pairs     lanes meet in pairs; each takes what some of the warps left, and they meet in pairs again
    redux     all lanes of a warp at once, where redux.sync has the operation; every thread takes what all warps left

    One way alone may be named: then nothing is left open.
    """

    least = 1

    def __init__(self, *which: str) -> None:
        plans = (
            ExchangePlan("shuffles", ShflUp()),
            ExchangePlan("pairs", ShflUp(), in_pairs=True),
            ExchangePlan("redux", ShflUp(), at_once=Redux()),
        )
        unknown = [name for name in which if name not in {plan.name for plan in plans}]
        super().__init__(*[plan for plan in plans if not which or plan.name in which])
        if unknown:
            self.mistake = f"an Exchange is by shuffles, pairs or redux, not by {unknown[0]!r}"
