"""What the solver answers for a tile in shared memory: a layout, what each access costs, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tinygpu.solver.smem_layout import SmemLayout
from tinygpu.solver.swizzle_search import Verdict
from tinygpu.solver.tile_access import TileAccess

Proof: TypeAlias = Literal["ideal", "pigeonhole", "refuted", "none"]


@dataclass(frozen=True, slots=True)
class AccessResult:
    """One access under the layout found.

    wavefronts    of all its instances together, counted lane by lane
    ideal         of all its instances together if no bank conflict were met
    instances     warp instructions (8x8 matrices for ldmatrix) counted
    """

    name: str
    wavefronts: int
    ideal: int
    instances: int

    @property
    def conflict_free(self) -> bool:
        return self.wavefronts == self.ideal

    def __str__(self) -> str:
        return f"{self.name} takes {_each(self.wavefronts, self.instances)} instead of {self.ideal / self.instances:g}"


@dataclass(frozen=True, slots=True)
class Solution:
    """The best layout for a tile, and what is known about better ones.

    layout    the layout with the fewest wavefronts, among those the least padding, among those a cheap XOR
    accesses  each access under it
    verdict   "proved" when no layout of the family has fewer wavefronts; "unknown" when Z3 gave up on some of them
    proof     why there are not fewer wavefronts: "ideal" (no access meets a conflict), "pigeonhole" (no layout of any
              kind that keeps vectors whole has fewer), "refuted" (the family has none, by Z3), "none"
    family    the layouts that were considered, in words
    sentence  the answer for a person
    asked     queries put to Z3 (0 when the menu was enough)
    seconds   wall time
    """

    layout: SmemLayout
    accesses: tuple[AccessResult, ...]
    verdict: Verdict
    proof: Proof
    family: str
    sentence: str
    asked: int
    seconds: float = field(default=0.0, compare=False)

    @property
    def wavefronts(self) -> int:
        """Wavefronts of all accesses' instances together, not weighted."""
        return sum(access.wavefronts for access in self.accesses)

    @property
    def ideal(self) -> int:
        """The same if no bank conflict were met."""
        return sum(access.ideal for access in self.accesses)

    @property
    def conflict_free(self) -> bool:
        return all(access.conflict_free for access in self.accesses)

    def __str__(self) -> str:
        return f"{self.layout}: {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary from which `from_json` builds the same solution."""
        return {
            "layout": self.layout.to_json(),
            "accesses": [[one.name, one.wavefronts, one.ideal, one.instances] for one in self.accesses],
            "verdict": self.verdict,
            "proof": self.proof,
            "family": self.family,
            "sentence": self.sentence,
            "asked": self.asked,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Solution:
        """The solution that `to_json` wrote."""
        return cls(
            **{
                **data,
                "layout": SmemLayout.from_json(data["layout"]),
                "accesses": tuple(AccessResult(*one) for one in data["accesses"]),
            }
        )


def results_of(layout: SmemLayout, accesses: Sequence[TileAccess]) -> tuple[AccessResult, ...]:
    """Each access under a layout, counted lane by lane."""
    return tuple(AccessResult(one.name, one.wavefronts(layout), one.ideal(), one.instances) for one in accesses)


def sentence_of(results: Sequence[AccessResult], proof: Proof, family: str, vector_bytes: int, reason: str) -> str:
    """The answer for a person: what the layout achieves, and why there is nothing better."""
    slow = [one for one in results if not one.conflict_free]
    if not slow:
        return "every access is free of bank conflicts; counted lane by lane"
    match results:
        case [only]:
            whom = only.name
        case [_, _]:
            whom = "both accesses"
        case _:
            whom = f"all {len(results)} accesses"
    at_best = " and ".join(str(one) for one in slow)
    if proof == "pigeonhole":
        why = f"proved for every layout that keeps vectors of {vector_bytes} bytes whole"
    elif proof == "refuted":
        why = f"proved for {family}"
    else:
        why = f"not proved: Z3 gave up on a better one ({reason})"
    if proof == "none":
        return f"no layout is known that serves {whom} without bank conflicts: the best found: {at_best}; {why}"
    return f"no layout serves {whom} without bank conflicts: at best {at_best}; {why}"


def _each(wavefronts: int, instances: int) -> str:
    count = wavefronts / instances
    return f"{count:g} wavefront" if count == 1 else f"{count:g} wavefronts"
