"""The property-testing kit for authors of machines.

The strategies need hypothesis (`pip install hypothesis`); `check_machine` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygpu.testing.case import Case
from tinygpu.testing.cases import examine
from tinygpu.testing.check import CheckError, check_machine, run_check
from tinygpu.testing.finding import Finding
from tinygpu.testing.report import CheckReport, Failure, Row
from tinygpu.testing.workbench import Workbench

if TYPE_CHECKING:
    from tinygpu.testing.strategies import candidates, devices, problems

_STRATEGIES = ("candidates", "devices", "problems")


def __getattr__(name: str) -> Any:
    if name not in _STRATEGIES:
        raise AttributeError(f"tinygpu.testing has no {name!r}; it has {', '.join(__all__)}")
    from tinygpu.testing import strategies

    return getattr(strategies, name)


__all__ = [
    "Case",
    "CheckError",
    "CheckReport",
    "Failure",
    "Finding",
    "Row",
    "Workbench",
    "candidates",
    "check_machine",
    "devices",
    "examine",
    "problems",
    "run_check",
]
