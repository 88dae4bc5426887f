"""An access: which byte each lane of one warp instruction touches, and what that costs the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost import banks, coalescing
from tinygpu.layouts.f2 import images, linear_form

Memory = Literal["smem", "gmem"]
Kind = Literal["ldst", "ldmatrix"]
How = Literal["closed form", "counted"]


@dataclass(frozen=True, slots=True)
class LinearLanes:
    """Lane -> base + (constant XOR columns of the lane's set bits), in bytes.

    columns      image of each lane bit
    constant     XORed to every image
    base_bytes   added at the end
    """

    columns: tuple[int, ...]
    constant: int = 0
    base_bytes: int = 0

    def __post_init__(self) -> None:
        if min(*self.columns, self.constant, self.base_bytes) < 0:
            raise ValueError(f"[access] bit columns, constant and base are non-negative bytes, not {self!r}")

    def addresses(self) -> NDArray[np.int64]:
        """Byte address of each lane, shape (2^bits,)."""
        return self.base_bytes + images(self.columns, self.constant)


@dataclass(frozen=True, slots=True)
class StridedLanes:
    """Lane -> offset + sum of coordinate * stride, in bytes; the first mode of the shape varies fastest.

    >>> StridedLanes((8, 4), (16, 512)).addresses()[:10].tolist()
    [0, 16, 32, 48, 64, 80, 96, 112, 512, 528]
    """

    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    offset_bytes: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides_bytes):
            raise ValueError(f"[access] shape {self.shape} and strides {self.strides_bytes} must have equal length")
        if any(extent < 1 for extent in self.shape):
            raise ValueError(f"[access] the extents of {self.shape} must be positive")
        low = self.offset_bytes + sum((n - 1) * min(0, d) for n, d in zip(self.shape, self.strides_bytes, strict=True))
        if low < 0:
            raise ValueError(f"[access] the lowest address is {low}; raise the offset so that none is negative")

    def addresses(self) -> NDArray[np.int64]:
        """Byte address of each lane, shape (product of the extents,)."""
        values = np.array([self.offset_bytes], dtype=np.int64)
        for extent, stride in zip(self.shape, self.strides_bytes, strict=True):
            values = (values[None, :] + stride * np.arange(extent, dtype=np.int64)[:, None]).reshape(-1)
        return values

    def coalesced(self) -> StridedLanes:
        """The same map with neighbouring modes joined where the outer continues the inner."""
        modes: list[tuple[int, int]] = []
        for extent, stride in zip(self.shape, self.strides_bytes, strict=True):
            if extent == 1:
                continue
            if modes and stride == modes[-1][0] * modes[-1][1]:
                modes[-1] = (modes[-1][0] * extent, modes[-1][1])
            else:
                modes.append((extent, stride))
        return StridedLanes(tuple(n for n, _ in modes), tuple(d for _, d in modes), self.offset_bytes)


@dataclass(frozen=True, slots=True)
class ListedLanes:
    """Lane -> byte address, listed; -1 is an inactive lane."""

    byte_addresses: tuple[int, ...]

    def addresses(self) -> NDArray[np.int64]:
        """Byte address of each lane, shape (lanes,); -1 for an inactive one."""
        return np.array(self.byte_addresses, dtype=np.int64)


Lanes: TypeAlias = LinearLanes | StridedLanes | ListedLanes


@dataclass(frozen=True, slots=True)
class AccessCost:
    """What one warp instruction costs its memory.

    count    sectors or wavefronts
    ideal    the fewest that any placement of the same amount of data could need
    unit     "sectors" (GMEM) or "wavefronts" (SMEM)
    how      "closed form", or "counted" where none applies
    formula  the closed form with its numbers, or why it was counted
    """

    count: int
    ideal: int
    unit: Literal["sectors", "wavefronts"]
    how: How
    formula: str

    @property
    def efficiency(self) -> float:
        """ideal / count, 0 .. 1; 1 for an instruction without an active lane."""
        return self.ideal / self.count if self.count else 1.0

    def __str__(self) -> str:
        return f"{_plural(self.count, self.unit[:-1])} (ideal {self.ideal}), {self.how}: {self.formula}"


@dataclass(frozen=True, slots=True)
class Access:
    """One warp instruction's touch of one memory.

    name         in the user's words: "store A", "read B by columns"
    lanes        lane -> byte address
    width_bytes  bytes that each lane moves (16 for ldmatrix, whose lanes give the addresses of rows)
    memory       "smem" or "gmem"
    kind         "ldst" (ld, st, cp.async) or "ldmatrix" (also stmatrix; 8, 16 or 32 lanes give addresses)

    >>> print(Access("column", StridedLanes((32,), (128,)), 4, "smem").cost())
    32 wavefronts (ideal 1), closed form: 1 phase x gcd(32, 32)
    """

    name: str
    lanes: Lanes
    width_bytes: int
    memory: Memory
    kind: Kind = "ldst"

    def __post_init__(self) -> None:
        if self.memory not in ("smem", "gmem"):
            raise ValueError(f"[{self.name}] the memory of an access is smem or gmem, not {self.memory!r}")
        if self.kind == "ldmatrix" and (self.memory != "smem" or self.width_bytes != banks.MATRIX_ROW_BYTES):
            raise ValueError(
                f"[{self.name}] ldmatrix moves rows of 16 bytes of smem, not {self.width_bytes} bytes of {self.memory}"
            )
        addresses = self.lanes.addresses()
        wanted = (8, 16, 32) if self.kind == "ldmatrix" else (32,)
        if len(addresses) not in wanted:
            raise ValueError(
                f"[{self.name}] {' or '.join(map(str, wanted))} lanes give an address, but {len(addresses)} are mapped"
            )
        self._count(addresses)  # refuses illegal widths and misaligned lanes

    def addresses(self) -> NDArray[np.int64]:
        """Byte address of each lane; -1 for an inactive one. Shape (32,), or (8,), (16,), (32,) for ldmatrix."""
        return self.lanes.addresses()

    def counted(self) -> int:
        """Sectors or wavefronts, counted by definition."""
        return self._count(self.addresses())

    def cost(self) -> AccessCost:
        """Sectors or wavefronts, by a closed form where one applies, otherwise counted."""
        unit: Literal["sectors", "wavefronts"] = "sectors" if self.memory == "gmem" else "wavefronts"
        closed = self._linear() or self._strided()
        if closed is not None:
            return AccessCost(closed[0], self._ideal(), unit, "closed form", closed[1])
        return AccessCost(self.counted(), self._ideal(), unit, "counted", "the lanes fit no closed form")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary from which `from_json` builds the same access."""
        form: dict[str, Any]
        if isinstance(self.lanes, LinearLanes):
            form = {
                "columns": list(self.lanes.columns),
                "constant": self.lanes.constant,
                "base_bytes": self.lanes.base_bytes,
            }
        elif isinstance(self.lanes, StridedLanes):
            form = {
                "shape": list(self.lanes.shape),
                "strides_bytes": list(self.lanes.strides_bytes),
                "offset_bytes": self.lanes.offset_bytes,
            }
        else:
            form = {"byte_addresses": list(self.lanes.byte_addresses)}
        return {
            "name": self.name,
            "lanes": form,
            "width_bytes": self.width_bytes,
            "memory": self.memory,
            "kind": self.kind,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Access:
        """The access that `to_json` wrote."""
        form = data["lanes"]
        lanes: Lanes
        if "columns" in form:
            lanes = LinearLanes(tuple(form["columns"]), form["constant"], form["base_bytes"])
        elif "shape" in form:
            lanes = StridedLanes(tuple(form["shape"]), tuple(form["strides_bytes"]), form["offset_bytes"])
        else:
            lanes = ListedLanes(tuple(form["byte_addresses"]))
        return cls(data["name"], lanes, data["width_bytes"], data["memory"], data["kind"])

    def _count(self, addresses: NDArray[np.int64]) -> int:
        if self.memory == "gmem":
            return coalescing.sectors(addresses, self.width_bytes)
        if self.kind == "ldmatrix":
            return int(banks.matrix_wavefronts(addresses))
        return banks.wavefronts(addresses, self.width_bytes)

    def _ideal(self) -> int:
        addresses = self.addresses()
        if self.memory == "gmem":
            return int(coalescing.ideal_sectors(addresses, self.width_bytes))
        phase_lanes = 8 if self.kind == "ldmatrix" else 32 // banks.phases(self.width_bytes)
        return int((addresses.reshape(-1, phase_lanes) >= 0).any(axis=1).sum())

    def _linear(self) -> tuple[int, str] | None:
        lanes = _as_linear(self.lanes)
        if lanes is None:
            return None
        columns, width = lanes.columns, self.width_bytes
        if self.memory == "gmem":
            # With a base inside a sector the additions carry, and the sector number is not linear any more.
            if lanes.base_bytes % coalescing.SECTOR_BYTES:
                return None
            count = coalescing.linear_sectors(columns, width)
            return count, f"2^rank(A >> 5) = 2^{count.bit_length() - 1}"
        # An added base turns all banks by the same amount, as long as it is made of whole words.
        if lanes.base_bytes % banks.BANK_BYTES:
            return None
        if self.kind == "ldmatrix":
            count = banks.linear_matrix_wavefronts(columns)
            groups = 2 ** (len(columns) - 3)
        else:
            count = banks.linear_wavefronts(columns, width)
            groups = banks.phases(width)
        fold = count // groups
        return count, f"{_plural(groups, 'phase')} x 2^(rank(W P) - rank(B P)) = {groups} x 2^{fold.bit_length() - 1}"

    def _strided(self) -> tuple[int, str] | None:
        if not isinstance(self.lanes, StridedLanes) or self.kind == "ldmatrix":
            return None
        lanes, width = self.lanes.coalesced(), self.width_bytes
        if len(lanes.shape) > 1:
            return None
        (stride,) = lanes.strides_bytes
        if self.memory == "gmem":
            count = coalescing.strided_sectors(stride, width, lanes.offset_bytes)
            return count, f"stride {stride} B from byte {lanes.offset_bytes % coalescing.SECTOR_BYTES} of a sector"
        folded = banks.strided_wavefronts(stride, width)
        if folded is None:
            return None
        if stride == 0 or width < banks.BANK_BYTES:
            return folded, f"stride {stride} B of {width}-byte lanes"
        units, groups = abs(stride) // width, banks.ROW_BYTES // width
        return folded, f"{_plural(banks.phases(width), 'phase')} x gcd({units}, {groups})"


def recognise(addresses: NDArray[np.int64]) -> Lanes:
    """The shortest form of listed byte addresses: strided, else F2-linear, else the list itself.

    >>> recognise(np.arange(32) * 12)
    StridedLanes(shape=(32,), strides_bytes=(12,), offset_bytes=0)
    """
    values = np.asarray(addresses, dtype=np.int64)
    if values.ndim != 1:
        raise ValueError(f"[access] one address for each lane is needed, not the shape {values.shape}")
    if len(values) > 1 and np.all(values >= 0):
        steps = set(np.diff(values).tolist())
        if len(steps) == 1:
            return StridedLanes((len(values),), (steps.pop(),), int(values[0]))
        form = linear_form(values)
        if form is not None:
            return LinearLanes(*form)
    return ListedLanes(tuple(int(value) for value in values))


def _as_linear(lanes: Lanes) -> LinearLanes | None:
    """The F2 form of lanes, or None: strides must be powers of two (or 0) whose images do not overlap."""
    if isinstance(lanes, LinearLanes):
        return lanes
    if isinstance(lanes, ListedLanes):
        form = linear_form(lanes.addresses())
        return None if form is None else LinearLanes(*form)
    if len(lanes.coalesced().shape) <= 1:
        return None  # one stride has a closed form of its own, for any stride
    # The offset is an added base, so linearity is asked of the map without it.
    form = linear_form(lanes.addresses() - lanes.offset_bytes)
    return None if form is None else LinearLanes(*form, lanes.offset_bytes)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
