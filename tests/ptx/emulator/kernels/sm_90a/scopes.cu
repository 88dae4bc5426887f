// Wide and vector atomics, barriers over the grid and over clusters, dependent launches.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdint>
namespace cg = cooperative_groups;

struct alignas(16) Wide { unsigned long long low, high; };

// A 128-bit counter: low counts, high adds thread numbers; both change together.
extern "C" __global__ void wide_atomics(Wide* cell, Wide* slot, unsigned long long* sum) {
  Wide old = *cell, want;
  while (true) {
    want = {old.low + 1, old.high + threadIdx.x};
    Wide got = atomicCAS(cell, old, want);
    if (got.low == old.low && got.high == old.high) break;
    old = got;
  }
  Wide mine = {threadIdx.x, blockIdx.x + 1ull};
  Wide before = atomicExch(slot, mine);
  atomicAdd(sum, before.low + before.high);
}

extern "C" __global__ void vector_atomics(float2* pair, float4* quad, const float* x) {
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(pair, make_float2(v, 1.f));
  atomicAdd(quad + threadIdx.x % 2, make_float4(v, -v, 2.f, 0.5f));
}

// Sums of neighbours, round after round; every round needs all of the round before.
extern "C" __global__ void grid_rounds(int* a, int* b, int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  for (int r = 0; r < rounds; r++) {
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) b[i] = a[i] + a[(i + 1) % n] + a[(i + n - 1) % n];
    grid.sync();
    int* t = a; a = b; b = t;
  }
}

// Reductions over clusters of four with blocks of two dimensions; ranks, sizes and barriers of the group.
extern "C" __global__ void __cluster_dims__(2, 2, 1) cluster_groups(const int* x, int* y) {
  __shared__ int total;
  auto cluster = cg::this_cluster();
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  if (block.thread_rank() == 0) total = 0;
  cluster.sync();
  int number = (blockIdx.y * gridDim.x + blockIdx.x) * block.size() + block.thread_rank();
  int sum = cg::reduce(warp, x[number], cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(cluster.map_shared_rank(&total, 0), sum);
  auto token = cluster.barrier_arrive();
  int own = (int)(cluster.block_rank() * 1000 + cluster.num_blocks() * 100 + cluster.dim_blocks().x * 10 + cluster.block_index().y);
  cluster.barrier_wait(std::move(token));
  if (block.thread_rank() == 0) y[blockIdx.y * gridDim.x + blockIdx.x] = *cluster.map_shared_rank(&total, 0) * 10000 + own;
  cluster.sync();
}

// The first part of a chain of launches: others may begin before it ends, and wait for its results.
extern "C" __global__ void dependent(const int* x, int* y, int n) {
  asm volatile("griddepcontrol.launch_dependents;");
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  if (i < n) y[i] = x[i] * 2;
}
