"""Calibrating: every microbenchmark on the GPU of this machine, by a process of its own with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tinygpu.devices import Device, device, devices
from tinygpu.devices.device import BEGINS
from tinygpu.files.writing import check_replaceable
from tinygpu.processes.ending import CannotEnd, Ended, Late
from tinygpu.processes.worker import Worker, started
from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.launcher import Gpu
from tinygpu.ptx.calibration.measuring import Failure, Outcome, Rounds
from tinygpu.ptx.calibration.profile import Calibration, calibration_of, save_profile
from tinygpu.ptx.calibration.suite import chosen
from tinygpu.ptx.runtime.calls import BINDINGS
from tinygpu.ptx.runtime.driver import available
from tinygpu.ptx.runtime.errors import GpuUnavailable

Tell = Callable[[Microbenchmark, Outcome], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a GPU is calibrated.

    ordinal    number of the GPU
    limit_s    seconds that one microbenchmark may take, buffers included
    start_s    seconds that the process may take until the GPU is there
    driver     module with the driver's functions
    trips      name -> fewer and more trips, where they are not the microbenchmark's own
    seconds    after which no further microbenchmark is begun; None: no end
    """

    ordinal: int = 0
    rounds: Rounds = field(default_factory=Rounds)
    limit_s: float = 30.0
    start_s: float = 120.0
    driver: str = BINDINGS
    trips: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    seconds: float | None = None


def device_of(gpu: Gpu) -> Device | None:
    """The library's device of a GPU: by the driver's name for it; where no device has that, the one of the same compute
    capability that is nearest in SMs, then in L2. None where the library has none of that compute capability.
    """
    try:
        return device(gpu.name)
    except ValueError:
        alike = [d for d in devices() if d.cc == gpu.cc]
        return min(alike, key=lambda d: (abs(d.sm_count - gpu.sms), abs(d.l2_bytes - gpu.l2_bytes)), default=None)


def calibrate(
    benchmarks: Sequence[Microbenchmark], settings: Settings, *, base: Device | None = None, command: str = "",
    tell: Tell | None = None,
) -> tuple[Device | None, Calibration]:  # fmt: skip
    """Measures microbenchmarks on the GPU of this machine.

    base  the device in whose place the figures are; None: the library's of that GPU (`device_of`)
    tell  is told of each microbenchmark as it ends

    Returns the base, None where the library has none that is like it, and what was measured. Raises GpuUnavailable
    where there is no GPU.
    """
    if settings.driver == BINDINGS and not available().present:
        raise GpuUnavailable(
            f"nothing can be measured here: {available().reason}; --emulate runs the microbenchmarks without a GPU"
        )
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    begun = time.monotonic()
    child = _Child(settings)
    outcomes: list[Outcome] = []
    try:
        child.start(2.0 if base is None else base.number("l2_partitions"))
        gpu = child.gpu
        if base is None:
            base = device_of(gpu)
            if base is not None and base.number("l2_partitions") != 2.0:
                child.stop()
                child.start(base.number("l2_partitions"))
        before = child.clocks
        for benchmark in benchmarks:
            if settings.seconds is not None and time.monotonic() - begun > settings.seconds:
                outcome = Outcome(failure=Failure(benchmark.name, "the time was up before it began"))
            else:
                outcome = child.measure(benchmark)
            outcomes.append(outcome)
            if tell is not None:
                tell(benchmark, outcome)
    finally:
        child.stop()
    found = calibration_of(
        outcomes, gpu, base, date=date, command=command or "tinygpu.ptx.calibration.calibrate", before=before,
        after=child.clocks,
    )  # fmt: skip
    return base, found


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration left.

    base     the library's device; None where it has none of this compute capability
    device   the measured profile; None where no figure came out, or there is no base
    path     its file; None where nothing was written
    stand_in that the base is not the GPU that was measured, as a sentence; "" where it is, or the caller chose it
    """

    base: Device | None
    device: Device | None
    calibration: Calibration
    path: Path | None
    stand_in: str = ""


def calibrate_to_file(
    words: Sequence[str] = (), *, settings: Settings | None = None, like: str | Path | Device | None = None,
    out: Path | None = None, command: str = "", tell: Tell | None = None,
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
    if out is not None:
        check_replaceable(out, (BEGINS,), "a device file")
    base = None if like is None else device(like)
    base, found = calibrate(benchmarks, settings or Settings(), base=base, command=command, tell=tell)
    stand_in = _stand_in(found.gpu, base) if like is None else ""
    if base is None or not found.used:
        return Calibrated(base, None, found, None, stand_in)
    path = out or Path("runs") / f"{base.name}-measured.json"
    return Calibrated(base, save_profile(path, base, found), found, path, stand_in)


def _stand_in(gpu: Gpu, base: Device | None) -> str:
    """That nobody said which device a GPU is like, and its name did not either; "" where its name does."""
    if base is None:
        return (
            f"the library has no device like {gpu.name}, of compute capability {gpu.cc / 10:g}: no profile was "
            "written; give a device file with --device"
        )
    try:
        device(gpu.name)
    except ValueError:
        return (
            f"the library has no {gpu.name}: figures that were not measured are those of {base.name}, the nearest of "
            "its compute capability; say with --device which one it is like"
        )
    return ""


class _Child:
    """The process that touches the GPU; it is started again after it has ended."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.gpu = Gpu("", "", 1, 1, 1)
        self.clocks: Mapping[str, Any] | None = None
        self._partitions = 1.0
        self._worker: Worker | None = None

    def start(self, l2_partitions: float) -> None:
        """Raises GpuUnavailable."""
        settings = self.settings
        self._partitions = l2_partitions
        self._worker = started("tinygpu.ptx.calibration.child:serve", quiet=False)
        answer = self._ask({
            "driver": settings.driver, "ordinal": settings.ordinal, "l2_partitions": l2_partitions,
            "rounds": settings.rounds.rounds, "warm_up_s": settings.rounds.warm_up_s, "trips": dict(settings.trips),
        }, settings.start_s)  # fmt: skip
        if isinstance(answer, str):
            raise GpuUnavailable(f"the GPU could not be opened: {answer}")
        if "unavailable" in answer:
            raise GpuUnavailable(str(answer["unavailable"]))
        self.gpu, self.clocks = Gpu(**answer["gpu"]), answer["clocks"]

    def measure(self, benchmark: Microbenchmark) -> Outcome:
        """What a microbenchmark gives; a failure where the process ended or took too long."""
        if self._worker is None:
            try:
                self.start(self._partitions)
            except GpuUnavailable as lost:
                return Outcome(failure=Failure(benchmark.name, str(lost)))
        answer = self._ask(benchmark.name, self.settings.limit_s + self.settings.rounds.warm_up_s)
        if isinstance(answer, str) or "lost" in answer:
            self.stop()
            return Outcome(failure=Failure(benchmark.name, answer if isinstance(answer, str) else str(answer["lost"])))
        self.clocks = answer["clocks"]
        outcome: Outcome = answer["outcome"]
        return outcome

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        worker, self._worker = self._worker, None
        if worker is not None:
            with suppress(CannotEnd):  # a driver holds it: it disturbs nobody who does not use this GPU
                worker.end()

    def _ask(self, request: Any, limit_s: float) -> dict[str, Any] | str:
        """Its answer, or a sentence where none came."""
        if self._worker is None:
            return "it was not started"
        try:
            answer: dict[str, Any] = self._worker.ask(request, limit_s)
            return answer
        except (Late, Ended, CannotEnd) as error:
            self._worker = None
            return str(error)
