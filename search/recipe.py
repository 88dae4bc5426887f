"""A recipe: the candidate to take for a problem, with what was measured of it; and where recipes are looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tinygpu.search.searchable import Point


@dataclass(frozen=True, slots=True)
class Recipe:
    """One candidate for one machine, problem and device.

    machine  name of the machine's class
    point    the candidate
    seconds  what was measured
    said     when, where and how that was
    """

    machine: str
    point: Point
    seconds: float
    said: str


class RecipeBook(Protocol):
    """Whatever knows recipes."""

    def best(self, machine: str, problem: Mapping[str, Any], device: str) -> Recipe | None:
        """The best that was measured for a machine, a problem (`Problem.to_json()`) and a device by its name in the
        library; None where nothing was."""
