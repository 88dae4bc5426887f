"""Kernels of any compiler for a problem of a machine: run in the emulator, judged by its reference, counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.beside.counts import Assembled, Counts, assemble, counts_of, machine_instructions, slice_of
from tinygpu.devices import Device
from tinygpu.language import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.assembling.ptxas import Ptxas
from tinygpu.ptx.emulator import DeviceBuffer, emulate
from tinygpu.ptx.verification.comparison import compare
from tinygpu.ptx.verification.operands import HostTensor
from tinygpu.ptx.verification.trial import Trial, draw

Arguments = Callable[[Mapping[str, HostTensor], Mapping[str, Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Runnable:
    """A kernel with its launch.

    compiler   who made it: "tinyGPU", "Triton", "CUDA"
    how        the candidate or the configuration
    target     what it is assembled for: "sm_90a"
    smem       dynamic shared memory, bytes
    arguments  of operands and scalars
    """

    compiler: str
    how: str
    text: str
    target: str
    grid: Sequence[int]
    threads: int
    smem: int
    arguments: Arguments
    cluster: Sequence[int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Tools:
    """One assembler and one disassembler for all."""

    ptxas: Ptxas
    nvdisasm: Path


class WrongValues(AssertionError):
    """A kernel whose results the machine's reference does not confirm."""


def trial_of(machine: type[Machine], problem: Problem) -> Trial:
    return draw(machine, problem, "random", 0)


def buffers(operands: Mapping[str, HostTensor]) -> dict[str, DeviceBuffer]:
    return {
        name: DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=t.operand.access != "out", name=name)
        for name, t in operands.items()
    }


def assembled(kernel: Runnable, gpu: Device, tools: Tools) -> Assembled:
    return assemble(kernel.text, kernel.target, tools.ptxas, tools.nvdisasm, gpu, kernel.threads, kernel.smem)


SAMPLED_CTAS, MORE_SECTORS = 4, 1.02


def work(kernel: Runnable, trial: Trial, gpu: Device, tools: Tools) -> tuple[int, float, float]:
    """(bytes spilled, sectors of global memory, machine instructions) of all CTAs, from those of the first few."""
    made = assembled(kernel, gpu, tools)
    all_ctas = math.prod(kernel.grid)
    some = min(SAMPLED_CTAS, all_ctas)
    operands = trial.operands()
    report = emulate(
        kernel.text, grid=kernel.grid, block=kernel.threads, cluster=kernel.cluster, dynamic_smem=kernel.smem,
        args=kernel.arguments(operands, trial.scalars), check=False, ctas=range(some),
    )  # fmt: skip
    c = report.counters
    sectors = c.global_load_sectors + c.global_store_sectors
    return made.spills, sectors * all_ctas / some, machine_instructions(report, made) * all_ctas / some


def best(kernels: Iterable[Runnable], trial: Trial, gpu: Device, tools: Tools) -> Runnable:
    """The kernel that does least: without spills where there is one; with the fewest sectors, or at most 2 % more than
    these; and of those the one with the fewest machine instructions.
    """
    does = [(work(kernel, trial, gpu, tools), kernel) for kernel in kernels]
    spills = min(spilled for (spilled, _, _), _ in does)
    does = [(counted, kernel) for counted, kernel in does if counted[0] == spills]
    sectors = min(counted[1] for counted, _ in does)
    return min((c for c in does if c[0][1] <= MORE_SECTORS * sectors), key=lambda c: c[0][2])[1]


def run(kernel: Runnable, trial: Trial, gpu: Device, tools: Tools, compulsory_bytes: int) -> Counts:
    """Counts of a kernel on a slice of the GPU; raises WrongValues where its results are not the reference's."""
    made = assembled(kernel, gpu, tools)
    operands = trial.operands()
    report = emulate(
        kernel.text, grid=kernel.grid, block=kernel.threads, cluster=kernel.cluster, dynamic_smem=kernel.smem,
        args=kernel.arguments(operands, trial.scalars), caches=slice_of(gpu, made.resident),
    )  # fmt: skip
    check = compare(trial, operands, "late")
    if not check.passed:
        raise WrongValues(f"{kernel.compiler}, {kernel.how}: {check}")
    return counts_of(report, made, compulsory_bytes)
