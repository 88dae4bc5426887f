"""A launch in the emulator: what it takes for the launch's arguments, as the runtime makes them from the same data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import DeviceBuffer, Order, PreparedKernel, Report, SparseBuffer, TensorMap, emulate
from tinygpu.ptx.emulator.state.buffers import memory_bytes
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.runtime.launch import Launch, Map

Buffer: TypeAlias = DeviceBuffer | SparseBuffer
# What bytes of a bank hold that belong to no tensor: NaN, as elements of any float type.
_NOBODYS = 0xFF
# cuTensorMapEncodeTiled's name of each element type; TMA moves 8-bit floats and tf32 as they are.
_ELEMENTS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "f32", "f64": "f64", "s32": "s32", "u32": "u32", "s8": "u8",
    "u8": "u8", "e4m3": "u8", "e5m2": "u8", "e2m1": "16u4_align16b", "e2m3": "16u6_align16b", "e3m2": "16u6_align16b",
}  # fmt: skip


def emulate_launch(
    kernel: Kernel,
    code: PreparedKernel | str,
    problem: Problem,
    grid: tuple[int, int, int] | int,
    buffers: Mapping[str, Buffer],
    scalars: Mapping[str, Any],
    *,
    order: Order = "late",
    seed: int = 0,
    check: bool = True,
    ctas: Iterable[int] | None = None,
    together: int | None = None,
) -> Report:
    """Emulates one launch of a kernel for a problem; raises EmulationFault.

    code     the kernel's text, or what was prepared of it
    buffers  of its tensors and workspaces, by name
    scalars  by name

    All else is as `tinygpu.ptx.emulator.emulate` has it.
    """
    launch = launch_of(kernel, problem)
    return emulate(
        code,
        grid=grid,
        block=(kernel.threads, 1, 1),
        cluster=kernel.cluster,
        args=emulated_arguments(launch, buffers, scalars),
        variables=emulated_banks(launch, buffers),
        dynamic_smem=kernel.smem_bytes,
        order=order,
        seed=seed,
        check=check,
        ctas=ctas,
        together=together,
    )


def emulated_arguments(launch: Launch, buffers: Mapping[str, Buffer], scalars: Mapping[str, Any]) -> list[Any]:
    """The emulator's arguments for a launch.

    buffers  of its tensors and workspaces, by name
    scalars  what the caller gives, by name
    """
    out: list[Any] = []
    for a in launch.arguments:
        if a.kind == "address":
            out.append(buffers[a.name])
        elif a.kind == "map":
            made = launch.maps[a.map]
            out.append(_tensor_map(made, buffers[made.tensor]))
        else:
            out.append(a.value if a.kind == "number" else scalars[a.name])
    return out


def emulated_banks(launch: Launch, buffers: Mapping[str, Buffer]) -> dict[str, NDArray[np.uint8]]:
    """What a launch writes into the kernel's banks; where no tensor lies there, what nobody should read."""
    out = {}
    for bank in launch.banks:
        data = np.full(bank.bytes, _NOBODYS, np.uint8)
        for name, at in bank.places:
            size = launch.tensor(name).extent_bytes
            for start, array in _regions(buffers[name]):
                whole = memory_bytes(array, name)
                first = max(0, -start)
                last = min(whole.size, size - start)
                data[at + start + first : at + start + last] = whole[first:last]
        out[bank.name] = data
    return out


def _regions(buffer: Buffer) -> list[tuple[int, NDArray[Any]]]:
    """(bytes from the tensor's first element, what lies there) of everything that is backed."""
    if isinstance(buffer, DeviceBuffer):
        return [(-buffer.offset, buffer.array)]
    return [(start - buffer.offset, array) for start, array in buffer.regions.items()]


def _tensor_map(made: Map, buffer: Buffer) -> TensorMap:
    together = f"_ATOM_{made.atom_bytes}B" if made.atom_bytes > 16 else ""
    swizzle = f"{made.swizzle_bytes}B{together}" if made.swizzle_bytes else "none"
    kind = _ELEMENTS[made.type]
    return TensorMap(buffer, made.box, dims=made.dims, strides=made.strides_bytes, dtype=kind, swizzle=swizzle)
