"""Edits that change nothing that a test could see, each with its argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Equivalent:
    """path           the module
    before, after  the edited lines, as the table of survivors prints them
    why            why no result changes
    """

    path: str
    before: str
    after: str
    why: str


EQUIVALENTS: tuple[Equivalent, ...] = ()
