"""PTX targets: which compiled-for target runs on which compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TARGET = re.compile(r"sm_(\d{2,3})([af]?)")


@dataclass(frozen=True, slots=True)
class Target:
    """A PTX `.target`: compute capability as major * 10 + minor, and its suffix.

    suffix  ""  runs on that compute capability and every later one
            "a" architecture-specific: runs on exactly that one
            "f" family-specific: runs on the same major version, from that minor version on

    Source: PTX ISA, .target directive; that sm_90a PTX assembles for neither sm_90 nor sm_100a, and that sm_80 and
    sm_90 PTX assemble for sm_90a and sm_120a, was tried with ptxas 13.0.
    """

    cc: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.cc}{self.suffix}"

    @property
    def portable(self) -> Target:
        """The same target without its suffix."""
        return Target(self.cc)

    def runs_on(self, cc: int) -> bool:
        """True when PTX of this target runs on a GPU of compute capability `cc` (80, 86, 90, 120 ...)."""
        if self.suffix == "a":
            return cc == self.cc
        if self.suffix == "f":
            return cc // 10 == self.cc // 10 and cc >= self.cc
        return cc >= self.cc


def target(name: str | Target) -> Target:
    """The target written "sm_80", "sm_90a" or "sm_100f"."""
    if isinstance(name, Target):
        return name
    match = _TARGET.fullmatch(name)
    if match is None:
        raise ValueError(f"unknown PTX target {name!r}; targets are written sm_80, sm_90a or sm_100f")
    return Target(int(match[1]), match[2])
