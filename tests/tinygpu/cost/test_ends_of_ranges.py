"""What the counts and closed forms take and what they refuse, at both ends of every range and one step beyond."""

# ruff: noqa: B023 - what is handed to `taken` is called at once

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.cost import banks, coalescing
from tinygpu.cost.access import Access, AccessCost, LinearLanes, ListedLanes, StridedLanes
from tinygpu.cost.demand import Demand, Phase, Work
from tinygpu.cost.divergence import Edge, divergence
from tinygpu.cost.locality import dram_read_bytes, panels, raster, resident_window
from tinygpu.cost.occupancy import occupancy
from tinygpu.cost.vectors import linear_vector, strided_vector
from tinygpu.devices import device, devices
from tinygpu.layouts.f2 import images, linear_form, rank

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
    zeros = (0,) * 5
    shared: tuple[Callable[[int], Any], ...] = (
        banks.phases,
        lambda width: banks.wavefronts(FULL, width),
        lambda width: banks.count_wavefronts(FULL, width),
        lambda width: banks.linear_wavefronts(zeros, width),
        lambda width: banks.strided_wavefronts(0, width),
    )
    moved: tuple[Callable[[int], Any], ...] = (
        lambda width: coalescing.sectors(FULL, width),
        lambda width: coalescing.count_sectors(FULL, width),
        lambda width: coalescing.ideal_sectors(FULL, width),
        lambda width: coalescing.linear_sectors(zeros, width),
        lambda width: coalescing.strided_sectors(0, width),
        coalescing.least_sectors,
    )
    for width in range(-1, 70):
        for call in shared:
            said = f"[bank conflicts] a lane moves 1, 2, 4, 8 or 16 bytes in one instruction, not {width}"
            assert taken(lambda: call(width), said) == (width in (1, 2, 4, 8, 16))
        for call in moved:
            said = f"[coalescing] a lane moves 1, 2, 4, 8, 16 or 32 bytes in one instruction, not {width}"
            assert taken(lambda: call(width), said) == (width in (1, 2, 4, 8, 16, 32))


@pytest.mark.parametrize(
    ("count", "where"), [(banks.count_wavefronts, "bank conflicts"), (coalescing.count_sectors, "coalescing")]
)
def test_an_address_is_a_byte_or_minus_one_and_a_multiple_of_the_width(count: Any, where: str) -> None:
    for address, width in itertools.product((-3, -2, -1, 0, 1, 2, 3, 4, 6, 8), (1, 2, 4)):
        lanes = np.full(32, -1)
        lanes[7:9] = 0, address
        said = f"[{where}] address {address} is not" if address >= 0 else f"[{where}] an address is a byte number or -1"
        right = address == -1 or (address >= 0 and address % width == 0)
        assert taken(lambda: count(lanes, width), said) == right
    lanes[7:10] = 4, 6, 3
    with pytest.raises(ValueError, match="address 6 is not a multiple of the 4 bytes"):
        count(lanes, 4)


@pytest.mark.parametrize("shape", [(), (1,), (31,), (33,), (2, 31)])
def test_the_last_axis_lists_the_lanes(shape: tuple[int, ...]) -> None:
    lanes = np.zeros(shape, dtype=np.int64)
    for count, where in ((banks.count_wavefronts, "bank conflicts"), (coalescing.count_sectors, "coalescing")):
        assert not taken(lambda: count(lanes, 4), f"[{where}] the last axis lists 32 lanes, but the addresses have")
    said = "[ldmatrix bank conflicts] the last axis lists 8 or 16 or 32 lanes, but the addresses have"
    assert not taken(lambda: banks.matrix_wavefronts(lanes), said)


@pytest.mark.parametrize("lanes", range(8))
def test_as_many_lane_bits_give_addresses_as_an_instruction_has(lanes: int) -> None:
    columns = [16] * lanes
    assert taken(lambda: banks.linear_wavefronts(columns, 16), "[bank conflicts] a warp has five") == (lanes == 5)
    assert taken(lambda: coalescing.linear_sectors(columns, 16), "[coalescing] a warp has five") == (lanes == 5)
    said = "[ldmatrix bank conflicts] 3, 4 or 5 lane bits"
    assert taken(lambda: banks.linear_matrix_wavefronts(columns), said) == (lanes in (3, 4, 5))


@pytest.mark.parametrize("column", [-16, -1, 0, 1, 8, 16])
def test_columns_are_multiples_of_the_width_and_not_negative(column: int) -> None:
    for width in (1, 16):
        columns, right = [0, 0, column, 0, 0], column >= 0 and column % width == 0
        said = "lane bit 2 moves the"
        assert taken(lambda: banks.linear_wavefronts(columns, width), f"[bank conflicts] {said}") == right
        assert taken(lambda: coalescing.linear_sectors(columns, width), f"[coalescing] {said}") == right
    right = column in (0, 16)
    assert taken(lambda: banks.linear_matrix_wavefronts([0, 0, column]), "[bank conflicts] lane bit 2") == right
    assert taken(lambda: rank([1, column]), "[F2 rank] columns") == (column >= 0)
    for lanes in ((column, 0, 0), (0, column, 0), (0, 0, column)):
        said = "[access] bit columns, constant and base"
        assert taken(lambda: LinearLanes(lanes[:1], *lanes[1:]), said) == (column >= 0)


def test_a_stride_and_an_offset_are_multiples_of_the_width_each() -> None:
    for stride, offset, width in itertools.product((-6, -4, 0, 4, 6), (0, 2, 4), (2, 4)):
        said = f"[coalescing] lanes of {width} bytes need a stride and an offset"
        right = stride % width == 0 == offset % width
        assert taken(lambda: coalescing.strided_sectors(stride, width, offset), said) == right
    for lanes in (-1, 0, 1, 32, 33):
        said = f"[coalescing] a warp has 0 to 32 active lanes, not {lanes}"
        assert taken(lambda: coalescing.strided_sectors(4, 4, 0, lanes), said) == (0 <= lanes <= 32)
    for step, width in itertools.product(range(-4, 17), (1, 4, 8)):
        said = f"[padding] the step must be a positive multiple of the access width {width}, not {step}"
        assert taken(lambda: banks.least_padding(128, width, step), said) == (step > 0 and step % width == 0)


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


def test_strided_lanes_keep_their_addresses_when_modes_are_joined_and_none_is_left_to_join() -> None:
    for shape in itertools.product((1, 2, 3), repeat=3):
        for strides in itertools.product((0, 1, 2, 6, -2), repeat=3):
            low = sum((n - 1) * min(0, d) for n, d in zip(shape, strides, strict=True))
            said = "[access] the lowest address is -1; raise the offset so that none is negative"
            assert not taken(lambda: StridedLanes(shape, strides, -low - 1), said)
            lanes = StridedLanes(shape, strides, -low)
            joined = lanes.coalesced()
            assert np.array_equal(joined.addresses(), lanes.addresses())
            modes = list(zip(joined.shape, joined.strides_bytes, strict=True))
            assert all(extent > 1 for extent, _ in modes)
            assert not any(outer == extent * inner for (extent, inner), (_, outer) in itertools.pairwise(modes))
    for extent in (-1, 0, 1):
        said = f"[access] the extents of (2, {extent}) must be positive"
        assert taken(lambda: StridedLanes((2, extent), (1, 1)), said) == (extent > 0)


def factors(text: str) -> int:
    """The product that a formula spells out."""
    out = 1
    for power, one, two, plain in re.findall(r"2\^(\d+)|gcd\((\d+), (\d+)\)|(\d+)(?: phases? x| x)", text):
        out *= 2 ** int(power) if power else int(np.gcd(int(one), int(two))) if one else int(plain)
    return out


def test_a_formula_comes_to_the_count_and_the_ideal_is_what_the_data_alone_needs() -> None:
    rng = np.random.default_rng(0)
    forms = []
    for memory, kind in (("smem", "ldst"), ("gmem", "ldst"), ("smem", "ldmatrix")):
        for _ in range(60):
            bits = int(rng.integers(3, 6)) if kind == "ldmatrix" else 5
            width = 16 if kind == "ldmatrix" else int(rng.choice((1, 2, 4, 8, 16)))
            columns = tuple(width * int(c) for c in rng.integers(0, 40, bits))
            strides = (0, width, 3 * width, 32 * width, -4 * width)
            stride = strides[int(rng.integers(5))]
            some = [int(v) * width for v in rng.integers(0, 60, 1 << bits)]
            out = [v if rng.integers(4) and i > 8 else -1 for i, v in enumerate(some)]
            zero = StridedLanes((1 << bits - 1, 2), (0, 64 * width))
            for lanes in (
                LinearLanes(columns), StridedLanes((1 << bits,), (stride,), 4096), zero, ListedLanes(tuple(out))
            ):  # fmt: skip
                access = Access("it", lanes, width, memory, kind)  # type: ignore[arg-type]
                cost = access.cost()
                assert cost.count == access.counted()
                if cost.how == "closed form" and "stride" not in cost.formula:
                    assert (
                        factors(cost.formula.rpartition(" = ")[2] if " = " in cost.formula else cost.formula)
                        == cost.count
                    )
                addresses = access.addresses()
                moved = addresses[addresses >= 0]
                if memory == "gmem":
                    assert cost.ideal == -(-len(set(moved.tolist())) * width // 32)
                else:
                    together = 8 if kind == "ldmatrix" else 128 // max(width, 4)
                    assert cost.ideal == sum(1 for some in addresses.reshape(-1, together) if (some >= 0).any())
                assert cost.efficiency == (cost.ideal / cost.count if len(moved) else 1)
                forms.append((type(lanes).__name__, cost.how))
                if lanes is zero:
                    assert cost.how == "closed form"
    assert len(set(forms)) == 4
    assert AccessCost(0, 0, "sectors", "counted", "").efficiency == 1


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


def test_edges_and_grids_begin_at_one() -> None:
    least = {"extent": 0, "warps": 1, "step": 1, "lanes": 1, "lane_step": 1}
    for name, first in least.items():
        for number in (first - 1, first):
            numbers = {"extent": 9, "warps": 2, "step": 8} | {name: number}
            said = f"[divergence] {name} must be at least {first}, not {number}"
            assert taken(lambda: Edge(**numbers), said) == (number == first)
    assert divergence([Edge(0, 1, 1)]).active_lanes == 0
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


def test_elements_have_a_bit_and_a_base_is_aligned_to_a_power_of_two() -> None:
    for bits in (-1, 0, 1, 2):
        said = f"[vector width] an element has at least one bit, not {bits}"
        assert taken(lambda: linear_vector([1, 2, 4], [], bits), said) == (bits > 0)
        assert taken(lambda: strided_vector(8, [], bits), said) == (bits > 0)
    assert (linear_vector([1, 2, 4], [], 1), strided_vector(8, [], 1)) == (8, 8)
    for number in range(-1, 10):
        right = number in (1, 2, 4, 8)
        said = f"[vector width] the alignment of the base must be a power of two of bytes, not {number}"
        assert taken(lambda: linear_vector([1], [], 32, base_alignment_bytes=number), said) == right
        said = f"[vector width] the limit must be a power of two of bytes, not {number}"
        assert taken(lambda: strided_vector(8, [], 32, limit_bytes=number), said) == right
    for extent in (-1, 0, 1):
        said = f"[vector width] a thread owns at least one element along a mode, not {extent}"
        assert taken(lambda: strided_vector(extent, [], 32), said) == (extent > 0)
    # Elements wider than the access, or than the base is aligned to, do not move in one.
    for limit, alignment, bits in itertools.product((1, 4, 16), (1, 4, 16), (8, 16, 32, 64, 128)):
        widest = max((v for v in (1, 2, 4, 8, 16) if v * bits <= 8 * min(limit, alignment)), default=0)
        found = strided_vector(16, [], bits, base_alignment_bytes=alignment, limit_bytes=limit)
        again = linear_vector([1, 2, 4, 8], [], bits, base_alignment_bytes=alignment, limit_bytes=limit)
        assert found == again == widest


def test_registers_that_do_not_limit_are_none() -> None:
    for gpu in (device("a100"), device("t4")):
        assert occupancy(gpu, 1024, 0, 0).limited_by() == "warps"
