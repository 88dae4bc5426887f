"""What the memory-bound machines that ship ask of memory, and how long they are predicted to take.

    python -m tests.benchmarks.memory_figures [MACHINE ...] [--device NAME ...] [--page docs/figures.md]

Prints the generated part of docs/figures.md: every machine that ships, at a size that fills memory and at small ones,
on an A100, an H100 and an H200; on a B200, where none of these takes it. Of each the best candidate by prediction is
taken, as the doors of the project choose it, with its layouts solved. Beside what is counted in closed form stands what
the emulator counts: the same candidate, on a smaller problem and a slice of the GPU (eight SMs with their share of L2),
so that L2 holds as small a part of it.
Nothing is timed.

A goal that is missed is printed with what the predictor says the time is made of. With names of machines only these
are printed; with --page they take the place of what the page has of them, and all other rows stay.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinygpu.api.choosing import best_refined
from tinygpu.api.finalist import NotAdmitted
from tinygpu.api.machines import SHIPPED, family
from tinygpu.cost.demand import SECTOR_BYTES, Demand
from tinygpu.cost.predictor import Prediction
from tinygpu.devices import Device, device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.ptx.emulator import Caches, Traffic, emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.search.predicted import PredictedTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

DEVICES = ("a100", "h100", "h200")
LATER = "b200"  # of machines that none of these takes
# Goals, in the order of the tables.
MOST_DRAM, LEAST_UNDER_WAY, LEAST_BANDWIDTH, MOST_SMALL = 1.02, 1.0, 0.95, 1.3

# CUDA C++ programming guide, device memory accesses: addresses that cudaMalloc returns are multiples of 256 bytes.
ALLOCATED_BYTES = 256
FILLING_BYTES = 1 << 29  # many times what any L2 holds
EMULATED_BYTES = 1 << 23
EMULATED_SMS = 8
LEAST_EXTENT = 16  # to which dims are halved for the emulator, if at all

Sizes = Mapping[str, int]
# Sizes of machines whose dims depend on each other, or of which one is small by nature. All others grow: `grown`.
FILLING: Mapping[str, Sizes] = {
    "convolution": {"n": 128, "h": 56, "w": 56, "c": 256, "r": 3, "s": 3, "k": 256},
    "depthwise_convolution": {"n": 128, "h": 112, "w": 112, "c": 128, "r": 3, "s": 3},
    "matmul_skinny": {"m": 16, "n": 16384, "k": 16384},
    "histogram": {"m": 1 << 28, "v": 256},
    "attention_ampere": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_hopper": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_blackwell": {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096, "d": 128},
    "attention_varlen_ampere": {"b": 8, "h": 16, "g": 1, "s": 8192, "t": 8192, "longest": 2048, "d": 128},
    "attention_varlen_hopper": {"b": 8, "h": 16, "g": 1, "s": 8192, "t": 8192, "longest": 2048, "d": 128},
    "attention_paged_prefill": {
        "b": 8, "h": 16, "g": 1, "s": 8192, "longest": 2048, "d": 128, "listed": 64, "pages": 1024, "page": 16,
    },
}
# (few long rows, a small problem) of machines whose dims are not (rows, columns).
SMALL: Mapping[str, tuple[Sizes, ...]] = {
    "depthwise_convolution": ({"n": 1, "h": 56, "w": 56, "c": 128, "r": 3, "s": 3},),
    "matmul_skinny": ({"m": 16, "n": 4096, "k": 4096},),
    "histogram": ({"m": 1 << 20, "v": 256},),
    "embedding": ({"m": 128, "n": 16384, "v": 4096}, {"m": 512, "n": 1024, "v": 4096}),
    "scatter_add": ({"m": 128, "n": 16384, "v": 4096}, {"m": 512, "n": 1024, "v": 4096}),
}
FEW_LONG_ROWS, SMALL_ROWS, SMALL_LINE = (128, 16384), (1024, 1024), (1 << 20,)


def bytes_of(problem: Problem) -> int:
    """Bytes of all operands."""
    return sum(math.prod(o.shape) * o.dtype.bits // 8 for o in problem.operands)


def free_dims(machine: type[Machine]) -> list[str]:
    """Dims that a problem may say freely: not the ones that follow, nor those of a few values."""
    follow = {d.name for d in machine.following_dims()}
    return [n for n, values in machine.dim_values().items() if n not in follow and not values]


def posed(machine: type[Machine], sizes: Sizes) -> Problem:
    """A problem with the default types; dims that have a few values take the first of them. Tensors begin where memory
    that was allocated begins.
    """
    few = {n: values[0] for n, values in machine.dim_values().items() if values}
    aligns = {t.name: ALLOCATED_BYTES for t in machine.tensor_declarations()}
    return machine.problem(**{**few, **sizes}, aligns=aligns)


def grown(machine: type[Machine]) -> Problem:
    """The dims are doubled in turn, the smallest first, until the operands have as many bytes as fill memory."""
    sizes = dict.fromkeys(free_dims(machine), 64)
    while bytes_of(problem := posed(machine, sizes)) < FILLING_BYTES:
        least = min(sizes, key=lambda name: sizes[name])
        sizes[least] *= 2
    return problem


def filling(name: str, machine: type[Machine]) -> Problem:
    return posed(machine, FILLING[name]) if name in FILLING else grown(machine)


def small(name: str, machine: type[Machine]) -> list[Problem]:
    """Few long rows and a small problem."""
    if name in SMALL:
        return [posed(machine, sizes) for sizes in SMALL[name]]
    dims = free_dims(machine)
    if len(dims) == 1:
        return [posed(machine, dict(zip(dims, SMALL_LINE, strict=True)))]
    if len(dims) == 2:
        return [posed(machine, dict(zip(dims, sizes, strict=True))) for sizes in (FEW_LONG_ROWS, SMALL_ROWS)]
    return []


def shipped(name: str) -> type[Machine]:
    (found,) = family(name).machines
    if not issubclass(found, Machine):
        raise ValueError(f"{name} is no machine of one kernel")
    return found


def sizes_of(problem: Problem) -> str:
    return ", ".join(f"{name}={value}" for name, value in problem.dims)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted and predicted of the best candidate of one problem."""

    space: MachineSpace
    point: Mapping[str, int | str]
    demand: Demand
    prediction: Prediction

    @property
    def gpu(self) -> Device:
        return self.space.device

    @property
    def latency_s(self) -> float:
        return float(self.gpu.number("lat_dram") / self.gpu.boost_clock_hz)

    @property
    def memory_bound(self) -> bool:
        """Whether the least time of the problem is that of its bytes."""
        least = float(np.asarray(self.demand.compulsory_dram_bytes)) / self.gpu.dram_bytes_per_s
        return least >= 0.999 * float(self.prediction.roofline_s)

    @property
    def dram(self) -> float:
        """DRAM bytes over compulsory ones."""
        moved = np.add(self.demand.dram_bytes_read, self.demand.dram_bytes_written)
        return float(moved / np.asarray(self.demand.compulsory_dram_bytes))

    @property
    def asked(self) -> float:
        """Bytes of the sectors that L2 is asked for, over compulsory bytes."""
        total = self.demand.total
        sectors = np.multiply(self.demand.ctas, np.add(total.sectors_read, total.sectors_written))
        return float(sectors * SECTOR_BYTES / np.asarray(self.demand.compulsory_dram_bytes))

    @property
    def under_way(self) -> float:
        """Bytes that all resident CTAs have under way, over latency x bandwidth."""
        resident = min(
            int(self.prediction.occupancy.ctas_per_sm) * self.gpu.sm_count, math.ceil(np.asarray(self.demand.ctas))
        )
        needed = self.latency_s * self.gpu.dram_bytes_per_s
        return float(np.multiply(self.demand.bytes_in_flight_per_cta, resident) / needed)

    @property
    def bandwidth(self) -> float:
        """Share of the attainable bandwidth: the least time of the bytes over the predicted time."""
        return float(self.prediction.share_of_roofline)

    @property
    def over_least(self) -> float:
        """Predicted time over roofline, launch and one latency of DRAM."""
        p = self.prediction
        return float(p.seconds) / (float(p.roofline_s) + float(p.launch_s) + self.latency_s)

    def emulated(self) -> float | None:
        """DRAM bytes over compulsory ones, as the emulator counts them on a slice of the GPU; None where the
        candidate takes no small problem.
        """
        shrunk = shrink(self.space, self.point)
        if shrunk is None:
            return None
        traffic = run_on_slice(self.space, shrunk, self.point, int(self.prediction.occupancy.ctas_per_sm))
        index = self.space.structure_index(self.point)
        values = {**shrunk.environment, **{a: int(self.point[a]) for a in shrunk.traces[index].axes}}
        least = float(np.asarray(shrunk.counts(index).demand(values, shrunk.device).compulsory_dram_bytes))
        return (traffic.dram_read_bytes + traffic.dram_write_bytes) / least

    def reason(self) -> str:
        """What the time is made of, in the predictor's words."""
        p = self.prediction
        parts = sorted(p.breakdown().items(), key=lambda part: -part[1])
        lost = {"latency", "tail", "power", "launch"}
        said = [f"{name} {100 * s / float(p.seconds):.0f} %" for name, s in parts if name in lost and s > 0]
        return f"{p.sentence()}; lost: {', '.join(said)}"


def figures(machine: type[Machine], problem: Problem, gpu: Device) -> Figures | None:
    """Of the best candidate; None where the machine has none for this problem on this device."""
    try:
        space = build_space(machine, problem, gpu)
        if not space.space.size:
            return None
        best = best_refined(space, {})[0][0]
    except (NotAdmitted, ProblemError):
        return None
    index = space.structure_index(best.point)
    values = {**space.environment, **{a: int(best.point[a]) for a in space.traces[index].axes}}
    demand = space.counts(index).demand(values, gpu, best.extra)
    prediction = PredictedTime(space).prediction(best.point, extra_wavefronts=best.extra)
    return Figures(space, best.point, demand, prediction)


def shrink(space: MachineSpace, point: Mapping[str, int | str]) -> MachineSpace | None:
    """The same machine for a problem of few bytes that has the candidate too: dims are halved, the first one first."""
    sizes = {name: value for name, value in space.problem.dims if name in free_dims(space.machine)}
    found: MachineSpace | None = None
    for name in sizes:
        while sizes[name] >= 2 * LEAST_EXTENT and bytes_of(posed(space.machine, sizes)) > EMULATED_BYTES:
            halved = {**sizes, name: sizes[name] // 2}
            tried = build_space(space.machine, posed(space.machine, halved), space.device)
            if dict(point) not in tried.space:
                break
            sizes, found = halved, tried
    return found if found is not None and bytes_of(found.problem) <= 2 * EMULATED_BYTES else None


def run_on_slice(of: MachineSpace, small: MachineSpace, point: Mapping[str, int | str], ctas_per_sm: int) -> Traffic:
    """Traffic of the candidate on a small problem, on some SMs with their share of L2."""
    gpu, problem = of.device, small.problem
    kernel = build(small.program(point), problem, point, SolverCache()).kernel
    operands, scalars = make_inputs(small.machine, problem, "random", 0)
    grid = kernel.grid(problem)
    l2_bytes = gpu.l2_near_bytes * EMULATED_SMS // gpu.sm_count // SECTOR_BYTES * SECTOR_BYTES
    report = emulate(
        kernel.ptx,
        grid=grid,
        block=(kernel.threads, 1, 1),
        cluster=kernel.cluster,
        args=arguments(kernel, problem, operands, scalars, workspaces(kernel, problem, grid[0])),
        dynamic_smem=kernel.smem_bytes,
        check=False,
        caches=Caches(0, l2_bytes, EMULATED_SMS, max(ctas_per_sm, 1)),
    )
    if report.traffic is None:
        raise ValueError(f"the emulator counted no traffic of {kernel.name}")
    return report.traffic


def mark(text: str, met: bool) -> str:
    """A cell, marked where its goal is missed."""
    return text if met else f"**{text}**"


@dataclass(frozen=True, slots=True)
class Missed:
    """A figure short of its goal, and what the predictor says of it."""

    where: str
    what: str
    why: str


def candidate(point: Mapping[str, int | str]) -> str:
    return " ".join(f"{name}={value}" for name, value in point.items())


def filling_rows(name: str, on: Sequence[str], missed: list[Missed], bound: list[str]) -> Iterator[str]:
    machine = shipped(name)
    problem = filling(name, machine)
    best = {gpu_name: found for gpu_name in on if (found := figures(machine, problem, device(gpu_name))) is not None}
    if not best and (later := figures(machine, problem, device(LATER))) is not None:
        best = {LATER: later}
    for gpu_name, found in best.items():
        if not found.memory_bound:
            if name not in bound:
                bound.append(name)
            continue
        counted = found.emulated()
        where = f"{name}, {sizes_of(problem)}, {gpu_name}"
        marked = (
            mark(f"{found.dram:.3f}", round(found.dram, 3) <= MOST_DRAM),
            "" if counted is None else mark(f"{counted:.3f}", round(counted, 3) <= MOST_DRAM),
            f"{found.asked:.2f}",
            mark(f"{found.under_way:.1f}", round(found.under_way, 1) >= LEAST_UNDER_WAY),
            mark(f"{100 * found.bandwidth:.1f} %", round(found.bandwidth, 3) >= LEAST_BANDWIDTH),
        )
        for cell, what in zip(marked, FILLING_CELLS, strict=True):
            if cell.startswith("**"):
                missed.append(Missed(where, f"{what} {cell.strip('*')}", found.reason()))
        yield f"| `{name}` | {sizes_of(problem)} | {gpu_name} | {' | '.join(marked)} | {candidate(found.point)} |"


def small_rows(name: str, on: Sequence[str], missed: list[Missed]) -> Iterator[str]:
    machine = shipped(name)
    asked = [(problem, gpu_name) for problem in small(name, machine) for gpu_name in on]
    best = [(*of, figures(machine, of[0], device(of[1]))) for of in asked]
    takes = {gpu_name for _, gpu_name, found in best if found is not None}
    for problem, gpu_name, found in best:
        where = f"{name}, {sizes_of(problem)}, {gpu_name}"
        if found is None and gpu_name in takes:
            missed.append(Missed(where, "no candidate", NONE_LEFT))
        elif found is not None and found.memory_bound:
            p = found.prediction
            cell = mark(f"{found.over_least:.2f}", round(found.over_least, 2) <= MOST_SMALL)
            if cell.startswith("**"):
                missed.append(Missed(where, f"{cell.strip('*')} times the least", found.reason()))
            times = f"{float(p.roofline_s) * 1e6:.2f} | {float(p.seconds) * 1e6:.2f}"
            yield f"| `{name}` | {sizes_of(problem)} | {gpu_name} | {times} | {cell} | {candidate(found.point)} |"


FILLING_CELLS = ("DRAM bytes", "emulated", "asked of L2", "under way", "bandwidth")
FILLING_HEAD = (
    f"| machine | sizes | device | {' | '.join(FILLING_CELLS)} | candidate |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
)
SMALL_HEAD = (
    "| machine | sizes | device | roofline us | predicted us | times the least | candidate |\n"
    "| --- | --- | --- | ---: | ---: | ---: | --- |"
)


NONE_LEFT = "the machine's constraints leave no candidate of these sizes, though they do of others"
NO_ROWS = "Bound by arithmetic at these sizes, and left out: "


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows of every table, and the machines that arithmetic bounds."""

    filling: tuple[str, ...]
    small: tuple[str, ...]
    missed: tuple[str, ...]
    bound: tuple[str, ...]

    @staticmethod
    def of(names: Sequence[str], on: Sequence[str] = DEVICES) -> Tables:
        missed: list[Missed] = []
        bound: list[str] = []
        large = [row for name in names for row in filling_rows(name, on, missed, bound)]
        small = [row for name in names if name not in bound for row in small_rows(name, on, missed)]
        rows = (f"| {m.where} | {m.what} | {m.why} |" for m in missed)
        why = sorted(rows, key=lambda row: names.index(machine_of(row)))
        return Tables(tuple(large), tuple(small), tuple(why), tuple(bound))

    @staticmethod
    def read(text: str) -> Tables:
        """What `lines` wrote."""
        rows: list[list[str]] = [[], [], []]
        table, bound = 0, ""
        for line in text.splitlines():
            if line.startswith("### "):
                table = TITLES.index(line)
            elif line.startswith("| ") and not line.startswith(("| machine", "| where", "| ---")):
                rows[table].append(line)
            elif line.startswith(NO_ROWS):
                bound = line.removeprefix(NO_ROWS).strip(".")
        return Tables(*map(tuple, rows), tuple(name.strip("`") for name in bound.split(", ") if name))

    def with_others(self, others: Tables, named: Sequence[str]) -> Tables:
        """With the rows of `others` for all machines but those that are named, in the order in which they ship."""

        def ordered(mine: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
            kept = [row for row in theirs if machine_of(row) in SHIPPED and machine_of(row) not in named]
            return tuple(sorted((*mine, *kept), key=lambda row: tuple(SHIPPED).index(machine_of(row))))

        return Tables(
            ordered(self.filling, others.filling),
            ordered(self.small, others.small),
            ordered(self.missed, others.missed),
            ordered(self.bound, others.bound),
        )

    def lines(self) -> Iterator[str]:
        """The tables in Markdown."""
        yield f"{TITLES[0]}\n"
        yield from (FILLING_HEAD, *self.filling)
        yield f"\n{TITLES[1]}\n"
        yield from (SMALL_HEAD, *self.small)
        yield f"\n{TITLES[2]}\n"
        if self.missed:
            yield "| where | what | predicted: what the time is made of |\n| --- | --- | --- |"
            yield from self.missed
        else:
            yield "None."
        if self.bound:
            yield f"\n{NO_ROWS}{', '.join(f'`{name}`' for name in self.bound)}."


TITLES = ("### Sizes that fill memory", "### Small sizes, and few long rows", "### Goals that are missed")


def machine_of(row: str) -> str:
    """Which machine a row is about, or a name."""
    return row.removeprefix("| ").partition(",")[0].partition(" |")[0].strip("`")


BEGINS, ENDS = "<!-- figures: python -m tests.benchmarks.memory_figures --page docs/figures.md -->", "<!-- /figures -->"


def generated(page: str) -> tuple[str, str, str]:
    """What stands before the marks of a page, between them and behind them."""
    head, _, rest = page.partition(BEGINS)
    inside, there, tail = rest.partition(ENDS)
    if not there:
        raise ValueError(f"the page has no {BEGINS} with {ENDS} behind it")
    return head, inside, tail


def written(page: str, lines: Iterator[str]) -> str:
    """A page with other figures between its marks."""
    head, _, tail = generated(page)
    return "\n".join((f"{head}{BEGINS}\n", *lines, f"\n{ENDS}{tail}"))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="What memory-bound machines ask of memory, and predicted times.")
    parser.add_argument("machine", nargs="*", help="names of machines that ship; all where there is none")
    parser.add_argument("--device", action="append", help=f"as often as you like; {', '.join(DEVICES)} otherwise")
    parser.add_argument("--page", type=Path, help="write the figures into this page, between its marks")
    chosen = parser.parse_args(arguments)
    if chosen.page is not None and chosen.device:
        parser.error("a page has rows for all devices: leave --device out")
    tables = Tables.of(chosen.machine or tuple(SHIPPED), chosen.device or DEVICES)
    if chosen.page is not None:
        page = chosen.page.read_text(encoding="utf-8")
        if chosen.machine:
            tables = tables.with_others(Tables.read(generated(page)[1]), chosen.machine)
        chosen.page.write_text(written(page, tables.lines()), encoding="utf-8")
        return 0
    for line in tables.lines():
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
