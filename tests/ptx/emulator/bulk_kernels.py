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
