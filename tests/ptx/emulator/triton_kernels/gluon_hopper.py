"""Kernels in Gluon, where layouts, buffers and barriers are written out: Hopper."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    async_store,
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def tile_sum(x, y, M, N, BM: gl.constexpr, BN: gl.constexpr):
    """y = x + 1 tile by tile through shared memory, and the sum of all tiles added to the second half of y."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], gl.float32)
    source = tma.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], layout)
    target = tma.make_tensor_descriptor(y, [M + BM, N], [N, 1], [BM, BN], layout)
    tile = gl.allocate_shared_memory(gl.float32, [BM, BN], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    mbarrier.expect(bar, source.nbytes_per_cta)
    tma.async_load(source, [row, column], bar, tile)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    registers: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    value = tile.load(registers)
    tile.store(value + 1)
    fence_async_shared()
    tma.async_store(target, [row, column], tile)
    tma.store_wait(0)
    tile.store(value)
    fence_async_shared()
    tma.async_atomic_add(target, [M, column], tile)
    tma.store_wait(0)


@gluon.jit
def _load_tiles(a, b, left, right, full, empty, m, n, steps, BK: gl.constexpr, STAGES: gl.constexpr):
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(empty.index(s), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(s), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [m, step * BK], full.index(s), left.index(s))
        tma.async_load(b, [step * BK, n], full.index(s), right.index(s))


@gluon.jit
def _multiply_tiles(c, left, right, out, full, empty, m, n, steps, STAGES: gl.constexpr):
    BM: gl.constexpr = out.shape[0]
    BN: gl.constexpr = out.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    total = warpgroup_mma_init(gl.zeros([BM, BN], gl.float32, layout))
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        total = warpgroup_mma(left.index(s), right.index(s), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total, left.index(s), right.index(s)])[0]
        total = warpgroup_mma_init(total)
        mbarrier.arrive(empty.index(s), count=1)
    result = warpgroup_mma_wait(0, deps=[total])
    out.store(result.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [m, n], out)
    tma.store_wait(0)


@gluon.jit
def roles(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """One warp loads into a ring, a warpgroup multiplies: a warp-specialised product, one tile per CTA."""
    la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.float16)
    lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16)
    lc: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], gl.float16)
    at_a = tma.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], la)
    at_b = tma.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN], lb)
    at_c = tma.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN], lc)
    left = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], la)
    right = gl.allocate_shared_memory(gl.float16, [STAGES, BK, BN], lb)
    out = gl.allocate_shared_memory(gl.float16, [BM, BN], lc)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    steps = gl.cdiv(K, BK)
    gl.warp_specialize(
        [
            (_multiply_tiles, (at_c, left, right, out, full, empty, m, n, steps, STAGES)),
            (_load_tiles, (at_a, at_b, left, right, full, empty, m, n, steps, BK, STAGES)),
        ],
        [1],
        [40],
    )


@gluon.jit
def multicast(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """Two CTAs share the columns of a tile of c: each loads half of a's rows into both, and its own half of b."""
    la: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.float16, cga_layout=[[0, 0]])
    lb: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16, cga_layout=[[0, 1]])
    lc: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], gl.float16, cga_layout=[[0, 1]])
    at_a = tma.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK], la)
    at_b = tma.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN], lb)
    at_c = tma.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN], lc)
    left = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], la)
    right = gl.allocate_shared_memory(gl.float16, [STAGES, BK, BN], lb)
    out = gl.allocate_shared_memory(gl.float16, [BM, BN], lc)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    cluster.barrier()
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN // 2, 16], cga_layout=[[0, 1]])
    total = gl.zeros([BM, BN], gl.float32, layout)
    for start in range(0, K, STAGES * BK):
        for s in gl.static_range(STAGES):
            k = start + s * BK
            mbarrier.expect(full.index(s), at_a.nbytes_per_cta + at_b.nbytes_per_cta)
            tma.async_load(at_a, [m, k], full.index(s), left.index(s), multicast=True)
            tma.async_load(at_b, [k, n], full.index(s), right.index(s))
        for s in gl.static_range(STAGES):
            mbarrier.wait(full.index(s), start // (STAGES * BK) & 1)
            total = warpgroup_mma(left.index(s), right.index(s), total)
        cluster.barrier()
    out.store(total.to(gl.float16))
    fence_async_shared()
    tma.async_store(at_c, [m, n], out)
    tma.store_wait(0)


@gluon.jit
def exchange(x, y, N: gl.constexpr):
    """Each CTA of a pair stores its part of x into the other's shared memory, and adds what it received."""
    own: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0], cga_layout=[[1]])
    place: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[1]])
    inbox = gl.allocate_shared_memory(gl.float32, [N], place)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    cluster.barrier()
    i = gl.arange(0, N, own)
    v = gl.load(x + gl.program_id(0) * N + i)
    mbarrier.expect(bar, N * 2)
    async_store(inbox, v * 2, bar)
    mbarrier.wait(bar, 0)
    gl.store(y + gl.program_id(0) * N + i, v + inbox.load(own))
    cluster.barrier()


@gluon.jit
def _fill(a, left, full, empty, m, steps, BK: gl.constexpr, STAGES: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    BM: gl.constexpr = left.shape[1]
    r = gl.arange(0, BM, gl.SliceLayout(1, rows))
    k = gl.arange(0, BK, gl.SliceLayout(0, rows))
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(empty.index(s), (step // STAGES & 1) ^ 1)
        async_copy.async_load(left.index(s), a + (m + r)[:, None] * (steps * BK) + (step * BK + k)[None, :])
        async_copy.mbarrier_arrive(full.index(s), increment_count=False)


@gluon.jit
def _drain(y, left, full, empty, m, steps, STAGES: gl.constexpr):
    BM: gl.constexpr = left.shape[1]
    BK: gl.constexpr = left.shape[2]
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    total = gl.zeros([BM, BK], gl.float32, rows)
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        total += left.index(s).load(rows).to(gl.float32)
        mbarrier.arrive(empty.index(s), count=1)
    r = gl.arange(0, BM, gl.SliceLayout(1, rows))
    k = gl.arange(0, BK, gl.SliceLayout(0, rows))
    gl.store(y + (m + r)[:, None] * BK + k[None, :], total)


@gluon.jit
def ring_of_copies(a, y, steps, BM: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """A ring that cp.async fills and mbarriers hand over: sums of blocks of columns."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    left = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=64)
        mbarrier.init(empty.index(s), count=1)
    m = gl.program_id(0) * BM
    gl.warp_specialize(
        [
            (_drain, (y, left, full, empty, m, steps, STAGES)),
            (_fill, (a, left, full, empty, m, steps, BK, STAGES)),
        ],
        [2],
        [40],
    )


@gluon.jit
def tensor_map_convolution(
    image, weights, y, H, W, BM: gl.constexpr, C: gl.constexpr, CO: gl.constexpr, R: gl.constexpr, S: gl.constexpr
):
    """A convolution of NHWC images: for each tap a column of BM pixels through an im2col map, times C x CO weights."""
    pixels = gl.allocate_shared_memory(gl.float16, [2, BM, C], image.layout)
    taps = gl.allocate_shared_memory(gl.float16, [2, C, CO], weights.layout)
    full = mbarrier.allocate_mbarrier(batch=2)
    for s in gl.static_range(2):
        mbarrier.init(full.index(s), count=1)
    first = gl.program_id(0) * BM
    n, h, w = first // (H * W), first // W % H - R // 2, first % W - S // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CO, 16])
    total = gl.zeros([BM, CO], gl.float32, layout)
    for tap in gl.static_range(R * S + 1):
        if tap < R * S:
            full_now = full.index(tap % 2)
            mbarrier.expect(full_now, image.nbytes_per_cta + weights.nbytes_per_cta)
            tma.async_load_im2col(image, [n, h, w, 0], [tap // S, tap % S], full_now, pixels.index(tap % 2))
            tma.async_load(weights, [tap * C, 0], full_now, taps.index(tap % 2))
        if tap > 0:
            mbarrier.wait(full.index((tap - 1) % 2), (tap - 1) // 2 & 1)
            total = warpgroup_mma(pixels.index((tap - 1) % 2), taps.index((tap - 1) % 2), total)
    m = first + gl.arange(0, BM, gl.SliceLayout(1, layout))
    o = gl.arange(0, CO, gl.SliceLayout(0, layout))
    gl.store(y + m[:, None] * CO + o[None, :], total)
