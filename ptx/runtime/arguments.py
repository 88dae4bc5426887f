"""Kernel arguments in memory, as cuLaunchKernelEx reads them: values, and an array of pointers to them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.launch import Argument, Launch
from tinygpu.ptx.runtime.tensor_maps import MAP_BYTES, encode_map

# PTX: sizes of parameters; a tensor map is .align 64 .b8[128].
_FORMATS = {"u32": "<I", "s32": "<i", "f32": "<f", "u64": "<Q"}
_MAP_ALIGN = 64
_NUMBERS = (int, float, np.integer, np.floating)


class ArgumentBuffer:
    """The arguments of one launch, at addresses that stay.

    address  of the array of pointers: what cuLaunchKernelEx takes as kernelParams
    fills    what is copied into banks before the launch: (bank, byte in it, address to copy from, bytes)
    """

    __slots__ = ("_base", "_memory", "_scalars", "address", "fills")

    def __init__(self, driver: Driver, launch: Launch, addresses: Mapping[str, int]) -> None:
        """
        addresses  of every tensor and workspace of the launch

        Raises LaunchRefused where a tensor map cannot be made.
        """
        maps = [encode_map(driver, m, addresses[m.tensor]) for m in launch.maps]
        self.fills = tuple(
            (bank.name, at, addresses[name], launch.tensor(name).extent_bytes)
            for bank in launch.banks for name, at in bank.places
        )  # fmt: skip
        places, end = _places(launch.arguments)
        count = len(launch.arguments)
        # pointers first, then the values, at a multiple of the largest alignment
        head = -(-count * 8 // _MAP_ALIGN) * _MAP_ALIGN
        self._memory = ctypes.create_string_buffer(head + end + _MAP_ALIGN)
        start = -(-ctypes.addressof(self._memory) // _MAP_ALIGN) * _MAP_ALIGN
        self._base = start - ctypes.addressof(self._memory)
        self._scalars: dict[str, tuple[int, struct.Struct]] = {}
        self.address = start
        for number, (argument, place) in enumerate(zip(launch.arguments, places, strict=True)):
            offset = self._base + head + place
            struct.pack_into("<Q", self._memory, self._base + number * 8, start + head + place)
            if argument.kind == "address":
                struct.pack_into("<Q", self._memory, offset, addresses[argument.name])
            elif argument.kind == "number":
                struct.pack_into(_FORMATS[argument.type], self._memory, offset, argument.value)
            elif argument.kind == "scalar":
                self._scalars[argument.name] = (offset, struct.Struct(_FORMATS[argument.type]))
            else:
                struct.pack_into(f"{MAP_BYTES}s", self._memory, offset, maps[argument.map])

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the numbers that the caller gives with every launch."""
        return tuple(self._scalars)

    def set_scalar(self, name: str, value: Any) -> None:
        """Writes a number; raises WrongArray where the parameter does not hold it."""
        offset, kind = self._scalars[name]
        try:
            kind.pack_into(self._memory, offset, value)
        except (struct.error, OverflowError):
            self._set_checked(name, value, offset, kind)

    def _set_checked(self, name: str, value: Any, offset: int, kind: struct.Struct) -> None:
        """A number that does not pack at once: one of NumPy, or one that cannot be."""
        word = next(t for t, f in _FORMATS.items() if f == kind.format)
        if isinstance(value, _NUMBERS) and (word == "f32" or float(value).is_integer()):
            try:
                kind.pack_into(self._memory, offset, float(value) if word == "f32" else int(value))
                return
            except (struct.error, OverflowError):
                pass
        raise WrongArray(f"{name} is a number of type {word}, not {value!r}")


def _places(arguments: tuple[Argument, ...]) -> tuple[list[int], int]:
    """Byte offsets of the values, each a multiple of its alignment, and their end."""
    places, end = [], 0
    for argument in arguments:
        if argument.kind in ("address", "map"):
            size = 8 if argument.kind == "address" else MAP_BYTES
        else:
            size = struct.calcsize(_FORMATS[argument.type])
        align = _MAP_ALIGN if argument.kind == "map" else size
        place = -(-end // align) * align
        places.append(place)
        end = place + size
    return places, end
