"""A microbenchmark in the emulator: its data are right, and what its figures count is what the kernel does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.calibration.benchmark import TRIPS, Array, Launch, Microbenchmark
from tinygpu.ptx.calibration.chip import Chip, tiny_chip
from tinygpu.ptx.calibration.described import described_launch
from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, Order, Report, emulate
from tinygpu.ptx.launching.emulated import emulated_arguments

TRIES = (1, 3)


@dataclass(frozen=True, slots=True)
class Proof:
    """What the emulator says of one microbenchmark.

    name       of the microbenchmark
    trips      the numbers of trips that were run
    per_trip   what one trip adds to each count, by the closed form
    complaints sentences; none where the kernel is right and its counts are those of the closed form
    """

    name: str
    trips: tuple[int, ...]
    per_trip: Mapping[str, int]
    complaints: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.complaints


def prove(
    benchmark: Microbenchmark, chip: Chip | None = None, order: Order = "late"
) -> Proof:
    """Runs a microbenchmark with one and with three trips on a tiny chip, and compares data and counts.

    chip   another chip
    order  when asynchronous copies land
    """
    place = chip or tiny_chip(benchmark.target)
    launch = benchmark.plan(place, max(TRIES))
    complaints: list[str] = []
    for trips in TRIES:
        memory = Memory(launch)
        try:
            report = run_once(benchmark.ptx, launch, memory, trips, order)
        except EmulationFault as fault:
            complaints.append(f"{trips} trips: {fault}")
            break
        complaints += [f"{trips} trips: {f}" for f in (*report.faults, *report.advisories)]
        for name, wanted in benchmark.counts(launch, trips).items():
            found = counted(report, name)
            if found != wanted:
                complaints.append(f"{trips} trips: {name} is {found:,} in the emulator, and {wanted:,} by its formula")
        wrong = benchmark.check(launch, trips, memory.left())
        if wrong:
            complaints.append(f"{trips} trips: {wrong}")
    return Proof(benchmark.name, TRIES, benchmark.per_trip(launch), tuple(complaints))


class Memory:
    """The buffers of one launch, as the emulator sees them; they live from one launch to the next."""

    def __init__(self, launch: Launch) -> None:
        self.buffers: dict[str, DeviceBuffer] = {}
        for b in launch.all_buffers():
            held = DeviceBuffer(np.tile(b.contents, b.size_bytes // b.contents.nbytes), name=b.name)
            if b.relative:
                held.array[:] += np.uint64(held.address)
            self.buffers[b.name] = held
        self._relative = frozenset(b.name for b in launch.all_buffers() if b.relative)

    def left(self) -> dict[str, Array]:
        """What the buffers hold; addresses are offsets again."""
        return {
            name: b.array - np.uint64(b.address) if name in self._relative else b.array
            for name, b in self.buffers.items()
        }


def run_once(
    ptx: str, launch: Launch, memory: Memory, trips: int, order: Order = "late"
) -> Report:
    """One launch in the emulator; raises EmulationFault."""
    given = emulated_arguments(described_launch(launch), memory.buffers, {TRIPS: trips})
    return emulate(
        ptx, grid=launch.grid, block=launch.block, cluster=launch.cluster, args=given, order=order, check=True
    )


def counted(report: Report, name: str) -> int:
    """A count of the emulator: a field of its counters, or the warps that executed an opcode."""
    if "." not in name:
        return int(getattr(report.counters, name))
    return sum(c.executed for n, c in report.lines.items() if _opcode(report.line_texts.get(n, "")) == name)


def _opcode(line: str) -> str:
    words = [w for w in line.split() if not w.startswith("@")]
    return words[0].rstrip(";") if words else ""


__all__ = ["TRIPS", "Memory", "Proof", "counted", "prove", "run_once"]
