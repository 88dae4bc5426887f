// Matrix products and attention with wgmma, from one tile to persistent, warp-specialised and multicast ones.
// a is m x k and b is n x k, both with k contiguous unless said otherwise; boxes of tensor maps are {64, rows}, swizzle 128B.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "hopper.cuh"

// Where value i of a 64 x N accumulator lies.
__device__ inline int row_of(int i) { return (threadIdx.x % 128 / 32) * 16 + (threadIdx.x % 32 >> 2) + 8 * (i >> 1 & 1); }
__device__ inline int col_of(int i) { return 8 * (i >> 2) + 2 * (threadIdx.x & 3) + (i & 1); }

// One tile of 64 x 64, one buffer: load, wait, multiply, wait.
template <typename D, int kRegisters, typename Multiply>
__device__ inline void one_tile(const TensorMap& a, const TensorMap& b, int k_blocks, int box_k, D (&d)[kRegisters], Multiply multiply) {
  __shared__ __align__(1024) unsigned char sa[8192], sb[8192];
  __shared__ __align__(8) uint64_t bar;
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  for (int kb = 0; kb < k_blocks; kb++) {
    if (threadIdx.x == 0) {
      bar_expect(smem(&bar), 16384);
      tma_load(smem(sa), a, smem(&bar), kb * box_k, blockIdx.y * 64);
      tma_load(smem(sb), b, smem(&bar), kb * box_k, blockIdx.x * 64);
    }
    bar_wait(smem(&bar), kb & 1);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) multiply(d, desc_128b(smem(sa) + 32 * s), desc_128b(smem(sb) + 32 * s), kb > 0 || s > 0);
    wgmma_commit();
    wgmma_wait<0>();
    __syncthreads();
  }
}
extern "C" __global__ void __launch_bounds__(128) wgmma_f16(MAP a, MAP b, float* c, int n, int k) {
  float d[32];
  one_tile(a, b, k / 64, 64, d, [](float (&d)[32], uint64_t x, uint64_t y, int p) { wgmma64_f16(d, x, y, p); });
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}
extern "C" __global__ void __launch_bounds__(128) wgmma_tf32(MAP a, MAP b, float* c, int n, int k) {
  float d[32];
  one_tile(a, b, k / 32, 32, d, [](float (&d)[32], uint64_t x, uint64_t y, int p) { wgmma64_tf32(d, x, y, p); });
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}
// c = a (-b)^T: e4m3 times e5m2, the second operand negated by the instruction.
extern "C" __global__ void __launch_bounds__(128) wgmma_fp8(MAP a, MAP b, float* c, int n, int k) {
  float d[32];
  one_tile(a, b, k / 128, 128, d, [](float (&d)[32], uint64_t x, uint64_t y, int p) { wgmma64_e4m3(d, x, y, p); });
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}
extern "C" __global__ void __launch_bounds__(128) wgmma_int8(MAP a, MAP b, int* c, int n, int k) {
  int d[32];
  one_tile(a, b, k / 128, 128, d, [](int (&d)[32], uint64_t x, uint64_t y, int p) { wgmma64_s8(d, x, y, p); });
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}
extern "C" __global__ void __launch_bounds__(128) wgmma_half_sums(MAP a, MAP b, half2* c, int n, int k) {
  uint32_t d[16];
  one_tile(a, b, k / 64, 64, d, [](uint32_t (&d)[16], uint64_t x, uint64_t y, int p) { wgmma64_half_sums(d, x, y, p); });
  for (int i = 0; i < 16; i++) *(uint32_t*)&c[((blockIdx.y * 64 + row_of(2 * i)) * n + blockIdx.x * 64 + col_of(2 * i)) / 2] = d[i];
}
// a is k x m and b is k x n: both operands transposed; boxes of {64, 64}, so a step of 16 in k is 16 rows of 128 bytes.
extern "C" __global__ void __launch_bounds__(128) wgmma_transposed(MAP a, MAP b, float* c, int n, int k) {
  __shared__ __align__(1024) unsigned char sa[8192], sb[8192];
  __shared__ __align__(8) uint64_t bar;
  float d[32];
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  for (int kb = 0; kb < k / 64; kb++) {
    if (threadIdx.x == 0) {
      bar_expect(smem(&bar), 16384);
      tma_load(smem(sa), a, smem(&bar), blockIdx.y * 64, kb * 64);
      tma_load(smem(sb), b, smem(&bar), blockIdx.x * 64, kb * 64);
    }
    bar_wait(smem(&bar), kb & 1);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++)
      wgmma64_f16<1, 1>(d, desc_of(smem(sa) + 2048 * s, 8192, 1024, 1), desc_of(smem(sb) + 2048 * s, 8192, 1024, 1), kb > 0 || s > 0);
    wgmma_commit();
    wgmma_wait<0>();
    __syncthreads();
  }
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}
// Bytes of a are widened to halves in registers; b is stored by ordinary stores in core matrices without swizzle.
extern "C" __global__ void __launch_bounds__(128) wgmma_registers(const signed char* a, const half* b, float* c, int n, int k) {
  __shared__ __align__(128) half sb[64 * 64];
  float d[32];
  for (int kb = 0; kb < k; kb += 64) {
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * 8; i += 128) {
      int row = i / 8, chunk = i % 8;
      // Core matrices of 8 rows x 16 bytes; those of one k chunk follow each other (128 bytes), chunks are 1024 apart.
      *(uint4*)&sb[chunk * 512 + row * 8] = *(const uint4*)&b[(blockIdx.x * 64 + row) * k + kb + chunk * 8];
    }
    fence_async();
    __syncthreads();
    uint32_t f[4][4];
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int row = blockIdx.y * 64 + threadIdx.x / 32 * 16 + (threadIdx.x % 32 >> 2) + 8 * (j & 1);
        const signed char* from = a + row * k + kb + s * 16 + 2 * (threadIdx.x & 3) + 8 * (j >> 1);
        half2 h = __halves2half2(__int2half_rn(from[0]), __int2half_rn(from[1]));
        f[s][j] = *(uint32_t*)&h;
      }
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) wgmma64_f16_rs(d, f[s], desc_of(smem(sb) + 2048 * s, 1024, 128, 0), kb > 0 || s > 0, 0);
    wgmma_commit();
    wgmma_wait<0>();
  }
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}

// A ring of four stages filled by the first thread of the multiplying warpgroup itself, one product in flight.
extern "C" __global__ void __launch_bounds__(128) wgmma_pipelined(MAP a, MAP b, float* c, int n, int k) {
  constexpr int kStages = 4;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages];
  int blocks = k / 64;
  float d[32];
  if (threadIdx.x == 0) {
    prefetch_map(a); prefetch_map(b);
    for (int s = 0; s < kStages; s++) bar_init(smem(&full[s]), 1);
    fence_bar_init();
  }
  __syncthreads();
  auto fill = [&](int kb) {
    int s = kb % kStages;
    bar_expect(smem(&full[s]), 16384);
    tma_load(smem(pool) + s * 16384, a, smem(&full[s]), kb * 64, blockIdx.y * 64);
    tma_load(smem(pool) + s * 16384 + 8192, b, smem(&full[s]), kb * 64, blockIdx.x * 64);
  };
  if (threadIdx.x == 0) for (int kb = 0; kb < kStages - 1 && kb < blocks; kb++) fill(kb);
  for (int kb = 0; kb < blocks; kb++) {
    uint32_t sa = smem(pool) + kb % kStages * 16384;
    bar_wait(smem(&full[kb % kStages]), kb / kStages & 1);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) wgmma64_f16(d, desc_128b(sa + 32 * s), desc_128b(sa + 8192 + 32 * s), kb > 0 || s > 0);
    wgmma_commit();
    wgmma_wait<1>();
    __syncthreads();  // all four warps are done with the previous stage
    if (threadIdx.x == 0 && kb + kStages - 1 < blocks) fill(kb + kStages - 1);
  }
  wgmma_wait<0>();
  for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
}

// Persistent and warp-specialised: a producer warpgroup and two consumers of 64 x 128 each; tiles of 128 x 128 x 64.
// The result leaves through stmatrix and tensor stores (boxes of {64, 64}).
extern "C" __global__ void __launch_bounds__(384, 1) persistent(MAP a, MAP b, MAP c, int tiles_m, int tiles_n, int k) {
  constexpr int kStages = 3, kStage = 32768;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  uint32_t base = smem(pool), out = base + kStages * kStage;
  int group = uniform(threadIdx.x / 128), blocks = k / 64;
  if (threadIdx.x == 0) {
    prefetch_map(a); prefetch_map(b); prefetch_map(c);
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 2); }
    fence_bar_init();
  }
  __syncthreads();
  int stage = 0;
  uint32_t phase = 0;
  auto advance = [&] { if (++stage == kStages) { stage = 0; phase ^= 1; } };
  if (group == 0) {
    registers_less<40>();
    if (threadIdx.x < 32 && elect_one()) {
      for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x)
        for (int kb = 0; kb < blocks; kb++) {
          bar_wait(smem(&empty[stage]), phase ^ 1);
          uint32_t bar = smem(&full[stage]), to = base + stage * kStage;
          bar_expect(bar, kStage);
          tma_load(to, a, bar, kb * 64, tile / tiles_n * 128);
          tma_load(to + 16384, b, bar, kb * 64, tile % tiles_n * 128);
          advance();
        }
    }
  } else {
    registers_more<232>();
    int w = group - 1, thread = threadIdx.x % 128;
    uint32_t mine = out + w * 16384;
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
      float d[64];
      int previous = -1;
      for (int kb = 0; kb < blocks; kb++) {
        bar_wait(smem(&full[stage]), phase);
        uint32_t sa = base + stage * kStage + w * 8192, sb = base + stage * kStage + 16384;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++) wgmma128_bf16(d, desc_128b(sa + 32 * s), desc_128b(sb + 32 * s), kb > 0 || s > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0) { named_sync(1 + w, 128); if (thread == 0) bar_arrive(smem(&empty[previous])); }
        previous = stage;
        advance();
      }
      wgmma_wait<0>();
      named_sync(1 + w, 128);
      if (thread == 0) { bar_arrive(smem(&empty[previous])); bulk_wait_read<0>(); }
      named_sync(1 + w, 128);
      int lane = threadIdx.x % 32, warp = thread / 32;
#pragma unroll
      for (int j = 0; j < 16; j += 2) {
        uint32_t r[4];
        for (int e = 0; e < 4; e++) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r[e]) : "f"(d[4 * j + 2 * e + 1]), "f"(d[4 * j + 2 * e]));
        int row = 16 * warp + (lane & 15), chunk = (j % 8 + (lane >> 4)) ^ (row & 7);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(mine + j / 8 * 8192 + row * 128 + chunk * 16), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
      }
      fence_async();
      named_sync(1 + w, 128);
      if (thread == 0) {
        int row = tile / tiles_n * 128 + w * 64, col = tile % tiles_n * 128;
        tma_store(c, mine, col, row);
        tma_store(c, mine + 8192, col + 64, row);
        bulk_commit();
      }
    }
    if (thread == 0) bulk_wait<0>();
  }
}

// A cluster of two CTAs, one above the other: each loads its own 64 rows of a and half of b's 64 rows, and sends that to both.
extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(160) clustered(MAP a, MAP b, float* c, int n, int k) {
  constexpr int kStages = 3, kStage = 16384;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  uint32_t base = smem(pool), rank = cluster_rank();
  int blocks = k / 64;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 2); }
    fence_bar_init();
  }
  cluster_sync_relaxed();
  if (threadIdx.x >= 128) {
    if (elect_one())
      for (int kb = 0; kb < blocks; kb++) {
        int s = kb % kStages;
        bar_wait_cluster(smem(&empty[s]), (kb / kStages & 1) ^ 1);
        bar_expect(smem(&full[s]), kStage);
        tma_load(base + s * kStage, a, smem(&full[s]), kb * 64, blockIdx.y * 64);
        tma_load_multicast(base + s * kStage + 8192 + rank * 4096, b, smem(&full[s]), kb * 64, blockIdx.x * 64 + rank * 32, 3);
      }
    __syncwarp();
  } else {
    float d[32];
    for (int kb = 0; kb < blocks; kb++) {
      int s = kb % kStages;
      uint32_t sa = base + s * kStage;
      bar_wait_cluster(smem(&full[s]), kb / kStages & 1);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; j++) wgmma64_f16(d, desc_128b(sa + 32 * j), desc_128b(sa + 8192 + 32 * j), kb > 0 || j > 0);
      wgmma_commit();
      wgmma_wait<0>();
      named_sync(1, 128);
      if (threadIdx.x < 2) bar_arrive_at(smem(&empty[s]), threadIdx.x);
    }
    for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + row_of(i)) * n + blockIdx.x * 64 + col_of(i)] = d[i];
  }
  cluster_sync();
}

// Two consumers take turns: while one multiplies its tile of 64 x 64, the other writes its own.
extern "C" __global__ void __launch_bounds__(384, 1) ping_pong(MAP a, MAP b, float* c, int tiles_m, int tiles_n, int k) {
  constexpr int kStages = 4, kStage = 16384;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  uint32_t base = smem(pool);
  int group = uniform(threadIdx.x / 128), blocks = k / 64, tiles = tiles_m * tiles_n;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 128); }
    fence_bar_init();
  }
  __syncthreads();
  if (group == 2) {
    registers_less<40>();
    if (threadIdx.x / 32 == 8 && elect_one()) {
      int use = 0;
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        for (int kb = 0; kb < blocks; kb++, use++) {
          int s = use % kStages;
          bar_wait(smem(&empty[s]), (use / kStages & 1) ^ 1);
          bar_expect(smem(&full[s]), kStage);
          tma_load(base + s * kStage, a, smem(&full[s]), kb * 64, tile / tiles_n * 64);
          tma_load(base + s * kStage + 8192, b, smem(&full[s]), kb * 64, tile % tiles_n * 64);
        }
    }
  } else {
    registers_more<232>();
    int turn = 0, use = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn++) {
      if ((turn & 1) != group) { use += blocks; continue; }
      if (turn > 0) named_sync(2 + group, 256);
      float d[32];
      for (int kb = 0; kb < blocks; kb++, use++) {
        int s = use % kStages;
        uint32_t sa = base + s * kStage;
        bar_wait(smem(&full[s]), use / kStages & 1);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma64_f16(d, desc_128b(sa + 32 * j), desc_128b(sa + 8192 + 32 * j), kb > 0 || j > 0);
        wgmma_commit();
        if (kb > 0) { wgmma_wait<1>(); bar_arrive(smem(&empty[(use - 1) % kStages])); }
      }
      if (tile + gridDim.x < tiles) named_arrive(2 + (group ^ 1), 256);
      wgmma_wait<0>();
      bar_arrive(smem(&empty[(use - 1) % kStages]));
      for (int i = 0; i < 32; i++) c[(tile / tiles_n * 64 + row_of(i)) * (tiles_n * 64) + tile % tiles_n * 64 + col_of(i)] = d[i];
    }
  }
}

// Slices of k add up in c by tensor reductions from shared memory (box {64, 64} of f32, no swizzle).
extern "C" __global__ void __launch_bounds__(128) split_k(MAP a, MAP b, MAP c, int k) {
  __shared__ __align__(1024) unsigned char sa[8192], sb[8192];
  __shared__ __align__(128) float out[64 * 64];
  __shared__ __align__(8) uint64_t bar;
  int blocks = k / 64 / gridDim.z, first = blockIdx.z * blocks;
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  float d[32];
  for (int kb = 0; kb < blocks; kb++) {
    if (threadIdx.x == 0) {
      bar_expect(smem(&bar), 16384);
      tma_load(smem(sa), a, smem(&bar), (first + kb) * 64, blockIdx.y * 64);
      tma_load(smem(sb), b, smem(&bar), (first + kb) * 64, blockIdx.x * 64);
    }
    bar_wait(smem(&bar), kb & 1);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) wgmma64_f16(d, desc_128b(smem(sa) + 32 * s), desc_128b(smem(sb) + 32 * s), kb > 0 || s > 0);
    wgmma_commit();
    wgmma_wait<0>();
    __syncthreads();
  }
  for (int i = 0; i < 32; i++) out[row_of(i) * 64 + col_of(i)] = d[i];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_add(c, smem(out), blockIdx.x * 64, blockIdx.y * 64);
    bulk_commit();
    bulk_wait<0>();
  }
}

// Attention forward, heads of 64, 64 queries a block: a producer warp, one warpgroup; P stays in registers.
extern "C" __global__ void __launch_bounds__(160) attention(MAP q, MAP k, MAP v, float* o, int keys, float scale) {
  constexpr int kStages = 2;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full_q, full_k[kStages], full_v[kStages], empty_k[kStages], empty_v[kStages];
  uint32_t sq = smem(pool), sk = sq + 8192, sv = sk + kStages * 8192;
  if (threadIdx.x == 0) {
    bar_init(smem(&full_q), 1);
    for (int s = 0; s < kStages; s++) {
      bar_init(smem(&full_k[s]), 1); bar_init(smem(&full_v[s]), 1);
      bar_init(smem(&empty_k[s]), 128); bar_init(smem(&empty_v[s]), 128);
    }
    fence_bar_init();
  }
  __syncthreads();
  int blocks = keys / 64;
  if (threadIdx.x >= 128) {
    if (elect_one()) {
      bar_expect(smem(&full_q), 8192);
      tma_load(sq, q, smem(&full_q), 0, blockIdx.x * 64);
      for (int i = 0; i < blocks; i++) {
        int s = i % kStages;
        uint32_t p = (i / kStages & 1) ^ 1;
        bar_wait(smem(&empty_k[s]), p);
        bar_expect(smem(&full_k[s]), 8192);
        tma_load(sk + s * 8192, k, smem(&full_k[s]), 0, i * 64);
        bar_wait(smem(&empty_v[s]), p);
        bar_expect(smem(&full_v[s]), 8192);
        tma_load(sv + s * 8192, v, smem(&full_v[s]), 0, i * 64);
      }
    }
    return;
  }
  float out[32], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int i = 0; i < 32; i++) out[i] = 0;
  bar_wait(smem(&full_q), 0);
  for (int i = 0; i < blocks; i++) {
    int s = i % kStages;
    uint32_t p = i / kStages & 1;
    float d[32];
    bar_wait(smem(&full_k[s]), p);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma64_bf16(d, desc_128b(sq + 32 * j), desc_128b(sk + s * 8192 + 32 * j), j > 0);
    wgmma_commit();
    wgmma_wait<0>();
    bar_arrive(smem(&empty_k[s]));
    float fix[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float m = top[h];
#pragma unroll
      for (int e = 0; e < 32; e++) if ((e >> 1 & 1) == h) m = fmaxf(m, d[e] * scale);
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1)); m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      fix[h] = exp2f((top[h] - m) * 1.44269504f);
      top[h] = m;
      float add = 0;
#pragma unroll
      for (int e = 0; e < 32; e++) if ((e >> 1 & 1) == h) { d[e] = exp2f((d[e] * scale - m) * 1.44269504f); add += d[e]; }
      sum[h] = sum[h] * fix[h] + add;
    }
#pragma unroll
    for (int e = 0; e < 32; e++) out[e] *= fix[e >> 1 & 1];
    uint32_t f[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(f[j][e]) : "f"(d[8 * j + 2 * e + 1]), "f"(d[8 * j + 2 * e]));
    bar_wait(smem(&full_v[s]), p);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma64_bf16_rs<1>(out, f[j], desc_of(sv + s * 8192 + 2048 * j, 8192, 1024, 1), 1);
    wgmma_commit();
    wgmma_wait<0>();
    bar_arrive(smem(&empty_v[s]));
  }
#pragma unroll
  for (int h = 0; h < 2; h++) { sum[h] += __shfl_xor_sync(~0u, sum[h], 1); sum[h] += __shfl_xor_sync(~0u, sum[h], 2); }
#pragma unroll
  for (int i = 0; i < 32; i++) o[(blockIdx.x * 64 + row_of(i)) * 64 + col_of(i)] = out[i] / sum[i >> 1 & 1];
}
