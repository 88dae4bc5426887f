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


# The whole sentence of each, by order of text; some are found in more than one way, depending on the order.
FOUND: dict[str, tuple[tuple[str, str], ...]] = {
    "the wait for the tile is missing": (
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) may still be writing: wait for its completion first"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) wrote: wait for its completion first"),
    ),
    "the wait has the wrong parity": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 1 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 1 completed phases, 0 of 1 arrivals"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 20 (what completes on mbarrier "
         "0x680) may still be writing: wait for its completion first"),
    ),
    "too many bytes are expected": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 1 of 1 arrivals and waits for 16 more transaction bytes"),
    ),
    "too few bytes are expected": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 1 of 1 arrivals and has 16 transaction bytes more than "
         "were expected"),
    ),
    "bytes are expected but nobody arrives": (
        ("deadlock",
         "deadlock: no thread can run. warp 0 waits on line 23 for parity 0 of an mbarrier: mbarrier 0x680 "
         "(initialised on line 12) has 0 completed phases, 0 of 1 arrivals"),
    ),
    "the mbarrier was never initialised": (
        ("mbarrier",
         "uses shared address 0x680 as an mbarrier, but no mbarrier.init has been executed there"),
    ),
    "the tile is too small for the box": (
        ("out of bounds",
         "cp.async.bulk.tensor of 512 bytes at shared address 0x400 is out of bounds: tile has 256 bytes, and this "
         "is byte 0 to 511"),
    ),
    "the tile is misaligned": (
        ("misaligned",
         "cp.async.bulk.tensor at shared address 0x440 is misaligned: it must be a multiple of 128, but the "
         "remainder is 64"),
    ),
    "the instruction has another rank": (
        ("tensor map",
         "illegal tensor copy: the tensor map has 2 dimensions, but the instruction is .3d"),
    ),
    "the parameter is no tensor map": (
        ("tensor map",
         "the 128 bytes at address 0x7c0000000000 (the kernel's parameters) are no tensor map: pass a TensorMap as "
         "the argument, or copy one there"),
    ),
    "the tensor reaches beyond its array": (
        ("out of bounds",
         "cp.async.bulk.tensor of 16 bytes at global address 0x100000000200 is out of bounds: tm has 512 bytes, and"
         " this is byte 512 to 527 of it"),
    ),
    "the fence of the writers is missing": (
        ("race",
         "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 0 wrote through the "
         "generic proxy on line 23, without fence.proxy.async between the two: the writing threads must execute "
         "fence.proxy.async after their stores, before the barrier"),
    ),
    "the barrier after the fence is missing": (
        ("race",
         "reads 16 bytes at shared address 0x600 that warp 1 wrote on line 23, and no barrier orders the two: put "
         "bar.sync between them"),
    ),
    "a store starts before the tensor": (
        ("tensor map",
         "illegal tensor copy: the box starts at (0, -2), but a store takes no negative coordinates"),
    ),
    "the array cannot be written": (
        ("read-only",
         "store to tm, whose array is not writeable"),
    ),
    "shared memory is used again too early": (
        ("race",
         "overwrites 4 bytes at shared address 0x410 that asynchronous work on line 31 (a bulk copy that warp 0 "
         "issued) may still be reading: wait for its completion, and order the wait before this write"),
    ),
    "the result is read before it is complete": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the groups that are waited for are too few": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the copies are not committed before the wait": (
        ("race",
         "reads 4 bytes at byte 16 of y (global address 0x102000000010) that warp 0 of the same CTA may still be "
         "writing by a bulk copy on line 31, and nothing orders the two: the thread that issued it must wait for it "
         "(cp.async.bulk.wait_group), and a barrier must follow"),
    ),
    "the source changes while it is read": (
        ("race",
         "reads byte 16 of x (global address 0x100000000010) that warp 0 of the same CTA wrote on line 23, and nothing "
         "orders the two: wait for its completion, and put a barrier between"),
    ),
    "a second load overwrites a tile that is still being loaded": (
        ("race",
         "writes 16 bytes at shared address 0x400 that asynchronous work on line 24 (what completes on mbarrier "
         "0x580) may still be writing: wait for its completion first"),
        ("race",
         "writes 16 bytes at shared address 0x400 that asynchronous work on line 24 (what completes on mbarrier "
         "0x580) wrote: wait for its completion first"),
    ),
    "the CTA exits while its memory is written": (
        ("asynchronous copy",
         "this CTA exits, but the copy of line 19 may still write into its shared memory: some thread of the CTA "
         "must wait for its mbarrier before the exit"),
    ),
    "the size is no multiple of 16": (
        ("asynchronous copy",
         "cp.async.bulk of 248 bytes: the size must be a multiple of 16"),
    ),
    "the source is misaligned": (
        ("misaligned",
         "cp.async.bulk of 256 bytes at global address 0x100000000008 is misaligned: it must be a multiple of 16, "
         "but the remainder is 8"),
    ),
    "the source ends before the copy": (
        ("out of bounds",
         "cp.async.bulk of 16 bytes at global address 0x1000000000f0 is out of bounds: x has 250 bytes, and this is"
         " byte 240 to 255 of it"),
    ),
    "the destination in shared memory is too small": (
        ("out of bounds",
         "cp.async.bulk of 256 bytes at shared address 0x400 is out of bounds: tile has 240 bytes, and this is byte"
         " 0 to 255"),
    ),
    "the destination in shared memory is misaligned": (
        ("misaligned",
         "cp.async.bulk at shared address 0x408 is misaligned: it must be a multiple of 16, but the remainder is 8"),
    ),
    "a part of what is stored was never written": (
        ("uninitialised",
         "cp.async.bulk stores 16 bytes at shared address 0x500 to global memory, but they were never initialised: "
         "write them first, or copy less"),
    ),
    "a coordinate was never set": (
        ("uninitialised",
         "%r60 is a coordinate of a tensor copy, but it holds a value that was never initialised: give it a value "
         "on every path to here"),
    ),
    "the tensor map lies in shared memory": (
        ("tensor map",
         "the tensor map at generic address 0x7f0000000400 lies in shared memory, but it must be a kernel parameter"
         " (__grid_constant__) or lie in constant or global memory"),
    ),
    "a reduction of elements that have none": (
        ("tensor map",
         "cp.reduce.async.bulk.tensor.add has no form for elements of type u8"),
    ),
    "the map is used without an acquire": (
        ("race",
         "uses the tensor map at global address 0x102000000000 (table), which was changed in this launch, without a"
         " proxy fence between: it was written on line 45, and fence.proxy.tensormap::generic.acquire on its address "
         "must come between"),
    ),
    "the map is used without a release": (
        ("race",
         "uses the tensor map at global address 0x100000000000 (table), which was changed in this launch, without a"
         " proxy fence between: it was written on line 19, and the writer must execute "
         "fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy)"),
    ),
    "a field of the map is illegal": (
        ("tensor map",
         "the tensor map at address 0x102000000000 is illegal: element_strides[1] is 9, but an element stride is 1 "
         "to 8"),
    ),
    "the map is changed from bytes that are none": (
        ("tensor map",
         "tensormap.replace on 128 bytes that are no tensor map: copy one there first, or zeros"),
    ),
    "the map is misaligned": (
        ("misaligned",
         "the tensor map at address 0x100000000020 is misaligned: it must be a multiple of 64, but the remainder is"
         " 32"),
    ),
    "multicast to more CTAs than the cluster has": (
        ("cluster",
         "multicast to CTAs 0x7 (one bit each) of a cluster that has 2: only the low 2 bits may be set"),
    ),
    "multicast before the other CTA's barrier is ready": (
        ("race",
         "uses mbarrier 0x880, which warp 0 of the cluster's CTA 1 initialised on line 12, and nothing orders the "
         "two: fence.mbarrier_init.release.cluster and a cluster barrier must lie between them"),
    ),
    "every CTA expects its own part only": (
        ("race",
         "reads 16 bytes at shared address 0x600 that asynchronous work on line 29 (what completes on mbarrier "
         "0x880) may still be writing: wait for its completion first"),
        ("race",
         "reads 16 bytes at shared address 0x600 that asynchronous work on line 29 (what completes on mbarrier "
         "0x880) wrote: wait for its completion first"),
    ),
    "the load completes on another CTA's barrier": (
        ("mbarrier",
         "cp.async.bulk into the shared memory of the cluster's CTA 1 completes on an mbarrier of CTA 0: both must "
         "lie in the same CTA"),
    ),
    "the inbox is read before the copy came": (
        ("race",
         "reads 16 bytes at shared address 0x800 that asynchronous work on line 49 (what completes on mbarrier "
         "0x980) may still be writing: wait for its completion first"),
        ("race",
         "reads 16 bytes at shared address 0x800 that asynchronous work on line 49 (what completes on mbarrier "
         "0x980) wrote: wait for its completion first"),
    ),
    "the other CTA's stores are not waited for": (
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 35 (what completes on mbarrier "
         "0x500) may still be writing: wait for its completion first"),
        ("race",
         "reads 16 bytes at shared address 0x400 that asynchronous work on line 35 (what completes on mbarrier "
         "0x500) wrote: wait for its completion first"),
    ),
}  # fmt: skip
