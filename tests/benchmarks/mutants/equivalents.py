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


EQUIVALENTS = (
    Equivalent(
        "tinygpu/constraints/intervals.py",
        "elif self.lo >= 0 and self.hi < low:",
        "elif (self.lo > 0) and self.hi < low:",
        "from 0 on, the last branch gives the same: from 0 to the lesser of self.hi and high - 1, which is self.hi",
    ),
    Equivalent(
        "tinygpu/constraints/intervals.py",
        "def __init__(self, lo: int, hi: int, peak: int = 0, safe: bool = True) -> None:",
        "def __init__(self, lo: int, hi: int, peak: int = (-1), safe: bool = True) -> None:",
        "the greater of -lo and hi is never negative, since lo <= hi",
    ),
    Equivalent(
        "tinygpu/program/schedule.py",
        "out.append(_fuse(program, waiting.pop(drains[0].pipeline), s))",
        "out.append(_fuse(program, waiting.pop(drains[(-1)].pipeline), s))",
        "there is one drain: the first is the last",
    ),
)
