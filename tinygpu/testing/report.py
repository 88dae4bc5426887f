"""What a check found, as a value that prints as a table and saves as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinygpu.files.writing import write_file
from tinygpu.testing.case import Case

TIERS: dict[int, str] = {
    1: "declaration",
    2: "partitions and layouts",
    3: "heuristics against counting",
    4: "legality against its judges",
    5: "kernels",
    6: "what constraints are worth",
}


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One thing that is wrong.

    sentence  what, where, with the numbers
    check     name of the check in `tinygpu.testing.cases` that says so; "" where none does
    case      the smallest counterexample found; None where it is about the machine as a whole
    """

    sentence: str
    check: str = ""
    case: Case | None = None

    @property
    def snippet(self) -> str:
        """Python that shows the failure again."""
        return self.case.snippet(self.check) if self.case is not None and self.check else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "check": self.check,
            "case": None if self.case is None else str(self.case),
            "snippet": self.snippet,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One line of the table.

    tier      1 to 6
    name      what was checked
    tried     how many of `unit` were tried
    unit      what is counted: "candidates", "constraints"
    failures  what is wrong
    notes     what is not wrong, but worth knowing
    """

    tier: int
    name: str
    tried: int
    unit: str
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        if self.failures:
            return f"{len(self.failures)} WRONG"
        return "ok" if self.tried else "not tried"

    def to_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "name": self.name,
            "tried": self.tried,
            "unit": self.unit,
            "failures": [f.to_json() for f in self.failures],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, eq=False)
class CheckReport:
    """What `check_machine` tried and found.

    machine   its name
    problems  the problems, in words
    devices   their names
    seed      with the same seed the same cases are drawn
    rows      what was checked, tier by tier
    seconds   wall time
    """

    machine: str
    problems: tuple[str, ...]
    devices: tuple[str, ...]
    seed: int
    rows: tuple[Row, ...]
    seconds: float = field(default=0.0)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and every check was tried on something."""
        return not self.failures

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(f for row in self.rows for f in row.failures)

    def __str__(self) -> str:
        out = [
            f"{self.machine}: {len(self.problems)} problems on {', '.join(self.devices)}, seed {self.seed}",
        ]
        width = max((len(r.name) for r in self.rows), default=0)
        tier = 0
        for r in self.rows:
            if r.tier != tier:
                tier = r.tier
                out.append(f"{tier} {TIERS[tier]}")
            out.append(f"    {r.name:<{width}}  {r.tried:>7,} {r.unit:<16} {r.verdict}")
            out += [f"        {note}" for note in r.notes]
        for number, failure in enumerate(self.failures, 1):
            out += ["", f"[{number}] {failure.sentence}"]
            if failure.case is not None:
                out.append(f"    smallest case: {failure.case}")
            if failure.snippet:
                out += ["    again:", *(f"        {line}" for line in failure.snippet.splitlines())]
        out.append("")
        out.append(f"{'nothing is wrong' if self.ok else f'{len(self.failures)} WRONG'} ({self.seconds:.0f} s)")
        return "\n".join(out)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "tinygpu-check/1",
            "machine": self.machine,
            "problems": list(self.problems),
            "devices": list(self.devices),
            "seed": self.seed,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "rows": [r.to_json() for r in self.rows],
        }

    def save(self, path: str | Path) -> None:
        """Writes the report as JSON."""
        text = json.dumps(self.to_json(), indent=2) + "\n"
        write_file(path, text, (b'{\n  "schema": "tinygpu-check/',), "a report of a check")
