"""Arrays in NumPy's format, read without believing their headers."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.files.error import FileError, excerpt

# Source: NEP 1 and numpy.lib.format: magic, version, length of the header, a literal dictionary of three entries.
_MAGIC = b"\x93NUMPY"
_LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MOST_HEADER = 4096
_TYPE = re.compile(r"[<>|=][biufcVSU]\d{1,6}")


def array_of(data: bytes, where: str) -> NDArray[Any]:
    """The array of a .npy file: numbers, truth values, text or raw bytes, never objects. Raises FileError.

    Its shape is compared with the bytes that are there before any memory is asked for.
    """
    width = _LENGTHS.get((data[6], data[7])) if data.startswith(_MAGIC) and len(data) >= 8 else None
    if width is None:
        raise FileError(f"{where} is no NumPy file: it does not begin as one")
    start = 8 + width
    end = start + int.from_bytes(data[8:start], "little")
    if end > min(len(data), start + _MOST_HEADER):
        raise FileError(f"{where} is no NumPy file: its header has not the length that it says")
    kind, shape, order = _header(data[start:end], where)
    needed = math.prod(shape) * kind.itemsize
    if len(data) - end != needed:
        raise FileError(
            f"{where} is damaged: its shape {excerpt(list(shape))} of {kind} takes {needed:,} bytes, and it has "
            f"{len(data) - end:,}"
        )
    flat: NDArray[Any] = np.frombuffer(data, dtype=kind, offset=end).copy()
    return flat.reshape(shape, order=order)


def _header(text: bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...], Any]:
    try:
        found = ast.literal_eval(text.decode("latin-1").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, dict) or {*found} != {"descr", "fortran_order", "shape"}:
        raise FileError(f"{where} is no NumPy file: its header is damaged")
    descr, shape = found["descr"], found["shape"]
    if not isinstance(descr, str) or not _TYPE.fullmatch(descr):
        raise FileError(f"{where} holds elements of type {excerpt(descr)}; arrays of plain numbers are read")
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**62 for n in shape) or len(shape) > 32:
        raise FileError(f"{where} is damaged: {excerpt(shape)} is no shape")
    try:
        kind = np.dtype(descr)
    except (TypeError, ValueError):
        raise FileError(f"{where} holds elements of type {excerpt(descr)}, which NumPy does not know") from None
    if not kind.itemsize:
        raise FileError(f"{where} holds elements of no bytes")
    return kind, shape, "F" if found["fortran_order"] is True else "C"
