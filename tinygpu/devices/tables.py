"""Tables of devices for people: every figure of one, and one line for each."""

from __future__ import annotations

from typing import NamedTuple

from tinygpu.devices.device import Device
from tinygpu.devices.fields import DERIVED, UNITS
from tinygpu.devices.figure import FigureValue
from tinygpu.devices.library import devices


class FigureRow(NamedTuple):
    """One figure of a device; `value` is None where neither a source nor a rule gives it."""

    field: str
    value: FigureValue
    unit: str
    kind: str
    source: str
    note: str


class DeviceRow(NamedTuple):
    """One device in a line: peaks are dense, bandwidth is what the predictor uses."""

    name: str
    aliases: str
    target: str
    sms: int
    f16_tflops: float
    dram_gb_per_s: float
    l2_mib: float
    smem_kib_per_cta: int
    known: int


def describe(device: Device) -> tuple[FigureRow, ...]:
    """Every figure of `device` with unit, kind and source, in the order of the file; derived ones show their rule."""
    rows = []
    for field in (*UNITS, *DERIVED):
        figure = device.figure(field)
        rows.append(FigureRow(field, figure.value, figure.unit, figure.kind, figure.source, figure.note))
    return tuple(rows)


def summary() -> tuple[DeviceRow, ...]:
    """One row for each device that ships; `known` counts the figures that have a source."""
    return tuple(
        DeviceRow(
            d.name,
            ", ".join(d.aliases),
            d.target,
            d.sm_count,
            round(d.tensor_flops_per_clk_sm("f16", "f32") * d.sm_count * d.tensor_clock_hz / 1e12, 1),
            d.number("dram_bw_gbs_sustained"),
            d.number("l2_size_mb"),
            d.max_smem_bytes_per_block // 1024,
            sum(figure.value is not None for figure in d.figures.values()),
        )
        for d in devices()
    )
