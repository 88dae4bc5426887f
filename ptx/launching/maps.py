"""Tensor maps of a launch: what a kernel's specification and a problem's operand make of one."""

from __future__ import annotations

from tinygpu.language.problem import Operand
from tinygpu.ptx.emulator import DeviceBuffer, SparseBuffer, TensorMap
from tinygpu.ptx.launching.kernel import TensorMapSpec

# cuTensorMapEncodeTiled's name of each element type; TMA moves 8-bit floats and tf32 as they are.
ELEMENTS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "f32", "f64": "f64", "s32": "s32", "u32": "u32", "s8": "u8",
    "u8": "u8", "e4m3": "u8", "e5m2": "u8",
}  # fmt: skip


def dims_and_strides(spec: TensorMapSpec, operand: Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(elements per dimension, bytes between neighbours along all but the first), the contiguous dimension first."""
    strides = operand.strides()
    dims = tuple(operand.shape[a] for a in spec.order)
    return dims, tuple(strides[a] * operand.dtype.bits // 8 for a in spec.order[1:])


def emulated_map(spec: TensorMapSpec, operand: Operand, buffer: DeviceBuffer | SparseBuffer) -> TensorMap:
    """The tensor map for the emulator, over the operand's buffer."""
    dims, strides = dims_and_strides(spec, operand)
    return TensorMap(
        buffer, spec.box, dims=dims, strides=strides, dtype=ELEMENTS[operand.dtype.name],
        swizzle=f"{spec.span_bytes}B",
    )  # fmt: skip
