"""Kernel arguments: Python values laid out as the .param bytes of an entry, buffers entered into device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.source.syntax import Function, Variable
from tinygpu.ptx.emulator.source.types import TYPES, numpy_type
from tinygpu.ptx.emulator.state.buffers import DeviceBuffer, SparseBuffer, memory_bytes
from tinygpu.ptx.emulator.state.memory import Allocation, GlobalMemory, Window


@dataclass(frozen=True, slots=True)
class Parameters:
    """The bytes of a kernel's parameters, and where each one starts."""

    data: bytes
    offsets: dict[str, int]


def bind_arguments(function: Function, args: Sequence[Any], memory: GlobalMemory) -> Parameters:
    """The parameter bytes of a launch; its buffers are entered into device memory."""
    formal = function.parameters
    if len(args) != len(formal):
        names = ", ".join(p.name for p in formal)
        raise LaunchError(f"{function.name} takes {len(formal)} arguments ({names}), not {len(args)}")
    data = bytearray()
    offsets: dict[str, int] = {}
    placed: dict[tuple[int, int], int] = {}
    for parameter, value in zip(formal, args, strict=True):
        size = max(parameter.size_bytes, 1)
        start = (len(data) + parameter.align_bytes - 1) // parameter.align_bytes * parameter.align_bytes
        data.extend(bytes(start - len(data)))
        offsets[parameter.key] = start
        data.extend(_encode(parameter, value, size, memory, placed))
    return Parameters(bytes(data), offsets)


def _encode(
    parameter: Variable, value: Any, size: int, memory: GlobalMemory, placed: dict[tuple[int, int], int]
) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim > 0:
        value = DeviceBuffer(value, name=parameter.name)
    if isinstance(value, (DeviceBuffer, SparseBuffer)):
        if size != 8:
            raise LaunchError(f"{parameter.name} is a parameter of {size} bytes and cannot take a buffer's address")
        return (_place(value, parameter.name, memory, placed) + value.offset).to_bytes(8, "little")
    if isinstance(value, (bytes, bytearray, memoryview)):
        raw = bytes(value)
        if len(raw) != size:
            raise LaunchError(f"{parameter.name} has {size} bytes, but the argument has {len(raw)}")
        return raw
    return _encode_scalar(parameter, value, size)


def _encode_scalar(parameter: Variable, value: Any, size: int) -> bytes:
    if isinstance(value, (np.generic, np.ndarray)):
        raw = np.asarray(value).tobytes()
        if len(raw) != size:
            raise LaunchError(
                f"{parameter.name} has {size} bytes, but {np.asarray(value).dtype} has {len(raw)}: pass the right type"
            )
        return raw
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int):
        if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            raise LaunchError(f"{parameter.name} has {size} bytes, into which {value} does not fit")
        if TYPES[parameter.type_name].is_float:
            return _encode_scalar(parameter, float(value), size)
        return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if isinstance(value, float):
        kinds: dict[int, Any] = {2: np.float16, 4: np.float32, 8: np.float64}
        if parameter.type_name == "bf16":
            return np.array(value, ml_dtypes.bfloat16).tobytes()
        if TYPES[parameter.type_name].is_float:
            return np.array(value, numpy_type(parameter.type_name)).tobytes()
        if size in kinds:
            return np.array(value, kinds[size]).tobytes()
    raise LaunchError(
        f"{parameter.name} cannot take {value!r}: pass an array, a DeviceBuffer or SparseBuffer, a number, or bytes"
    )


def _place(
    buffer: DeviceBuffer | SparseBuffer, name: str, memory: GlobalMemory, placed: dict[tuple[int, int], int]
) -> int:
    """Enter a buffer into device memory (once, also when it is passed twice); returns its base address."""
    if isinstance(buffer, DeviceBuffer):
        start = buffer.array.__array_interface__["data"][0] if buffer.array.size else id(buffer)
        identity = (start, buffer.array.nbytes) if buffer.base is None else (id(buffer), -1)
        if identity in placed:
            return placed[identity]
        data = memory_bytes(buffer.array, buffer.name or name)
        if not buffer.array.flags.writeable:
            allocation = Allocation(buffer.name or name, 0, data.size, writable=False)
        else:
            allocation = Allocation(buffer.name or name, 0, data.size)
        allocation.base = buffer.base if buffer.base is not None else memory.place(data.size)
        memory.add(allocation, [Window(allocation, allocation.base, data, buffer.initialised)])
        placed[identity] = allocation.base
        return allocation.base
    if (id(buffer), -1) in placed:
        return placed[id(buffer), -1]
    allocation = Allocation(buffer.name or name, 0, buffer.size_bytes)
    allocation.base = buffer.base if buffer.base is not None else memory.place(buffer.size_bytes)
    windows = [
        Window(allocation, allocation.base + start, memory_bytes(array, name))
        for start, array in sorted(buffer.regions.items(), key=lambda item: item[0])
    ]
    memory.add(allocation, windows)
    placed[id(buffer), -1] = allocation.base
    return allocation.base
