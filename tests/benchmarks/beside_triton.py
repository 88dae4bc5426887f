"""Our kernels beside Triton's and CUDA's for the same operation, all in the same emulator.

    python -m tests.benchmarks.beside_triton [MACHINE ...] [--device NAME ...]
    python -m tests.benchmarks.beside_triton --page docs/beside_triton.md

For each operation and device our best predicted candidate, the best of Triton's configurations and the best of CUDA's
run on the same inputs; their results are held against the machine's reference; and what they do is counted: by the
emulator on a slice of the GPU, by one ptxas for all, and in machine code. Nothing is timed. A count in which ours does
more comes again in a table of its own, with the reason. `--published` prints times that others have published beside
predicted ones, and nothing else.

Needs `pip install -e ".[bench,beside]"`: Triton and nvcc compile without a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

from tests.benchmarks.beside.counts import Counts
from tests.benchmarks.beside.makers import compulsory_bytes, cudas, machine_of, ours, posed, tritons
from tests.benchmarks.beside.operations import OPERATIONS, Operation
from tests.benchmarks.beside.published import HEAD as PUBLISHED_HEAD
from tests.benchmarks.beside.published import rows as published_rows
from tests.benchmarks.beside.reasons import reason
from tests.benchmarks.beside.running import Runnable, Tools, best, run, trial_of
from tests.benchmarks.disassembly import find_nvdisasm, version_of
from tests.ptx.emulator.kernels.make import find_nvcc
from tinygpu.devices import Device, device
from tinygpu.ptx.assembling.ptxas import find_ptxas

DEVICES = ("a100", "h100")
# Counts of ours that are so many times another's are told, and explained.
MORE = 1.02
KIB = 1024


@dataclass(frozen=True, slots=True)
class Column:
    """One count in the tables.

    name     at the head
    figure   of counts, per KiB of compulsory bytes where `per_kib`
    decimals that are printed
    """

    name: str
    count: str
    decimals: int
    per_kib: bool = True


COLUMNS = (
    Column("DRAM", "dram", 3, per_kib=False),
    Column("sectors", "sectors", 2),
    Column("requests", "requests", 2),
    Column("wavefronts", "wavefronts", 2),
    Column("conflicts", "conflicts", 2),
    Column("PTX instructions", "instructions", 1),
    Column("machine instructions", "machine", 1),
    Column("barriers", "barriers", 3),
    Column("registers", "registers", 0, per_kib=False),
    Column("spills", "spills", 0, per_kib=False),
)
HEAD = (
    f"| machine | device | kernel | {' | '.join(c.name for c in COLUMNS)} | issue | how |\n"
    f"| --- | --- | --- |{' ---: |' * (len(COLUMNS) + 1)} --- |"
)


def cell(column: Column, counts: Counts, bytes_moved: int) -> str:
    value = getattr(counts, column.count)
    return f"{value * KIB / bytes_moved if column.per_kib else value:,.{column.decimals}f}"


def issue_share(counts: Counts, bytes_moved: int, gpu: Device) -> float:
    """Time in which all machine instructions can be issued, over the time of the compulsory bytes."""
    issued_per_s = gpu.sm_count * gpu.warp_schedulers_per_sm * gpu.boost_clock_hz
    return (counts.machine / issued_per_s) / (bytes_moved / gpu.dram_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Compared:
    """Kernels for one operation on one device, with their counts; ours is the first."""

    operation: Operation
    gpu: str
    bytes_moved: int
    kernels: tuple[tuple[Runnable, Counts], ...]

    @property
    def name(self) -> str:
        types = next(o.dtype.name for o in posed(self.operation, emulated=True).operands)
        return f"`{self.operation.machine}`, {types}"

    def rows(self) -> Iterator[str]:
        for kernel, counts in self.kernels:
            cells = " | ".join(cell(column, counts, self.bytes_moved) for column in COLUMNS)
            share = 100 * issue_share(counts, self.bytes_moved, device(self.gpu))
            yield f"| {self.name} | {self.gpu} | {kernel.compiler} | {cells} | {share:.0f} % | {kernel.how} |"

    def worse(self) -> Iterator[str]:
        """Rows of the counts in which ours does more than another, but for registers that leave nothing in memory."""
        (_, own), *others = self.kernels
        for column in COLUMNS:
            if column.count == "registers":
                continue
            mine = float(cell(column, own, self.bytes_moved).replace(",", ""))
            for kernel, counts in others:
                theirs = float(cell(column, counts, self.bytes_moved).replace(",", ""))
                if mine > MORE * theirs:
                    why = reason(self.operation.machine, column.count)
                    yield (
                        f"| {self.name} | {self.gpu} | {column.name} | {mine:,g} | {theirs:,g}, {kernel.compiler} | "
                        f"{why} |"
                    )


def compared(operation: Operation, gpu_name: str, tools: Tools) -> Compared:
    """All kernels of one operation; raises WrongValues where one computes something else."""
    gpu, problem = device(gpu_name), posed(operation, emulated=True)
    trial, bytes_moved = trial_of(machine_of(operation), problem), compulsory_bytes(problem)
    kernels = [ours(operation, gpu), best(tritons(operation, gpu, tools.ptxas), trial, gpu, tools)]
    if operation.cuda:
        kernels.append(best(cudas(operation, gpu, find_nvcc()), trial, gpu, tools))
    counted = tuple((kernel, run(kernel, trial, gpu, tools, bytes_moved)) for kernel in kernels)
    return Compared(operation, gpu_name, bytes_moved, counted)


def tools_here() -> Tools:
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        raise SystemExit("there is no nvdisasm here: pip install nvidia-cuda-nvdisasm")
    return Tools(find_ptxas(), nvdisasm)


def versions(tools: Tools) -> str:
    nvcc = version_of(Path(find_nvcc()))
    return (
        f"{date.today():%d %B %Y}: Triton {metadata.version('triton')}, nvcc {nvcc} with its CUB, {tools.ptxas}, "
        f"nvdisasm {version_of(tools.nvdisasm)}."
    )


def report(names: Sequence[str], on: Sequence[str], tools: Tools) -> Iterator[str]:
    """The tables of counts in Markdown."""
    yield versions(tools)
    yield f"\n### Side by side\n\n{HEAD}"
    worse: list[str] = []
    for operation in OPERATIONS:
        if names and operation.machine not in names:
            continue
        for gpu in on:
            found = compared(operation, gpu, tools)
            yield from found.rows()
            worse += found.worse()
    yield "\n### Where ours does more\n"
    if not worse:
        yield "Nowhere."
        return
    yield "| machine | device | count | ours | theirs | why |\n| --- | --- | --- | ---: | ---: | --- |"
    yield from worse


def published() -> Iterator[str]:
    yield PUBLISHED_HEAD
    yield from published_rows()


def marks(options: str) -> tuple[str, str]:
    command = f"python -m tests.benchmarks.beside_triton{options} --page docs/beside_triton.md"
    return f"<!-- {command} -->", f"<!-- /{command} -->"


def written(page: str, options: str, lines: Iterator[str]) -> str:
    """The page with other lines between the marks of a command."""
    begins, ends = marks(options)
    head, _, rest = page.partition(begins)
    _, there, tail = rest.partition(ends)
    if not there:
        raise ValueError(f"the page has no {begins} with {ends} behind it")
    return "\n".join((f"{head}{begins}\n", *lines, f"\n{ends}{tail}"))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Our kernels beside Triton's and CUDA's, counted.")
    parser.add_argument("machine", nargs="*", help="names of machines that are compared; all where there is none")
    parser.add_argument("--device", action="append", help=f"as often as you like; {', '.join(DEVICES)} otherwise")
    parser.add_argument("--published", action="store_true", help="published times beside predicted ones, alone")
    parser.add_argument("--page", type=Path, help="write the tables into this page, between their marks")
    chosen = parser.parse_args(arguments)
    if chosen.page is not None and (chosen.machine or chosen.device):
        parser.error("--page writes the tables of all machines on all devices: leave out MACHINE and --device")
    lines = published() if chosen.published else report(chosen.machine, chosen.device or DEVICES, tools_here())
    if chosen.page is not None:
        page = written(chosen.page.read_text(encoding="utf-8"), " --published" if chosen.published else "", lines)
        chosen.page.write_text(page, encoding="utf-8")
        return 0
    for line in lines:
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
