"""A launch in the emulator: what it takes for the launch's arguments, as the runtime makes them from the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tinygpu.ptx.emulator import DeviceBuffer, SparseBuffer, TensorMap
from tinygpu.ptx.runtime.launch import Launch, Map

Buffer: TypeAlias = DeviceBuffer | SparseBuffer
# cuTensorMapEncodeTiled's name of each element type; TMA moves 8-bit floats and tf32 as they are.
_ELEMENTS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "f32", "f64": "f64", "s32": "s32", "u32": "u32", "s8": "u8",
    "u8": "u8", "e4m3": "u8", "e5m2": "u8",
}  # fmt: skip


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


def _tensor_map(made: Map, buffer: Buffer) -> TensorMap:
    swizzle = f"{made.swizzle_bytes}B" if made.swizzle_bytes else "none"
    kind = _ELEMENTS[made.type]
    return TensorMap(buffer, made.box, dims=made.dims, strides=made.strides_bytes, dtype=kind, swizzle=swizzle)
