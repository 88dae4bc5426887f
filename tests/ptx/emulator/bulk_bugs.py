"""The mistakes that kernels with bulk and tensor copies can have: each in a kernel that is right without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bulk_kernels import (
    ACQUIRE,
    BARRIER,
    CLUSTER_SYNC,
    LOAD,
    PROXY_FENCE,
    RELEASE,
    STORE,
    async_store_text,
    dump,
    elected,
    expect,
    fill,
    init,
    kernel,
    load_kernel,
    load_text,
    map_address,
    multicast_kernel,
    neighbour_text,
    pointer_kernel,
    replace_kernel,
    store_kernel,
    store_text,
    tile,
    wait,
)

from tinygpu.ptx.emulator import DeviceBuffer, TensorMap
from tinygpu.ptx.emulator.state.emulation import Order

ORDERS: tuple[Order, ...] = ("late", "early", "random")
LOADED = load_kernel(2, (0, 2), 512)
STORED = store_kernel(2, (0, 2), 1024)
ONE_WARP = {"block": 32}
PAIR = {"grid": 2, "cluster": (2, 1, 1)}


def half(rows: int = 12, columns: int = 32) -> np.ndarray[Any, Any]:
    return np.arange(rows * columns).reshape(rows, columns).astype(np.float16)


def loaded() -> list[Any]:
    return [TensorMap(half(), (32, 8)), np.zeros((8, 32), np.float16)]


def stored() -> list[Any]:
    return [TensorMap(half(24), (32, 16)), half(16)]


def spread() -> list[Any]:
    return [TensorMap(half(16), (32, 8)), np.zeros((2, 16, 32), np.float16)]


def linear() -> list[Any]:
    return [np.arange(512, dtype=np.uint8) % 251, np.zeros(512, np.uint8)]


def changed_map() -> list[Any]:
    return [half(), np.uint32(10), np.zeros(128, np.uint8), np.zeros((8, 32), np.float16)]


def changed_in_place() -> list[Any]:
    held = DeviceBuffer(half())
    table = np.frombuffer(bytes(TensorMap(held, (32, 8))), np.uint8).copy()
    return [held, np.uint32(0), table, np.zeros((8, 32), np.float16)]


@dataclass(frozen=True)
class Bug:
    """A mistake: `text` with edits, or with other arguments."""

    name: str
    text: str
    edits: tuple[tuple[str, str], ...]
    args: Callable[[], list[Any]]
    bad_args: Callable[[], list[Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    orders: tuple[Order, ...] = ORDERS

    def broken(self) -> str:
        text = self.text
        for right, wrong in self.edits:
            assert right in text
            text = text.replace(right, wrong)
        return text


REUSED = kernel(
    ".param .u64 x, .param .u64 y",
    fill(256)
    + PROXY_FENCE
    + elected(
        f"    ld.param.u64 %rd1, [y];\n    {STORE} [%rd1], [tile], 256;\n    cp.async.bulk.commit_group;\n"
        "    cp.async.bulk.wait_group.read 0;\n"
    )
    + "    bar.sync 0;\n    mov.u32 %r9, 5;\n    @!%p1 st.shared.u32 [tile+16], %r9;\n"
    + elected("    cp.async.bulk.wait_group 0;\n", "LAST"),
    tile(256),
)
READ_BACK = kernel(
    ".param .u64 x, .param .u64 y",
    fill(256)
    + PROXY_FENCE
    + elected(
        f"    ld.param.u64 %rd1, [y];\n    {STORE} [%rd1], [tile], 256;\n    cp.async.bulk.commit_group;\n"
        "    cp.async.bulk.wait_group 0;\n    ld.global.u32 %r9, [%rd1+16];\n    st.global.u32 [%rd1+16], %r9;\n"
        "    cp.async.bulk.wait_group 0;\n"
    ),
    tile(256),
)
CHANGED_SOURCE = kernel(
    ".param .u64 x, .param .u64 y",
    init()
    + elected(
        "    ld.param.u64 %rd1, [x];\n" + expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n"
    )
    + wait()
    + elected("    mov.u32 %r9, 5;\n    st.global.u32 [%rd1+16], %r9;\n", "LATER")
    + "    bar.sync 0;\n"
    + dump(256),
    tile(256) + BARRIER,
)
TWO_TILES = kernel(
    ".param .u64 x, .param .u64 y",
    init()
    + init(1, "bar2")
    + elected(
        "    ld.param.u64 %rd1, [x];\n" + expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n"
        + wait() + expect(256, "bar2") + f"    {LOAD} [tile], [%rd1+256], 256, [bar2];\n"
    )
    + wait(0, "bar2", "WAIT2") + dump(256),
    tile(256) + BARRIER + BARRIER.replace("bar", "bar2"),
)  # fmt: skip
UNWAITED = kernel(
    ".param .u64 x",
    init()
    + elected("    ld.param.u64 %rd1, [x];\n" + expect(256) + f"    {LOAD} [tile], [%rd1], 256, [bar];\n")
    + wait(),
    tile(256) + BARRIER,
)
REMOTE_BARRIER = kernel(
    ".param .u64 x, .param .u64 y",
    init() + CLUSTER_SYNC
    + elected(
        "    ld.param.u64 %rd1, [x];\n    mov.u32 %r2, %cluster_ctarank;\n" + expect(256)
        + "    mapa.shared::cluster.u32 %r3, bar, %r2;\n"
        + f"    {LOAD} [tile], [%rd1], 256, [%r3];\n"
    )
    + wait() + CLUSTER_SYNC,
    tile(256) + BARRIER,
)  # fmt: skip
LOCAL_MAP = kernel(
    ".param .align 64 .b8 tm[128], .param .u64 y",
    map_address() + "    prefetch.tensormap [%rd1];\n"
    + "    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 0}];\n",
    ".shared .align 128 .b8 shadow[128];",
)  # fmt: skip
UNDEFINED = kernel(
    ".param .align 64 .b8 tm[128], .param .u64 y",
    "    mov.u32 %r60, 0;\n" + map_address()
    + "    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r60, 0}];\n",
)  # fmt: skip
HALF_FILLED = kernel(
    ".param .u64 x, .param .u64 y",
    fill(256)
    + PROXY_FENCE
    + elected(f"    ld.param.u64 %rd1, [y];\n    {STORE} [%rd1], [tile], 256;\n    cp.async.bulk.commit_group;\n"
              "    cp.async.bulk.wait_group 0;\n"),
    tile(512),
)  # fmt: skip
EXITED = store_text(256).replace("    cp.async.bulk.wait_group 0;\n", "    cp.async.bulk.wait_group.read 0;\n")
REDUCED = store_kernel(2, (0, 2), 256, operation="add")



def read_only() -> TensorMap:
    x = half(24)
    x.flags.writeable = False
    return TensorMap(x, (32, 16))


def tiny(dtype: Any) -> TensorMap:
    """Rows of 16 elements of 4 bytes, or of 16 of one byte that need a box of the same bytes."""
    width = 64 // np.dtype(dtype).itemsize
    return TensorMap(np.zeros((12, width), dtype), (width, 4))


def maps_at(offset: int) -> list[Any]:
    held = DeviceBuffer(half())
    data = np.frombuffer(bytes(offset) + bytes(TensorMap(held, (32, 8))) + bytes(32), np.uint8).copy()
    return [DeviceBuffer(data, offset=offset), np.zeros((8, 32), np.float16), held]


def two() -> list[Any]:
    return [np.zeros((2, 256), np.uint8), np.zeros((2, 256), np.uint8)]


WAIT = wait()
GROUP_WAIT = "    cp.async.bulk.wait_group 0;\n    ld.global"
BUGS = [
    Bug("the wait for the tile is missing", LOADED, ((WAIT, ""),), loaded),
    Bug("the wait has the wrong parity", LOADED, (("[bar], 0;", "[bar], 1;"),), loaded),
    Bug("too many bytes are expected", LOADED, (("_, [bar], 512", "_, [bar], 528"),), loaded),
    Bug("too few bytes are expected", LOADED, (("_, [bar], 512", "_, [bar], 496"),), loaded),
    Bug("bytes are expected but nobody arrives", LOADED, (("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 512"),), loaded),
    Bug("the mbarrier was never initialised", LOADED, (("    mbarrier.init.shared::cta.b64 [bar], 1;\n", ""),),
        loaded),
    Bug("the tile is too small for the box", LOADED, (("tile[512]", "tile[256]"),), loaded),
    Bug("the tile is misaligned", LOADED, (("bytes [tile], ", "bytes [tile+64], "),), loaded),
    Bug("the instruction has another rank", LOADED, (("2d.shared", "3d.shared"), ("{0, 2}", "{0, 2, 0}")), loaded),
    Bug("the parameter is no tensor map", LOADED, (), loaded,
        bad_args=lambda: [bytes(128), np.zeros((8, 32), np.float16)]),
    Bug("the tensor reaches beyond its array", LOADED, (), loaded,
        bad_args=lambda: [TensorMap(half(8), (32, 8), dims=(32, 12)), np.zeros((8, 32), np.float16)]),
    Bug("the fence of the writers is missing", STORED, (("    fence.proxy.async.shared::cta;\n", ""),), stored),
    Bug("the barrier after the fence is missing", STORED, ((PROXY_FENCE, "    fence.proxy.async.shared::cta;\n"),),
        stored),
    Bug("a store starts before the tensor", STORED, (("{0, 2}", "{0, -2}"),), stored),
    Bug("the array cannot be written", STORED, (), stored, bad_args=lambda: [read_only(), half(16)]),
    Bug("shared memory is used again too early", REUSED, (("    cp.async.bulk.wait_group.read 0;\n", ""),), linear),
    Bug("the result is read before it is complete", READ_BACK,
        ((GROUP_WAIT, GROUP_WAIT.replace("group 0", "group.read 0")),), linear),
    Bug("the groups that are waited for are too few", READ_BACK,
        ((GROUP_WAIT, GROUP_WAIT.replace("group 0", "group 1")),), linear),
    Bug("the copies are not committed before the wait", READ_BACK, (("    cp.async.bulk.commit_group;\n", ""),),
        linear),
    Bug("the source changes while it is read", CHANGED_SOURCE,
        ((WAIT, ""), ("    bar.sync 0;\n    ld.param.u64 %rd20", WAIT + "    ld.param.u64 %rd20")), linear,
        orders=("late",)),
    Bug("a second load overwrites a tile that is still being loaded", TWO_TILES, ((WAIT, ""),), linear),
    Bug("the CTA exits while its memory is written", UNWAITED, ((WAIT, ""),), lambda: linear()[:1]),
    Bug("the size is no multiple of 16", load_text(256), (("[%rd1], 256", "[%rd1], 248"),), linear),
    Bug("the source is misaligned", load_text(256), (("[%rd1], 256", "[%rd1+8], 256"),), linear),
    Bug("the source ends before the copy", load_text(256), (), linear,
        bad_args=lambda: [np.zeros(250, np.uint8), np.zeros(256, np.uint8)]),
    Bug("the destination in shared memory is too small", load_text(256), (("tile[256]", "tile[240]"),), linear),
    Bug("the destination in shared memory is misaligned", load_text(240), (("[tile], ", "[tile+8], "),), linear),
    Bug("a part of what is stored was never written", HALF_FILLED, (("[tile], 256", "[tile+128], 256"),), linear),
    Bug("a coordinate was never set", UNDEFINED, (("    mov.u32 %r60, 0;\n", ""),), loaded),
    Bug("the tensor map lies in shared memory", LOCAL_MAP,
        (("mov.b64 %rd1, tm;\n    cvta.param.u64", "mov.u64 %rd1, shadow;\n    cvta.shared.u64"),), loaded),
    Bug("a reduction of elements that have none", REDUCED, (), lambda: [tiny(np.int32), half(16)],
        bad_args=lambda: [tiny(np.uint8), half(16)]),
    Bug("the map is used without an acquire", replace_kernel(ACQUIRE), ((ACQUIRE, ""),), changed_map),
    Bug("the map is used without a release", replace_kernel(ACQUIRE, RELEASE), ((RELEASE, ""),), changed_in_place),
    Bug("a field of the map is illegal", replace_kernel(ACQUIRE),
        (("element_stride.shared::cta.b1024.b32 [desc], 1, 1", "element_stride.shared::cta.b1024.b32 [desc], 1, 9"),),
        changed_map),
    Bug("the map is changed from bytes that are none", replace_kernel(ACQUIRE),
        (("mov.u32 %r12, 0;", "mov.u32 %r12, 3;"),), changed_map),
    Bug("the map is misaligned", pointer_kernel(), (), lambda: maps_at(64), bad_args=lambda: maps_at(32)),
    Bug("multicast to more CTAs than the cluster has", multicast_kernel(2, 8),
        (("mov.u16 %h1, 3;", "mov.u16 %h1, 7;"),), spread, options=PAIR),
    Bug("multicast before the other CTA's barrier is ready", multicast_kernel(2, 8), ((init() + CLUSTER_SYNC, init()),),
        spread, options=PAIR),
    Bug("every CTA expects its own part only", multicast_kernel(2, 8), (("_, [bar], 1024", "_, [bar], 512"),), spread,
        options=PAIR),
    Bug("the load completes on another CTA's barrier", REMOTE_BARRIER, (("bar, %r2;", "bar, 0;"),), linear,
        options=PAIR),
    Bug("the inbox is read before the copy came", neighbour_text(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", 256), ((WAIT, ""),), two,
        options=PAIR),
    Bug("the other CTA's stores are not waited for", async_store_text(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32", "%r9", 4, 0), ((WAIT, ""),),
        lambda: [np.zeros((2, 32), np.uint32)], options=PAIR),
]  # fmt: skip
