"""Tensor maps in global memory, made and changed by kernels; pipelines of tiles that go through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulk_kernels import (
    ACQUIRE,
    BARRIER,
    COMMIT_AND_WAIT,
    MAP,
    PROXY_FENCE,
    RELEASE,
    elected,
    expect,
    init,
    kernel,
    map_address,
    pointer_kernel,
    replace_kernel,
    tile,
    wait,
)
from test_tensor_copies import ORDERS, RNG, run

from tinygpu.ptx.emulator import DeviceBuffer, TensorMap
from tinygpu.ptx.emulator.state.emulation import Order
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES


def test_a_tensor_map_may_lie_in_global_memory() -> None:
    x = RNG.integers(-99, 99, (12, 32)).astype(np.float16)
    y = np.zeros((8, 32), np.float16)
    tensor = TensorMap(x, (32, 8))
    run(pointer_kernel(), tensor, y)
    assert (y == x[2:10]).all()
    y[:] = 0
    held = DeviceBuffer(x)
    maps = np.frombuffer(bytes(64) + bytes(TensorMap(held, (32, 8))), np.uint8).copy()
    run(pointer_kernel(), DeviceBuffer(maps, offset=64), y, buffers=[held])
    assert (y == x[2:10]).all()


def swizzled_rows(rows: np.ndarray[Any, Any]) -> Any:
    out = np.zeros(rows.nbytes, np.uint8)
    out[SWIZZLES["64B"].apply(np.arange(rows.nbytes))] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return out.view(rows.dtype).reshape(rows.shape)


@pytest.mark.parametrize("order", ORDERS)
def test_a_kernel_may_make_its_own_tensor_map(order: Order) -> None:
    x = RNG.integers(-99, 99, (12, 32)).astype(np.float16)
    y, table = np.ones((8, 32), np.float16), np.zeros(128, np.uint8)
    run(replace_kernel(ACQUIRE), x, np.uint32(10), table, y, order=order)
    want = np.zeros_like(y)
    want[:6] = x[4:10]
    assert (y == swizzled_rows(want)).all()


def test_a_kernel_may_change_a_tensor_map_in_global_memory() -> None:
    x = RNG.integers(-99, 99, (12, 32)).astype(np.float16)
    held = DeviceBuffer(x)
    table = np.frombuffer(bytes(TensorMap(held, (32, 8))), np.uint8).copy()
    y = np.ones((8, 32), np.float16)
    run(replace_kernel(ACQUIRE, RELEASE), held, np.uint32(0), table, y)
    want = np.zeros_like(y)
    want[:4] = x[4:8]
    assert (y == want).all()


def test_prefetches_change_nothing() -> None:
    x = np.ones((12, 32), np.float16)
    body = map_address() + """    prefetch.tensormap [%rd1];
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 0}];
    ld.param.u64 %rd2, [x];
    cp.async.bulk.prefetch.L2.global [%rd2], 64;
    mov.u64 %rd3, 0;
    cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd2], 64, %rd3;
"""  # fmt: skip
    run(kernel(".param .align 64 .b8 tm[128], .param .u64 x", body), TensorMap(x, (32, 8)), x)
    assert (x == 1).all()


def test_a_pipeline_of_tiles_goes_through_its_stages() -> None:
    """Two stages, six tiles: load, wait, copy out, give back."""
    x = RNG.integers(-99, 99, (48, 32)).astype(np.float16)
    y = np.zeros((48, 32), np.float16)
    stages = ".shared .align 8 .b8 full[16]; .shared .align 8 .b8 empty[16]; .shared .align 1024 .b8 tiles[1024];"
    body = """    @%p1 bra MADE;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [empty], 32;
    mbarrier.init.shared::cta.b64 [empty+8], 32;
    fence.mbarrier_init.release.cluster;
MADE:
    bar.sync 0;
    mov.u32 %r20, 0;
    setp.lt.u32 %p2, %r1, 32;
    @!%p2 bra CONSUMER;
    @%p1 bra DONE;
"""
    index = """    and.b32 %r21, %r20, 1;
    shl.b32 %r22, %r21, 3;
    shl.b32 %r23, %r21, 9;
    mov.u32 %r24, full;
    add.u32 %r24, %r24, %r22;
    mov.u32 %r25, empty;
    add.u32 %r25, %r25, %r22;
    mov.u32 %r26, tiles;
    add.u32 %r26, %r26, %r23;
    shr.u32 %r27, %r20, 1;
    and.b32 %r27, %r27, 1;
"""
    body += map_address() + "PRODUCE:\n" + index + "    xor.b32 %r28, %r27, 1;\n" + wait("%r28", "%r25", "FREE")
    body += f"""    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], 512;
    shl.b32 %r29, %r20, 3;
    {MAP}.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r26], [%rd1, {{0, %r29}}], [%r24];
    add.u32 %r20, %r20, 1;
    setp.lt.u32 %p3, %r20, 6;
    @%p3 bra PRODUCE;
    bra DONE;
CONSUMER:
    ld.param.u64 %rd2, [y];
    and.b32 %r30, %r1, 31;
    shl.b32 %r30, %r30, 4;
"""
    body += "CONSUME:\n" + index + wait("%r27", "%r24", "FULL")
    body += """    add.u32 %r31, %r26, %r30;
    ld.shared.v4.u32 {%r32, %r33, %r34, %r35}, [%r31];
    fence.proxy.async.shared::cta;
    mbarrier.arrive.shared::cta.b64 _, [%r25];
    shl.b32 %r36, %r20, 9;
    add.u32 %r36, %r36, %r30;
    cvt.u64.u32 %rd3, %r36;
    add.u64 %rd3, %rd2, %rd3;
    st.global.v4.u32 [%rd3], {%r32, %r33, %r34, %r35};
    add.u32 %r20, %r20, 1;
    setp.lt.u32 %p3, %r20, 6;
    @%p3 bra CONSUME;
DONE:
"""
    text = kernel(".param .align 64 .b8 tm[128], .param .u64 y", body, stages)
    for order in ORDERS:
        y[:] = 0
        run(text, TensorMap(x, (32, 8)), y, order=order)
        assert (y == x).all()


def test_a_tile_may_be_changed_in_place_and_stored_back() -> None:
    x = RNG.integers(-99, 99, (8, 32)).astype(np.float32)
    want = x + 1
    load = map_address() + expect(1024)
    load += f"    {MAP}.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1, {{0, 0}}], [bar];\n"
    change = """    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.u32 %r2, %r2, %r3;
    ld.shared.f32 %f1, [%r2];
    add.f32 %f1, %f1, 0f3F800000;
    st.shared.f32 [%r2], %f1;
"""
    store = map_address() + f"    {MAP}.2d.global.shared::cta.bulk_group [%rd1, {{0, 0}}], [tile];\n"
    body = init() + elected(load) + wait() + change + PROXY_FENCE + elected(store + COMMIT_AND_WAIT, "STORED")
    text = kernel(".param .align 64 .b8 tm[128]", body, tile(1024) + BARRIER)
    for order in ORDERS:
        z = x.copy()
        run(text, TensorMap(z, (32, 8)), order=order, block=256)
        assert (z == want).all()
