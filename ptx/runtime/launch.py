"""A launch: everything that one kernel needs for one problem but the addresses. Plain data, to and from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tinygpu.distributions import Distribution
from tinygpu.files.shape import built
from tinygpu.ptx.runtime.elements import Element, element
from tinygpu.ptx.runtime.errors import LaunchRefused


@dataclass(frozen=True, slots=True)
class Tensor:
    """One operand.

    type         element type
    shape        extents, slowest axis first
    strides      elements between neighbours along each axis
    align_bytes  alignment of its address
    access       what the kernel does with it
    """

    name: str
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align_bytes: int
    access: Literal["in", "out", "inout"]

    def __post_init__(self) -> None:
        element(self.type)
        if len(self.shape) != len(self.strides) or not all(0 <= n < 2**48 for n in (*self.shape, *self.strides)):
            raise ValueError(
                f"{self.name} has one stride per extent, each below 2^48, not {self.shape} by {self.strides}"
            )
        if not 1 <= self.align_bytes <= 2**20:
            raise ValueError(f"{self.name} is aligned to 1 to {2**20:,} bytes, not {self.align_bytes:,}")

    @property
    def element(self) -> Element:
        return element(self.type)

    @property
    def extent_elems(self) -> int:
        """Elements from the first to just after the last, gaps between rows included."""
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def extent_bytes(self) -> int:
        return -(-self.extent_elems * self.element.bits // 8)


@dataclass(frozen=True, slots=True)
class Map:
    """One tensor map, the contiguous dimension first, as cuTensorMapEncodeTiled takes it.

    tensor         the operand whose address it holds
    type           element type; narrower than a byte, each 16 elements get 16 bytes in shared memory
    dims           elements per dimension
    strides_bytes  bytes between neighbours, in all dimensions but the first
    box            elements per dimension that one copy moves
    swizzle_bytes  width of the swizzle: 0, 32, 64 or 128
    atom_bytes     bytes that the swizzle leaves together: 16, or 32 of 128
    """

    tensor: str
    type: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    atom_bytes: int = 16


@dataclass(frozen=True, slots=True)
class Workspace:
    """Device memory that a launch needs beside its tensors; launches that may run at a time have one each.

    bytes      however many CTAs are launched
    zeroed     zeros before the first launch, and left as zeros by every one; else it may hold anything
    cta_bytes  more of them, for every CTA that is launched
    """

    name: str
    bytes: int
    zeroed: bool
    cta_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bank:
    """A variable of the module in constant space, which is filled from tensors before a launch.

    places  (tensor, byte at which it begins)
    """

    name: str
    bytes: int
    places: tuple[tuple[str, int], ...]


# What a number of each type holds.
_HELD = {"u32": (0, 2**32 - 1), "s32": (-(2**31), 2**31 - 1), "u64": (0, 2**64 - 1)}


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel parameter.

    kind   "address" of a tensor or workspace, "number" that the problem gives, "scalar" that the caller gives, "map" by
           value
    name   the tensor, workspace, scalar or map parameter
    type   of a number or scalar: "u32", "s32", "f32"
    value  of a number; raises LaunchRefused where its type does not hold it
    map    the number of a map, in `Launch.maps`
    """

    kind: Literal["address", "number", "scalar", "map"]
    name: str
    type: str = ""
    value: int = 0
    map: int = 0

    def __post_init__(self) -> None:
        least, most = _HELD.get(self.type, (-math.inf, math.inf))
        if self.kind == "number" and not least <= self.value <= most:
            raise LaunchRefused(
                f"the argument {self.name} is of type {self.type}, which holds {least} to {most}, not {self.value}"
            )


@dataclass(frozen=True, slots=True)
class Launch:
    """How one kernel is launched for one problem.

    kernel      entry point
    target      architecture that its PTX states: "sm_90a"
    ctas        CTAs that the whole problem needs; the most that have anything to do, where they share tiles in any way
    threads     per CTA
    cluster     CTAs of a cluster; 1 where there are none
    smem_bytes  dynamic shared memory per CTA
    persistent  CTAs take tile after tile: fewer than `ctas` can be launched
    cooperative all CTAs must be resident at a time
    dependent   may begin before what was launched before it has ended; the kernel itself waits for that
    banks       variables in constant space that are filled first
    values      (tensor or scalar, the whole numbers that the kernel takes there): it may make addresses of them
    then        launches that follow this one on its stream, each when the one before has ended: later steps of the same
                operation, on the same tensors; what one workspace is called in several is one
    """

    kernel: str
    target: str
    ctas: int
    threads: int
    cluster: int
    smem_bytes: int
    arguments: tuple[Argument, ...]
    tensors: tuple[Tensor, ...]
    maps: tuple[Map, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    persistent: bool = False
    cooperative: bool = False
    dependent: bool = False
    banks: tuple[Bank, ...] = ()
    values: tuple[tuple[str, Distribution], ...] = ()
    then: tuple[Launch, ...] = ()

    def __post_init__(self) -> None:
        for later in self.then:
            if later.tensors != self.tensors or later.then:
                raise ValueError(f"{later.kernel} follows {self.kernel}: on its tensors, and with nothing behind it")
        for name in ("ctas", "threads", "cluster"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ValueError(f"{name} of {self.kernel} is 1 to {2**31 - 1:,}, not {getattr(self, name):,}")
        if not 0 <= self.smem_bytes < 2**31:
            raise ValueError(f"{self.kernel} has 0 to {2**31 - 1:,} bytes of shared memory, not {self.smem_bytes:,}")
        tensors = {t.name for t in self.tensors}
        addresses = tensors | {w.name for w in self.workspaces}
        for a in self.arguments:
            if a.kind == "address" and a.name not in addresses:
                raise ValueError(f"{self.kernel} takes the address of {a.name}, which is no tensor and no workspace")
            if a.kind == "map" and not 0 <= a.map < len(self.maps):
                raise ValueError(f"{self.kernel} takes map {a.map} of {len(self.maps)}")
        for b in self.banks:
            for name, at in b.places:
                if name not in tensors:
                    raise ValueError(f"{self.kernel} has {name} in {b.name}, which is no tensor of it")
                if not 0 <= at <= b.bytes - self.tensor(name).extent_bytes:
                    raise ValueError(f"{self.kernel} has {name} at byte {at} of {b.name}, which has {b.bytes:,}")
        for m in self.maps:
            if m.tensor not in addresses:
                raise ValueError(f"{self.kernel} has a map of {m.tensor}, which is no tensor and no workspace")

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def grid(self, resident_ctas: int) -> int:
        """CTAs to launch where so many are resident at a time: whole clusters, and no more than have a tile."""
        if not self.persistent:
            return self.ctas
        return min(self.ctas, max(resident_ctas // self.cluster, 1) * self.cluster)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launch:
        """What `to_json` gave. Raises FileError for anything else."""
        return built(Launch, data, "a launch")
