"""Kernels of a candidate in the emulator: one after another, through one device memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator import DeviceBuffer, Order, PreparedKernel, Report
from tinygpu.ptx.launching.emulated import emulate_launch
from tinygpu.ptx.launching.kernels import Kernels, Stage
from tinygpu.ptx.verification.memory import host_tensors, workspaces
from tinygpu.ptx.verification.operands import HostTensor, host_tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """The tensors of a whole and its workspaces, as the kernels of one launch find and leave them.

    buffers  what the emulator is given of them: which bytes were written is kept from kernel to kernel
    """

    tensors: Mapping[str, HostTensor]
    buffers: Mapping[str, DeviceBuffer]

    @staticmethod
    def of(kernels: Kernels, arrays: Mapping[str, NDArray[Any]]) -> DeviceMemory:
        """Inputs as they are given, all else poisoned and never written."""
        tensors = host_tensors(kernels.problem, arrays) | {o.name: host_tensor(o) for o in kernels.workspaces}
        buffers = {}
        for name, t in tensors.items():
            known: bool | NDArray[np.bool_] = True
            if name not in arrays:
                known = np.zeros(t.storage.nbytes, dtype=np.bool_)
            buffers[name] = DeviceBuffer(t.storage, offset=t.offset_bytes, initialised=known, name=name)
        return DeviceMemory(tensors, buffers)

    def array(self, name: str) -> NDArray[Any]:
        """What a tensor holds now."""
        return self.tensors[name].array.copy()


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """What one kernel left beside its results.

    spaces  its own workspaces
    """

    report: Report
    spaces: Mapping[str, DeviceBuffer]


def run_stage(
    stage: Stage,
    code: PreparedKernel | str,
    memory: DeviceMemory,
    scalars: Mapping[str, Any],
    order: Order,
    seed: int,
) -> Left:
    """Emulates one kernel; raises EmulationFault.

    scalars  of the whole, by name
    """
    kernel, problem = stage.kernel, stage.problem
    grid = kernel.grid(problem)
    spaces = workspaces(kernel, problem, grid[0])
    own = {name: scalars[n] for name, n in stage.scalars.items()}
    buffers = {**stage.own(memory.buffers), **spaces}
    report = emulate_launch(kernel, code, problem, grid, buffers, own, order=order, seed=seed)
    return Left(report, spaces)


def run_all(
    kernels: Kernels, arrays: Mapping[str, NDArray[Any]], scalars: Mapping[str, Any], order: Order, seed: int
) -> dict[str, NDArray[Any]]:
    """The tensors that a candidate writes, by name; raises EmulationFault."""
    memory = DeviceMemory.of(kernels, arrays)
    for stage in kernels.stages:
        run_stage(stage, stage.kernel.ptx, memory, scalars, order, seed)
    return {o.name: memory.array(o.name) for o in kernels.problem.operands if o.access != "in"}


def said_of(stage: Stage, sentence: str) -> str:
    """A sentence about one kernel, with its step where there are several."""
    return f"step {stage.name}: {sentence}" if stage.name else sentence


__all__ = ["DeviceMemory", "Left", "run_all", "run_stage", "said_of"]
