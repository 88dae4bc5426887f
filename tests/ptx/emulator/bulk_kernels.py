"""Small kernels with bulk and tensor copies: text fragments that the tests put together."""

from __future__ import annotations

from collections.abc import Sequence

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
"""
_REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<8>; .reg .b16 %s<8>;"
)
MAP = "cp.async.bulk.tensor"


def kernel(parameters: str, body: str, shared: str = "", module: str = "") -> str:
    """A module with one kernel `k`; thread 0 has %p1 false, %r1 is %tid.x."""
    return f"""{_HEAD}{module}
.visible .entry k({parameters})
{{
    {_REGISTERS}
    {shared}
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
{body}
    ret;
}}
"""


def tile(size_bytes: int, name: str = "tile") -> str:
    return f".shared .align 1024 .b8 {name}[{size_bytes}];"


BARRIER = ".shared .align 8 .b8 bar[8];"


def init(count: int = 1, barrier: str = "bar") -> str:
    """Thread 0 initialises an mbarrier; all know it afterwards (in a cluster all CTAs)."""
    return f"""    @%p1 bra INIT_{barrier};
    mbarrier.init.shared::cta.b64 [{barrier}], {count};
    fence.mbarrier_init.release.cluster;
INIT_{barrier}:
    bar.sync 0;
"""


CLUSTER_SYNC = """    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""


def expect(size_bytes: int, barrier: str = "bar") -> str:
    return f"    mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {size_bytes};\n"


def wait(parity: int | str = 0, barrier: str = "bar", label: str = "WAIT") -> str:
    return f"""{label}:
    mbarrier.try_wait.parity.shared::cta.b64 %p7, [{barrier}], {parity};
    @!%p7 bra {label};
"""


def elected(body: str, label: str = "ELECTED") -> str:
    """Only thread 0 of the CTA executes the body."""
    return f"    @%p1 bra {label};\n{body}{label}:\n"


def map_address(name: str = "tm", register: str = "%rd1") -> str:
    return f"    mov.b64 {register}, {name};\n    cvta.param.u64 {register}, {register};\n"


def dump(size_bytes: int, target: str = "y", name: str = "tile") -> str:
    """All threads copy shared memory to the buffer of parameter `target`, 16 bytes each."""
    return f"""    ld.param.u64 %rd20, [{target}];
    shl.b32 %r40, %r1, 4;
    mov.u32 %r41, %ntid.x;
    shl.b32 %r41, %r41, 4;
    mov.u32 %r42, {name};
DUMP_{name}:
    setp.ge.u32 %p6, %r40, {size_bytes};
    @%p6 bra DUMPED_{name};
    add.u32 %r43, %r42, %r40;
    ld.shared.v4.u32 {{%r44, %r45, %r46, %r47}}, [%r43];
    cvt.u64.u32 %rd21, %r40;
    add.u64 %rd21, %rd20, %rd21;
    st.global.v4.u32 [%rd21], {{%r44, %r45, %r46, %r47}};
    add.u32 %r40, %r40, %r41;
    bra DUMP_{name};
DUMPED_{name}:
"""


def fill(size_bytes: int, source: str = "x", name: str = "tile") -> str:
    """All threads copy the buffer of parameter `source` into shared memory, 16 bytes each."""
    return f"""    ld.param.u64 %rd22, [{source}];
    shl.b32 %r50, %r1, 4;
    mov.u32 %r51, %ntid.x;
    shl.b32 %r51, %r51, 4;
    mov.u32 %r52, {name};
FILL_{name}:
    setp.ge.u32 %p5, %r50, {size_bytes};
    @%p5 bra FILLED_{name};
    add.u32 %r53, %r52, %r50;
    cvt.u64.u32 %rd23, %r50;
    add.u64 %rd23, %rd22, %rd23;
    ld.global.v4.u32 {{%r54, %r55, %r56, %r57}}, [%rd23];
    st.shared.v4.u32 [%r53], {{%r54, %r55, %r56, %r57}};
    add.u32 %r50, %r50, %r51;
    bra FILL_{name};
FILLED_{name}:
"""


PROXY_FENCE = "    fence.proxy.async.shared::cta;\n    bar.sync 0;\n"
COMMIT_AND_WAIT = "    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\n"


def braces(values: Sequence[int | str]) -> str:
    return "{" + ", ".join(str(v) for v in values) + "}"


def load_kernel(
    dimensions: int, coordinates: Sequence[int], size_bytes: int, *, expected: int | None = None, mode: str = "tile",
    info: Sequence[int] = (), space: str = "shared::cluster",
) -> str:  # fmt: skip
    """Loads one box into shared memory and writes the bytes of the tile to y."""
    extra = f", {braces(info)}" if info else ""
    issue = (
        map_address()
        + expect(size_bytes if expected is None else expected)
        + f"    {MAP}.{dimensions}d.{space}.global.{mode}.mbarrier::complete_tx::bytes [tile], [%rd1, "
        + f"{braces(coordinates)}], [bar]{extra};\n"
    )
    body = init() + elected(issue) + wait() + dump(size_bytes)
    return kernel(".param .align 64 .b8 tm[128], .param .u64 y", body, tile(size_bytes) + BARRIER)


def store_kernel(
    dimensions: int, coordinates: Sequence[int], size_bytes: int, *, operation: str = "", mode: str = "tile"
) -> str:
    """Fills shared memory from x and stores it as one box, or reduces it."""
    name = f"cp.reduce.async.bulk.tensor.{dimensions}d.global.shared::cta.{operation}" if operation else (
        f"{MAP}.{dimensions}d.global.shared::cta"
    )  # fmt: skip
    issue = (
        map_address() + f"    {name}.{mode}.bulk_group [%rd1, {braces(coordinates)}], [tile];\n" + COMMIT_AND_WAIT
    )
    body = fill(size_bytes) + PROXY_FENCE + elected(issue)
    return kernel(".param .align 64 .b8 tm[128], .param .u64 x", body, tile(size_bytes))


LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def load_text(size: int, instruction: str = LOAD, extra: str = "") -> str:
    issue = "    ld.param.u64 %rd1, [x];\n" + expect(size)
    issue += f"    {instruction} [tile], [%rd1], {size}, [bar]{extra};\n"
    body = init() + elected(issue) + wait() + dump(size)
    return kernel(".param .u64 x, .param .u64 y", body, tile(size) + BARRIER)


def store_text(size: int, instruction: str = STORE, extra: str = "") -> str:
    issue = f"    ld.param.u64 %rd1, [y];\n    {instruction} [%rd1], [tile], {size}{extra};\n" + COMMIT_AND_WAIT
    return kernel(
        ".param .u64 x, .param .u64 y", fill(size) + PROXY_FENCE + elected(issue), tile(size)
    )  # fmt: skip


def neighbour_text(instruction: str, size: int) -> str:
    """Each CTA of a pair copies its tile into the other one's `inbox`, which is written to y."""
    issue = f"""    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, inbox, %r3;
    mapa.shared::cluster.u32 %r5, bar, %r3;
    {instruction} [%r4], [tile], {size}, [%r5];
"""
    own_x = """    ld.param.u64 %rd22, [x];
    mov.u32 %r6, %ctaid.x;
    mul.wide.u32 %rd6, %r6, SIZE;
    add.u64 %rd22, %rd22, %rd6;
""".replace("SIZE", str(size))
    own_y = own_x.replace("%rd22", "%rd20").replace("[x]", "[y]")
    body = own_x + fill(size).replace("    ld.param.u64 %rd22, [x];\n", "") + init() + PROXY_FENCE + CLUSTER_SYNC
    body += elected(expect(size), "EXPECTED") + CLUSTER_SYNC + elected(issue) + wait() + own_y
    body += dump(size, name="inbox").replace("    ld.param.u64 %rd20, [y];\n", "") + CLUSTER_SYNC
    return kernel(".param .u64 x, .param .u64 y", body, tile(size) + tile(size, "inbox") + BARRIER)


def async_store_text(instruction: str, values: str, size: int, start: int) -> str:
    """Thread t of each CTA of a pair stores into word(s) t of the other one's inbox."""
    threads = 32
    begin = f"""    mov.u32 %r2, inbox;
    mul.lo.u32 %r3, %r1, {size};
    add.u32 %r2, %r2, %r3;
    mov.u32 %r4, {start};
"""
    for k in range(size // 4):
        begin += f"    @%p4 st.shared.u32 [%r2+{4 * k}], %r4;\n"
    issue = f"""    mov.u32 %r5, %cluster_ctarank;
    xor.b32 %r6, %r5, 1;
    mapa.shared::cluster.u32 %r7, %r2, %r6;
    mapa.shared::cluster.u32 %r8, bar, %r6;
    mad.lo.u32 %r9, %r5, 100, %r1;
    add.u32 %r10, %r9, 1000;
    add.u32 %r11, %r9, 2000;
    add.u32 %r12, %r9, 3000;
    @%p4 {instruction} [%r7], {values}, [%r8];
"""
    place = f"""    ld.param.u64 %rd20, [y];
    mul.wide.u32 %rd5, %r5, {threads * size};
    add.u64 %rd20, %rd20, %rd5;
"""
    body = f"    setp.lt.u32 %p4, %r1, {threads};\n" + begin + init() + CLUSTER_SYNC
    body += elected(expect(threads * size)) + issue + wait() + place
    body += dump(threads * size, name="inbox").replace("    ld.param.u64 %rd20, [y];\n", "") + CLUSTER_SYNC
    return kernel(".param .u64 y", body, tile(threads * size, "inbox") + BARRIER)


def multicast_kernel(ctas: int, rows: int) -> str:
    """Each CTA of the cluster loads its rows of a tile for all of them; every CTA writes the whole tile to y."""
    size, part = ctas * rows * 64, rows * 64
    issue = map_address() + expect(size)
    issue += f"""    mov.u32 %r2, %cluster_ctarank;
    mul.lo.u32 %r3, %r2, {rows};
    mul.lo.u32 %r4, %r2, {part};
    mov.u32 %r5, tile;
    add.u32 %r5, %r5, %r4;
    mov.u32 %r6, bar;
    mov.u16 %h1, {(1 << ctas) - 1};
    {MAP}.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r5], [%rd1, {{0, %r3}}],
        [%r6], %h1;
"""
    place = f"""    ld.param.u64 %rd20, [y];
    mov.u32 %r7, %ctaid.x;
    mul.wide.u32 %rd5, %r7, {size};
    add.u64 %rd20, %rd20, %rd5;
"""
    body = init() + CLUSTER_SYNC + elected(issue) + wait() + place
    body += dump(size).replace("    ld.param.u64 %rd20, [y];\n", "") + CLUSTER_SYNC
    return kernel(".param .align 64 .b8 tm[128], .param .u64 y", body, tile(size) + BARRIER)


ACQUIRE = "    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;\n"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"


def pointer_kernel() -> str:
    issue = "    ld.param.u64 %rd1, [tm];\n" + expect(512)
    issue += f"    {MAP}.2d.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd1, {{0, 2}}], [bar];\n"
    body = init() + elected(issue) + wait() + dump(512)
    return kernel(".param .u64 tm, .param .u64 y", body, tile(512) + BARRIER)


def replace_kernel(fences: str, release: str = "cp_fenceproxy") -> str:
    """Thread 0 makes a map of its own from zeros, publishes it in global memory, and loads with it."""
    def change(field: str, value: str, width: int = 32, ordinal: int | None = None) -> str:
        middle = "" if ordinal is None else f"{ordinal}, "
        return f"    tensormap.replace.tile.{field}.shared::cta.b1024.b{width} [desc], {middle}{value};\n"

    zero = "    mov.u32 %r10, desc;\n    shl.b32 %r11, %r1, 2;\n    add.u32 %r10, %r10, %r11;\n    mov.u32 %r12, 0;\n"
    zero += "    setp.gt.u32 %p2, %r1, 31;\n    @!%p2 st.shared.u32 [%r10], %r12;\n    bar.sync 0;\n"
    build = "    ld.param.u64 %rd2, [x];\n" + change("global_address", "%rd2", 64) + change("rank", "1")
    build += change("box_dim", "32", ordinal=0) + change("box_dim", "8", ordinal=1)
    build += "    ld.param.u32 %r13, [rows];\n    mov.u64 %rd3, 64;\n" + change("global_dim", "32", ordinal=0)
    build += change("global_dim", "%r13", ordinal=1) + change("global_stride", "%rd3", 64, 0)
    build += change("element_stride", "1", ordinal=0) + change("element_stride", "1", ordinal=1)
    build += change("elemtype", "6") + change("interleave_layout", "0") + change("swizzle_mode", "2")
    build += change("fill_mode", "0")
    publish = "    bar.sync 0;\n    ld.param.u64 %rd1, [table];\n"
    if release == "cp_fenceproxy":
        publish += """    setp.gt.u32 %p3, %r1, 31;
    @%p3 bra PUBLISHED;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [desc], 128;
PUBLISHED:
"""
    else:
        publish += f"""    @%p1 bra PUBLISHED;
    tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 8;
    {release}
PUBLISHED:
"""
    issue = fences + expect(512)
    issue += f"    {MAP}.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1, {{0, 4}}], [bar];\n"
    body = init() + (zero + elected(build, "BUILT") if release == "cp_fenceproxy" else "") + publish
    body += "    bar.sync 0;\n" + elected(issue) + wait() + dump(512)
    shared = tile(512) + BARRIER + ".shared .align 128 .b8 desc[128];"
    return kernel(".param .u64 x, .param .u32 rows, .param .u64 table, .param .u64 y", body, shared)
