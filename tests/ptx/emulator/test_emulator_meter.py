"""The meter: counts of sectors and wavefronts against sets, lane by lane, and the counters of known kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import module
from numpy.typing import NDArray

from tinygpu.ptx.emulator import Report, emulate
from tinygpu.ptx.emulator.state.meter import count_sectors, count_wavefronts


def sectors_by_sets(addresses: NDArray[Any], mask: NDArray[np.bool_], size: int) -> int:
    total = 0
    for row, active in zip(addresses.tolist(), mask.tolist(), strict=True):
        touched = {byte // 32 for a, on in zip(row, active, strict=True) if on for byte in range(a, a + size)}
        total += len(touched)
    return total


def wavefronts_by_sets(addresses: NDArray[Any], mask: NDArray[np.bool_], size: int) -> int:
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    total = 0
    for row, active in zip(addresses.tolist(), mask.tolist(), strict=True):
        for start in range(0, 32, lanes):
            banks: dict[int, set[int]] = {}
            for lane in range(start, start + lanes):
                if active[lane]:
                    for byte in range(row[lane], row[lane] + size):
                        banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
            total += max((len(words) for words in banks.values()), default=0)
    return total


@st.composite
def requests(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[np.bool_], int]:
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    warps = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["random", "strided", "broadcast"]))
    if kind == "random":
        values = draw(st.lists(st.integers(0, 255), min_size=32 * warps, max_size=32 * warps))
        addresses = np.array(values).reshape(warps, 32) * size
    elif kind == "strided":
        stride, start = draw(st.integers(0, 40)), draw(st.integers(0, 40))
        addresses = (start + stride * np.arange(32) + np.zeros((warps, 1), np.int64)) * size
    else:
        addresses = np.repeat(np.arange(8), 4) * size + np.zeros((warps, 1), np.int64)
    density = draw(st.sampled_from([0.0, 0.3, 1.0]))
    mask = np.random.default_rng(draw(st.integers(0, 99))).random((warps, 32)) < density
    return addresses.astype(np.uint64), mask, size


@settings(max_examples=150, deadline=None)
@given(requests())
def test_sectors_are_the_distinct_ones_of_each_warp(request: tuple[NDArray[Any], NDArray[np.bool_], int]) -> None:
    addresses, mask, size = request
    assert count_sectors(addresses, mask, size) == sectors_by_sets(addresses, mask, size)
    everyone = np.ones_like(mask)
    assert count_sectors(addresses, None, size) == sectors_by_sets(addresses, everyone, size)


@settings(max_examples=150, deadline=None)
@given(requests())
def test_wavefronts_are_the_fullest_bank_of_each_phase(request: tuple[NDArray[Any], NDArray[np.bool_], int]) -> None:
    addresses, mask, size = request
    assert count_wavefronts(addresses, mask, size) == wavefronts_by_sets(addresses, mask, size)
    everyone = np.ones_like(mask)
    assert count_wavefronts(addresses, None, size) == wavefronts_by_sets(addresses, everyone, size)


def strided(stride: int, width: str, active: int = 32) -> Report:
    body = f"""
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
.shared .align 16 .b8 s[32768];
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, {stride}; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
setp.lt.u32 %p, %r1, {active};
cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2;
@%p ld.global.{width} %rd2, [%rd3];
@%p st.shared.{width} [%r3], %rd2;
ret;
"""
    return emulate(module(body, [".param .u64 a"]), grid=1, block=32, args=[np.zeros(8192, np.uint32)])


@pytest.mark.parametrize(
    ("stride", "width", "active", "sectors", "wavefronts"),
    [
        (4, "u32", 32, 4, 1), (8, "u32", 32, 8, 2), (128, "u32", 32, 32, 32), (8, "u64", 32, 8, 2),
        (4, "u32", 8, 1, 1), (0, "u32", 32, 1, 1), (12, "u32", 32, 12, 1), (16, "u64", 32, 16, 4), (4, "u32", 0, 0, 0),
        (256, "u64", 5, 5, 5),
    ],
)  # fmt: skip
def test_known_strides_cost_what_the_closed_forms_say(
    stride: int, width: str, active: int, sectors: int, wavefronts: int
) -> None:
    report = strided(stride, width, active)
    requests = 1 if active else 0
    size = int(width[1:]) // 8
    c = report.counters
    assert (c.global_load_requests, c.global_load_sectors, c.global_load_bytes) == (requests, sectors, active * size)
    assert (c.shared_store_requests, c.shared_store_wavefronts) == (requests, wavefronts)
    line = next(n for n, text in report.line_texts.items() if text.startswith("@%p ld"))
    counts = report.lines[line]
    assert (counts.executed, counts.threads, counts.requests, counts.sectors) == (1, active, requests, sectors)


def test_a_vector_request_counts_sectors_over_the_whole_warp() -> None:
    body = """
.reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd1, %rd1, %rd2;
ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];
ret;
"""
    report = emulate(module(body, [".param .u64 a"]), grid=1, block=32, args=[np.zeros(128, np.uint32)])
    assert report.counters.global_load_sectors == 16


def test_an_asynchronous_copy_counts_both_sides() -> None:
    body = """
.reg .b32 %r<8>; .reg .b64 %rd<4>;
.shared .align 16 .b8 s[4096];
ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 32; add.u64 %rd1, %rd1, %rd2;
mov.u32 %r3, s; shl.b32 %r2, %r1, 7; add.u32 %r3, %r3, %r2; setp.lt.u32 p, %r1, 20; selp.b32 %r4, 8, 0, p;
cp.async.ca.shared.global [%r3], [%rd1], 16, %r4;
cp.async.wait_all;
ret;
"""
    text = module(".reg .pred p;" + body, [".param .u64 a"])
    report = emulate(text, grid=1, block=32, args=[np.zeros(1024, np.uint32)])
    c = report.counters
    # 20 lanes read 8 bytes from 20 sectors; all 32 lanes write 16 bytes, eight lanes of a phase into the same banks.
    assert (c.global_load_requests, c.global_load_sectors, c.global_load_bytes) == (1, 20, 160)
    assert (c.shared_store_requests, c.shared_store_wavefronts, c.shared_store_bytes) == (1, 32, 512)


def test_instructions_branches_and_classes_are_counted() -> None:
    body = """
.reg .b32 %r<8>; .reg .pred %p;
mov.u32 %r1, %tid.x; mov.u32 %r2, 0;
L: add.u32 %r2, %r2, 1;
setp.lt.u32 %p, %r2, %r1;
@%p bra L;
ret;
"""
    report = emulate(module(body, []), grid=3, block=64, args=[])
    c = report.counters
    # Lane t turns max(t, 1) times; a warp turns as often as its last lane.
    turns = [31, 63]
    lanes = [sum(max(t, 1) for t in range(w * 32, w * 32 + 32)) for w in range(2)]
    assert c.instructions == 3 * sum(2 + 3 * t + 1 for t in turns)
    assert c.thread_instructions == 3 * sum(2 * 32 + 3 * n + 32 for n in lanes)
    assert c.branches == 3 * sum(turns)
    # Lanes leave one by one: after the first turn lanes 0 and 1 go, then one per turn; the last goes alone.
    assert c.divergent_branches == 3 * (30 + 31)
    assert c.by_class == {"move": 12, "integer": 282, "compare": 282, "control": 288}
    assert c.ctas == 3
