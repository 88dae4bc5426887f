"""Measure a GPU with our microbenchmarks, or prove these in the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygpu.devices import Device
from tinygpu.devices import device as find_device
from tinygpu.ptx.calibration import Calibration, Microbenchmark, Outcome, Settings, chosen, save_profile
from tinygpu.ptx.calibration import calibrate as measure_all
from tinygpu.ptx.calibration.emulated import Proof, prove


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration left.

    base     the library's device
    device   the measured profile; None where no figure came out
    path     its file; None where nothing was written
    """

    base: Device
    device: Device | None
    calibration: Calibration
    path: Path | None


def calibrate(
    words: Sequence[str] = (), *, settings: Settings | None = None, like: str | Path | Device | None = None,
    out: Path | None = None, command: str = "", tell: Callable[[Microbenchmark, Outcome], None] | None = None,
) -> Calibrated:  # fmt: skip
    """Times microbenchmarks on the GPU of this machine, and writes its measured profile.

    words    names, groups, or figures of a device; all where empty
    like     the device in whose place the figures are; by default the library's of the GPU's name
    out      file of the profile; by default runs/NAME-measured.json
    command  what was called, for the record
    tell     is told of each microbenchmark as it ends

    Raises GpuUnavailable without a GPU, and ValueError for words and devices that do not exist.
    """
    benchmarks = chosen(words)
    base = None if like is None else find_device(like)
    base, found = measure_all(benchmarks, settings or Settings(), base=base, command=command, tell=tell)
    if not found.used:
        return Calibrated(base, None, found, None)
    path = out or Path("runs") / f"{base.name}-measured.json"
    return Calibrated(base, save_profile(path, base, found), found, path)


def prove_microbenchmarks(
    words: Sequence[str] = (), tell: Callable[[Microbenchmark, Proof], None] | None = None
) -> tuple[Proof, ...]:
    """Runs microbenchmarks in the emulator: their data, and every count that their figures divide by."""
    out = []
    for benchmark in chosen(words):
        proof = prove(benchmark)
        out.append(proof)
        if tell is not None:
            tell(benchmark, proof)
    return tuple(out)
