"""Device-wide algorithms of CUB as nvcc compiles them: decoupled look-back between blocks, compaction, reduction."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import ptx_of, run

from tinygpu.ptx.emulator import Struct

F32, I32, U32, U64, I64 = np.float32, np.int32, np.uint32, np.uint64, np.int64
FILE = "device_algorithms"
# Items of a block, and the words of tile states before the first tile: as CUB's policy for sm_80 has them.
SCAN_TILE, SELECT_TILE, PADDING = 3840, 4608, 32


def entry(name: str) -> str:
    """The mangled name of the kernel template."""
    names = re.findall(r"\.entry (\w+)\(", ptx_of(FILE))
    (found,) = [mangled for mangled in names if name in mangled]
    return str(found)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(101)


def test_a_scan_with_decoupled_look_back(rng: np.random.Generator) -> None:
    n = 3 * SCAN_TILE + 777
    x, y = rng.integers(-99, 99, n).astype(I32), np.zeros(n, I32)
    states = np.full(4 + PADDING, 1 << 40, U64)
    state = Struct(states, bytes(8))
    run(FILE, entry("DeviceScanInitKernel"), 1, 128, state, 4)
    run(FILE, entry("DeviceScanKernel"), 4, 320, x, y, state, 0, bytes(1), bytes(1), n, 0)
    np.testing.assert_array_equal(y, np.cumsum(x))


def test_a_selection_with_decoupled_look_back(rng: np.random.Generator) -> None:
    n = 2 * SELECT_TILE + 1234
    x, y = rng.integers(-99, 99, n).astype(I32), np.zeros(n, I32)
    count, states = np.zeros(1, I32), np.full(3 + PADDING, 1 << 40, U64)
    state = Struct(states)
    run(FILE, entry("DeviceCompactInitKernel"), 1, 128, state, 3, count)
    context = Struct(np.bool_(True), np.bool_(True), I64(n), I64(0), U64(0), U64(0))
    out = np.zeros(1, I64)
    args = (x, 0, y, out, state, bytes(1), bytes(1), n, 3, context, bytes(8))
    run(FILE, entry("DeviceSelectSweepKernel"), 3, 256, *args)
    want = x[x > 0]
    np.testing.assert_array_equal(y[: want.size], want)
    assert not y[want.size :].any()


def test_a_sum_by_one_block(rng: np.random.Generator) -> None:
    n = 5000
    x, y = rng.integers(-99, 99, n).astype(F32), np.zeros(1, F32)
    names = re.findall(r"\.entry (\w*SingleTile\w*)\(", ptx_of(FILE))
    run(FILE, next(name for name in names if "PKfPfj" in name), 1, 256, x, y, n, bytes(1), F32(0), bytes(1))
    assert y[0] == x.sum()
