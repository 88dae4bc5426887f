"""From an operation to kernels: our best candidate, Triton's kernels in all their configurations, CUDA's."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.benchmarks.beside.operations import Configured, Operation, Written
from tests.benchmarks.beside.running import Runnable, buffers
from tests.benchmarks.memory_figures import free_dims, shipped
from tinygpu.api.choosing import choose
from tinygpu.devices import Device
from tinygpu.language import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.assembling.ptxas import Ptxas
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.memory import arguments
from tinygpu.ptx.verification.operands import HostTensor
from tinygpu.spaces.build import build_space

SOURCE = Path(__file__).parent / "cuda_kernels.cu"
ALIGN_BYTES = 256  # of every tensor, as allocators give them
# Triton's names of our types.
TRITON_TYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "s32": "i32", "s8": "i8"}


def machine_of(operation: Operation) -> type[Machine]:
    return shipped(operation.machine)


def posed(operation: Operation, *, emulated: bool) -> Problem:
    """The problem whose candidates are chosen, or the smaller one that the emulator runs."""
    sizes = {**operation.sizes, **(operation.emulated if emulated else {})}
    machine = machine_of(operation)
    sizes = {name: size for name, size in sizes.items() if name in free_dims(machine)}
    plain = machine.problem(**sizes, dtypes=operation.types, options=operation.options)
    aligns = {o.name: ALIGN_BYTES for o in plain.operands}
    return machine.problem(**sizes, dtypes=operation.types, options=operation.options, aligns=aligns)


def compulsory_bytes(problem: Problem) -> int:
    """Every element of every operand once."""
    return sum(math.prod(o.shape) * o.dtype.bits // 8 for o in problem.operands)


def ours(operation: Operation, gpu: Device) -> Runnable:
    """The best predicted candidate of the full problem, launched for the smaller one."""
    space = build_space(machine_of(operation), posed(operation, emulated=False), gpu)
    found = choose(space, {})
    kernel, problem = found.built.kernel, posed(operation, emulated=True)
    how = " ".join(f"{name}={value}" for name, value in found.point.items())
    return runnable(kernel, problem, how)


def runnable(kernel: Kernel, problem: Problem, how: str) -> Runnable:
    def given(operands: Mapping[str, HostTensor], scalars: Mapping[str, Any]) -> list[Any]:
        return arguments(kernel, problem, dict(operands), dict(scalars))

    return Runnable(
        "tinyGPU", how, kernel.ptx, kernel.architecture, kernel.grid(problem), kernel.threads, kernel.smem_bytes, given,
        kernel.cluster,
    )  # fmt: skip


def tritons(operation: Operation, gpu: Device, ptxas: Ptxas) -> Iterator[Runnable]:
    """All configurations of Triton's kernels; ImportError where there is no Triton."""
    for one in operation.triton:
        yield triton_kernel(one, posed(operation, emulated=True), gpu, ptxas)


def triton_kernel(configured: Configured, problem: Problem, gpu: Device, ptxas: Ptxas) -> Runnable:
    """Triton's kernel, in PTX of a version that this ptxas knows."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as ever; it says so otherwise
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        os.environ[name] = str(ptxas.path)  # it writes PTX of the version that its assembler knows
    from tests.benchmarks.beside import triton_kernels
    from tests.ptx.emulator.triton_kernels.compile import Case, compiled

    kernel = getattr(triton_kernels, configured.kernel)
    dims = dict(problem.dims)
    names = [name for name in kernel.arg_names if name not in configured.constants]
    kinds = {o.name: f"*{TRITON_TYPES[o.dtype.name]}" for o in problem.operands}
    kinds |= {name: "i32" for name, _ in problem.dims}
    case = Case(
        kernel, [kinds.get(name, "fp32") for name in names], configured.constants,
        {"num_warps": configured.warps}, divisible=all(dims[name] % 16 == 0 for name in names if name in dims),
    )  # fmt: skip
    target = int(gpu.compute_capability.replace(".", ""))
    text = compiled(case, target)
    facts = json.loads(text.split("\n", 1)[0].removeprefix("// "))
    if facts["scratch"]:
        raise ValueError(f"{configured} wants {facts['scratch']} bytes of scratch memory per CTA, and is given none")

    def given(operands: Mapping[str, HostTensor], scalars: Mapping[str, Any]) -> list[Any]:
        values = {**dims, **scalars, **buffers(operands)}
        return [*(values[name] for name in names), *(0, 0)[: facts["pointers"]]]

    grid = configured.grid(SimpleNamespace(**dims, **configured.constants))
    return Runnable(
        "Triton", str(configured), text, target_of(gpu), (*grid, 1, 1)[:3], 32 * configured.warps, facts["shared"],
        given,
    )  # fmt: skip


def target_of(gpu: Device) -> str:
    target = gpu.compute_capability.replace(".", "")
    return f"sm_{target}a" if target == "90" else f"sm_{target}"


def cudas(operation: Operation, gpu: Device, nvcc: str) -> Iterator[Runnable]:
    """All configurations of CUDA's kernels."""
    for one in operation.cuda:
        yield cuda_kernel(one, posed(operation, emulated=True), gpu, nvcc)


def cuda_kernel(one: Written, problem: Problem, gpu: Device, nvcc: str) -> Runnable:
    target = target_of(gpu)
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        out = Path(folder) / "kernel.ptx"
        defines = [f"-DKERNEL_{one.kernel}", f"-DTHREADS={one.threads}", f"-DITEMS={one.items}"]
        target_flag = f"-arch={target.replace('sm', 'compute')}"
        command = [nvcc, "-ptx", target_flag, "-std=c++17", "-w", *defines, str(SOURCE), "-o", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        text = out.read_text(encoding="utf-8")
    dims = dict(problem.dims)

    def given(operands: Mapping[str, HostTensor], scalars: Mapping[str, Any]) -> list[Any]:
        values = {**dims, **scalars, **buffers(operands)}
        return [values[name] for name in one.arguments.split()]

    grid = one.grid(SimpleNamespace(**dims, threads=one.threads))
    return Runnable("CUDA", str(one), text, target, (*grid, 1, 1)[:3], one.threads, 0, given)
