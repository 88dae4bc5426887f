"""A figure: one number (or word) about a GPU, with its unit and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.files.error import excerpt

FigureValue: TypeAlias = int | float | str | None

# What each kind says about a figure. "null" means that no source was found; the value is then None.
KINDS: Mapping[str, str] = {
    "spec": "architecture constant from a vendor header, guide or whitepaper",
    "datasheet": "vendor product figure",
    "measured": "measured on that part",
    "proxy": "measured on a sibling part, which the note names",
    "model": "constant of a simulator that was fitted to hardware",
    "derived": "arithmetic on other figures, or a stated rule where no source was found",
    "note": "a remark",
    "null": "no source was found",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a device.

    value   a number, a word, or None where no source was found (kind "null")
    unit    the unit of the value: "MHz", "B/clk/SM", "cycles", "text"
    source  document, paper or measurement; for a derived figure the rule that gave it
    kind    one of KINDS
    note    conditions, conflicts with other sources, the sibling part of a proxy
    """

    value: FigureValue
    unit: str
    source: str
    kind: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of figure {excerpt(self.kind)}; known: {', '.join(KINDS)}")
        if self.value is None and self.kind != "null":
            raise ValueError(f"a figure of kind {self.kind!r} needs a value; a figure without one has kind 'null'")
        if self.value is not None and self.kind == "null":
            raise ValueError(f"a figure of kind 'null' has no value, not {excerpt(self.value)}")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float | str | None):
            raise TypeError(f"the value of a figure is a number, a text or null, not {excerpt(self.value)}")
        if isinstance(self.value, int | float) and not 0 <= self.value < float("inf"):
            raise ValueError(f"the value of a figure is finite and not negative, not {excerpt(self.value)}")

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown [{self.unit}]"
        return f"{self.value} {self.unit} ({self.kind}: {self.source})"

    def to_json(self) -> dict[str, FigureValue]:
        """The figure as it stands in a device file; an empty note is left out."""
        out: dict[str, FigureValue] = {"value": self.value, "unit": self.unit, "source": self.source, "kind": self.kind}
        return out | {"note": self.note} if self.note else out


def figure_from_json(field: str, data: object) -> Figure:
    """The figure written as a JSON object {value, unit, source, kind, note?}."""
    if not isinstance(data, dict):
        raise ValueError(f"figure {field!r} must be an object with value, unit, source and kind, not {excerpt(data)}")
    missing = [key for key in ("value", "unit", "source", "kind") if key not in data]
    if missing:
        raise ValueError(f"figure {field!r} lacks {' and '.join(missing)}: every figure says what it is and where from")
    extra = sorted(set(data) - {"value", "unit", "source", "kind", "note"})
    if extra:
        found = excerpt(extra[0])
        raise ValueError(f"figure {field!r} has the unknown key {found}; known: value, unit, source, kind, note")
    texts = {key: data.get(key, "") for key in ("unit", "source", "kind", "note")}
    if texts["kind"] == "null" and texts["source"] is None:
        texts["source"] = ""
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"figure {field!r}: {key} must be a text, not {excerpt(text)}")
    try:
        return Figure(data["value"], texts["unit"], texts["source"], texts["kind"], texts["note"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"figure {field!r}: {error}") from error
