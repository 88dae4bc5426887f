"""Timeline: a candidate's simulated timeline as a file, for ui.perfetto.dev or as a drawing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tinygpu.api.machines import Family
from tinygpu.api.predict import AnyPredicted, Predicted, predict_point
from tinygpu.api.problems import Asked
from tinygpu.devices import Device
from tinygpu.files.writing import write_file
from tinygpu.simulator.chrome_trace import chrome_trace
from tinygpu.simulator.timeline import timeline_svg

# Spans that are kept, by the kind of file: a viewer takes many, a drawing has a width.
SPANS = {".json": 40_000, ".svg": 1_200}


def write_timeline(
    family: Family, asked: Asked, device: Device, point: Mapping[str, int | str], path: Path
) -> Predicted:
    """Writes the timeline of the best candidate with these values: Chrome trace JSON, or SVG, by the file's ending.

    Raises ValueError for another ending and for a launch that is refused, and what `predict_point` raises.
    """
    if path.suffix not in SPANS:
        raise ValueError(f"[timeline] a timeline is written as .json (Chrome trace) or as .svg, not to {path.name!r}")
    found = one_kernel(predict_point(family, asked, device, point, keep=SPANS[path.suffix]), "a timeline")
    title = f"{found.title}, candidate {short_point(found)}"
    text = timeline_svg(found.simulation, title) if path.suffix == ".svg" else chrome_trace(found.simulation, title)
    write_file(path, text, (b"<svg ",) if path.suffix == ".svg" else (b'{"traceEvents"',), "a timeline")
    return found


def one_kernel(found: AnyPredicted, what: str) -> Predicted:
    """What is predicted of a machine's candidate; ValueError for a plan's, which has several kernels."""
    if isinstance(found, Predicted):
        return found
    steps = ", ".join(f"{s.name} ({s.machine.__name__})" for s in found.space.steps)
    title = found.space.machine.__name__
    raise ValueError(f"{what} is of one kernel, and {title} is a plan of {steps}; ask for the machine of a step")


def short_point(found: Predicted) -> str:
    """The values that the candidate's structure uses."""
    used = set(found.space.traces[found.space.structure_index(found.refined.point)].axes)
    return " ".join(f"{k}={v}" for k, v in found.refined.point.items() if k in used or isinstance(v, str))


__all__ = ["one_kernel", "short_point", "write_timeline"]
