"""Constraints as a table of the documentation (Markdown)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import describe

_COLUMNS = ("constraint", "what must hold", "condition", "kind", "brought by", "judge", "why")


def constraint_row(constraint: Constraint, order: Sequence[str] = ()) -> str:
    """One row of `constraint_table`; `order` as in `describe`."""
    cells = (
        constraint.name,
        constraint.sentence,
        f"`{describe(constraint.condition, order=order)}`",
        constraint.kind,
        constraint.source,
        constraint.judge,
        constraint.why,
    )
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def constraint_table(constraints: Iterable[Constraint], order: Sequence[str] = ()) -> str:
    """A Markdown table with one row per constraint, in the order given; `order` as in `describe`."""
    head = "| " + " | ".join(_COLUMNS) + " |"
    rule = "| " + " | ".join("---" for _ in _COLUMNS) + " |"
    return "\n".join([head, rule, *(constraint_row(c, order) for c in constraints)])
