// Cooperative groups, cuda::barrier, cuda::pipeline, cuda::atomic, memcpy_async: the standard library's synchronisation.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/annotated_ptr>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
namespace cg = cooperative_groups;

// Double-buffered copies through a pipeline of the whole block.
extern "C" __global__ void pipeline_block(const int* x, int* y, int tiles) {
  auto block = cg::this_thread_block();
  __shared__ int buffer[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto pipe = cuda::make_pipeline(block, &state);
  const int* from = x + blockIdx.x * tiles * 128;
  int sum = 0;
  pipe.producer_acquire();
  cuda::memcpy_async(block, buffer[0], from, sizeof(int) * 128, pipe);
  pipe.producer_commit();
  for (int t = 0; t < tiles; t++) {
    if (t + 1 < tiles) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buffer[(t + 1) & 1], from + (t + 1) * 128, sizeof(int) * 128, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum = sum * 3 + buffer[t & 1][127 - threadIdx.x];
    pipe.consumer_release();
  }
  y[blockIdx.x * 128 + threadIdx.x] = sum;
}

// A pipeline with half the block as producers and half as consumers.
extern "C" __global__ void pipeline_roles(const float4* x, float4* y, int tiles) {
  auto block = cg::this_thread_block();
  __shared__ __align__(16) float4 buffer[3][32];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
  bool produces = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  for (int t = 0; t < tiles; t++) {
    if (produces) {
      pipe.producer_acquire();
      cuda::memcpy_async(&buffer[t % 3][threadIdx.x], x + t * 32 + threadIdx.x, cuda::aligned_size_t<16>(16), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      float4 v = buffer[t % 3][63 - threadIdx.x];
      v.x *= 2.f;
      y[t * 32 + threadIdx.x - 32] = v;
      pipe.consumer_release();
    }
  }
}

// A thread's own pipeline: commit groups.
extern "C" __global__ void pipeline_thread(const int4* x, int4* y, int steps) {
  __shared__ int4 slot[4][64];
  auto pipe = cuda::make_pipeline();
  for (int s = 0; s < 3; s++) {
    pipe.producer_acquire();
    if (s < steps) cuda::memcpy_async(&slot[s][threadIdx.x], &x[s * 64 + threadIdx.x], cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
  }
  for (int s = 0; s < steps; s++) {
    cuda::pipeline_consumer_wait_prior<2>(pipe);
    int4 v = slot[s % 4][threadIdx.x];
    v.w += s;
    y[s * 64 + threadIdx.x] = v;
    pipe.consumer_release();
    pipe.producer_acquire();
    int t = s + 3;
    if (t < steps) cuda::memcpy_async(&slot[t % 4][threadIdx.x], &x[t * 64 + threadIdx.x], cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
  }
}

// Split arrive and wait; a completion of asynchronous copies on the barrier; a subset of threads; arrive_and_drop.
extern "C" __global__ void barriers(const int* x, int* y, int rounds) {
  __shared__ cuda::barrier<cuda::thread_scope_block> ready, half;
  __shared__ int s[128], t[128];
  if (threadIdx.x == 0) { init(&ready, blockDim.x); init(&half, 64); }
  __syncthreads();
  int sum = 0;
  for (int r = 0; r < rounds; r++) {
    cuda::memcpy_async(&s[threadIdx.x], &x[r * 128 + threadIdx.x], sizeof(int), ready);
    auto token = ready.arrive();
    int own = r * 7;
    ready.wait(std::move(token));
    sum += s[(threadIdx.x + 37) % 128] + own;
    ready.arrive_and_wait();
  }
  if (threadIdx.x < 64) {
    t[threadIdx.x] = sum;
    half.arrive_and_wait();
    sum = t[63 - threadIdx.x];
    if (threadIdx.x == 5) half.arrive_and_drop();
    else if (threadIdx.x > 5) { half.wait(half.arrive()); t[threadIdx.x] = 1; }
    else { auto token = half.arrive(); half.wait(std::move(token)); }
  }
  y[threadIdx.x] = sum;
}

// Reductions and scans of groups; labelled and binary partitions; tiles of 4 to 32.
extern "C" __global__ void group_collectives(const int* x, int* y) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto quad = cg::tiled_partition<4>(warp);
  int v = x[threadIdx.x], *o = y + threadIdx.x;
  o[0] = cg::reduce(warp, v, cg::plus<int>()) + cg::reduce(quad, v, cg::greater<int>());
  o[64] = cg::inclusive_scan(warp, v) * 3 + cg::exclusive_scan(quad, v, cg::bit_xor<int>());
  auto odd = cg::binary_partition(warp, v & 1);
  o[128] = cg::reduce(odd, v, cg::less<int>()) + odd.size() * 1000 + odd.thread_rank() * 100000;
  auto same = cg::labeled_partition(warp, v % 3);
  o[192] = cg::reduce(same, v, cg::plus<int>()) + same.meta_group_size() * 100000;
  o[256] = (int)quad.ballot(v > 20) + quad.any(v < 3) * 100 + quad.match_any(v & 1) * 1000;
  if (v % 4 == 1) {
    auto active = cg::coalesced_threads();
    o[256] = active.shfl(v, 0) + active.size() * 1000 + cg::inclusive_scan(active, 1) * 100000;
  }
  float f = cg::reduce(warp, (float)v, cg::plus<float>());
  unsigned long long w = cg::reduce(warp, (unsigned long long)v << 20, cg::bit_or<unsigned long long>());
  o[320] = (int)f + (int)(w >> 20);
}

// A barrier over the grid; its workspace is taken from the driver's reserved words, so a launch must be cooperative.
extern "C" __global__ void group_copies(const float* x, float* y, int n) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  extern __shared__ float s[];
  cg::memcpy_async(block, s, x + blockIdx.x * n, sizeof(float) * n);
  cg::wait(block);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = s[n - 1 - i];
  block.sync();
  if (tile.meta_group_rank() == 0) {
    cg::memcpy_async(tile, s, x, sizeof(float) * 32);
    cg::memcpy_async(tile, s + 32, x + 32, sizeof(float) * 32);
    cg::wait_prior<1>(tile);
    float v = s[31 - tile.thread_rank()];
    cg::wait(tile);
    y[blockIdx.x * n + tile.thread_rank()] += v + s[63 - tile.thread_rank()];
  }
}

// Atomics of every order and scope, a latch, a semaphore.
struct Shared { cuda::atomic<int, cuda::thread_scope_device> turn; int data; };
extern "C" __global__ void message_chain(Shared* links, int* out) {
  // Block b waits for block b-1 and passes on: release and acquire.
  if (threadIdx.x == 0) {
    int got = 0;
    if (blockIdx.x > 0) {
      while (links[blockIdx.x - 1].turn.load(cuda::memory_order_acquire) == 0) __nanosleep(20);
      got = links[blockIdx.x - 1].data;
    }
    links[blockIdx.x].data = got * 2 + 1;
    links[blockIdx.x].turn.store(1, cuda::memory_order_release);
    out[blockIdx.x] = got;
  }
}
extern "C" __global__ void atomic_objects(int* values, unsigned long long* wide, double* real) {
  cuda::atomic_ref<int, cuda::thread_scope_device> a(values[0]), most(values[1]), flags(values[2]);
  cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> w(wide[0]);
  cuda::atomic_ref<double, cuda::thread_scope_device> d(real[0]);
  a.fetch_add(threadIdx.x);
  most.fetch_max((int)(threadIdx.x * 37 % 64), cuda::memory_order_relaxed);
  flags.fetch_xor(1 << (threadIdx.x & 15), cuda::memory_order_acq_rel);
  w.fetch_sub(threadIdx.x + 1ull, cuda::memory_order_release);
  d.fetch_add(0.5, cuda::memory_order_relaxed);
  int old = values[3 + threadIdx.x];
  cuda::atomic_ref<int, cuda::thread_scope_block> own(values[3 + threadIdx.x]);
  while (!own.compare_exchange_weak(old, old * 3 + 1)) { }
}
extern "C" __global__ void latch_and_semaphore(int* out) {
  __shared__ cuda::latch<cuda::thread_scope_block>* gate;
  __shared__ alignas(8) unsigned char room[sizeof(cuda::latch<cuda::thread_scope_block>)];
  __shared__ alignas(8) unsigned char sroom[sizeof(cuda::counting_semaphore<cuda::thread_scope_block, 2>)];
  __shared__ cuda::counting_semaphore<cuda::thread_scope_block, 2>* sem;
  __shared__ int inside;
  if (threadIdx.x == 0) {
    gate = new (room) cuda::latch<cuda::thread_scope_block>(64);
    sem = new (sroom) cuda::counting_semaphore<cuda::thread_scope_block, 2>(2);
    inside = 0;
  }
  __syncthreads();
  sem->acquire();
  atomicAdd_block(&inside, 1);
  sem->release();
  gate->arrive_and_wait();
  out[threadIdx.x] = atomicAdd_block(&inside, 0);
}
