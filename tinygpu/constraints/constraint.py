"""A constraint: one condition on parameters, with a name, a kind, a sentence and who brought it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinygpu.expressions import Expr

Kind = Literal["legality", "dominance"]
Judge = Literal["assembler", "emulator", "launch", "model"]


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """A named condition that every admitted point satisfies.

    name        short and unique within a space, in the words of the field: "smem capacity"
    condition   an `Expr` condition over parameters, dims ("m"), tensor facts ("a.ld") and device figures
                ("device.max_smem_per_block_optin")
    sentence    what must hold, in words: "the stages must fit into shared memory"
    kind        "legality" (the point cannot work) or "dominance" (it works, but another is never worse)
    source      who brought it: "cp.async", "SMEM", "MatmulAmpere"
    judge       who refuses a point that breaks it: the assembler, the emulator, the launch, or the model (dominance)
    why         the fact behind it, with its source
    place       the user's line that it was written in, "file.py:12"; "" for those that ship or are derived
    instead     parameters and choices in which the candidate differs that is never worse; () for all but such dominance
    """

    name: str
    condition: Expr
    sentence: str
    kind: Kind = "legality"
    source: str = ""
    judge: Judge = "emulator"
    why: str = ""
    place: str = ""
    instead: frozenset[str] = frozenset()
