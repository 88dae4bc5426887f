"""Inputs of a verification: integers whose sums are exact, random numbers, and the launch arguments made of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import DeviceBuffer
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.maps import emulated_map
from tinygpu.ptx.operands import POISON, HostTensor, host_tensor

Inputs = Literal["integers", "random"]


def make_inputs(
    machine: type[Machine], problem: Problem, inputs: Inputs, seed: int
) -> tuple[dict[str, HostTensor], dict[str, Any]]:
    """Operands and scalars: integers from -3 to 3, or random numbers in [-1, 1) (integers again for integer types)."""
    rng = np.random.default_rng([seed, inputs == "random"])
    tensors = {}
    for o in problem.operands:
        t = host_tensor(o)
        if o.access != "out":
            t.array[...] = input_values(rng, o.dtype, o.shape, inputs)
        tensors[o.name] = t
    return tensors, scalar_inputs(machine, problem, rng, inputs)


def scalar_inputs(
    machine: type[Machine], problem: Problem, rng: np.random.Generator, inputs: Inputs
) -> dict[str, Any]:
    """A value for every scalar that the problem has."""
    scalars: dict[str, Any] = {}
    for s in machine.scalars(dict(problem.options)):
        if s.dtype.name == "f32":
            scalars[s.name] = np.float32(3 if inputs == "integers" else rng.uniform(-1, 1))
        else:
            scalars[s.name] = s.dtype.numpy.type(3)
    return scalars


def input_values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], inputs: Inputs) -> NDArray[Any]:
    """An array of one dtype: small integers, or random numbers in [-1, 1)."""
    if not dtype.is_float:
        low = 0 if dtype.kind == "unsigned" else -3
        return rng.integers(low, 4, shape).astype(dtype.numpy)
    if inputs == "integers":
        return rng.integers(-3, 4, shape).astype(dtype.numpy)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    if dtype.name == "tf32":
        return round_tf32(values)
    return values.astype(dtype.numpy)


def round_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """f32 values with their low 13 mantissa bits cleared, as the tensor core reads them."""
    bits = values.view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def workspaces(kernel: Kernel, problem: Problem, ctas: int) -> dict[str, DeviceBuffer]:
    """The workspaces of a launch of so many CTAs: zeros where the kernel relies on them, else never written."""
    sizes = kernel.workspace_bytes(problem, ctas)
    return {
        w.name: DeviceBuffer(
            np.full(sizes[w.name], 0 if w.zeroed else POISON, dtype=np.uint8), initialised=w.zeroed, name=w.name
        )
        for w in kernel.workspaces
    }


def arguments(
    kernel: Kernel,
    problem: Problem,
    operands: dict[str, HostTensor],
    scalars: dict[str, Any],
    spaces: dict[str, DeviceBuffer] | None = None,
) -> list[Any]:
    """Launch arguments in the order of the kernel's parameters.

    spaces  the workspaces; fresh ones for as many CTAs as `kernel.grid(problem)` has, where none are given
    """
    buffers = {
        name: DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=t.operand.access != "out", name=name)
        for name, t in operands.items()
    }
    maps = {m.name: m for m in kernel.maps}
    spaces = workspaces(kernel, problem, kernel.grid(problem)[0]) if spaces is None else spaces
    out: list[Any] = []
    for p in kernel.parameters:
        if p.kind == "pointer":
            out.append(buffers[p.name])
        elif p.kind == "map":
            spec = maps[p.name]
            out.append(emulated_map(spec, problem.operand(spec.tensor), buffers[spec.tensor]))
        elif p.kind == "workspace":
            out.append(spaces[p.name])
        elif p.kind == "ld":
            out.append(np.uint32(problem.operand(p.name).ld))
        elif p.kind == "dim":
            out.append(np.uint32(problem.dim[p.name]))
        else:
            out.append(scalars[p.name])
    return out
