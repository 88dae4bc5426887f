"""Half of an A100, as one slice of a shared one may be."""

from dataclasses import replace

from tinygpu.devices import device
from tinygpu.devices.figure import Figure

A100 = device("tinygpu:a100")
HALF = Figure(A100.sm_count // 2, "SMs", "half of the SMs of an A100", "derived")
HALF_A100 = replace(A100, name="Half-A100", aliases=(), figures={**A100.figures, "sm_count": HALF})
