"""What the counts take and what they refuse, at both ends of every range and one step beyond."""

# ruff: noqa: B023 - what is handed to `taken` is called at once

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.cost import banks
from tinygpu.cost.demand import Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes, panels, raster, resident_window
from tinygpu.cost.occupancy import occupancy
from tinygpu.devices import device, devices
from tinygpu.layouts.f2 import images, linear_form

FULL = np.zeros(32, dtype=np.int64)


def taken(make: Callable[[], Any], refusal: str) -> bool:
    """Whether it is taken; what is not is refused in words that begin so."""
    said = ""
    try:
        make()
    except ValueError as refused:
        said = str(refused)
    assert said.startswith(refusal) or not said, said
    return not said


def test_lanes_move_as_many_bytes_as_instructions_do() -> None:
    shared: tuple[Callable[[int], Any], ...] = (
        banks.phases,
        lambda width: banks.wavefronts(FULL, width),
        lambda width: banks.count_wavefronts(FULL, width),
    )
    for width in range(-1, 70):
        for call in shared:
            said = f"[bank conflicts] a lane moves 1, 2, 4, 8 or 16 bytes in one instruction, not {width}"
            assert taken(lambda: call(width), said) == (width in (1, 2, 4, 8, 16))


def test_an_address_is_a_byte_or_minus_one_and_a_multiple_of_the_width() -> None:
    for address, width in itertools.product((-3, -2, -1, 0, 1, 2, 3, 4, 6, 8), (1, 2, 4)):
        lanes = np.full(32, -1)
        lanes[7:9] = 0, address
        where = "[bank conflicts]"
        said = f"{where} address {address} is not" if address >= 0 else f"{where} an address is a byte number or -1"
        right = address == -1 or (address >= 0 and address % width == 0)
        assert taken(lambda: banks.count_wavefronts(lanes, width), said) == right
    lanes[7:10] = 4, 6, 3
    with pytest.raises(ValueError, match="address 6 is not a multiple of the 4 bytes"):
        banks.count_wavefronts(lanes, 4)


@pytest.mark.parametrize("shape", [(), (1,), (31,), (33,), (2, 31)])
def test_the_last_axis_lists_the_lanes(shape: tuple[int, ...]) -> None:
    lanes = np.zeros(shape, dtype=np.int64)
    said = "[bank conflicts] the last axis lists 32 lanes, but the addresses have"
    assert not taken(lambda: banks.count_wavefronts(lanes, 4), said)
    said = "[ldmatrix bank conflicts] the last axis lists 8 or 16 or 32 lanes, but the addresses have"
    assert not taken(lambda: banks.matrix_wavefronts(lanes), said)


def test_every_map_of_up_to_two_bits_is_linear_exactly_where_some_columns_make_it() -> None:
    for length in range(6):
        made = {
            tuple(images(columns, constant).tolist()): (columns, constant)
            for constant in range(4)
            for columns in itertools.product(range(4), repeat=max(length.bit_length() - 1, 0))
        }
        for values in itertools.product(range(4), repeat=length):
            assert linear_form(np.array(values, dtype=np.int64)) == made.get(values)
    for values in ([-1, 0], [0, -1], [-1], [3, -1, 0, 1]):
        assert linear_form(np.array(values)) is None


def test_bytes_under_way_are_said_where_anything_is_read() -> None:
    for reads, under_way in itertools.product((0, 1, 2), (0, 1)):
        said = "a demand whose iterations read global memory must say"
        assert taken(
            lambda: Demand(1, 32, 32, 0, Phase(Work(sectors_read=reads)), bytes_in_flight_per_cta=under_way),
            said,
        ) == (not reads or bool(under_way))
    for name in ("ctas", "threads_per_cta", "iterations", "turns"):
        for number in (-1, 0, 1):
            numbers = {"ctas": 1, "threads_per_cta": 32, "registers_per_thread": 0, "smem_bytes_per_cta": 0}
            said = f"a demand needs at least 1 for {name}, not {number}"
            assert taken(lambda: Demand(iteration=Phase(), **(numbers | {name: number})), said) == (number > 0)  # type: ignore[arg-type]


def test_grids_begin_at_one() -> None:
    for pid in (-1, 0, 11, 12):
        assert taken(lambda: raster(pid, 4, 3, 2), "a CTA number must lie between 0") == (0 <= pid < 12)
    for first, last in itertools.product((-1, 0, 3, 12), (-1, 0, 3, 4, 12, 13)):
        said = "a run of CTAs must satisfy 0 <= first < last <= tiles_m * tiles_n"
        assert taken(lambda: panels(first, last, 4, 3, 2), said) == (0 <= first < last <= 12)
    for place, name in enumerate(("tiles_m", "tiles_n", "group", "ctas_per_wave")):
        for number in (0, 1):
            numbers = [4, 3, 2, 5]
            numbers[place] = number
            said = f"{name} must be at least 1, not 0"
            assert taken(lambda: resident_window(9, 1, 1, 1, *numbers), said) == (number > 0)
            assert taken(lambda: dram_read_bytes(9, 1, 1, 1, *numbers), said) == (number > 0)
            if place < 3:
                assert taken(lambda: raster(0, *numbers[:3]), said) == (number > 0)
                assert taken(lambda: panels(0, 1, *numbers[:3]), said) == (number > 0)


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.name)
def test_a_cta_is_launched_up_to_each_of_its_limits(gpu: Any) -> None:
    threads, registers, smem = gpu.max_threads_per_block, gpu.max_registers_per_thread, gpu.max_smem_bytes_per_block
    for more in itertools.product((0, 1), repeat=2):
        assert bool(occupancy(gpu, 32, registers + more[0], smem + more[1]).launchable) == (more == (0, 0))
        assert bool(occupancy(gpu, threads + more[0], 0, smem + more[1]).launchable) == (more == (0, 0))
        assert bool(occupancy(gpu, threads + more[0], registers * more[1], 0).launchable) == (more == (0, 0))
    # Whole warps of every scheduler take registers in units, up to all that an SM has.
    unit, schedulers = gpu.register_alloc_unit, gpu.warp_schedulers_per_sm
    for warps, each in itertools.product(range(1, threads // 32 + 1, 3), (31, 32, 33, 64, 65, 128, 168, registers)):
        whole = -(-warps // schedulers) * schedulers
        fits = whole * max(-(-each * 32 // unit), 1) * unit <= gpu.registers_per_sm
        assert bool(occupancy(gpu, 32 * warps, each, 0).launchable) == fits


def test_registers_that_do_not_limit_are_none() -> None:
    for gpu in (device("a100"), device("t4")):
        assert occupancy(gpu, 1024, 0, 0).limited_by() == "warps"
