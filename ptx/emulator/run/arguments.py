"""Kernel arguments: Python values laid out as the .param bytes of an entry, buffers entered into device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.run.structs import Struct
from tinygpu.ptx.emulator.source.syntax import Function, Variable
from tinygpu.ptx.emulator.source.types import TYPES, numpy_type
from tinygpu.ptx.emulator.state.buffers import DeviceBuffer, SparseBuffer, memory_bytes
from tinygpu.ptx.emulator.state.memory import Allocation, GlobalMemory, Window
from tinygpu.ptx.emulator.state.tensor_map import TensorMap
from tinygpu.ptx.emulator.units.tensor_maps import MAP_BYTES

Buffer = DeviceBuffer | SparseBuffer


@dataclass(frozen=True, slots=True)
class Parameters:
    """The bytes of a kernel's parameters, and where each one starts."""

    data: bytes
    offsets: dict[str, int]


def bind_arguments(
    function: Function, args: Sequence[Any], memory: GlobalMemory, buffers: Sequence[Buffer | TensorMap] = ()
) -> Parameters:
    """The parameter bytes of a launch; its buffers are entered into device memory.

    buffers  buffers that are reached only through pointers in other buffers or in bytes
    """
    formal = function.parameters
    if len(args) != len(formal):
        names = ", ".join(p.name for p in formal)
        raise LaunchError(f"{function.name} takes {len(formal)} arguments ({names}), not {len(args)}")
    values = [_wrapped(value, parameter.name) for value, parameter in zip(args, formal, strict=True)]
    placement = _Placement(memory)
    # Those whose address is fixed come first: the same array elsewhere is then the same buffer.
    for value, parameter in zip(values, formal, strict=True):
        for buffer in _buffers(value):
            if buffer.fixed_base is not None:
                placement.base(buffer, parameter.name)
    for n, item in enumerate(buffers):
        listed = item.buffer if isinstance(item, TensorMap) else item
        if not isinstance(listed, (DeviceBuffer, SparseBuffer)):
            raise LaunchError(
                f"buffers[{n}] is no DeviceBuffer, SparseBuffer or TensorMap: wrap the array in a DeviceBuffer and "
                "write its address where the kernel reads it"
            )
        placement.base(listed, f"buffers[{n}]")
    data = bytearray()
    offsets: dict[str, int] = {}
    for parameter, value in zip(formal, values, strict=True):
        size = max(parameter.size_bytes, 1)
        start = (len(data) + parameter.align_bytes - 1) // parameter.align_bytes * parameter.align_bytes
        data.extend(bytes(start - len(data)))
        offsets[parameter.key] = start
        data.extend(_encode(parameter, value, size, placement))
    return Parameters(bytes(data), offsets)


def _wrapped(value: Any, name: str) -> Any:
    return DeviceBuffer(value, name=name) if isinstance(value, np.ndarray) and value.ndim > 0 else value


def _buffers(value: Any) -> Iterator[Buffer]:
    """The buffers that an argument brings along."""
    if isinstance(value, (DeviceBuffer, SparseBuffer)):
        yield value
    elif isinstance(value, TensorMap):
        yield value.buffer
    elif isinstance(value, Struct):
        for item in value.items():
            if not isinstance(item, Struct):
                yield from _buffers(item)


def _encode(parameter: Variable, value: Any, size: int, placement: _Placement) -> bytes:
    if isinstance(value, (DeviceBuffer, SparseBuffer)):
        if size != 8:
            raise LaunchError(f"{parameter.name} is a parameter of {size} bytes and cannot take a buffer's address")
        return placement.pointer(value, parameter.name)
    if isinstance(value, TensorMap):
        if size == MAP_BYTES:
            return placement.map_bytes(value, parameter.name)
        if size == 8:
            return placement.map_address(value, parameter.name).to_bytes(8, "little")
        raise LaunchError(
            f"{parameter.name} is a parameter of {size} bytes and cannot take a tensor map: that takes {MAP_BYTES} "
            "bytes, or 8 for a pointer to it"
        )
    if isinstance(value, Struct):
        raw = value.encode(lambda item: placement.inside_struct(item, parameter.name))
        if len(raw) != size:
            raise LaunchError(f"{parameter.name} has {size} bytes, but the struct has {len(raw)}")
        return raw
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
        f"{parameter.name} cannot take {value!r}: pass an array, a DeviceBuffer or SparseBuffer, a TensorMap, a "
        "number, a Struct, or bytes"
    )


class _Placement:
    """Where the buffers and tensor maps of one launch lie. The same array passed twice is one buffer."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._bases: dict[tuple[int, int], int] = {}
        self._maps: dict[int, int] = {}

    def pointer(self, buffer: Buffer, name: str) -> bytes:
        """The 8 bytes of the pointer that the kernel gets."""
        return (self.base(buffer, name) + buffer.offset).to_bytes(8, "little")

    def map_bytes(self, tensor_map: TensorMap, name: str) -> bytes:
        """The 128 bytes of a tensor map whose tensor is in device memory now."""
        buffer = tensor_map.buffer
        return tensor_map.fields(self.base(buffer, name) + buffer.offset).encode()

    def map_address(self, tensor_map: TensorMap, name: str) -> int:
        """Lay a tensor map itself into device memory, and say where."""
        if id(tensor_map) not in self._maps:
            data = np.frombuffer(self.map_bytes(tensor_map, name), np.uint8).copy()
            allocation = Allocation(f"the tensor map of {name}", self._memory.place(data.size), data.size)
            self._memory.add(allocation, [Window(allocation, allocation.base, data)])
            self._maps[id(tensor_map)] = allocation.base
        return self._maps[id(tensor_map)]

    def inside_struct(self, item: Any, name: str) -> bytes:
        """The bytes of an array, a buffer or a tensor map that is a field of a struct."""
        if isinstance(item, TensorMap):
            return self.map_bytes(item, name)
        return self.pointer(_wrapped(item, name), name)

    def base(self, buffer: Buffer, name: str) -> int:
        """Enter a buffer into device memory, once; returns its base address."""
        name = buffer.name or name
        identity = (id(buffer), -1)
        if isinstance(buffer, DeviceBuffer) and buffer.array.size:
            identity = (buffer.array.__array_interface__["data"][0], buffer.array.nbytes)
        if identity in self._bases:
            base = self._bases[identity]
            if buffer.fixed_base not in (None, base):
                raise LaunchError(
                    f"{name} is an array that already lies at {base:#x} and cannot lie at {buffer.fixed_base:#x} too: "
                    "use one DeviceBuffer for both"
                )
            return base
        base = buffer.fixed_base if buffer.fixed_base is not None else self._memory.place(buffer.size_bytes)
        if isinstance(buffer, DeviceBuffer):
            data = memory_bytes(buffer.array, name)
            allocation = Allocation(name, base, data.size, writable=buffer.array.flags.writeable)
            windows = [Window(allocation, base, data, buffer.initialised)]
        else:
            allocation = Allocation(name, base, buffer.size_bytes)
            windows = [
                Window(allocation, base + start, memory_bytes(array, name))
                for start, array in sorted(buffer.regions.items(), key=lambda item: item[0])
            ]
        self._memory.add(allocation, windows)
        self._bases[identity] = base
        return base
