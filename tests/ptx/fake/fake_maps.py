"""Tensor maps of the driver without a GPU: what one was made of, and what it is in the emulator."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as real

from tinygpu.ptx.emulator import DeviceBuffer, TensorMap

_TYPES = {
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16: "f16",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: "bf16",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32: "f32",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT64: "f64",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_INT32: "s32",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT32: "u32",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8: "u8",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: "16u4_align16b",
    real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B: "16u6_align16b",
}
_SWIZZLES = {0: "none", 1: "32B", 2: "64B", 3: "128B", 4: "128B_ATOM_32B"}


def described_map(type_: Any, address: Any, dims: Any, strides: Any, box: Any, swizzle: Any) -> dict[str, Any]:
    """What cuTensorMapEncodeTiled is told, in plain numbers and words."""
    return {
        "address": int(address), "dtype": _TYPES[type_], "dims": tuple(map(int, dims)),
        "strides": tuple(map(int, strides)), "box": tuple(map(int, box)), "swizzle": _SWIZZLES[int(swizzle)],
    }  # fmt: skip


def numbered_map(number: int) -> Any:
    """A map that holds nothing but its number."""
    made = real.CUtensorMap()
    made.opaque = [real.cuuint64_t(number)] + [real.cuuint64_t(0)] * 15
    return made


def emulated_map(seen: dict[str, Any], buffer: DeviceBuffer) -> TensorMap:
    """The map of an array that begins where the buffer does; raises LaunchError where a driver refuses it."""
    return TensorMap(buffer, seen["box"], **{k: seen[k] for k in ("dims", "strides", "dtype", "swizzle")})
