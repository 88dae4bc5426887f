"""A constraint that a machine's author writes."""

from __future__ import annotations

from typing import get_args

from tinygpu.constraints.constraint import Constraint, Judge, Kind
from tinygpu.expressions import Expr
from tinygpu.language.parameters import Named


class Require(Named):
    """A condition that every candidate satisfies, with the sentence for it.

    kind  "legality" (a point that breaks it cannot work) or "dominance" (it works, but another is never worse: say why)
    """

    def __init__(self, condition: Expr, sentence: str, *, kind: Kind = "legality", why: str = "") -> None:
        self.condition = condition
        if not isinstance(condition, Expr):
            self.mistake = f"a Require takes a condition on parameters, not {condition!r}"
        elif kind not in get_args(Kind):
            self.mistake = f"a Require is of kind {' or '.join(get_args(Kind))}, not {kind!r}"
        elif kind == "dominance" and not why:
            self.mistake = "a dominance constraint says why what it removes is never the best; give why=..."
        self.sentence = sentence
        self.kind = kind
        self.why = why

    def constraint(self, machine: str, place: str = "") -> Constraint:
        """As a space asks for it; `place` is where the author wrote it."""
        judge: Judge = "model" if self.kind == "dominance" else "emulator"
        name = self.name.replace("_", " ")
        return Constraint(name, self.condition, self.sentence, self.kind, machine, judge, self.why, place)
