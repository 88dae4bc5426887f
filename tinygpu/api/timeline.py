"""Timeline: a candidate's simulated timeline as a file, for ui.perfetto.dev or as a drawing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tinygpu.api.machines import Family
from tinygpu.api.predict import AnyPredicted, Predicted, predict_point
from tinygpu.api.predicted_plan import PlanPredicted
from tinygpu.api.problems import Asked
from tinygpu.devices import Device
from tinygpu.files.writing import write_file
from tinygpu.simulator.chrome_trace import chrome_trace, chrome_trace_of_steps
from tinygpu.simulator.steps import steps_svg
from tinygpu.simulator.timeline import timeline_svg

# Spans that are kept, by the kind of file: a viewer takes many, a drawing has a width.
SPANS = {".json": 40_000, ".svg": 1_200}


def write_timeline(
    family: Family, asked: Asked, device: Device, point: Mapping[str, int | str], path: Path
) -> AnyPredicted:
    """Writes the timeline of the best candidate with these values: Chrome trace JSON, or SVG, by the file's ending.

    Of a plan all steps, one behind the other. Raises ValueError for another ending and for a launch that is refused,
    and what `predict_point` raises.
    """
    if path.suffix not in SPANS:
        raise ValueError(f"[timeline] a timeline is written as .json (Chrome trace) or as .svg, not to {path.name!r}")
    found, drawn = predict_point(family, asked, device, point, keep=SPANS[path.suffix]), path.suffix == ".svg"
    if isinstance(found, PlanPredicted):
        steps = dict(zip(found.prediction.steps, found.simulations, strict=True))
        title = f"{found.title}, candidate {' '.join(f'{k}={v}' for k, v in found.point.items())}"
        text = steps_svg(steps, title) if drawn else chrome_trace_of_steps(steps, title)
    else:
        title = f"{found.title}, candidate {short_point(found)}"
        text = timeline_svg(found.simulation, title) if drawn else chrome_trace(found.simulation, title)
    write_file(path, text, (b"<svg ",) if drawn else (b'{"traceEvents"',), "a timeline")
    return found


def short_point(found: Predicted) -> str:
    """The values that the candidate's structure uses."""
    used = set(found.space.traces[found.space.structure_index(found.refined.point)].axes)
    return " ".join(f"{k}={v}" for k, v in found.refined.point.items() if k in used or isinstance(v, str))


__all__ = ["short_point", "write_timeline"]
