"""What a check found, as a value that prints as a table and saves as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinygpu.files.writing import write_file
from tinygpu.notebook import html as notebook
from tinygpu.ptx.verification.plan import RUNS
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
    pointers  what it points to: constraints, statements, parameters that decide it
    check     name of the check in `tinygpu.testing.cases` that says so; "" where none does
    case      the smallest counterexample found; None where it is about the machine as a whole
    """

    sentence: str
    check: str = ""
    case: Case | None = None
    pointers: tuple[str, ...] = ()

    @property
    def snippet(self) -> str:
        """Python that shows the failure again."""
        return self.case.snippet(self.check) if self.case is not None and self.check else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "pointers": list(self.pointers),
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
    absent    where nothing was tried because the machine has none: of what; "" where nothing was tried all the same
    untried   how many more were meant to be tried
    """

    tier: int
    name: str
    tried: int
    unit: str
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    absent: str = ""
    untried: int = 0

    @property
    def passed(self) -> bool:
        """Whether something was tried and nothing is wrong, or there is nothing to try."""
        return not self.failures and bool(self.tried or self.absent)

    @property
    def verdict(self) -> str:
        if self.failures:
            return f"{len(self.failures)} WRONG"
        if not self.tried:
            return f"no {self.absent}" if self.absent else "NOT TRIED"
        return f"ok, {self.untried} not tried" if self.untried else "ok"

    def to_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "name": self.name,
            "tried": self.tried,
            "unit": self.unit,
            "failures": [f.to_json() for f in self.failures],
            "notes": list(self.notes),
            "untried": self.untried,
            "absent": self.absent,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True, eq=False)
class CheckReport:
    """What `check_machine` tried and found.

    machine   its name
    problems  the problems, in words
    devices   names of those on which the machine exists
    seed      with the same seed the same cases are drawn
    rows      what was checked, tier by tier
    upstream  what seems wrong with rules that the library derives: for its makers, not for the machine's author
    seconds   CPU time
    """

    machine: str
    problems: tuple[str, ...]
    devices: tuple[str, ...]
    seed: int
    rows: tuple[Row, ...]
    upstream: tuple[Failure, ...] = ()
    seconds: float = field(default=0.0)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and every check was tried on something, where there is something."""
        return not self.failures and not self.untried

    @property
    def untried(self) -> tuple[str, ...]:
        """Names of the checks that were tried on nothing although there is something."""
        return tuple(r.name for r in self.rows if not r.failures and not r.passed)

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(f for row in self.rows for f in row.failures)

    def _repr_html_(self) -> str:
        return notebook.verdict(self.ok, "nothing is wrong" if self.ok else "something is wrong") + notebook.code(
            str(self)
        )

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
            out += ["", f"[{number}] {failure.sentence}", *(f"    {line}" for line in failure.pointers)]
            if failure.case is not None:
                out.append(f"    smallest case: {failure.case}")
            if failure.snippet:
                out += ["    again:", *(f"        {line}" for line in failure.snippet.splitlines())]
        if any(failure.check == "kernel" for failure in self.failures):
            out += ["", f"A run is named by {RUNS}."]
        if self.upstream:
            out += ["", "Rules of the library that seem wrong; please report them, the machine has nothing to mend:"]
            out += [f"    {failure.sentence}" for failure in self.upstream]
        out.append("")
        out.append(f"{self.conclusion} ({self.seconds:.0f} s of CPU)")
        return "\n".join(out)

    @property
    def conclusion(self) -> str:
        """The last line: what is wrong, or not tried."""
        if self.failures:
            return f"{len(self.failures)} WRONG"
        if self.untried:
            return f"nothing is wrong in what was tried; not tried: {', '.join(self.untried)}"
        return "nothing is wrong"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "tinygpu-check/2",
            "machine": self.machine,
            "problems": list(self.problems),
            "devices": list(self.devices),
            "seed": self.seed,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "rows": [r.to_json() for r in self.rows],
            "upstream": [f.to_json() for f in self.upstream],
        }

    def save(self, path: str | Path) -> None:
        """Writes the report as JSON."""
        text = json.dumps(self.to_json(), indent=2) + "\n"
        write_file(path, text, (b'{\n  "schema": "tinygpu-check/',), "a report of a check")
