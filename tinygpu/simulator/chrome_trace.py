"""A timeline as a Chrome trace: JSON that ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Units and
roles are complete events ("X"), of which one row holds one at a time; copies under way overlap each other, and are
asynchronous events ("b", "e").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tinygpu.simulator.plan import SERVERS, Span
from tinygpu.simulator.simulate import Simulation

_SLOT = re.compile(r"slot (\d+) (.*)")
UNITS_PID = 1


def chrome_trace(found: Simulation, title: str) -> str:
    """The beginning of a simulation's timeline as text of a JSON file. Times in microseconds, as the format wants."""
    return _document(_timeline(found), title, found, found.seconds, found.drawn_s, found.sentence())


def chrome_trace_of_steps(steps: Mapping[str, Simulation], title: str) -> str:
    """The same of several launches, each behind the one before it, with processes of its own."""
    events: list[dict[str, Any]] = []
    begun, pid = 0.0, 0
    for name, found in steps.items():
        own = _timeline(found, f"{name}: ", pid, begun + found.launch_s, len(events))
        events += own
        pid = max((event["pid"] for event in own), default=pid)
        begun += found.seconds
    last = list(steps.values())[-1]
    until = begun - last.seconds + last.launch_s + last.drawn_s
    said = "; ".join(f"{name}: {found.sentence()}" for name, found in steps.items())
    return _document(events, title, last, begun, until, said)


def _document(
    events: list[dict[str, Any]], title: str, found: Simulation, seconds: float, until: float, said: str
) -> str:
    about = {
        "title": title,
        "device": found.device,
        "kind": "predicted by simulation, not measured",
        "predicted_us": seconds * 1e6,
        "timeline_until_us": until * 1e6,
        "bottleneck": said,
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}, indent=1)


def _timeline(
    found: Simulation, prefix: str = "", before: int = 0, begun_s: float = 0.0, number: int = 0
) -> list[dict[str, Any]]:
    """The events of one launch.

    prefix   of the names of its processes
    before   numbers of processes that are taken
    begun_s  when it begins
    number   of events before it, which name copies
    """
    units = UNITS_PID + before
    rows = {f"unit {unit}": (units, row) for row, unit in enumerate(SERVERS, 1)}
    events = _named(units, f"{prefix}units of the SM", dict(enumerate(SERVERS, 1)))
    slots: dict[int, dict[str, int]] = {}
    for span in found.spans:
        place = _SLOT.fullmatch(span.row)
        if place:
            names = slots.setdefault(int(place[1]), {})
            names.setdefault(place[2], len(names) + 1)
    for slot, names in sorted(slots.items()):
        pid = units + 1 + slot
        rows |= {f"slot {slot} {name}": (pid, tid) for name, tid in names.items()}
        events += _named(pid, f"{prefix}CTAs in place {slot}", {tid: name for name, tid in names.items()})
    for at, span in enumerate(found.spans, number):
        pid, tid = rows[span.row if _SLOT.fullmatch(span.row) else f"unit {span.row}"]
        events += _events(span, at, pid, tid, begun_s)
    return events


def _named(pid: int, process: str, threads: dict[int, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": process}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": pid}},
    ]
    for tid, name in threads.items():
        out.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}})
    return out


def _events(span: Span, number: int, pid: int, tid: int, begun_s: float) -> list[dict[str, Any]]:
    same = {"name": span.label, "cat": span.kind, "pid": pid, "tid": tid}
    start, stop = (begun_s + span.start_s) * 1e6, (begun_s + span.stop_s) * 1e6
    about = {"cta": span.cta, "tile": span.tile}
    if span.kind == "copy":
        return [
            same | {"ph": "b", "ts": start, "id": number, "args": about},
            same | {"ph": "e", "ts": stop, "id": number},
        ]
    return [same | {"ph": "X", "ts": start, "dur": stop - start, "args": about}]


__all__ = ["chrome_trace", "chrome_trace_of_steps"]
