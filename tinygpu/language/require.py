"""A constraint that a machine's author writes."""

from __future__ import annotations

from typing import Any, get_args

from tinygpu.constraints.constraint import Constraint, Judge, Kind
from tinygpu.expressions import Expr
from tinygpu.language.parameters import Choice, Named


class Require(Named):
    """A condition that every candidate satisfies, with the sentence for it.

    kind  "legality" (a point that breaks it cannot work) or "dominance" (it works, but another is never worse: say why)
    only  (choice, option): it is asked for where the program is traced with that option
    """

    def __init__(
        self,
        condition: Expr,
        sentence: str,
        *,
        kind: Kind = "legality",
        why: str = "",
        only: tuple[Choice, Any] | None = None,
    ) -> None:
        self.condition = condition
        self.only = only
        if not isinstance(condition, Expr):
            self.mistake = f"a Require takes a condition on parameters, not {condition!r}"
        elif kind not in get_args(Kind):
            self.mistake = f"a Require is of kind {' or '.join(get_args(Kind))}, not {kind!r}"
        elif kind == "dominance" and not why:
            self.mistake = "a dominance constraint says why what it removes is never the best; give why=..."
        elif only is not None and not (isinstance(only, tuple) and len(only) == 2 and isinstance(only[0], Choice)):
            self.mistake = f"only= is a Choice and one of its options, not {only!r}"
        elif only is not None and only[0].label(only[1]) not in only[0].labels:
            offered = ", ".join(map(str, only[0].labels))
            self.mistake = f"only= names the option {only[1]!r}, and the Choice has {offered}"
        self.sentence = sentence
        self.kind = kind
        self.why = why

    def asked(self, structure: tuple[tuple[str, str | int], ...]) -> bool:
        """Whether it is asked for in a structure."""
        return self.only is None or (self.only[0].name, self.only[0].label(self.only[1])) in structure

    def constraint(self, machine: str, place: str = "") -> Constraint:
        """As a space asks for it; `place` is where the author wrote it."""
        judge: Judge = "model" if self.kind == "dominance" else "emulator"
        name = self.name.replace("_", " ")
        return Constraint(name, self.condition, self.sentence, self.kind, machine, judge, self.why, place)
