// Barriers that count and vote, assertions, printing, cooperative groups of a warp, byte arrays in shared memory.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void counting(const int* x, int* y) {
  int v = x[blockIdx.x * blockDim.x + threadIdx.x];
  int odd = __syncthreads_count(v & 1);
  int all = __syncthreads_and(v < 90), any = __syncthreads_or(v > 80);
  y[blockIdx.x * blockDim.x + threadIdx.x] = odd * 4 + (all != 0) * 2 + (any != 0);
}

extern "C" __global__ void checked(const int* x, int* y, int limit) {
  int i = threadIdx.x;
  assert(x[i] < limit);
  if (x[i] == 3) printf("thread %d has %d\n", i, x[i]);
  y[i] = x[i];
}

extern "C" __global__ void tiled(const int* x, int* y) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = x[threadIdx.x];
  for (int d = 4; d; d >>= 1) v += tile.shfl_down(v, d);
  v = tile.shfl(v, 0);
  auto active = cg::coalesced_threads();
  y[threadIdx.x] = v * 100 + tile.thread_rank() + 1000000 * active.size();
}

extern "C" __global__ void reverse_bytes(const unsigned char* x, unsigned char* y, int n) {
  __shared__ unsigned char s[1000];
  __shared__ short t[128];
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
  t[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i] + t[(i + 64) % 128];
}

__device__ __noinline__ int depth3(int v) { return v * 3 + 1; }
__device__ __noinline__ int depth2(int v) { return v & 1 ? depth3(v) : depth3(v + 1) + depth3(v + 2); }
struct Pair { int a; float b; long long c; };
__device__ __noinline__ Pair make_pair(int v) { return Pair{v, v * 0.5f, (long long)v << 33}; }
extern "C" __global__ void nested(const int* x, long long* y, Pair p, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  Pair q = make_pair(depth2(x[i]));
  y[i] = q.c + q.a + (long long)(q.b * 2) + p.a * p.c + (long long)p.b;
}
