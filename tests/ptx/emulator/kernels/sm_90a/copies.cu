// Bulk and tensor copies, distributed shared memory, remote arrivals: no matrix unit.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include "hopper.cuh"
namespace cg = cooperative_groups;

// y = 2 x + 1 in tiles of 1 KiB: bulk copy in, fence, bulk copy out; two buffers; the thread that stores waits.
extern "C" __global__ void bulk_1d(const float* x, float* y, int tiles) {
  __shared__ __align__(128) float in[2][256], out[2][256];
  __shared__ __align__(8) uint64_t bar[2];
  if (threadIdx.x == 0) { bar_init(smem(&bar[0]), 1); bar_init(smem(&bar[1]), 1); fence_bar_init(); }
  __syncthreads();
  auto load = [&](int t) {
    bar_expect(smem(&bar[t & 1]), 1024);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                 ::"r"(smem(in[t & 1])), "l"(x + t * 256), "r"(smem(&bar[t & 1])) : "memory");
  };
  if (threadIdx.x == 0) load(0);
  for (int t = 0; t < tiles; t++) {
    if (threadIdx.x == 0) {
      if (t + 1 < tiles) load(t + 1);
      bulk_wait_read<1>();
    }
    __syncthreads();
    bar_wait(smem(&bar[t & 1]), t >> 1 & 1);
    for (int i = threadIdx.x; i < 256; i += blockDim.x) out[t & 1][i] = 2.f * in[t & 1][i] + 1.f;
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(y + t * 256), "r"(smem(out[t & 1])) : "memory");
      bulk_commit();
    }
  }
  if (threadIdx.x == 0) bulk_wait<0>();
}

// Transpose of tiles of 32 x 32 floats: tensor copies both ways, 128-byte swizzle, edges cut by the maps.
extern "C" __global__ void tma_transpose(MAP in, MAP out) {
  __shared__ __align__(1024) unsigned char a[4096], b[4096];
  __shared__ __align__(8) uint64_t bar;
  if (threadIdx.x == 0) { prefetch_map(in); bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    bar_expect(smem(&bar), 4096);
    tma_load(smem(a), in, smem(&bar), blockIdx.x * 32, blockIdx.y * 32);
  }
  bar_wait(smem(&bar), 0);
  auto at = [](int r, int c) { return r * 128 + (((c >> 2) ^ (r & 7)) << 4) + (c & 3) * 4; };
  int c = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < 32; r += blockDim.x / 32) *(float*)(b + at(c, r)) = *(float*)(a + at(r, c));
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(out, smem(b), blockIdx.y * 32, blockIdx.x * 32);
    bulk_commit();
    bulk_wait_read<0>();
  }
}

// A 3 x 3 box filter over volumes: 3-D tensor loads with a halo that begins at negative coordinates.
extern "C" __global__ void tma_halo(MAP in, float* y, int w, int h) {
  __shared__ __align__(128) float tile[10][20];
  __shared__ __align__(8) uint64_t bar;
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  int x0 = blockIdx.x * 16, y0 = blockIdx.y * 8, z = blockIdx.z;
  if (threadIdx.x == 0) {
    bar_expect(smem(&bar), sizeof tile);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(smem(tile)), "l"(&in), "r"(smem(&bar)), "r"(x0 - 1), "r"(y0 - 1), "r"(z) : "memory");
  }
  bar_wait(smem(&bar), 0);
  int i = threadIdx.x % 16, j = threadIdx.x / 16;
  float sum = 0;
  for (int b = 0; b < 3; b++) for (int a = 0; a < 3; a++) sum += tile[j + b][i + a];
  if (x0 + i < w && y0 + j < h) y[(z * h + y0 + j) * w + x0 + i] = sum;
}

// Each CTA of a cluster of four loads a quarter and sends it to all; every CTA then writes the whole.
extern "C" __global__ void __cluster_dims__(4, 1, 1) multicast(MAP in, float* y) {
  __shared__ __align__(128) float tile[4][8][32];
  __shared__ __align__(8) uint64_t bar;
  uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  cluster_sync_relaxed();
  if (threadIdx.x == 0) {
    bar_expect(smem(&bar), sizeof tile);
    tma_load_multicast(smem(tile[rank]), in, smem(&bar), 0, (blockIdx.x / 4 * 4 + rank) * 8, 0xF);
  }
  bar_wait(smem(&bar), 0);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) y[blockIdx.x * 1024 + i] = tile[i / 256][i / 32 % 8][i % 32];
  cluster_sync();
}

// Row sums over a cluster of four: partial sums are read from the other CTAs' shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) dsmem_sum(const float* x, float* y, int n) {
  auto cluster = cg::this_cluster();
  __shared__ float part;
  __shared__ float warps[4];
  int rank = cluster.block_rank();
  float v = 0;
  for (int i = rank * blockDim.x + threadIdx.x; i < n; i += 4 * blockDim.x) v += x[blockIdx.y * n + i];
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) part = warps[0] + warps[1] + warps[2] + warps[3];
  cluster.sync();
  float sum = 0;
  for (int r = 0; r < 4; r++) sum += *cluster.map_shared_rank(&part, r);
  if (threadIdx.x == 0) y[blockIdx.y * 4 + rank] = sum;
  cluster.sync();
}

// A histogram whose bins are spread over a cluster of two: atomics on the other CTA's shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) dsmem_histogram(const unsigned char* x, unsigned* counts, int n) {
  auto cluster = cg::this_cluster();
  __shared__ unsigned bins[128];
  for (int i = threadIdx.x; i < 128; i += blockDim.x) bins[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int bin = x[i];
    atomicAdd(cluster.map_shared_rank(bins, bin / 128) + bin % 128, 1u);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < 128; i += blockDim.x) atomicAdd(&counts[cluster.block_rank() * 128 + i], bins[i]);
}

// A ring of CTAs: each sends a vector to the next by st.async, which completes on the receiver's mbarrier.
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(const uint32_t* x, uint32_t* y, int rounds) {
  __shared__ __align__(16) uint32_t inbox[2][64];
  __shared__ __align__(8) uint64_t full[2], empty[2];
  uint32_t rank = cluster_rank(), next = (rank + 1) & 3, last = (rank + 3) & 3;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 64); }
    fence_bar_init();
  }
  cluster_sync_relaxed();
  uint32_t v = x[blockIdx.x * 64 + threadIdx.x];
  for (int r = 0; r < rounds; r++) {
    int s = r & 1;
    if (threadIdx.x == 0) bar_expect(smem(&full[s]), 256);
    bar_wait_cluster(smem(&empty[s]), (r >> 1 & 1) ^ 1);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 ::"r"(at_rank(smem(&inbox[s][threadIdx.x]), next)), "r"(v * 3 + r), "r"(at_rank(smem(&full[s]), next)) : "memory");
    bar_wait_cluster(smem(&full[s]), r >> 1 & 1);
    v = inbox[s][63 - threadIdx.x];
    bar_arrive_at(smem(&empty[s]), last);
  }
  y[blockIdx.x * 64 + threadIdx.x] = v;
  cluster_sync();
}

// Sums in another CTA's memory by red.async; a copy from shared to shared memory of the neighbour.
extern "C" __global__ void __cluster_dims__(2, 1, 1) red_async(const uint32_t* x, uint32_t* y) {
  __shared__ __align__(16) uint32_t sums[32], mine[32], theirs[32];
  __shared__ __align__(8) uint64_t bar, copied;
  uint32_t rank = cluster_rank();
  if (threadIdx.x < 32) { sums[threadIdx.x] = 0; mine[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x]; }
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); bar_init(smem(&copied), 1); fence_bar_init(); bar_expect(smem(&bar), 512); bar_expect(smem(&copied), 128); }
  fence_async();
  cluster_sync();
  uint32_t to = at_rank(smem(&sums[threadIdx.x % 32]), rank ^ 1), done = at_rank(smem(&bar), rank ^ 1);
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
               ::"r"(to), "r"(x[blockIdx.x * 128 + threadIdx.x]), "r"(done) : "memory");
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
                 ::"r"(at_rank(smem(theirs), rank ^ 1)), "r"(smem(mine)), "r"(at_rank(smem(&copied), rank ^ 1)) : "memory");
  bar_wait_cluster(smem(&bar), 0);
  bar_wait_cluster(smem(&copied), 0);
  if (threadIdx.x < 32) { y[blockIdx.x * 64 + threadIdx.x] = sums[threadIdx.x]; y[blockIdx.x * 64 + 32 + threadIdx.x] = theirs[threadIdx.x]; }
  cluster_sync();
}

// Sums of blocks into global memory by bulk reductions of f32, and a maximum of integers.
extern "C" __global__ void bulk_reduce(const float* x, float* sum, int* top) {
  __shared__ __align__(128) float s[128];
  __shared__ __align__(128) int m[128];
  s[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
  m[threadIdx.x] = (int)s[threadIdx.x];
  fence_async();
  __syncthreads();
  if (threadIdx.x < 32 && elect_one()) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" ::"l"(sum), "r"(smem(s)) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], 512;" ::"l"(top), "r"(smem(m)) : "memory");
    bulk_commit();
    bulk_wait<0>();
  }
}

// The standard library's way: cuda::barrier with transaction counts, and its wrappers of single instructions.
extern "C" __global__ void library_way(const int* x, int* y) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(16) int tile[256];
  __shared__ barrier bar;
  if (threadIdx.x == 0) { init(&bar, blockDim.x); cuda::ptx::fence_proxy_async(cuda::ptx::space_shared); }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(tile, x + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof tile), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof tile);
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] += 7 * i;
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, y + blockIdx.x * 256, tile, sizeof tile);
    cuda::ptx::cp_async_bulk_commit_group();
    cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
  }
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) library_cluster(const int* x, int* y) {
  using namespace cuda;
  __shared__ int inbox;
  __shared__ uint64_t bar;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 32);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    inbox = 0;
  }
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
  uint32_t other = cluster_rank() ^ 1;
  auto* far_bar = cg::this_cluster().map_shared_rank(&bar, other);
  atomicAdd(cg::this_cluster().map_shared_rank(&inbox, other), x[blockIdx.x * 32 + threadIdx.x]);
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, far_bar);
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &bar, 0)) { }
  if (threadIdx.x == 0) y[blockIdx.x] = inbox;
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

// A tensor map that the kernel itself makes from a template, in shared memory, and publishes in global memory.
extern "C" __global__ void modified_map(MAP pattern, TensorMap* maps, const float* x, float* y, int rows) {
  __shared__ __align__(128) TensorMap local;
  __shared__ __align__(128) float tile[8][32];
  __shared__ __align__(8) uint64_t bar;
  TensorMap* map = maps + blockIdx.x;
  if (threadIdx.x < 32) ((uint32_t*)&local)[threadIdx.x] = ((const uint32_t*)&pattern)[threadIdx.x];
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(smem(&local)), "l"(x + blockIdx.x * rows * 32) : "memory");
      asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(smem(&local)), "r"(rows - (int)blockIdx.x) : "memory");
    }
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map), "r"(smem(&local)) : "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    bar_expect(smem(&bar), sizeof tile);
    tma_load(smem(tile), *map, smem(&bar), 0, 0);
  }
  bar_wait(smem(&bar), 0);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) y[blockIdx.x * 256 + i] = tile[i / 32][i % 32];
}
