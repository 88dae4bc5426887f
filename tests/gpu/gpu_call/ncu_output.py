"""What Nsight Compute prints as CSV, read; and the metrics that it does not know."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A metric's name: letters, digits and underscores, with a rollup behind a dot.
_METRIC = re.compile(r"[a-z][a-z0-9]*__[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_COMPLAINT = re.compile(r"==(ERROR|WARNING)==.*(metric|counter)", re.IGNORECASE)
_ABSENT = {"", "n/a", "nan", "(!) n/a", "no data"}


def command(program: str, kernel: str, metrics: Sequence[str], program_words: Sequence[str]) -> list[str]:
    """The call: one launch of one kernel, clocks left alone, figures in plain units."""
    return [
        program, "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw", "--print-units", "base",
        "--kernel-name", kernel, "--launch-count", "1", "--metrics", ",".join(metrics), *program_words,
    ]  # fmt: skip


def read(text: str) -> list[dict[str, float]]:
    """metric -> value, for each launch that was profiled.

    Both shapes of its CSV: a column for each metric with a row of units below the names, or a row for each metric.
    Lines of the profiler's own and of the program stand around.
    """
    rows = _table(text)
    if not rows:
        return []
    head, *body = rows
    if "Metric Name" in head:
        return _long(head, body)
    metrics = [(n, name) for n, name in enumerate(head) if _METRIC.fullmatch(name)]
    out = []
    for row in body:
        if not row[0].strip():  # the row of units has no number of a launch
            continue
        found = {name: value for n, name in metrics if (value := number(row[n])) is not None}
        out.append(found)
    return out


def _long(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    launch, name, figure = (head.index(n) for n in ("ID", "Metric Name", "Metric Value"))
    found: dict[str, dict[str, float]] = {}
    for row in body:
        value = number(row[figure])
        mine = found.setdefault(row[launch], {})
        if value is not None:
            mine[row[name]] = value
    return list(found.values())


def _table(text: str) -> list[list[str]]:
    """Rows from the head on, which begins with "ID"."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return []
    rows = list(csv.reader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"')))))
    return [row for row in rows if len(row) == len(rows[0])]


def number(text: str) -> float | None:
    """A figure, with or without commas between thousands; None where there is none."""
    plain = text.strip().replace(",", "")
    if plain.lower() in _ABSENT:
        return None
    try:
        return float(plain)
    except ValueError:
        return None


def unknown_metrics(text: str, asked: Sequence[str]) -> list[str]:
    """Metrics that were asked for and that the profiler says it cannot give."""
    known = set(asked)
    told: list[str] = []
    for line in text.splitlines():
        if _COMPLAINT.search(line):
            told += [name for name in _METRIC.findall(line) if name in known]
    return list(dict.fromkeys(told))


@dataclass(frozen=True, slots=True)
class Compared:
    """One counter, here and there."""

    counter: str
    emulated: float
    measured: float | None
    relation: str
    note: str

    @property
    def ratio(self) -> float | None:
        """Measured over emulated; None where there is nothing to compare."""
        if self.measured is None or (self.emulated == 0 and self.measured != 0):
            return None
        return 1.0 if self.emulated == self.measured else self.measured / self.emulated

    @property
    def verdict(self) -> str:
        """"equal" and "differs" for what should be equal; "beside" for what a model or the assembler stands between."""
        if self.measured is None:
            return "not measured"
        if self.emulated == self.measured:
            return "equal"
        return "differs" if self.relation == "same" else "beside"

    def to_json(self) -> dict[str, Any]:
        return {
            "counter": self.counter, "emulated": self.emulated, "measured": self.measured, "ratio": self.ratio,
            "relation": self.relation, "verdict": self.verdict, "note": self.note,
        }  # fmt: skip


def compare(counters: Sequence[Mapping[str, Any]], measured: Mapping[str, float]) -> list[Compared]:
    """The emulator's counters beside the sums of their metrics; a metric that is missing counts as none at all only
    where another one of the sum is there."""
    out = []
    for c in counters:
        found = [measured[m] for m in c["metrics"] if m in measured]
        value = sum(found) if found else None
        out.append(Compared(c["counter"], float(c["value"]), value, c["relation"], c["note"]))
    return out
