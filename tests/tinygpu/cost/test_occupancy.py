"""Occupancy: the closed form against a machine that admits CTAs one by one, and against published values."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinygpu.cost.occupancy
from tinygpu.cost.occupancy import LIMITS, occupancy, registers_at_most
from tinygpu.devices import Device, device, devices


def admitted_one_by_one(gpu: Device, threads: int, registers: int, smem: int) -> int:
    """CTAs that an SM takes when they arrive one after the other; a warp takes its registers from one partition."""
    limit = gpu.constants()
    warps = 0
    while warps * 32 < threads:
        warps += 1
    per_warp = 0
    while per_warp < registers * 32:
        per_warp += limit["register_alloc_unit"]
    smem_bytes = 0
    while smem_bytes < smem + limit["reserved_smem_per_block"]:
        smem_bytes += limit["smem_alloc_granularity"]
    partitions = limit["warp_schedulers_per_sm"]
    whole = warps
    while whole % partitions:
        whole += 1
    legal = threads <= limit["max_threads_per_block"] and registers <= limit["max_registers_per_thread"]
    legal = legal and smem <= limit["max_smem_per_block_optin"] and whole * per_warp <= limit["registers_per_sm"]
    if not legal:
        return 0

    free = [limit["registers_per_sm"] // partitions] * partitions
    slots, smem_free, resident = limit["max_warps_per_sm"], limit["max_smem_per_sm"], 0
    while resident < limit["max_blocks_per_sm"]:
        for _ in range(warps):
            where = free.index(max(free))
            if slots == 0 or free[where] < per_warp:
                return resident
            slots -= 1
            free[where] -= per_warp
        if smem_free < smem_bytes:
            return resident
        smem_free -= smem_bytes
        resident += 1
    return resident


gpus = st.sampled_from(devices())


@settings(max_examples=400)
@given(gpus, st.integers(1, 1100), st.integers(0, 260), st.integers(0, 240 * 1024))
def test_occupancy_is_what_an_sm_admits_one_by_one(gpu: Device, threads: int, registers: int, smem: int) -> None:
    found = occupancy(gpu, threads, registers, smem)
    expected = admitted_one_by_one(gpu, threads, registers, smem)
    assert int(found.ctas_per_sm) == expected
    assert bool(found.launchable) or expected == 0
    assert int(found.warps_per_cta) == -(-threads // 32)
    assert int(found.warps_per_sm) == expected * -(-threads // 32)
    assert float(found.warp_share) == pytest.approx(int(found.warps_per_sm) / gpu.max_warps_per_sm, rel=1e-12)


@settings(max_examples=60)
@given(gpus, st.lists(st.tuples(st.integers(1, 1100), st.integers(0, 260), st.integers(0, 240 * 1024)), min_size=1))
def test_arrays_agree_with_scalars(gpu: Device, points: list[tuple[int, int, int]]) -> None:
    threads, registers, smem = np.array(points).T
    many = occupancy(gpu, threads, registers, smem)
    for index, point in enumerate(points):
        one = occupancy(gpu, *point)
        assert many.ctas_per_sm[index] == one.ctas_per_sm
        assert many.limited_by(index) == one.limited_by()


@settings(max_examples=100)
@given(gpus, st.integers(1, 1024), st.integers(0, 255), st.integers(0, 100 * 1024))
def test_the_named_limit_is_the_tightest(gpu: Device, threads: int, registers: int, smem: int) -> None:
    found = occupancy(gpu, threads, registers, smem)
    parts = {
        "warps": found.by_warps,
        "registers": found.by_registers,
        "smem": found.by_smem,
        "CTA slots": found.by_slots,
    }
    name = found.limited_by()
    assert name in LIMITS
    if found.launchable:
        assert int(parts[name]) == int(found.ctas_per_sm) == min(int(part) for part in parts.values())
    else:
        assert name == "not launchable"


# (device, threads, registers, smem bytes, CTAs per SM, limit). Values of NVIDIA's occupancy calculator and of the
# programming guide's table of SM limits.
PUBLISHED = [
    ("a100", 256, 32, 0, 8, "warps"),
    ("a100", 256, 64, 0, 4, "registers"),
    ("a100", 128, 255, 0, 2, "registers"),
    ("a100", 32, 16, 0, 32, "CTA slots"),
    ("a100", 128, 32, 163 * 1024, 1, "smem"),
    ("a100", 128, 201, 64 * 1024, 2, "registers"),
    ("3090", 256, 32, 0, 6, "warps"),
    ("3090", 32, 16, 0, 16, "CTA slots"),
    ("4090", 32, 16, 0, 24, "CTA slots"),
    ("4090", 128, 32, 48 * 1024, 2, "smem"),
    ("h100", 384, 168, 200 * 1024, 1, "registers"),
    ("h100", 1024, 64, 0, 1, "registers"),
    ("h100", 1024, 72, 0, 0, "not launchable"),
    ("t4", 256, 32, 0, 4, "warps"),
    ("t4", 64, 32, 32 * 1024, 2, "smem"),
]


@pytest.mark.parametrize(("name", "threads", "registers", "smem", "ctas", "limit"), PUBLISHED)
def test_published_values(name: str, threads: int, registers: int, smem: int, ctas: int, limit: str) -> None:
    found = occupancy(device(name), threads, registers, smem)
    assert int(found.ctas_per_sm) == ctas
    assert found.limited_by() == limit


def test_a_full_sm_has_share_one() -> None:
    assert float(occupancy(device("a100"), 1024, 32, 0).warp_share) == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ((0, 32, 0), ValueError, "threads_per_cta must be at least 1, not 0"),
        ((32, -1, 0), ValueError, "registers_per_thread must be at least 0, not -1"),
        ((32, 32, -4), ValueError, "smem_bytes_per_cta must be at least 0, not -4"),
        ((32.5, 32, 0), TypeError, "threads_per_cta must be whole numbers, not float64"),
    ],
)
def test_impossible_counts_are_refused(arguments: tuple[int, int, int], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        occupancy(device("a100"), *arguments)
    assert str(caught.value) == sentence


def test_doctests() -> None:
    result = doctest.testmod(tinygpu.cost.occupancy)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["a100", "rtx-4090", "h100", "b200"])
def test_threads_have_as_many_registers_as_a_launch_allows(name: str) -> None:
    gpu = device(name)
    for threads in range(1, gpu.max_threads_per_block + 1, 31):
        most = registers_at_most(gpu, threads)
        assert occupancy(gpu, threads, most, 0).launchable
        assert not occupancy(gpu, threads, most + 1, 0).launchable
