"""A timeline as a Chrome trace: JSON that ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Units and
roles are complete events ("X"), of which one row holds one at a time; copies under way overlap each other, and are
asynchronous events ("b", "e").
"""

from __future__ import annotations

import json
import re
from typing import Any

from tinygpu.simulator.engine import SERVERS, Span
from tinygpu.simulator.simulate import Simulation

_SLOT = re.compile(r"slot (\d+) (.*)")
UNITS_PID = 1


def chrome_trace(found: Simulation, title: str) -> str:
    """The beginning of a simulation's timeline as text of a JSON file. Times in microseconds, as the format wants."""
    events: list[dict[str, Any]] = []
    rows = {f"unit {unit}": (UNITS_PID, number) for number, unit in enumerate(SERVERS, 1)}
    events += _named(UNITS_PID, "units of the SM", dict(enumerate(SERVERS, 1)))
    slots: dict[int, dict[str, int]] = {}
    for span in found.spans:
        place = _SLOT.fullmatch(span.row)
        if place:
            names = slots.setdefault(int(place[1]), {})
            names.setdefault(place[2], len(names) + 1)
    for slot, names in sorted(slots.items()):
        pid = UNITS_PID + 1 + slot
        rows |= {f"slot {slot} {name}": (pid, tid) for name, tid in names.items()}
        events += _named(pid, f"CTAs in place {slot}", {tid: name for name, tid in names.items()})
    for number, span in enumerate(found.spans):
        pid, tid = rows[span.row if _SLOT.fullmatch(span.row) else f"unit {span.row}"]
        events += _events(span, number, pid, tid)
    return json.dumps(
        {
            "traceEvents": events,
            "displayTimeUnit": "ns",
            "otherData": {
                "title": title,
                "device": found.device,
                "kind": "predicted by simulation, not measured",
                "predicted_us": found.seconds * 1e6,
                "timeline_until_us": found.drawn_s * 1e6,
                "bottleneck": found.sentence(),
            },
        },
        indent=1,
    )


def _named(pid: int, process: str, threads: dict[int, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": process}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": pid}},
    ]
    for tid, name in threads.items():
        out.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}})
    return out


def _events(span: Span, number: int, pid: int, tid: int) -> list[dict[str, Any]]:
    same = {"name": span.label, "cat": span.kind, "pid": pid, "tid": tid}
    start, stop = span.start_s * 1e6, span.stop_s * 1e6
    about = {"cta": span.cta, "tile": span.tile}
    if span.kind == "copy":
        return [
            same | {"ph": "b", "ts": start, "id": number, "args": about},
            same | {"ph": "e", "ts": stop, "id": number},
        ]
    return [same | {"ph": "X", "ts": start, "dur": stop - start, "args": about}]


__all__ = ["chrome_trace"]
