"""What a launch on a GPU that is not there is given: parameters behind pointers, attributes, the cluster."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as real

from tinygpu.ptx.emulator.run.prepared import find_entry
from tinygpu.ptx.emulator.source.parser import parse


def parameters_of(ptx: str, address: int) -> list[bytes]:
    """The bytes of every parameter, through the array of pointers."""
    declared = find_entry(parse(ptx), None).parameters
    pointers = (ctypes.c_uint64 * len(declared)).from_address(address)
    return [ctypes.string_at(pointer, p.size_bytes) for pointer, p in zip(pointers, declared, strict=True)]


def attributes_of(config: Any) -> list[Any]:
    return list(config.attrs) if config.numAttrs else []


def cluster_of(config: Any) -> int:
    name = real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    return next((int(a.value.clusterDim.x) for a in attributes_of(config) if a.id == name), 1)
