"""Arrays of a run as the emulator's memory: tensors, workspaces, and the arguments of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import DeviceBuffer
from tinygpu.ptx.launching.emulated import emulated_arguments
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.verification.operands import POISON, HostTensor, host_tensor


def host_tensors(problem: Problem, arrays: Mapping[str, NDArray[Any]]) -> dict[str, HostTensor]:
    """Fresh tensors in host memory: inputs as they are, all else poisoned."""
    tensors = {o.name: host_tensor(o) for o in problem.operands}
    for name, array in arrays.items():
        tensors[name].write(array)
    return tensors


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
    buffers = buffers_of(operands)
    spaces = workspaces(kernel, problem, kernel.grid(problem)[0]) if spaces is None else spaces
    return emulated_arguments(launch_of(kernel, problem), {**buffers, **spaces}, scalars)


def buffers_of(operands: dict[str, HostTensor]) -> dict[str, DeviceBuffer]:
    """Host tensors as the emulator's memory; what a kernel only writes was never written."""
    return {
        name: DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=t.operand.access != "out", name=name)
        for name, t in operands.items()
    }
