"""Tensor copies in kernels: loads, stores, reductions and multicast against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bulk_kernels import (
    BARRIER,
    CLUSTER_SYNC,
    COMMIT_AND_WAIT,
    MAP,
    PROXY_FENCE,
    dump,
    elected,
    expect,
    fill,
    init,
    kernel,
    load_kernel,
    map_address,
    multicast_kernel,
    store_kernel,
    tile,
    wait,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import EmulationFault, Report, TensorMap, emulate
from tinygpu.ptx.emulator.state.emulation import Order
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES

ORDERS: tuple[Order, ...] = ("late", "early", "random")
RNG = np.random.default_rng(7)


def run(text: str, *args: Any, order: Order = "late", **options: Any) -> Report:
    grid, block = options.pop("grid", 1), options.pop("block", 64)
    report = emulate(text, grid=grid, block=block, args=args, order=order, **options)
    assert report.faults == ()
    assert report.advisories == ()
    return report


def box_of(x: np.ndarray[Any, Any], start: tuple[int, ...], box: tuple[int, ...], fill_value: Any) -> Any:
    """The box at `start` (both fastest first) of x, filled outside."""
    pads = [(max(0, -s), max(0, s + b - n)) for s, b, n in zip(start[::-1], box[::-1], x.shape, strict=True)]
    padded = np.pad(x, pads, constant_values=fill_value)
    at = [s + before for s, (before, _) in zip(start[::-1], pads, strict=True)]
    return padded[tuple(slice(a, a + b) for a, b in zip(at, box[::-1], strict=True))]


LOADS = [
    ((96,), (32,), (16,)), ((96,), (64,), (64,)),
    ((20, 64), (16, 8), (48, 15)), ((20, 64), (16, 8), (-8, -3)), ((20, 60), (16, 8), (56, 18)),
    ((5, 6, 32), (16, 3, 2), (16, 4, 4)), ((5, 6, 32), (16, 3, 2), (8, 1, 2)),
    ((3, 4, 5, 16), (8, 2, 3, 2), (8, -1, 2, 2)),
    ((2, 3, 4, 5, 16), (16, 2, 2, 2, 2), (0, 4, -1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("shape", "box", "start"), LOADS)
def test_a_load_gives_the_box_of_the_tensor(
    shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], order: Order
) -> None:
    pitched = np.zeros((*shape[:-1], -(-shape[-1] // 8) * 8), np.float16)
    pitched[..., : shape[-1]] = RNG.integers(-99, 99, shape)
    x = pitched[..., : shape[-1]]
    y = np.zeros(box[::-1], np.float16)
    strides = tuple(int(s) for s in pitched.strides[-2::-1])
    tensor = TensorMap(pitched, box, dims=shape[::-1], strides=strides)
    report = run(load_kernel(len(shape), start, y.nbytes), tensor, y, order=order)
    assert (y == box_of(x, start, box, 0)).all()
    inside = [min(s + b, n) - max(s, 0) for s, b, n in zip(start, box, shape[::-1], strict=True)]
    moved = 2 * int(np.prod(inside))
    assert (report.counters.bulk_load_requests, report.counters.bulk_load_bytes) == (1, moved)


@pytest.mark.parametrize("name", SWIZZLES)
def test_a_swizzled_load_permutes_the_tile(name: str) -> None:
    span = SWIZZLES[name].width_bytes or 64
    x = RNG.integers(0, 255, (32, 256), np.uint8)
    y = np.zeros(32 * span, np.uint8)
    run(load_kernel(2, (16, 3), y.size), TensorMap(x, (span, 32), swizzle=name), y)
    expected = np.zeros_like(y)
    rows = np.zeros((32, span), np.uint8)
    rows[:29] = x[3:, 16 : 16 + span]
    expected[SWIZZLES[name].apply(np.arange(y.size))] = rows.reshape(-1)
    assert (y == expected).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_elements_outside_can_be_nan(dtype: Any) -> None:
    x = np.ones((8, 16), dtype)
    y = np.zeros((8, 16), dtype)
    run(load_kernel(2, (8, 4), y.nbytes), TensorMap(x, (16, 8), oob="nan"), y)
    assert (np.isnan(y.astype(np.float64)) == np.isnan(box_of(x.astype(np.float64), (8, 4), (16, 8), np.nan))).all()
    assert (y[:4, :8] == 1).all()


def test_tf32_loads_are_rounded_to_nearest() -> None:
    bits = np.array([0x3F800FFF, 0x3F801000, 0xBF803001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x00000001, 0], np.uint32)
    x = np.tile(bits, (4, 2))
    y = np.zeros((4, 8), np.uint32)
    run(load_kernel(2, (0, 0), y.nbytes), TensorMap(x.view(np.float32), (8, 4), dtype="tf32"), y)
    want = [0x3F800000, 0x3F802000, 0xBF804000, 0x7F800000, 0x7F800000, 0x7FFFE000, 0, 0]
    assert (y == np.array(want, np.uint32)).all()


def test_element_strides_take_every_other_row() -> None:
    x = RNG.integers(0, 99, (32, 16)).astype(np.float32)
    y = np.zeros((5, 16), np.float32)
    run(load_kernel(2, (0, 3), y.nbytes), TensorMap(x, (16, 9), element_strides=(1, 2)), y)
    assert (y == x[3:12:2]).all()


def test_im2col_gives_the_columns_of_a_convolution() -> None:
    x = RNG.integers(-9, 9, (2, 6, 5, 16)).astype(np.float16)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    tensor = TensorMap(
        x, pixel_box_lower=(-1, -1), pixel_box_upper=(-1, -1), channels_per_pixel=16, pixels_per_column=20
    )
    for r, s in ((0, 0), (1, 2), (2, 1)):
        columns = padded[:, r : r + 6, s : s + 5].reshape(-1, 16)
        y = np.zeros((20, 16), np.float16)
        run(load_kernel(4, (0, 2, 4, 0), y.nbytes, mode="im2col", info=(s, r)), tensor, y)
        first = 5 * 5 + 3
        assert (y == columns[first : first + 20]).all()


def test_im2col_w_loads_a_row_and_its_halo() -> None:
    x = RNG.integers(-9, 9, (4, 3, 8, 64)).astype(np.float16)
    tensor = TensorMap(
        x, mode="im2col_w", pixel_box_lower=(0,), pixel_box_upper=(0,), channels_per_pixel=64, pixels_per_column=12,
        swizzle="128B",
    )  # fmt: skip
    y = np.zeros((14, 64), np.float16)
    run(load_kernel(4, (0, 2, 1, 0), y.nbytes, mode="im2col::w", info=(2, 1)), tensor, y)
    pixels = [(n, w) for n in range(4) for w in range(1, 9)][2:16]
    expected = np.stack([x[n, 1, w] if w < 8 else np.zeros(64, np.float16) for n, w in pixels])
    order = SWIZZLES["128B"].apply(np.arange(y.nbytes))
    assert (y.reshape(-1).view(np.uint8)[order] == expected.reshape(-1).view(np.uint8)).all()


def test_im2col_w128_repeats_halos() -> None:
    x = RNG.integers(-9, 9, (20, 1, 8, 32)).astype(np.float16)
    tensor = TensorMap(
        x, mode="im2col_w128", pixel_box_lower=(0,), pixel_box_upper=(0,), channels_per_pixel=32, swizzle="64B"
    )
    y = np.zeros((4 * 35, 32), np.float16)
    run(load_kernel(4, (0, 0, 0, 0), y.nbytes, mode="im2col::w::128", info=(3, 0)), tensor, y)
    pixels = x.reshape(-1, 32)
    expected = np.concatenate([pixels[32 * g : 32 * g + 35] for g in range(4)])
    order = SWIZZLES["64B"].apply(np.arange(y.nbytes))
    assert (y.reshape(-1).view(np.uint8)[order] == np.ascontiguousarray(expected).reshape(-1).view(np.uint8)).all()


def test_gather_and_scatter_move_four_rows() -> None:
    x = RNG.integers(-9, 9, (16, 64)).astype(np.float16)
    y = np.zeros((4, 32), np.float16)
    run(load_kernel(2, (32, 9, 0, 20, 3), y.nbytes, mode="tile::gather4"), TensorMap(x, (32, 1)), y)
    assert (y == np.stack([x[9, 32:], x[0, 32:], 0 * x[0, 32:], x[3, 32:]])).all()
    out = np.zeros((16, 64), np.float16)
    run(store_kernel(2, (0, 5, 15, 7, 30), y.nbytes, mode="tile::scatter4"), TensorMap(out, (32, 1)), y)
    want = np.zeros_like(out)
    want[[5, 15, 7], :32] = y[:3]
    assert (out == want).all()


def test_packed_elements_are_spread_and_packed_again() -> None:
    x = RNG.integers(0, 255, (4, 64), np.uint8)
    y = np.zeros((4, 8, 16), np.uint8)
    text = fill_then_load(y.nbytes, 256)
    zeros = np.full(y.nbytes, 7, np.uint8)
    run(text, TensorMap(x, (128, 4), dims=(128, 4), dtype="16u4_align16b"), zeros, y)
    assert (y[..., :8] == x.reshape(4, 8, 8)).all()
    assert (y[..., 8:] == 7).all()
    sixes = RNG.integers(0, 255, (4, 128), np.uint8)
    out = np.zeros((4, 96), np.uint8)
    tensor = TensorMap(out, (128, 4), dims=(128, 4), dtype="16u6_align16b")
    run(store_kernel(2, (0, 0), sixes.nbytes), tensor, sixes)
    for row in range(4):
        bits = sum((int(v) & 63) << (6 * n) for n, v in enumerate(sixes[row]))
        assert out[row].tobytes() == bits.to_bytes(96, "little")


def fill_then_load(size_bytes: int, transaction_bytes: int) -> str:
    """Fills the tile from x, then loads a 2-D box over it, and writes it to y."""
    issue = map_address() + expect(transaction_bytes)
    issue += f"    {MAP}.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%rd1, {{0, 0}}], [bar];\n"
    body = fill(size_bytes) + init() + PROXY_FENCE + elected(issue) + wait() + dump(size_bytes)
    return kernel(
        ".param .align 64 .b8 tm[128], .param .u64 x, .param .u64 y", body, tile(size_bytes) + BARRIER
    )  # fmt: skip


STORES = [
    ((96,), (32,), (80,)), ((20, 64), (16, 8), (48, 15)), ((20, 60), (16, 8), (56, 0)),
    ((5, 6, 32), (16, 3, 2), (16, 4, 4)), ((3, 4, 5, 16), (8, 2, 3, 2), (8, 3, 2, 2)),
    ((2, 3, 4, 5, 16), (16, 2, 2, 2, 2), (0, 4, 0, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("shape", "box", "start"), STORES)
def test_a_store_writes_what_lies_inside(
    shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], order: Order
) -> None:
    pitched = np.full((*shape[:-1], -(-shape[-1] // 8) * 8), -1, np.float16)
    x = RNG.integers(0, 99, box[::-1]).astype(np.float16)
    strides = tuple(int(s) for s in pitched.strides[-2::-1])
    tensor = TensorMap(pitched, box, dims=shape[::-1], strides=strides)
    want = pitched.copy()
    ends = [min(s + b, n) for s, b, n in zip(start, box, shape[::-1], strict=True)]
    want[tuple(slice(s, e) for s, e in zip(start[::-1], ends[::-1], strict=True))] = x[
        tuple(slice(0, e - s) for s, e in zip(start[::-1], ends[::-1], strict=True))
    ]
    report = run(store_kernel(len(shape), start, x.nbytes), tensor, x, order=order)
    assert (pitched == want).all()
    moved = 2 * int(np.prod([e - s for s, e in zip(start, ends, strict=True)]))
    assert (report.counters.bulk_store_requests, report.counters.bulk_store_bytes) == (1, moved)


REDUCTIONS = [
    ("add", np.uint32), ("add", np.int32), ("add", np.uint64), ("add", np.float32), ("add", np.float16),
    ("add", ml_dtypes.bfloat16), ("min", np.int32), ("max", np.int64), ("max", np.float16), ("min", np.uint64),
    ("and", np.uint32), ("or", np.uint64), ("xor", np.int32), ("inc", np.uint32), ("dec", np.uint32),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
def test_a_reduction_combines_with_what_is_there(operation: str, dtype: Any) -> None:
    x = RNG.integers(0, 50, (8, 16)).astype(dtype)
    out = RNG.integers(0, 50, (12, 32)).astype(dtype)
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "inc": lambda old, v: np.where(old >= v, 0, old + 1),
        "dec": lambda old, v: np.where((old == 0) | (old > v), v, old - 1),
    }  # fmt: skip
    want = out.copy()
    want[6:, 16:] = functions[operation](out[6:, 16:], x[:6])
    report = run(store_kernel(2, (16, 6), x.nbytes, operation=operation), TensorMap(out, (16, 8)), x)
    assert (out == want).all()
    assert report.counters.bulk_reduce_bytes == 6 * 16 * out.itemsize


def test_reductions_of_many_ctas_add_up() -> None:
    x = np.full((8, 16), 3, np.int32)
    out = np.zeros((8, 16), np.int32)
    run(store_kernel(2, (0, 0), x.nbytes, operation="add"), TensorMap(out, (16, 8)), x, grid=20)
    assert (out == 60).all()


# ---- clusters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_multicast_fills_the_tiles_of_all_ctas(ctas: int, order: Order) -> None:
    x = RNG.integers(-99, 99, (ctas * 8, 32)).astype(np.float16)
    y = np.zeros((2 * ctas, ctas * 8, 32), np.float16)
    text = multicast_kernel(ctas, 8)
    report = run(text, TensorMap(x, (32, 8)), y, grid=2 * ctas, cluster=(ctas, 1, 1), order=order)
    assert (y == x).all()
    assert report.counters.multicast_bytes == 2 * x.nbytes * (ctas - 1)


def pair_kernel(meet: str = CLUSTER_SYNC, reads: bool = True) -> str:
    """With .cta_group::2 both CTAs of a pair complete on the barrier of the first one, which tells the other.

    meet   how it tells it
    reads  whether both read what came
    """
    issue = map_address()
    issue += f"""    mov.u32 %r2, %cluster_ctarank;
    shl.b32 %r3, %r2, 3;
    mov.u32 %r5, tile;
    mapa.shared::cluster.u32 %r6, bar, 0;
    {MAP}.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r5], [%rd1, {{0, %r3}}], [%r6];
"""
    leader = """    mov.u32 %r8, %cluster_ctarank;
    setp.ne.or.u32 %p2, %r8, 0, %p1;
    @%p2 bra NOT_LEADER;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
NOT_LEADER:
"""
    first_waits = "    setp.ne.u32 %p3, %r8, 0;\n    @%p3 bra PASSED;\n" + wait() + "PASSED:\n"
    place = """    ld.param.u64 %rd20, [y];
    mul.wide.u32 %rd5, %r8, 512;
    add.u64 %rd20, %rd20, %rd5;
"""
    body = init() + CLUSTER_SYNC + leader + elected(issue) + first_waits + meet
    if reads:
        body += place + dump(512).replace("    ld.param.u64 %rd20, [y];\n", "")
    return kernel(".param .align 64 .b8 tm[128], .param .u64 y", body, tile(512) + BARRIER)


@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
def test_a_pair_of_ctas_completes_on_one_barrier(space: str) -> None:
    x = RNG.integers(-99, 99, (16, 32)).astype(np.float16)
    y = np.zeros((16, 32), np.float16)
    text = pair_kernel().replace("2d.shared::cluster", f"2d.{space}")
    run(text, TensorMap(x, (32, 8)), y, grid=2, cluster=(2, 1, 1))
    assert (y == x).all()


@pytest.mark.parametrize("order", ORDERS)
def test_who_was_told_of_a_copy_that_another_waited_for_may_exit(order: Order) -> None:
    """However it was told: that the wait was executed before is enough, and whoever was not told exits too early."""
    x, y = RNG.integers(-99, 99, (16, 32)).astype(np.float16), np.zeros((16, 32), np.float16)
    relaxed = CLUSTER_SYNC.replace("arrive.", "arrive.relaxed.")
    for meet in (CLUSTER_SYNC, relaxed):
        text = pair_kernel(meet, reads=False)
        assert run(text, TensorMap(x, (32, 8)), y, grid=2, cluster=(2, 1, 1), order=order).faults == ()
    with pytest.raises(EmulationFault) as told:
        run(pair_kernel("", reads=False), TensorMap(x, (32, 8)), y, grid=2, cluster=(2, 1, 1), order=order)
    assert told.value.kind in ("asynchronous copy", "cluster")
    assert "this CTA exits, but" in told.value.sentence


# ---- random tensors -------------------------------------------------------------------------------------------------


def move_kernel(dimensions: int, start: tuple[int, ...], end: tuple[int, ...], size_bytes: int) -> str:
    """Loads a box with one map and stores it with another."""
    issue = map_address() + expect(size_bytes)
    issue += f"    {MAP}.{dimensions}d.shared::cta.global.tile.mbarrier::complete_tx::bytes [tile], [%rd1, "
    issue += "{" + ", ".join(map(str, start)) + "}], [bar];\n"
    store = map_address("to") + f"    {MAP}.{dimensions}d.global.shared::cta.tile.bulk_group [%rd1, "
    store += "{" + ", ".join(map(str, end)) + "}], [tile];\n" + COMMIT_AND_WAIT
    body = init() + elected(issue) + wait() + elected(store, "STORED")
    return kernel(
        ".param .align 64 .b8 tm[128], .param .align 64 .b8 to[128]", body, tile(size_bytes) + BARRIER
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_box_that_is_loaded_and_stored_arrives(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.uint8, np.float16, np.float32, np.float64]))
    size = np.dtype(dtype).itemsize
    swizzle = data.draw(st.sampled_from(sorted(SWIZZLES)))
    rank = data.draw(st.integers(1, 5))
    inner = data.draw(st.integers(1, (SWIZZLES[swizzle].width_bytes or 96) // 16)) * 16 // size
    box = (inner, *(data.draw(st.integers(1, 4)) for _ in range(rank - 1)))

    def tensor(fill_value: int) -> np.ndarray[Any, Any]:
        shape = tuple(data.draw(st.integers(1, 5)) for _ in range(rank - 1))
        row = data.draw(st.integers(1, 3)) * inner
        return np.full((*shape, row), fill_value, dtype)

    x, y = tensor(0), tensor(77)
    x[...] = np.arange(x.size).reshape(x.shape) % 61
    step = 16 // size
    start = (data.draw(st.integers(-2, x.shape[-1] // step)) * step,
             *(data.draw(st.integers(-2, n)) for n in x.shape[-2::-1]))  # fmt: skip
    end = (data.draw(st.integers(0, y.shape[-1] // step)) * step,
           *(data.draw(st.integers(0, n)) for n in y.shape[-2::-1]))  # fmt: skip
    source, target = TensorMap(x, box, swizzle=swizzle), TensorMap(y, box, swizzle=swizzle)
    moved = np.zeros(box[::-1], dtype)
    for index in np.ndindex(*box[::-1]):
        at = [s + i for s, i in zip(start[::-1], index, strict=True)]
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            moved[index] = x[tuple(at)]
    want = y.copy()
    for index in np.ndindex(*box[::-1]):
        at = [e + i for e, i in zip(end[::-1], index, strict=True)]
        if all(0 <= a < n for a, n in zip(at, y.shape, strict=True)):
            want[tuple(at)] = moved[index]
    run(move_kernel(rank, start, end, moved.nbytes), source, target, order=data.draw(st.sampled_from(ORDERS)))
    assert (y == want).all()
