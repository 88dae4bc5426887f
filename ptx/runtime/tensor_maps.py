"""Tensor maps: the 128 bytes that TMA reads, made by the driver.

The driver says no more than that a value is invalid, so everything that it asks for is asked here first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.runtime.errors import CudaError, LaunchRefused
from tinygpu.ptx.runtime.launch import Map

# CUDA driver API, cuTensorMapEncodeTiled: the arguments' ranges.
MOST_DIMENSIONS = 5
MOST_ELEMENTS = 1 << 32
MOST_STRIDE_BYTES = 1 << 40
MOST_BOX = 256
ALIGN_BYTES = 16
# cuda.h: CUtensorMap has 128 bytes; its type asks for 64, newer headers for 128.
MAP_BYTES, MAP_ALIGN_BYTES = 128, 128
# cuTensorMapEncodeTiled came with CUDA 12.0.
_SINCE = 12000
# Widths of swizzles, with the bytes that each leaves together.
SWIZZLES = {(0, 16): "NONE", (32, 16): "32B", (64, 16): "64B", (128, 16): "128B", (128, 32): "128B_ATOM_32B"}
# Elements are moved as they are, so that 8-bit floats are bytes, and tf32 is f32: TFLOAT32 would round.
TYPES = {
    "f64": "FLOAT64", "f32": "FLOAT32", "tf32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16", "s32": "INT32",
    "u32": "UINT32", "s8": "UINT8", "u8": "UINT8", "e4m3": "UINT8", "e5m2": "UINT8", "e2m1": "16U4_ALIGN16B",
    "e2m3": "16U6_ALIGN16B", "e3m2": "16U6_ALIGN16B",
}  # fmt: skip
# CUDA driver API, cuTensorMapEncodeTiled: of types that are padded in shared memory, what pointers and strides are
# multiples of, elements of a box, which rows are multiples of, and its swizzles.
PADDED_ALIGN_BYTES, PADDED_BOX, PADDED_SWIZZLES = 32, 128, (0, 128)


def check_map(made: Map, address: int) -> None:
    """Refuses what cuTensorMapEncodeTiled would, in a sentence. Raises LaunchRefused."""
    reason = _refusal(made, address)
    if reason:
        raise LaunchRefused(f"TMA cannot move {made.tensor}: {reason}")


def _refusal(made: Map, address: int) -> str:
    rank = len(made.dims)
    if not 1 <= rank <= MOST_DIMENSIONS:
        return f"it has {rank} dimensions, and tensor maps have 1 to {MOST_DIMENSIONS}"
    bits = element(made.type).bits
    align = PADDED_ALIGN_BYTES if bits < 8 else ALIGN_BYTES
    if address % align:
        return f"its address {address:#x} is not a multiple of {align} bytes"
    for size in made.dims:
        if not 1 <= size <= MOST_ELEMENTS:
            return f"a dimension has {size:,} elements, and tensor maps have 1 to {MOST_ELEMENTS:,}"
    for stride in made.strides_bytes:
        if stride % align or not 0 < stride < MOST_STRIDE_BYTES:
            return f"neighbours are {stride:,} bytes apart, and TMA takes multiples of {align} below 2^40"
    for extent in made.box:
        if not 1 <= extent <= MOST_BOX:
            return f"a box has {extent} elements along a dimension, and tensor maps take 1 to {MOST_BOX}"
    if made.type not in TYPES:
        return f"its elements are {made.type}, and tensor maps have {', '.join(TYPES)}"
    if (made.swizzle_bytes, made.atom_bytes) not in SWIZZLES:
        widths = dict.fromkeys(width for width, _ in SWIZZLES)
        if made.swizzle_bytes not in widths:
            return f"there is no swizzle of {made.swizzle_bytes} bytes; there are {', '.join(map(str, widths))}"
        atoms = [atom for width, atom in SWIZZLES if width == made.swizzle_bytes]
        return (
            f"no swizzle of {made.swizzle_bytes} bytes leaves {made.atom_bytes} together; there are those that leave "
            f"{', '.join(map(str, atoms))}"
        )
    if bits < 8:
        return _refusal_of_padded(made)
    inner = made.box[0] * bits // 8
    if inner % ALIGN_BYTES:
        return f"a box is {inner} bytes wide, and TMA takes multiples of {ALIGN_BYTES}"
    if made.swizzle_bytes and inner > made.swizzle_bytes:
        return f"a box is {inner} bytes wide, more than its swizzle of {made.swizzle_bytes}"
    return ""


def _refusal_of_padded(made: Map) -> str:
    if made.dims[0] % PADDED_BOX:
        return f"its rows have {made.dims[0]:,} elements, and TMA pads {made.type} of rows of multiples of {PADDED_BOX}"
    if made.box[0] != PADDED_BOX:
        return f"a box has {made.box[0]} elements along a row, and TMA pads {made.type} in boxes of {PADDED_BOX}"
    if made.swizzle_bytes not in PADDED_SWIZZLES:
        return f"it has a swizzle of {made.swizzle_bytes} bytes, and TMA pads {made.type} under none or one of 128"
    return ""


def encode_map(driver: Driver, made: Map, address: int) -> bytes:
    """The 128 bytes of the tensor map over the tensor at `address`; raises LaunchRefused with the reason beforehand."""
    check_map(made, address)
    module = driver.module
    rank = len(made.dims)
    sizes = (list(made.dims), list(made.strides_bytes), list(made.box), [1] * rank)
    kind = driver.enum("CUtensorMapDataType", f"CU_TENSOR_MAP_DATA_TYPE_{TYPES[made.type]}")
    layout = (
        driver.enum("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_NONE"),
        driver.enum("CUtensorMapSwizzle", f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[made.swizzle_bytes, made.atom_bytes]}"),
        driver.enum("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_L2_128B"),
        driver.enum("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
    )
    words = (module.cuuint64_t, module.cuuint64_t, module.cuuint32_t, module.cuuint32_t)
    lists = [[word(n) for n in numbers] for word, numbers in zip(words, sizes, strict=True)]
    try:
        encoded = driver.call("cuTensorMapEncodeTiled", kind, rank, address, *lists, *layout)
    except CudaError as refused:
        # all values are right: what is left is where the bindings let the driver write, which need not be aligned
        if refused.code != "CUDA_ERROR_INVALID_VALUE":
            raise
        return _encode_aligned(driver, int(kind), rank, address, sizes, [int(value) for value in layout])
    return ctypes.string_at(encoded.getPtr(), MAP_BYTES)


def _encode_aligned(
    driver: Driver, kind: int, rank: int, address: int, sizes: Sequence[Sequence[int]], layout: Sequence[int]
) -> bytes:
    """The same by the driver's own function, into memory of ours at a multiple of 128 bytes."""
    name = "cuTensorMapEncodeTiled"
    flags = driver.enum("CUdriverProcAddress_flags", "CU_GET_PROC_ADDRESS_DEFAULT")
    found = driver.call("cuGetProcAddress", name.encode(), _SINCE, flags)
    word, pointer = ctypes.c_int, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(word, pointer, word, ctypes.c_uint32, *[pointer] * 5, *[word] * 4)(int(found[0]))
    memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN_BYTES)
    start = -(-ctypes.addressof(memory) // MAP_ALIGN_BYTES) * MAP_ALIGN_BYTES
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
    arrays = [(c * max(len(n), 1))(*n) for c, n in zip(kinds, sizes, strict=True)]
    status = call(start, kind, rank, address, *(ctypes.addressof(a) for a in arrays), *layout)
    if status:
        raise CudaError(name, driver.code(driver.module.CUresult(status)))
    return ctypes.string_at(start, MAP_BYTES)
