"""Kernels that other compilers made of sources written here, each with a right result: what witnesses do.

A witness never looks at a table of the emulator: operands come from NumPy, descriptors, places and addresses from the
compiler (CuTe by nvcc: `witnesses/`; Triton: `triton_kernels/`), and the result is compared with NumPy again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from triton_fixture import FOLDER, launch_unchecked, load

from tinygpu.ptx.emulator import EmulationFault, Report, UnsupportedInstruction, emulate

WITNESSES = Path(__file__).parent / "witnesses"
Values = NDArray[Any]
Finish = Callable[[Values, Values, Values], Values]
F16, F32, I32, S8, U8 = np.float16, np.float32, np.int32, np.int8, np.uint8
BF16, E4M3, E5M2, E2M1 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn

# (report, whether the result is right)
Result = tuple[Report, bool]
RIGHT, WRONG = "right", "the result is wrong"


def outcome(witness: str) -> str:
    """What comes out when this witness runs: `RIGHT`, `WRONG`, or the fault or refusal, as a sentence.

    Operations land as late as they may, so that nobody gets by chance what he has not waited for.
    """
    try:
        report, right = WITNESS[witness]()
    except (EmulationFault, UnsupportedInstruction) as refused:
        return str(refused)
    if report.faults:
        return str(report.faults[0])
    return RIGHT if right else WRONG


@cache
def _text(file: str) -> str:
    return (WITNESSES / f"{file}.ptx").read_text(encoding="utf-8")


def _run(file: str, entry: str, *args: Any) -> Report:
    return emulate(_text(file), entry=entry, grid=1, block=128, args=args, check="collect")


def _small(rng: np.random.Generator, kind: Any, *shape: int) -> Values:
    """Integers for which all sums are exact."""
    least = 0 if kind is U8 else -4
    return np.asarray(rng.integers(least, 5, shape).astype(kind))


def _wide(values: Values) -> Values:
    return np.asarray(values.astype(np.float64))


def _product(file: str, entry: str, m: int, n: int, kinds: tuple[Any, Any, Any], finish: Finish) -> Result:
    """d = a b^T of four steps along k, or what `finish` makes of a, b and the old d."""
    rng = np.random.default_rng(11)
    k = 4 * 32 // np.dtype(kinds[0]).itemsize
    a, b = _small(rng, kinds[0], m, k), _small(rng, kinds[1], n, k)
    d = rng.integers(-50, 50, (m, n)).astype(kinds[2])
    if entry in ("bytes_saturated", "bytes_wrapped"):
        d = (d.astype(np.int64) % 100 + 2**31 - 100).astype(I32)
        a, b = np.abs(a), np.abs(b)
    want = finish(_wide(a), _wide(b), _wide(d))
    report = _run(file, entry, a, b, d)
    return report, bool((_wide(d) == want).all())


def _plain(a: Values, b: Values, d: Values) -> Values:
    return np.asarray(a @ b.T)


def _negated(a: Values, b: Values, d: Values) -> Values:
    return np.asarray(-(a @ b.T))


def _added(a: Values, b: Values, d: Values) -> Values:
    return np.asarray(a @ b.T + d)


def _saturated(a: Values, b: Values, d: Values) -> Values:
    return np.asarray(np.clip(a @ b.T + d, -(2**31), 2**31 - 1))


def _wrapped(a: Values, b: Values, d: Values) -> Values:
    return np.asarray((a @ b.T + d + 2**31) % 2**32 - 2**31)


def _eighths(a: Values, b: Values, d: Values) -> Values:
    """Every step divides what is there by eight."""
    for step in np.split(np.arange(a.shape[1]), 4):
        d = a[:, step] @ b[:, step].T + d / 8
    return d


_PRODUCTS: dict[str, tuple[int, int, tuple[Any, Any, Any], Finish]] = {
    "rows_128_64": (128, 48, (F16, F16, F32), _plain),
    "rows_32_none": (128, 80, (BF16, BF16, F32), _plain),
    "rows_none_32": (128, 16, (F16, F16, F32), _plain),
    "columns_128_64": (128, 64, (F16, F16, F32), _plain),
    "columns_32_none": (128, 48, (BF16, BF16, F32), _plain),
    "columns_none_rows": (128, 32, (F16, F16, F32), _plain),
    "rows_columns_128": (128, 128, (F16, F16, F32), _plain),
    "tf32_rows": (128, 32, (F32, F32, F32), _plain),
    "tf32_columns": (128, 64, (F32, F32, F32), _plain),
    "bytes_s8_u8": (128, 32, (S8, U8, I32), _plain),
    "bytes_u8_s8_columns": (128, 64, (U8, S8, I32), _plain),
    "bytes_saturated": (128, 16, (S8, S8, I32), _saturated),
    "bytes_wrapped": (128, 16, (S8, S8, I32), _wrapped),
    "fp8_e4m3_e5m2": (128, 32, (E4M3, E5M2, F32), _plain),
    "fp8_e5m2_e4m3_columns": (128, 128, (E5M2, E4M3, F32), _plain),
    "negated_a": (128, 16, (F16, F16, F32), _negated),
    "negated_b": (128, 16, (F16, F16, F32), _negated),
    "added": (128, 32, (F16, F16, F32), _added),
    "scaled_sums": (128, 32, (F16, F16, F32), _eighths),
    "half_sums": (128, 32, (F16, F16, F16), _plain),
    "half_sums_added": (128, 32, (F16, F16, F16), _added),
    "half_lanes_64b": (64, 32, (F16, F16, F32), _added),
    "half_lanes_128b": (64, 32, (F16, F16, F32), _added),
    "half_lanes_256b": (64, 32, (F16, F16, F32), _added),
    "half_lanes_32b": (64, 32, (F16, F16, F32), _added),
    "half_lanes_bytes": (64, 8, (S8, S8, I32), _plain),
    "half_lanes_packed_64b": (64, 32, (F16, F16, F16), _added),
    "half_lanes_packed_128b": (64, 32, (F16, F16, F16), _added),
    "half_lanes_packed_256b": (64, 32, (F16, F16, F16), _added),
    "half_lanes_packed_32b": (64, 32, (F16, F16, F16), _added),
}
_HELD: dict[str, tuple[int, tuple[Any, Any, Any]]] = {
    "held_f16": (128, (F16, F16, F32)),
    "held_f16_half_lanes": (64, (F16, F16, F32)),
    "held_tf32": (128, (F32, F32, F32)),
    "held_bytes": (128, (S8, U8, I32)),
    "held_fp8": (128, (E4M3, E4M3, F32)),
}


def _moved(entry: str) -> Result:
    x = np.random.default_rng(5).integers(0, 1 << 31, (128, 32)).astype(np.uint32)
    y = np.zeros_like(x)
    return _run("operands", entry, x, y), bool((x == y).all())


def _pairs(values: Values) -> Values:
    """Elements of four bits, two to a byte, the first in the low bits."""
    codes = values.view(U8)
    return np.ascontiguousarray(codes[:, ::2] | codes[:, 1::2] << 4)


def _scaled(entry: str, n: int, kinds: tuple[Any, Any], vector: int, scale: Any, sign: int = 1) -> Result:
    rng = np.random.default_rng(7)
    k = 256 if kinds[0] is E2M1 else 128
    a, b, d = _small(rng, kinds[0], 128, k), _small(rng, kinds[1], n, k), np.zeros((128, n), F32)
    factors: list[Values] = []
    codes: list[Values] = []
    for rows in (128, n):
        if scale is E4M3:
            found = rng.choice([0.5, 1.0, 1.5, 2.0], (rows, k // vector)).astype(E4M3)
            codes.append(found.view(U8))
            factors.append(_wide(found))
        else:
            codes.append(rng.integers(125, 130, (rows, k // vector)).astype(U8))
            factors.append(np.exp2(_wide(codes[-1]) - 127))
    given = (_pairs(a), _pairs(b)) if kinds[0] is E2M1 else (a, b)
    report = _run("scaled", entry, *given, *codes, d)
    left, right = (_wide(v) * np.repeat(f, vector, axis=1) for v, f in ((a, factors[0]), (b, factors[1])))
    return report, bool((_wide(d) == sign * left @ right.T).all())


def _triton(name: str, grid: int | tuple[int, int], arrays: list[Any], result: Values, want: Values) -> Result:
    report = launch_unchecked(load(FOLDER / f"{name}.sm_100.ptx"), grid, *arrays)
    return report, bool((_wide(result) == want).all())


def _pair(rows: int) -> Result:
    m, n, k = 2 * rows, {256: 128, 128: 64}[rows], {256: 64, 128: 32}[rows] * 3
    rng = np.random.default_rng(3)
    a, b, c = _small(rng, F16, m, k), _small(rng, F16, k, n), np.zeros((m, n), F32)
    return _triton(f"pair-{rows}", (2, 1), [a, b, c, m, n, k], c, _wide(a) @ _wide(b))


def _triton_scaled() -> Result:
    rng = np.random.default_rng(3)
    m, n, k = 128, 64, 128
    a, b, c = _small(rng, E4M3, m, k), _small(rng, E4M3, n, k), np.zeros((m, n), F32)
    sa, sb = (rng.integers(125, 130, (rows, k // 32)).astype(U8) for rows in (m, n))
    left, right = (_wide(v) * np.repeat(np.exp2(_wide(s) - 127), 32, axis=1) for v, s in ((a, sa), (b, sb)))
    return _triton("block_scaled", 1, [a, b, sa, sb, c], c, left @ right.T)


def _padded() -> Result:
    """e4m3 times e2m1, whose elements lie one to a byte in shared memory only."""
    rng = np.random.default_rng(3)
    bm, bn, k = 128, 64, 3 * 128
    a, b, c = _small(rng, E4M3, bm, k), _small(rng, E2M1, bn, k), np.zeros((bm, bn), F32)
    sa, sb = (rng.integers(125, 130, (rows, k // 32)).astype(U8) for rows in (bm, bn))
    left, right = (_wide(v) * np.repeat(np.exp2(_wide(s) - 127), 32, axis=1) for v, s in ((a, sa), (b, sb)))
    given = [a, sa, _pairs(b), sb, c, bm, bn, k]
    return _triton("scaled_matmul-e4m3-e2m1", (1, 1), given, c, left @ right.T)


def _gathered() -> Result:
    rng = np.random.default_rng(3)
    m, rows, columns = 48, 32, 64
    x, ids = _small(rng, F16, m, 2 * columns), rng.permutation(m)[:rows].astype(I32)
    y, want = np.zeros((2 * m, columns), F16), np.zeros((2 * m, columns))
    want[:rows] = want[m + ids] = x[ids, :columns]
    return _triton("gathered", 1, [x, ids, y, m, 2 * columns], y, want)


def _stolen() -> Result:
    x = _small(np.random.default_rng(3), F32, 6 * 256 - 16)
    y = np.zeros_like(x)
    return _triton("stolen_tiles", 6, [x, y, x.size], y, 3 * _wide(x))


def _copied() -> Result:
    x = _small(np.random.default_rng(3), F32, 128, 32)
    y = np.zeros_like(x)
    return _triton("copied_tile", 1, [x, y], y, _wide(x) + 1)


def _all() -> dict[str, Callable[[], Result]]:
    found: dict[str, Callable[[], Result]] = {}
    for entry, (m, n, kinds, finish) in _PRODUCTS.items():
        found[f"CuTe {entry}"] = lambda e=entry, m=m, n=n, q=kinds, f=finish: _product("products", e, m, n, q, f)  # type: ignore[misc]
    for entry, (m, kinds) in _HELD.items():
        found[f"CuTe {entry}"] = lambda e=entry, m=m, q=kinds: _product("operands", e, m, 32, q, _plain)  # type: ignore[misc]
    for entry in ("moved_128b", "moved_128b_plain", "moved_256b", "moved_256b_plain"):
        found[f"CuTe {entry}"] = lambda e=entry: _moved(e)  # type: ignore[misc]
    found |= {
        "CuTe mxf8": lambda: _scaled("mxf8", 128, (E4M3, E5M2), 32, None),
        "CuTe mxf8_wide": lambda: _scaled("mxf8_wide", 256, (E5M2, E4M3), 32, None),
        "CuTe mxf8_negated": lambda: _scaled("mxf8_negated", 128, (E4M3, E5M2), 32, None, -1),
        "CuTe mxf4": lambda: _scaled("mxf4", 128, (E2M1, E2M1), 32, None),
        "CuTe nvf4": lambda: _scaled("nvf4", 128, (E2M1, E2M1), 16, E4M3),
        "CuTe nvf4_powers": lambda: _scaled("nvf4_powers", 128, (E2M1, E2M1), 16, None),
        "Triton pair-256": lambda: _pair(256),
        "Triton pair-128": lambda: _pair(128),
        "Triton block_scaled": _triton_scaled,
        "Triton scaled_matmul-e4m3-e2m1": _padded,
        "Triton gathered": _gathered,
        "Triton stolen_tiles": _stolen,
        "Triton copied_tile": _copied,
    }
    return found


WITNESS: dict[str, Callable[[], Result]] = _all()
