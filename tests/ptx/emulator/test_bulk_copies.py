"""Bulk copies without tensor maps: loads, stores, groups, reductions, other CTAs' memory, asynchronous stores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bulk_kernels import (
    BARRIER,
    CLUSTER_SYNC,
    COMMIT_AND_WAIT,
    LOAD,
    PROXY_FENCE,
    STORE,
    async_store_text,
    dump,
    elected,
    expect,
    fill,
    init,
    kernel,
    load_text,
    neighbour_text,
    store_text,
    tile,
    wait,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import (
    DeviceBuffer,
    EmulationFault,
    PtxSyntaxError,
    Report,
    SparseBuffer,
    UnsupportedInstruction,
    emulate,
)
from tinygpu.ptx.emulator.state.emulation import Order
from tinygpu.ptx.emulator.units.reductions import reduction

ORDERS: tuple[Order, ...] = ("late", "early", "random")
RNG = np.random.default_rng(11)


def run(text: str, *args: Any, order: Order = "late", **options: Any) -> Report:
    grid, block = options.pop("grid", 1), options.pop("block", 64)
    report = emulate(text, grid=grid, block=block, args=args, order=order, **options)
    assert report.faults == ()
    assert report.advisories == ()
    return report


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("instruction", "extra"),
    [
        (LOAD, ""), (LOAD.replace("::cluster", "::cta"), ""), (LOAD + ".L2::cache_hint", ", 0"),
        (LOAD + ".multicast::cluster", ", 1"), (LOAD + ".multicast::cluster.L2::cache_hint", ", 1, 0"),
    ],
)  # fmt: skip
def test_a_load_copies_its_bytes(instruction: str, extra: str, order: Order) -> None:
    x, y = RNG.integers(0, 255, 4096, np.uint8), np.zeros(1008, np.uint8)
    report = run(load_text(1008, instruction, extra), DeviceBuffer(x, offset=48), y, order=order)
    assert (y == x[48:1056]).all()
    assert (report.counters.bulk_load_bytes, report.counters.multicast_bytes) == (1008, 0)
    assert next(c.sectors for c in report.lines.values() if c.requests and c.sectors == 32) == 32


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("instruction", "extra"), [(STORE, ""), (STORE + ".L2::cache_hint", ", 0")])
def test_a_store_copies_its_bytes(instruction: str, extra: str, order: Order) -> None:
    x, y = RNG.integers(0, 255, 512, np.uint8), np.zeros(512, np.uint8)
    report = run(store_text(496, instruction, extra), x, DeviceBuffer(y, offset=16), order=order)
    assert (y[16:] == x[:496]).all()
    assert (y[:16] == 0).all()
    assert report.counters.bulk_store_bytes == 496


def test_a_byte_mask_chooses_bytes_of_every_sixteen() -> None:
    x, y = RNG.integers(1, 255, 64, np.uint8), np.zeros(64, np.uint8)
    run(store_text(64, STORE + ".cp_mask", ", %h1").replace("    ld.param.u64 %rd1", "    mov.u16 %h1, 0x8421;\n    "
        "ld.param.u64 %rd1"), x, y)  # fmt: skip
    chosen = np.tile([bool(0x8421 >> bit & 1) for bit in range(16)], 4)
    assert (y == np.where(chosen, x, 0)).all()


@pytest.mark.parametrize("order", ORDERS)
def test_groups_complete_in_order(order: Order) -> None:
    """Three groups; the first tile is used again after its group has been read, the others stay pending."""
    x, y = RNG.integers(0, 255, 512, np.uint8), np.zeros(2048, np.uint8)
    issue = "    ld.param.u64 %rd1, [y];\n"
    for n in range(3):
        issue += f"    {STORE} [%rd1+{512 * n}], [tile+{512 if n else 0}], 512;\n"
        issue += "    cp.async.bulk.commit_group;\n"
    issue += "    cp.async.bulk.wait_group.read 2;\n"
    refill = "    mov.u32 %r2, tile;\n    shl.b32 %r3, %r1, 4;\n    add.u32 %r2, %r2, %r3;\n    mov.u32 %r4, 7;\n"
    refill += "    setp.lt.u32 %p2, %r1, 32;\n    @%p2 st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};\n"
    last = f"    {STORE} [%rd1+1536], [tile], 512;\n" + COMMIT_AND_WAIT
    body = fill(512) + "    bar.sync 0;\n" + fill(512).replace("FILL", "AGAIN").replace("tile;", "tile+512;")
    body += PROXY_FENCE + elected(issue) + "    bar.sync 0;\n" + refill + PROXY_FENCE + elected(last, "LAST")
    run(kernel(".param .u64 x, .param .u64 y", body, tile(1024)), x, y, order=order)
    assert (y[:1536].reshape(3, 512) == x).all()
    assert (y[1536:].view(np.uint32) == 7).all()


@pytest.mark.parametrize(
    ("operation", "type_name", "dtype"),
    [
        ("add", "u32", np.uint32), ("add", "f32", np.float32), ("add", "f64", np.float64), ("min", "s64", np.int64),
        ("max", "u32", np.uint32), ("add.noftz", "f16", np.float16), ("add.noftz", "bf16", ml_dtypes.bfloat16),
        ("max", "bf16", ml_dtypes.bfloat16), ("and", "b64", np.uint64), ("xor", "b32", np.uint32),
        ("inc", "u32", np.uint32),
    ],
)  # fmt: skip
def test_a_reduction_into_global_memory_combines(operation: str, type_name: str, dtype: Any) -> None:
    x, y = RNG.integers(0, 50, 64).astype(dtype), RNG.integers(0, 50, 64).astype(dtype)
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "xor": np.bitwise_xor,
        "inc": lambda old, v: np.where(old >= v, 0, old + 1),
    }  # fmt: skip
    want = functions[operation.split(".")[0]](y, x)
    instruction = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_name}"
    run(store_text(x.nbytes, instruction), x, y)
    assert (y == want).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["add", "min", "max", "inc", "dec"]), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_reductions_of_integers_agree_with_arithmetic(operation: str, old: int, value: int) -> None:
    found = reduction(operation, "u32")
    assert found is not None
    got = int(found(np.array([old], np.uint32), np.array([value], np.uint32))[0])
    want = {
        "add": (old + value) % 2**32, "min": min(old, value), "max": max(old, value),
        "inc": 0 if old >= value else old + 1, "dec": value if old == 0 or old > value else old - 1,
    }[operation]  # fmt: skip
    assert got == want


def test_sums_of_subnormal_f32_are_flushed() -> None:
    add = reduction("add", "f32")
    assert add is not None
    old = np.array([1e-40, 1.5e-38, 1.0, np.inf], np.float32)
    new = np.array([1e-38, -1.2e-38, 2.0, 1.0], np.float32)
    got = add(old.view(np.uint32), new.view(np.uint32)).view(np.float32)
    assert got.tolist() == [0.0, 0.0, 3.0, np.inf]
    assert reduction("add", "u8") is None
    assert reduction("min", "f32") is None


# ---- other CTAs' shared memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_a_copy_into_another_cta_arrives_there(order: Order) -> None:
    x, y = RNG.integers(0, 255, (4, 256), np.uint8), np.zeros((4, 256), np.uint8)
    text = neighbour_text("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", 256)
    run(text, x, y, grid=4, cluster=(2, 1, 1), order=order)
    assert (y == x[[1, 0, 3, 2]]).all()


def gather_sum_text() -> str:
    """Every CTA of a cluster of 4 adds its tile into CTA 0's inbox, which starts as ones."""
    ones = """    mov.u32 %r2, inbox;
    shl.b32 %r3, %r1, 2;
    add.u32 %r2, %r2, %r3;
    mov.u32 %r4, 1;
    st.shared.u32 [%r2], %r4;
"""
    issue = """    mov.u32 %r5, 0;
    mapa.shared::cluster.u32 %r6, inbox, %r5;
    mapa.shared::cluster.u32 %r7, bar, %r5;
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r6], [tile], 256, [%r7];
"""
    first = "    mov.u32 %r8, %cluster_ctarank;\n    setp.ne.u32 %p2, %r8, 0;\n"
    body = fill(256) + ones + init() + PROXY_FENCE + first
    body += "    or.pred %p3, %p1, %p2;\n    @%p3 bra EXPECTED;\n" + expect(1024) + "EXPECTED:\n" + CLUSTER_SYNC
    body += elected(issue) + "    @%p2 bra GIVEN;\n" + wait() + dump(256, name="inbox") + "GIVEN:\n" + CLUSTER_SYNC
    return kernel(".param .u64 x, .param .u64 y", body, tile(256) + tile(256, "inbox") + BARRIER)


@pytest.mark.parametrize("order", ORDERS)
def test_reductions_into_one_cta_add_up(order: Order) -> None:
    x, y = RNG.integers(0, 999, 64).astype(np.uint32), np.zeros(64, np.uint32)
    run(gather_sum_text(), x, y, grid=4, cluster=(4, 1, 1), order=order)
    assert (y == 1 + 4 * x).all()


@pytest.mark.parametrize("order", ORDERS)
def test_asynchronous_stores_reach_the_other_cta(order: Order) -> None:
    mine = np.arange(32)[None, :] + np.array([[100], [0]])
    y = np.zeros((2, 32), np.uint32)
    name = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
    run(async_store_text(f"{name}.u32", "%r9", 4, 0), y, grid=2, cluster=(2, 1, 1), order=order)
    assert (y == mine).all()
    wide = np.zeros((2, 32, 4), np.uint32)
    run(async_store_text(f"{name}.v4.b32", "{%r9, %r10, %r11, %r12}", 16, 0), wide, grid=2, cluster=(2, 1, 1))
    assert (wide == mine[..., None] + np.arange(4) * 1000).all()


@pytest.mark.parametrize("order", ORDERS)
def test_asynchronous_reductions_reach_the_other_cta(order: Order) -> None:
    mine = np.arange(32)[None, :] + np.array([[100], [0]])
    name = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
    for operation, want in (("add.u32", 50 + mine), ("max.s32", np.maximum(50, mine)), ("xor.b32", 50 ^ mine)):
        y = np.zeros((2, 32), np.uint32)
        run(async_store_text(f"{name}.{operation}", "%r9", 4, 50), y, grid=2, cluster=(2, 1, 1), order=order)
        assert (y == want).all()


def test_bulk_stores_of_many_ctas_do_not_meet() -> None:
    x, y = RNG.integers(0, 255, 256, np.uint8), np.zeros((30, 256), np.uint8)
    text = store_text(256).replace(
        "    ld.param.u64 %rd1, [y];\n",
        "    ld.param.u64 %rd1, [y];\n    mov.u32 %r2, %ctaid.x;\n    mul.wide.u32 %rd2, %r2, 256;\n"
        "    add.u64 %rd1, %rd1, %rd2;\n",
    )
    for order in ORDERS:
        y[:] = 0
        run(text, x, y, grid=30, order=order)
        assert (y == x).all()


def test_uninitialised_memory_stays_so_through_a_copy() -> None:
    x, y = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    with pytest.raises(EmulationFault) as caught:
        run(load_text(256), DeviceBuffer(x, initialised=False), y)
    assert caught.value.kind == "uninitialised"
    assert caught.value.line_text.startswith("st.global.v4.u32")


def test_copies_reach_the_windows_of_a_huge_buffer() -> None:
    size = 1 << 40
    x, window = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    far = SparseBuffer(size, {size - 256: window}, offset=size - 256)
    run(store_text(256), x, far)
    assert (window == x).all()
    y = np.zeros(256, np.uint8)
    run(load_text(256), far, y)
    assert (y == x).all()
    with pytest.raises(EmulationFault) as caught:
        run(load_text(256), SparseBuffer(size, {size - 256: window}, offset=size - 272), y)
    assert caught.value.kind == "outside backed windows"


@pytest.mark.parametrize(
    ("instruction", "error", "message"),
    [
        (LOAD + ".ignore_oob", UnsupportedInstruction, ".ignore_oob"),
        (LOAD.replace("bulk", "bulk.mystery"), UnsupportedInstruction, ".mystery"),
        (LOAD.replace("shared::cluster.global", "global.shared::cluster"), PtxSyntaxError, "no two state spaces"),
        (LOAD + ".multicast::cluster", PtxSyntaxError, "takes 5 operands, not 4"),
        ("cp.async.bulk.tensor.shared::cluster.global.mbarrier::complete_tx::bytes", PtxSyntaxError, "operands, not 4"),
        ("cp.async.bulk.wait_group", PtxSyntaxError, "takes 1 operands, not 4"),
    ],
)
def test_a_form_without_semantics_is_refused_before_anything_runs(
    instruction: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(load_text(64, instruction), np.zeros(64, np.uint8), np.zeros(64, np.uint8))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("add.s64", "`.*`: .add has no form for .s64 here"), ("add.f16", "needs .noftz after .add"),
        ("min.f32", "`.*`: .min has no form for .f32 here"), ("inc.s32", "`.*`: .inc has no form for .s32 here"),
        ("mul.u32", ".mul"),
    ],
)  # fmt: skip
def test_a_reduction_that_the_manual_lacks_is_refused(name: str, message: str) -> None:
    text = store_text(64, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}")
    with pytest.raises((PtxSyntaxError, UnsupportedInstruction), match=message):
        run(text, np.zeros(64, np.uint8), np.zeros(64, np.uint8))
