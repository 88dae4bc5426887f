"""Kernels in Gluon, where layouts, buffers and barriers are written out: Blackwell."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)


@gluon.jit
def _load(a, b, left, right, full, empty, m, n, steps, STAGES: gl.constexpr):
    BK: gl.constexpr = left.shape[2]
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(empty.index(s), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(s), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [m, step * BK], full.index(s), left.index(s))
        tma.async_load(b, [n, step * BK], full.index(s), right.index(s))


@gluon.jit
def _multiply(left, right, total, full, empty, done, steps, STAGES: gl.constexpr):
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        tcgen05_mma(left.index(s), right.index(s).permute((1, 0)), total, use_acc=step > 0, mbarriers=[empty.index(s)])
    tcgen05_commit(done)


@gluon.jit
def _write(c, total, out, done, m, n):
    mbarrier.wait(done, 0)
    out.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [m, n], out)
    tma.store_wait(0)


@gluon.jit
def tensor_memory_roles(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """One warp loads, one multiplies into tensor memory, a warpgroup writes; b is N x K."""
    la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.bfloat16)
    lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BK], gl.bfloat16)
    lc: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], gl.float32)
    at_a = tma.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], la)
    at_b = tma.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK], lb)
    at_c = tma.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN], lc)
    left = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BM, BK], la)
    right = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BN, BK], lb)
    out = gl.allocate_shared_memory(gl.float32, [BM, BN], lc)
    total = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    mbarrier.init(done, count=1)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    steps = gl.cdiv(K, BK)
    gl.warp_specialize(
        [
            (_write, (at_c, total, out, done, m, n)),
            (_load, (at_a, at_b, left, right, full, empty, m, n, steps, STAGES)),
            (_multiply, (left, right, total, full, empty, done, steps, STAGES)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def left_in_tensor_memory(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """c = (2 a) b, with 2 a computed in registers and put into tensor memory as the left operand."""
    registers: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([K, N], gl.float16)
    at_b = tma.make_tensor_descriptor(b, [K, N], [N, 1], [K, N], lb)
    right = gl.allocate_shared_memory(gl.float16, [K, N], lb)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, at_b.nbytes_per_cta)
    tma.async_load(at_b, [0, 0], bar, right)
    r = gl.arange(0, M, gl.SliceLayout(1, registers))
    k = gl.arange(0, K, gl.SliceLayout(0, registers))
    value = gl.load(a + r[:, None] * K + k[None, :]) * 2
    left = allocate_tensor_memory(gl.float16, [M, K], TensorMemoryLayout([M, K], col_stride=1))
    left.store(gl.convert_layout(value, left.get_reg_layout()))
    total = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    mbarrier.wait(bar, 0)
    tcgen05_mma(left, right, total, use_acc=False)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 1)
    n = gl.arange(0, N, gl.SliceLayout(0, registers))
    result = gl.convert_layout(total.load(), registers)
    gl.store(c + r[:, None] * N + n[None, :], result)


@gluon.jit
def pair(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Two CTAs carry out one product (cta_group::2); b is K x N."""
    la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.float16, cga_layout=[[1, 0]])
    lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16, cga_layout=[[0, 1]])
    at_a = tma.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], la)
    at_b = tma.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN], lb)
    left = gl.allocate_shared_memory(gl.float16, [BM, BK], la)
    right = gl.allocate_shared_memory(gl.float16, [BK, BN], lb)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = TensorMemoryLayout([BM // 2, BN], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    total = allocate_tensor_memory(gl.float32, [BM, BN], layout)
    gl.barrier(cluster=True)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(full, at_a.nbytes_per_cta + at_b.nbytes_per_cta)
        tma.async_load(at_a, [m, k], full, left)
        tma.async_load(at_b, [k, n], full, right)
        mbarrier.wait(full, phase)
        tcgen05_mma(left, right, total, use_acc=k > 0, multicast=True, mbarriers=[done])
        mbarrier.wait(done, phase)
        phase ^= 1
    value = total.load()
    r = gl.arange(0, BM, gl.SliceLayout(1, value.type.layout))
    q = gl.arange(0, BN, gl.SliceLayout(0, value.type.layout))
    gl.store(c + (m + r)[:, None] * N + (n + q)[None, :], value)


@gluon.jit
def stolen_tiles(x, y, N, BLOCK: gl.constexpr):
    """A grid of one CTA per tile, of which those that run take over those that have not begun (launch control)."""
    registers: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tile = gl.program_id(0)
    phase = 0
    more = True
    while more:
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)
        i = tile * BLOCK + gl.arange(0, BLOCK, registers)
        gl.store(y + i, gl.load(x + i, mask=i < N, other=0.0) * 3, mask=i < N)
        mbarrier.wait(bar, phase)
        phase ^= 1
        result = clc.load_result(answer)
        more = result.is_canceled()
        tile = result.program_id(0)
        gl.barrier()


@gluon.jit
def gathered(x, rows, y, M, N, R: gl.constexpr, C: gl.constexpr):
    """y = x[rows, :C] by gather4, and the same rows of the second half of y by scatter4."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([R, C], gl.float16)
    source = tma.make_tensor_descriptor(x, [M, N], [N, 1], [1, C], layout)
    target = tma.make_tensor_descriptor(y, [2 * M, C], [C, 1], [1, C], layout)
    whole = tma.make_tensor_descriptor(y, [2 * M, C], [C, 1], [R, C], layout)
    tile = gl.allocate_shared_memory(gl.float16, [R, C], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    places: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, gl.num_warps()], [1, 0]))
    ids = gl.load(rows + gl.arange(0, R, places))
    mbarrier.expect(bar, R * C * 2)
    tma.async_gather(source, ids, 0, bar, tile)
    mbarrier.wait(bar, 0)
    tma.async_store(whole, [0, 0], tile)
    tma.async_scatter(target, ids + M, 0, tile)
    tma.store_wait(0)


@gluon.jit
def block_scaled(a, b, sa, sb, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """A product of fp8 with a scale per 32 elements of k in tensor memory; a is M x K, b is N x K."""
    la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([M, K], gl.float8e4nv)
    at_a = tma.make_tensor_descriptor(a, [M, K], [K, 1], [M, K], la)
    at_b = tma.make_tensor_descriptor(b, [N, K], [K, 1], [N, K], la)
    left = gl.allocate_shared_memory(gl.float8e4nv, [M, K], la)
    right = gl.allocate_shared_memory(gl.float8e4nv, [N, K], la)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, at_a.nbytes_per_cta + at_b.nbytes_per_cta)
    tma.async_load(at_a, [0, 0], bar, left)
    tma.async_load(at_b, [0, 0], bar, right)
    scales: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [gl.num_warps(), 1], [1, 0])
    G: gl.constexpr = K // 32
    r = gl.arange(0, M, gl.SliceLayout(1, scales))
    g = gl.arange(0, G, gl.SliceLayout(0, scales))
    sl: gl.constexpr = TensorMemoryScalesLayout()
    ta = allocate_tensor_memory(gl.uint8, [M, G], sl)
    tb = allocate_tensor_memory(gl.uint8, [N, G], sl)
    ta.store(gl.convert_layout(gl.load(sa + r[:, None] * G + g[None, :]), ta.get_reg_layout()))
    q = gl.arange(0, N, gl.SliceLayout(1, scales))
    tb.store(gl.convert_layout(gl.load(sb + q[:, None] * G + g[None, :]), tb.get_reg_layout()))
    total = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    mbarrier.wait(bar, 0)
    tcgen05_mma_scaled(left, right.permute((1, 0)), total, ta, tb, "e4m3", "e4m3", use_acc=False)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 1)
    value = total.load()
    i = gl.arange(0, M, gl.SliceLayout(1, value.type.layout))
    j = gl.arange(0, N, gl.SliceLayout(0, value.type.layout))
    gl.store(c + i[:, None] * N + j[None, :], value)


@gluon.jit
def copied_tile(x, y, M: gl.constexpr, N: gl.constexpr):
    """From shared to tensor memory by tcgen05.cp, and back through registers."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([M, N], gl.float32)
    source = tma.make_tensor_descriptor(x, [M, N], [N, 1], [M, N], layout)
    tile = gl.allocate_shared_memory(gl.float32, [M, N], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, source.nbytes_per_cta)
    tma.async_load(source, [0, 0], bar, tile)
    mbarrier.wait(bar, 0)
    memory = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    tcgen05_copy(tile, memory)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 1)
    value = memory.load()
    i = gl.arange(0, M, gl.SliceLayout(1, value.type.layout))
    j = gl.arange(0, N, gl.SliceLayout(0, value.type.layout))
    gl.store(y + i[:, None] * N + j[None, :], value + 1)
