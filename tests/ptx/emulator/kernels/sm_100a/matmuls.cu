// Matrix products with tcgen05 and tensor memory: one tile, every kind, roles, pairs of CTAs, block scales, A in tensor memory.
// a is m x k and b is n x k, k contiguous; boxes of tensor maps are 128 bytes x rows with the 128-byte swizzle.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "blackwell.cuh"

__device__ inline uint32_t lane_base() { return (threadIdx.x / 32 % 4) << 21; }

// One tile of 128 x 64 per block of 128 threads, one buffer.
template <int kSteps, typename Multiply, typename Store>
__device__ inline void one_tile(const TensorMap& a, const TensorMap& b, int k_blocks, int box_k, int m, Multiply multiply, Store store) {
  __shared__ __align__(1024) unsigned char sa[16384], sb[8192];
  __shared__ __align__(8) uint64_t full, used, done;
  __shared__ uint32_t where;
  if (threadIdx.x < 32) tmem_alloc<64>(smem(&where));
  if (threadIdx.x == 32) {
    prefetch_map(a); prefetch_map(b);
    bar_init(smem(&full), 1); bar_init(smem(&used), 1); bar_init(smem(&done), 1);
    fence_bar_init();
  }
  fence_before();
  __syncthreads();
  fence_after();
  uint32_t tmem = where;
  if (threadIdx.x < 32) {
    if (elect_one()) {
      for (int kb = 0; kb < k_blocks; kb++) {
        if (kb > 0) bar_wait(smem(&used), (kb - 1) & 1);
        bar_expect(smem(&full), m * 128 + 8192);
        tma_load(smem(sa), a, smem(&full), kb * box_k, blockIdx.y * m);
        tma_load(smem(sb), b, smem(&full), kb * box_k, blockIdx.x * 64);
        bar_wait(smem(&full), kb & 1);
        fence_after();
#pragma unroll
        for (int s = 0; s < kSteps; s++) multiply(tmem, desc_k128(smem(sa) + 32 * s), desc_k128(smem(sb) + 32 * s), kb > 0 || s > 0);
        commit(smem(&used));
      }
      commit(smem(&done));
    }
    __syncwarp();
  }
  bar_wait(smem(&done), 0);
  fence_after();
  store(tmem);
  fence_before();
  __syncthreads();
  if (threadIdx.x < 32) tmem_free<64>(tmem);
}
template <typename T> __device__ inline void store_rows(uint32_t tmem, T* c, int n) {
  uint32_t v[32];
  for (int half = 0; half < 2; half++) {
    tmem_ld32(v, tmem + lane_base() + half * 32);
    wait_ld();
    for (int i = 0; i < 32; i++) c[(blockIdx.y * 128 + threadIdx.x) * n + blockIdx.x * 64 + half * 32 + i] = *(T*)&v[i];
  }
}
extern "C" __global__ void __launch_bounds__(128) simple_f16(MAP a, MAP b, float* c, int n, int k) {
  one_tile<4>(a, b, k / 64, 64, 128, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_f16(d, x, y, idesc(1, 0, 0, 128, 64), p); },
           [&](uint32_t tmem) { store_rows(tmem, c, n); });
}
extern "C" __global__ void __launch_bounds__(128) simple_tf32(MAP a, MAP b, float* c, int n, int k) {
  one_tile<4>(a, b, k / 32, 32, 128, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_tf32(d, x, y, idesc(1, 2, 2, 128, 64), p); },
           [&](uint32_t tmem) { store_rows(tmem, c, n); });
}
extern "C" __global__ void __launch_bounds__(128) simple_fp8(MAP a, MAP b, float* c, int n, int k) {  // e4m3 times e5m2
  one_tile<4>(a, b, k / 128, 128, 128, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_f8(d, x, y, idesc(1, 0, 1, 128, 64), p); },
           [&](uint32_t tmem) { store_rows(tmem, c, n); });
}
extern "C" __global__ void __launch_bounds__(128) simple_int8(MAP a, MAP b, int* c, int n, int k) {  // s8 times u8
  one_tile<4>(a, b, k / 128, 128, 128, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_i8(d, x, y, idesc(2, 1, 0, 128, 64), p); },
           [&](uint32_t tmem) { store_rows(tmem, c, n); });
}
// f16 sums: one in the low half of each cell.
extern "C" __global__ void __launch_bounds__(128) simple_half_sums(MAP a, MAP b, unsigned short* c, int n, int k) {
  one_tile<4>(a, b, k / 64, 64, 128, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_f16(d, x, y, idesc(0, 0, 0, 128, 64), p); },
           [&](uint32_t tmem) { store_rows(tmem, c, n); });
}
// 64 rows: row r lies in lane 32 (r / 16) + r % 16; fragments of 16 x 256 bits.
extern "C" __global__ void __launch_bounds__(128) simple_m64(MAP a, MAP b, float* c, int n, int k) {
  one_tile<4>(a, b, k / 64, 64, 64, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_f16(d, x, y, idesc(1, 0, 0, 64, 64), p); },
           [&](uint32_t tmem) {
             uint32_t v[16];
             for (int part = 0; part < 2; part++) {
               tmem_ld16_256(v, tmem + lane_base() + part * 32);
               wait_ld();
               int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
               for (int i = 0; i < 16; i++) {
                 int row = warp * 16 + lane / 4 + 8 * (i >> 1 & 1), col = part * 32 + 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
                 c[(blockIdx.y * 64 + row) * n + blockIdx.x * 64 + col] = *(float*)&v[i];
               }
             }
           });
}
// Weight-stationary, 64 rows: columns 32 to 63 lie in lanes 64 to 127.
extern "C" __global__ void __launch_bounds__(128) simple_ws(MAP a, MAP b, float* c, int n, int k) {
  one_tile<4>(a, b, k / 64, 64, 64, [](uint32_t d, uint64_t x, uint64_t y, uint32_t p) { mma_f16_ws(d, x, y, idesc(1, 0, 0, 64, 64), p); },
           [&](uint32_t tmem) {
             uint32_t v[32];
             tmem_ld32(v, tmem + lane_base());
             wait_ld();
             for (int i = 0; i < 32; i++) c[(blockIdx.y * 64 + threadIdx.x % 64) * n + blockIdx.x * 64 + threadIdx.x / 64 * 32 + i] = *(float*)&v[i];
           });
}

// Persistent, with roles: warps 0-3 write results, warp 4 loads, warp 5 multiplies and owns tensor memory. Two accumulators
// of 128 x 128; the result leaves as bf16 through swizzled shared memory and tensor stores (boxes of {64, 128}).
extern "C" __global__ void __launch_bounds__(192, 1) persistent(MAP a, MAP b, MAP c, int tiles_m, int tiles_n, int k) {
  constexpr int kStages = 3, kStage = 32768, kColumns = 256;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages], tmem_full[2], tmem_empty[2];
  __shared__ uint32_t where;
  int warp = uniform(threadIdx.x / 32), blocks = k / 64, tiles = tiles_m * tiles_n;
  uint32_t base = smem(pool), out = base + kStages * kStage;
  if (warp == 4 && elect_one()) { prefetch_map(a); prefetch_map(b); prefetch_map(c); }
  if (warp == 4 && elect_one()) {
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 1); }
    for (int s = 0; s < 2; s++) { bar_init(smem(&tmem_full[s]), 1); bar_init(smem(&tmem_empty[s]), 128); }
    fence_bar_init();
  }
  if (warp == 5) tmem_alloc<kColumns>(smem(&where));
  fence_before();
  __syncthreads();
  fence_after();
  uint32_t tmem = where;
  if (warp == 4) {
    if (elect_one()) {
      int use = 0;
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        for (int kb = 0; kb < blocks; kb++, use++) {
          int s = use % kStages;
          bar_wait(smem(&empty[s]), (use / kStages & 1) ^ 1);
          bar_expect(smem(&full[s]), kStage);
          tma_load(base + s * kStage, a, smem(&full[s]), kb * 64, tile / tiles_n * 128);
          tma_load(base + s * kStage + 16384, b, smem(&full[s]), kb * 64, tile % tiles_n * 128);
        }
    }
  } else if (warp == 5) {
    if (elect_one()) {
      int use = 0, turn = 0;
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn++) {
        int acc = turn & 1;
        bar_wait(smem(&tmem_empty[acc]), (turn >> 1 & 1) ^ 1);
        fence_after();
        for (int kb = 0; kb < blocks; kb++, use++) {
          int s = use % kStages;
          bar_wait(smem(&full[s]), use / kStages & 1);
          fence_after();
          uint32_t sa = base + s * kStage;
#pragma unroll
          for (int j = 0; j < 4; j++)
            mma_f16(tmem + acc * 128, desc_k128(sa + 32 * j), desc_k128(sa + 16384 + 32 * j), idesc(1, 1, 1, 128, 128), kb > 0 || j > 0);
          commit(smem(&empty[s]));
        }
        commit(smem(&tmem_full[acc]));
      }
      // Nobody's arrival may meet a block that has gone.
      for (int i = 0; i < 2 && i < turn; i++) bar_wait(smem(&tmem_empty[(turn - 1 - i) & 1]), (turn - 1 - i) >> 1 & 1);
    }
  } else {
    int turn = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn++) {
      int acc = turn & 1;
      bar_wait(smem(&tmem_full[acc]), turn >> 1 & 1);
      fence_after();
      if (threadIdx.x == 0) bulk_wait_read<0>();
      named_sync(1, 128);
#pragma unroll
      for (int part = 0; part < 4; part++) {
        uint32_t v[32];
        tmem_ld32(v, tmem + lane_base() + acc * 128 + part * 32);
        wait_ld();
        if (part == 3) { fence_before(); bar_arrive(smem(&tmem_empty[acc])); }
        uint32_t at = out + part / 2 * 16384 + threadIdx.x * 128;
#pragma unroll
        for (int q = 0; q < 4; q++) {
          uint32_t w[4];
          for (int e = 0; e < 4; e++)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[e]) : "f"(__uint_as_float(v[8 * q + 2 * e + 1])), "f"(__uint_as_float(v[8 * q + 2 * e])));
          int chunk = (part % 2 * 4 + q) ^ (threadIdx.x & 7);
          asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + chunk * 16), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
        }
      }
      fence_async();
      named_sync(1, 128);
      if (threadIdx.x == 0) {
        tma_store(c, out, tile % tiles_n * 128, tile / tiles_n * 128);
        tma_store(c, out + 16384, tile % tiles_n * 128 + 64, tile / tiles_n * 128);
        bulk_commit();
      }
    }
    if (threadIdx.x == 0) bulk_wait<0>();
  }
  __syncthreads();
  if (warp == 5) tmem_free<kColumns>(tmem);
}

// Pairs of CTAs: 256 x 128 per pair; each CTA holds its 128 rows of a and 64 of b's 128 rows. The even CTA multiplies.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(192) pair(MAP a, MAP b, float* c, int n, int k) {
  constexpr int kStages = 3, kStage = 24576, kColumns = 128;
  extern __shared__ __align__(1024) unsigned char pool[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages], done;
  __shared__ uint32_t where;
  int warp = uniform(threadIdx.x / 32), blocks = k / 64;
  uint32_t base = smem(pool), rank = cluster_rank();
  int row = blockIdx.x * 128, col = blockIdx.y * 128;
  if (threadIdx.x == 128) {
    prefetch_map(a); prefetch_map(b);
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 1); }
    bar_init(smem(&done), 1);
    fence_bar_init();
  }
  __syncthreads();
  cluster_sync();
  if (warp == 5) tmem_alloc<kColumns, 2>(smem(&where));
  fence_before();
  __syncthreads();
  cluster_sync();
  fence_after();
  uint32_t tmem = where;
  if (warp == 4) {
    if (elect_one())
      for (int kb = 0; kb < blocks; kb++) {
        int s = kb % kStages;
        bar_wait_cluster(smem(&empty[s]), (kb / kStages & 1) ^ 1);
        uint32_t bar = at_rank(smem(&full[s]), 0);
        if (rank == 0) bar_expect(smem(&full[s]), 2 * kStage);
        tma_load_pair(base + s * kStage, a, bar, kb * 64, row);
        tma_load_pair(base + s * kStage + 16384, b, bar, kb * 64, col + rank * 64);
      }
  } else if (warp == 5 && rank == 0) {
    if (elect_one()) {
      for (int kb = 0; kb < blocks; kb++) {
        int s = kb % kStages;
        bar_wait_cluster(smem(&full[s]), kb / kStages & 1);
        fence_after();
        uint32_t sa = base + s * kStage;
#pragma unroll
        for (int j = 0; j < 4; j++)
          mma_f16<2>(tmem, desc_k128(sa + 32 * j), desc_k128(sa + 16384 + 32 * j), idesc(1, 0, 0, 256, 128), kb > 0 || j > 0);
        commit_pair(smem(&empty[s]));
      }
      commit_pair(smem(&done));
    }
  } else if (warp < 4) {
    bar_wait_cluster(smem(&done), 0);
    fence_after();
    uint32_t v[32];
    for (int part = 0; part < 4; part++) {
      tmem_ld32(v, tmem + lane_base() + part * 32);
      wait_ld();
      for (int i = 0; i < 32; i++) c[(row + threadIdx.x) * n + col + part * 32 + i] = __uint_as_float(v[i]);
    }
    fence_before();
  }
  __syncwarp();
  cluster_sync();
  fence_after();
  if (warp == 5) tmem_free<kColumns, 2>(tmem);
}

// Block-scaled: 128 x 128 tiles. Scales come in blocks of 512 bytes: byte (row, j) at 16 (row % 32) + 4 (row / 32) + j.
// One loop for both kinds: kAtoms blocks of scales per 128 bytes of k.
template <int kAtoms, typename Multiply>
__device__ inline void scaled(const TensorMap& a, const TensorMap& b, const unsigned char* sfa, const unsigned char* sfb, float* c,
                              int n, int k_blocks, int box_k, Multiply multiply) {
  __shared__ __align__(1024) unsigned char sa[16384], sb[16384], scales[2][kAtoms * 512];
  __shared__ __align__(8) uint64_t full, used, done;
  __shared__ uint32_t where;
  if (threadIdx.x < 32) tmem_alloc<256>(smem(&where));
  if (threadIdx.x == 32) { bar_init(smem(&full), 1); bar_init(smem(&used), 1); bar_init(smem(&done), 1); fence_bar_init(); }
  fence_before();
  __syncthreads();
  fence_after();
  uint32_t tmem = where, ta = tmem + 128, tb = ta + 4 * kAtoms;
  if (threadIdx.x < 32) {
    if (elect_one()) {
      for (int kb = 0; kb < k_blocks; kb++) {
        if (kb > 0) bar_wait(smem(&used), (kb - 1) & 1);
        bar_expect(smem(&full), 32768 + kAtoms * 1024);
        tma_load(smem(sa), a, smem(&full), kb * box_k, blockIdx.y * 128);
        tma_load(smem(sb), b, smem(&full), kb * box_k, blockIdx.x * 128);
        bulk_load(smem(scales[0]), sfa + (blockIdx.y * k_blocks + kb) * kAtoms * 512, kAtoms * 512, smem(&full));
        bulk_load(smem(scales[1]), sfb + (blockIdx.x * k_blocks + kb) * kAtoms * 512, kAtoms * 512, smem(&full));
        bar_wait(smem(&full), kb & 1);
        fence_after();
        for (int s = 0; s < kAtoms; s++) { copy_scales(ta + 4 * s, smem(scales[0]) + 512 * s); copy_scales(tb + 4 * s, smem(scales[1]) + 512 * s); }
#pragma unroll
        for (int s = 0; s < 4; s++) multiply(tmem, desc_k128(smem(sa) + 32 * s), desc_k128(smem(sb) + 32 * s), s, ta, tb, kb > 0 || s > 0);
        commit(smem(&used));
      }
      commit(smem(&done));
    }
    __syncwarp();
  }
  bar_wait(smem(&done), 0);
  fence_after();
  uint32_t v[32];
  for (int part = 0; part < 4; part++) {
    tmem_ld32(v, tmem + lane_base() + part * 32);
    wait_ld();
    for (int i = 0; i < 32; i++) c[(blockIdx.y * 128 + threadIdx.x) * n + blockIdx.x * 128 + part * 32 + i] = __uint_as_float(v[i]);
  }
  fence_before();
  __syncthreads();
  if (threadIdx.x < 32) tmem_free<256>(tmem);
}
extern "C" __global__ void __launch_bounds__(128) scaled_mxf8(MAP a, MAP b, const unsigned char* sfa, const unsigned char* sfb, float* c, int n, int k) {
  scaled<1>(a, b, sfa, sfb, c, n, k / 128, 128, [](uint32_t d, uint64_t x, uint64_t y, int s, uint32_t ta, uint32_t tb, uint32_t p) {
    // e4m3 both, ue8m0 scales of 32 values; step s takes byte s of each cell.
    mma_mxf8(d, x, y, 128u / 8 << 17 | 1u << 23 | 1u << 27 | (uint32_t)s << 4 | (uint32_t)s << 29, ta, tb, p);
  });
}
extern "C" __global__ void __launch_bounds__(128) scaled_nvf4(MAP a, MAP b, const unsigned char* sfa, const unsigned char* sfb, float* c, int n, int k) {
  scaled<4>(a, b, sfa, sfb, c, n, k / 256, 128, [](uint32_t d, uint64_t x, uint64_t y, int s, uint32_t ta, uint32_t tb, uint32_t p) {
    // e2m1 both, ue4m3 scales of 16 values.
    mma_nvf4(d, x, y, 1u << 7 | 1u << 10 | 128u / 8 << 17 | 1u << 27, ta + 4 * s, tb + 4 * s, p);
  });
}

// c = relu(q k^T) v with the middle result in tensor memory as the first operand of the second product.
// q is 128 x 64, k is keys x 64, v is keys x 64 (its k dimension is not contiguous: a transposed operand).
extern "C" __global__ void __launch_bounds__(128) chained(MAP q, MAP kk, MAP v, float* c, int keys) {
  __shared__ __align__(1024) unsigned char sq[16384], sk[8192], sv[8192];
  __shared__ __align__(8) uint64_t full, first, second;
  __shared__ uint32_t where;
  if (threadIdx.x < 32) tmem_alloc<256>(smem(&where));
  if (threadIdx.x == 32) { bar_init(smem(&full), 1); bar_init(smem(&first), 1); bar_init(smem(&second), 1); fence_bar_init(); }
  fence_before();
  __syncthreads();
  fence_after();
  uint32_t s_at = where, o_at = s_at + 64, p_at = s_at + 128;
  for (int i = 0; i < keys / 64; i++) {
    if (threadIdx.x == 0) {
      if (i > 0) bar_wait(smem(&second), (i - 1) & 1);
      bar_expect(smem(&full), 16384 + (i == 0 ? 16384 : 0));
      if (i == 0) tma_load(smem(sq), q, smem(&full), 0, blockIdx.x * 128);
      tma_load(smem(sk), kk, smem(&full), 0, i * 64);
      tma_load(smem(sv), v, smem(&full), 0, i * 64);
      bar_wait(smem(&full), i & 1);
      fence_after();
      for (int s = 0; s < 4; s++) mma_f16(s_at, desc_k128(smem(sq) + 32 * s), desc_k128(smem(sk) + 32 * s), idesc(1, 0, 0, 128, 64), s > 0);
      commit(smem(&first));
    }
    __syncwarp();
    bar_wait(smem(&first), i & 1);
    fence_after();
    uint32_t x[32], packed[32];
    for (int half = 0; half < 2; half++) {
      tmem_ld32(x, s_at + lane_base() + half * 32);
      wait_ld();
#pragma unroll
      for (int j = 0; j < 16; j++) {
        half2 h = __floats2half2_rn(fmaxf(__uint_as_float(x[2 * j]), 0.f), fmaxf(__uint_as_float(x[2 * j + 1]), 0.f));
        packed[half * 16 + j] = *(uint32_t*)&h;
      }
    }
    // p_at was read by the product of the round before, whose end thread 0 has awaited.
    tmem_st32(p_at + lane_base(), packed);
    wait_st();
    fence_before();
    __syncthreads();
    if (threadIdx.x == 0) {
      fence_after();
      // v as it lies is MN-major: 64 columns of 128 bytes wide rows, 16 rows of k a step.
      for (int s = 0; s < 4; s++)
        mma_f16_ts(o_at, p_at + 8 * s, desc_any(smem(sv) + 2048 * s, 8192, 1024, 2), idesc(1, 0, 0, 128, 64) | 1u << 16, i > 0 || s > 0);
      commit(smem(&second));
    }
    __syncwarp();
  }
  bar_wait(smem(&second), (keys / 64 - 1) & 1);
  fence_after();
  uint32_t x[32];
  for (int half = 0; half < 2; half++) {
    tmem_ld32(x, o_at + lane_base() + half * 32);
    wait_ld();
    for (int j = 0; j < 32; j++) c[(blockIdx.x * 128 + threadIdx.x) * 64 + half * 32 + j] = __uint_as_float(x[j]);
  }
  fence_before();
  __syncthreads();
  if (threadIdx.x < 32) tmem_free<256>(s_at);
}
