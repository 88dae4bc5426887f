"""A measured profile: the library's device, with the figures that were measured in the place of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinygpu.devices import Device, Figure
from tinygpu.devices.device import BEGINS, DEVICE_BYTES
from tinygpu.devices.fields import UNITS
from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.json_text import parse
from tinygpu.files.reading import read_file
from tinygpu.files.shape import built
from tinygpu.files.writing import write_file
from tinygpu.ptx.calibration.launcher import Gpu
from tinygpu.ptx.calibration.measuring import Failure, Measured, Outcome

SCHEMA = "tinygpu-calibration/1"
# What the driver says of the GPU, in the unit of the field.
_DRIVER_FIELDS = ("sm_count", "l2_size_mb")


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured on one GPU, and under which circumstances.

    date     when: "2026-11-21 08:10 UTC"
    command  what was called
    base     name of the device in whose place the figures are; "" where there is none like it
    before, after  clocks, power and temperature, as the management library gave them; None where it is not there
    """

    gpu: Gpu
    date: str
    command: str
    base: str
    figures: tuple[Measured, ...]
    failures: tuple[Failure, ...]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None

    @property
    def used(self) -> tuple[Measured, ...]:
        """Those that replace a figure of the device."""
        return tuple(f for f in self.figures if f.used)

    @property
    def failed(self) -> tuple[Failure, ...]:
        """Microbenchmarks that should have run, and did not."""
        return tuple(f for f in self.failures if not f.skipped)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "gpu": asdict(self.gpu),
            "date": self.date,
            "command": self.command,
            "base": self.base,
            "before": None if self.before is None else dict(self.before),
            "after": None if self.after is None else dict(self.after),
            "figures": [asdict(f) for f in self.figures],
            "failures": [asdict(f) for f in self.failures],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], where: str = "calibration") -> Calibration:
        """What `to_json` gave. Raises FileError for anything else."""
        if data.get("schema") != SCHEMA:
            raise FileError(f"[{where}] the schema must be {SCHEMA!r}, not {excerpt(data.get('schema'))}")
        return built(Calibration, {key: value for key, value in data.items() if key != "schema"}, f"[{where}]")


def calibration_of(
    outcomes: Sequence[Outcome], gpu: Gpu, base: Device | None, *, date: str, command: str,
    before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None,
) -> Calibration:  # fmt: skip
    """What the microbenchmarks gave, with its circumstances."""
    figures = tuple(f for outcome in outcomes for f in outcome.figures)
    failures = tuple(o.failure for o in outcomes if o.failure is not None)
    return Calibration(gpu, date, command, "" if base is None else base.name, figures, failures, before, after)


def measured_profile(base: Device, calibration: Calibration) -> Device:
    """The device with measured figures in the place of the library's; each says how, where and when.

    Raises ValueError where the GPU is no device of this kind, or where two microbenchmarks give one figure.
    """
    gpu = calibration.gpu
    if gpu.cc != base.cc:
        raise ValueError(
            f"{gpu.name} has compute capability {gpu.cc / 10:g}, and {base.name} has {base.compute_capability}: "
            "take a device of the same kind as the base"
        )
    figures: dict[str, Figure] = {}
    for field, value in zip(_DRIVER_FIELDS, (gpu.sms, gpu.l2_bytes / 2**20), strict=True):
        source = f"driver {gpu.driver} of {gpu.name}, device attribute"
        figures[field] = Figure(int(value) if value == int(value) else value, UNITS[field], source, "measured")
    for measured in calibration.used:
        if measured.field in figures:
            raise ValueError(f"{measured.field} is given by two microbenchmarks, one of them {measured.benchmark}")
        figures[measured.field] = _figure(measured, calibration)
    made = base.with_figures(figures, name=f"{base.name}-measured")
    return made.with_figures(_following(made))


def _following(device: Device) -> dict[str, Figure]:
    """Figures of the library that are arithmetic on others, from the measured ones."""
    clock_rate = device.number("tensor_f16_fp32acc_flop_per_clk_sm") * device.number("boost_clock_mhz")
    launches = min(device.number("launch_overhead_graph_us"), device.number("launch_overhead_stream_us"))
    rules = {
        "tflops_f16_from_clock": (device.sm_count * clock_rate * 1e-6, "SMs x FLOP/clk/SM x boost clock"),
        "launch_floor_us": (launches, "the smaller of the costs of a launch in a stream and in a graph"),
    }
    return {
        field: Figure(float(f"{value:.4g}"), UNITS[field], "derived", "derived", rule)
        for field, (value, rule) in rules.items()
    }


def _figure(measured: Measured, calibration: Calibration) -> Figure:
    """Four digits: no measurement here is better."""
    gpu = calibration.gpu
    source = (
        f"tinygpu calibrate, microbenchmark {measured.benchmark}, on {gpu.name} with driver {gpu.driver}, "
        f"{calibration.date}"
    )
    clocks = calibration.after or calibration.before or {}
    at = f"; SM clock {clocks['sm_mhz']} MHz" if clocks.get("sm_mhz") else ""
    note = f"{measured.name}: {measured.formula}; middle half of the rounds within {100 * measured.spread:.1f} %{at}"
    return Figure(float(f"{measured.value:.4g}"), measured.unit, source, "measured", note)


def save_profile(path: str | Path, base: Device, calibration: Calibration) -> Device:
    """Writes the measured profile, a device file with all that was measured beside it; all of it, or nothing.

    Returns the device. Raises FileError where the place cannot be written to.
    """
    device = measured_profile(base, calibration)
    data = device.to_json()
    figures = data.pop("figures")
    if not isinstance(figures, dict):
        raise RuntimeError("a device without figures was written")
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    lines = ",\n".join(f"    {json.dumps(field)}: {json.dumps(figure)}" for field, figure in figures.items())
    tail = json.dumps(calibration.to_json(), indent=2).replace("\n", "\n  ")
    text = f'{{\n{head},\n  "figures": {{\n{lines}\n  }},\n  "calibration": {tail}\n}}\n'
    write_file(path, text, (BEGINS,), "a device file")
    return device


def load_calibration(path: str | Path) -> Calibration:
    """What stands beside the figures in a measured profile. Raises FileError where it is none."""
    data = parse(read_file(path, DEVICE_BYTES), f"[{path}]")
    found = data.get("calibration") if isinstance(data, dict) else None
    if not isinstance(found, dict):
        raise FileError(f"[{path}] is no measured profile: it has no calibration")
    return Calibration.from_json(found, str(path))
