"""What a probed kernel has recorded: the logs of its threads, put together into tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.ptx.lowering.probe import Spot

Key: TypeAlias = tuple[int, tuple[int, ...]]  # number of a spot, and its indices


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One tile of one moment.

    values  its elements
    split   per element whether threads that hold it have different values
    """

    values: NDArray[Any]
    split: NDArray[np.bool_]


def recorded(spots: Iterable[Spot], logs: NDArray[np.uint32]) -> dict[Key, Recorded]:
    """Every record, by what it is of.

    logs  (CTAs, threads, words)
    """
    known = {spot.number: spot for spot in spots}
    roles = {spot.threads for spot in known.values()}
    out: dict[Key, Recorded] = {}
    for log in logs:
        for first, count in roles:
            out |= _of_role(known, log[first : first + count])
    return out


def _of_role(known: Mapping[int, Spot], log: NDArray[np.uint32]) -> dict[Key, Recorded]:
    out: dict[Key, Recorded] = {}
    at, end = 0, log.shape[1]
    while at < end and (spot := known.get(int(log[0, at]))) is not None and (log[:, at] == spot.number).all():
        indices = tuple(int(i) for i in log[0, at + 1 : at + 1 + len(spot.indices)])
        out[spot.number, indices] = _tile(spot, log[:, at + spot.header_words : at + spot.words])
        at += spot.words
    return out


def _tile(spot: Spot, words: NDArray[np.uint32]) -> Recorded:
    """The tile of which each thread holds a part."""
    places = spot.partition.coordinates()
    held = _elements(spot, words[: places.shape[0]])[:, : places.shape[1]]
    index = tuple(places[..., axis] for axis in range(places.shape[2]))
    shape = tuple(int(e) for e in spot.tile.shape)
    values = np.zeros(shape, spot.tile.dtype.numpy)
    values[index] = held
    split = np.zeros(shape, dtype=np.bool_)
    apart = (_bits(values[index]) != _bits(held)) & ~(_nan(values[index]) & _nan(held))
    split[tuple(i[apart] for i in index)] = True
    return Recorded(values, split)


def _nan(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(values.astype(np.float64))


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def _elements(spot: Spot, words: NDArray[np.uint32]) -> NDArray[Any]:
    """(threads, values) of the registers that each thread recorded."""
    kind: DType = spot.tile.dtype
    narrow = np.dtype(f"u{kind.numpy.itemsize}")
    registers = spot.registers
    if kind.bits == 4:
        count, held = spot.partition.values.size, len(registers)
        shifts = 4 * np.arange(count // held, dtype=np.uint32)
        return ((words[:, :held, None] >> shifts) & 15).astype(np.uint8).reshape(len(words), count).view(kind.numpy)
    used = np.ascontiguousarray(words[:, : len(registers) * (2 if kind.bits == 64 else 1)])
    if kind.bits == 64 or spot.partition.values.size != len(registers):  # whole words, or several elements in each
        return used.view(narrow).view(kind.numpy)
    return used.astype(narrow).view(kind.numpy)
