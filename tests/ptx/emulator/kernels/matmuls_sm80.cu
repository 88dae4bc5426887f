// Matrix products of the years before TMA: WMMA, double-buffered SIMT, int8 and tf32 mma, an mbarrier fed by cp.async.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

__device__ inline uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// c = relu(alpha * a b + c): 32x32 per block of four warps, WMMA with row- and column-major operands.
extern "C" __global__ void wmma_half(const half* a, const half* b, float* c, int m, int n, int k, float alpha) {
  int warp = threadIdx.x / 32;
  int r = blockIdx.y * 32 + warp / 2 * 16, q = blockIdx.x * 32 + warp % 2 * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc, old;
  wmma::fill_fragment(acc, 0.f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + r * k + i, k);
    wmma::load_matrix_sync(fb, b + q * k + i, k);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::load_matrix_sync(old, c + r * n + q, n, wmma::mem_row_major);
  for (int i = 0; i < acc.num_elements; i++) acc.x[i] = fmaxf(alpha * acc.x[i] + old.x[i], 0.f);
  wmma::store_matrix_sync(c + r * n + q, acc, n, wmma::mem_row_major);
}
// Other shapes and types, one warp each: 32x8x16 bf16, 8x32x16 int8, 16x16x8 tf32, 8x8x4 double, half accumulators.
extern "C" __global__ void wmma_bfloat(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k) {
  __shared__ __align__(32) __nv_bfloat16 sa[32 * 24];
  wmma::fragment<wmma::matrix_a, 32, 8, 16, __nv_bfloat16, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 32, 8, 16, __nv_bfloat16, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 32, 8, 16, float> acc;
  wmma::fill_fragment(acc, 1.f);
  for (int i = 0; i < k; i += 16) {
    for (int j = threadIdx.x; j < 32 * 16; j += 32) sa[j] = a[i * 32 + j];
    __syncwarp();
    wmma::load_matrix_sync(fa, sa, 32);
    wmma::load_matrix_sync(fb, b + i * 8, 8);
    wmma::mma_sync(acc, fa, fb, acc);
    __syncwarp();
  }
  wmma::store_matrix_sync(c, acc, 40, wmma::mem_col_major);
}
extern "C" __global__ void wmma_int8(const signed char* a, const signed char* b, int* c, int k) {
  wmma::fragment<wmma::matrix_a, 8, 32, 16, signed char, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 32, 16, signed char, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 32, 16, int> acc;
  wmma::fill_fragment(acc, 0);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(c, acc, 32, wmma::mem_row_major);
}
extern "C" __global__ void wmma_tf32(const float* a, const float* b, float* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> acc;
  wmma::fill_fragment(acc, 0.f);
  for (int i = 0; i < k; i += 8) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i * 16, 16);
    for (int t = 0; t < fa.num_elements; t++) fa.x[t] = wmma::__float_to_tf32(fa.x[t]);
    for (int t = 0; t < fb.num_elements; t++) fb.x[t] = wmma::__float_to_tf32(fb.x[t]);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(c, acc, 16, wmma::mem_row_major);
}
extern "C" __global__ void wmma_double(const double* a, const double* b, double* c, int k) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> acc;
  wmma::fill_fragment(acc, 0.0);
  for (int i = 0; i < k; i += 4) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(c, acc, 8, wmma::mem_col_major);
}
extern "C" __global__ void wmma_half_sums(const half* a, const half* b, half* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> acc;
  wmma::load_matrix_sync(acc, c, 16, wmma::mem_col_major);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i * 16, 16);
    wmma::load_matrix_sync(fb, b + i * 16, 16);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(c, acc, 16, wmma::mem_col_major);
}

// Single precision without tensor cores: 64x64x8 tiles, two buffers, 4x4 values a thread, one barrier a step.
extern "C" __global__ void __launch_bounds__(256) simt_double_buffered(const float* __restrict__ a, const float* __restrict__ b,
                                                                       float* __restrict__ c, int n, int k) {
  __shared__ float sa[2][8][68], sb[2][8][64];
  const int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
  const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float acc[4][4] = {}, ra[2], rb[2];
  auto fetch = [&](int kt) {
    for (int i = 0; i < 2; i++) {
      int t = tid + 256 * i;
      ra[i] = a[(row0 + t / 8) * k + kt * 8 + t % 8];
      rb[i] = b[(kt * 8 + t / 64) * n + col0 + t % 64];
    }
  };
  auto keep = [&](int s) {
    for (int i = 0; i < 2; i++) { int t = tid + 256 * i; sa[s][t % 8][t / 8] = ra[i]; sb[s][t / 64][t % 64] = rb[i]; }
  };
  fetch(0);
  keep(0);
  for (int kt = 0; kt < k / 8; kt++) {
    __syncthreads();
    if (kt + 1 < k / 8) fetch(kt + 1);
    int s = kt & 1;
#pragma unroll
    for (int kk = 0; kk < 8; kk++) {
      float4 fa = *(float4*)&sa[s][kk][ty * 4], fb = *(float4*)&sb[s][kk][tx * 4];
      float va[4] = {fa.x, fa.y, fa.z, fa.w}, vb[4] = {fb.x, fb.y, fb.z, fb.w};
      for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) acc[i][j] += va[i] * vb[j];
    }
    if (kt + 1 < k / 8) keep(s ^ 1);
  }
  for (int i = 0; i < 4; i++)
    *(float4*)&c[(row0 + ty * 4 + i) * n + col0 + tx * 4] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}

// int8 with m16n8k32: one warp per 16x8 tile; operands straight from global memory in fragment order.
extern "C" __global__ void mma_int8(const int8_t* a, const uint8_t* b, int* c, int n, int k) {
  int lane = threadIdx.x, g = lane >> 2, t = lane & 3, r = blockIdx.y * 16, q = blockIdx.x * 8;
  int d[4] = {0, 0, 0, 0};
  for (int i = 0; i < k; i += 32) {
    const int8_t* pa = a + (r + g) * k + i + t * 4;
    const uint8_t* pb = b + (q + g) * k + i + t * 4;
    uint32_t fa[4] = {*(uint32_t*)pa, *(uint32_t*)(pa + 8 * k), *(uint32_t*)(pa + 16), *(uint32_t*)(pa + 8 * k + 16)};
    uint32_t fb[2] = {*(uint32_t*)pb, *(uint32_t*)(pb + 16)};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }
  *(int2*)&c[(r + g) * n + q + t * 2] = make_int2(d[0], d[1]);
  *(int2*)&c[(r + g + 8) * n + q + t * 2] = make_int2(d[2], d[3]);
}

// tf32 with cp.async whose completion arrives on mbarriers: one producer warp, four consumer warps, a ring of stages.
// a (m x k) and b (n x k) row-major, tile 64x32x16; copies of 16 bytes; full[s] counts the producer's 32 lanes.
__device__ inline void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}"
               ::"r"(bar), "r"(parity) : "memory");
}
extern "C" __global__ void __launch_bounds__(160) mma_tf32_mbarrier(const float* a, const float* b, float* c, int n, int k) {
  constexpr int kStages = 3, kPitch = 20;
  __shared__ __align__(16) float sa[kStages][64][kPitch], sb[kStages][32][kPitch];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = k / 16;
  if (threadIdx.x == 0)
    for (int s = 0; s < kStages; s++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(shared_address(&full[s])));
      asm volatile("mbarrier.init.shared.b64 [%0], 4;" ::"r"(shared_address(&empty[s])));
    }
  __syncthreads();
  if (warp == 4) {
    for (int i = 0; i < steps; i++) {
      int s = i % kStages;
      mbar_wait(shared_address(&empty[s]), (i / kStages & 1) ^ 1);
      for (int t = lane; t < 96 * 4; t += 32) {
        int row = t / 4, chunk = t % 4 * 4;
        const float* from = row < 64 ? a + (blockIdx.y * 64 + row) * k : b + (blockIdx.x * 32 + row - 64) * k;
        float* to = row < 64 ? &sa[s][row][chunk] : &sb[s][row - 64][chunk];
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from + i * 16 + chunk) : "memory");
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&full[s])) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    int g = lane >> 2, t = lane & 3;
    float d[4][4] = {};
    for (int i = 0; i < steps; i++) {
      int s = i % kStages;
      mbar_wait(shared_address(&full[s]), i / kStages & 1);
      for (int kk = 0; kk < 16; kk += 8) {
        uint32_t fa[4];
        for (int j = 0; j < 4; j++) {
          float v = sa[s][warp * 16 + g + 8 * (j & 1)][kk + t + 4 * (j >> 1)];
          asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fa[j]) : "f"(v));
        }
        for (int q = 0; q < 4; q++) {
          uint32_t fb[2];
          for (int j = 0; j < 2; j++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fb[j]) : "f"(sb[s][q * 8 + g][kk + t + 4 * j]));
          asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                       : "+f"(d[q][0]), "+f"(d[q][1]), "+f"(d[q][2]), "+f"(d[q][3])
                       : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        }
      }
      __syncwarp();
      if (lane == 0) {
        uint64_t state;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(&empty[s])) : "memory");
      }
    }
    for (int q = 0; q < 4; q++)
      for (int j = 0; j < 4; j++)
        c[(blockIdx.y * 64 + warp * 16 + g + 8 * (j >> 1)) * n + blockIdx.x * 32 + q * 8 + 2 * t + (j & 1)] = d[q][j];
  }
}

// Split-K with a semaphore: each slice adds its part in turn (deterministic), f16 inputs, mma.m16n8k16, one warp a tile.
extern "C" __global__ void splitk_semaphore(const half* a, const half* b, float* c, int* locks, int n, int k) {
  int lane = threadIdx.x, g = lane >> 2, t = lane & 3, r = blockIdx.y * 16, q = blockIdx.x * 8;
  int part = k / gridDim.z, from = blockIdx.z * part;
  float d[4] = {};
  for (int i = from; i < from + part; i += 16) {
    const half* pa = a + (r + g) * k + i + t * 2;
    const half* pb = b + (q + g) * k + i + t * 2;
    uint32_t fa[4] = {*(uint32_t*)pa, *(uint32_t*)(pa + 8 * k), *(uint32_t*)(pa + 8), *(uint32_t*)(pa + 8 * k + 8)};
    uint32_t fb[2] = {*(uint32_t*)pb, *(uint32_t*)(pb + 8)};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }
  int* lock = locks + blockIdx.y * gridDim.x + blockIdx.x;
  if (lane == 0) {
    int seen;
    do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(lock) : "memory"); while (seen != blockIdx.z);
  }
  __syncwarp();
  float* at = c + (r + g) * n + q + t * 2;
  if (blockIdx.z > 0) { d[0] += at[0]; d[1] += at[1]; d[2] += at[8 * n]; d[3] += at[8 * n + 1]; }
  at[0] = d[0]; at[1] = d[1]; at[8 * n] = d[2]; at[8 * n + 1] = d[3];
  __syncwarp();
  if (lane == 0) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(lock) : "memory");
  }
}

// Attention forward for one head of 64: 64 queries a block, blocks of 64 keys, mma.m16n8k16 in bf16, online softmax.
__device__ inline void ldmatrix4(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void ldmatrix4_trans(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
extern "C" __global__ void __launch_bounds__(128) flash_attention(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                                                  const __nv_bfloat16* v, float* o, int keys, float scale) {
  __shared__ __align__(16) __nv_bfloat16 sq[64][72], sk[2][64][72], sv[2][64][72];
  int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, row0 = blockIdx.x * 64;
  auto copy = [&](__nv_bfloat16 (*to)[72], const __nv_bfloat16* from) {
    for (int i = tid; i < 64 * 8; i += 128)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&to[i / 8][i % 8 * 8])), "l"(from + i * 8) : "memory");
  };
  copy(sq, q + row0 * 64); copy(sk[0], k); copy(sv[0], v);
  asm volatile("cp.async.commit_group;" ::: "memory");
  float out[8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  uint32_t fq[4][4];
  for (int block = 0; block < keys / 64; block++) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    int s = block & 1;
    if (block + 1 < keys / 64) { copy(sk[s ^ 1], k + (block + 1) * 4096); copy(sv[s ^ 1], v + (block + 1) * 4096); }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (block == 0)
      for (int j = 0; j < 4; j++) ldmatrix4(fq[j], shared_address(&sq[warp * 16 + (lane & 15)][j * 16 + (lane >> 4) * 8]));
    float p[8][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        uint32_t fk[4];
        ldmatrix4(fk, shared_address(&sk[s][n * 8 + (lane & 7) + 8 * (lane >> 4)][j * 16 + 8 * (lane >> 3 & 1)]));
        mma_bf16(p[n], fq[j], fk[0], fk[1]);
        mma_bf16(p[n + 1], fq[j], fk[2], fk[3]);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float m = top[h];
      for (int n = 0; n < 8; n++) m = fmaxf(m, fmaxf(p[n][2 * h], p[n][2 * h + 1]) * scale);
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1)); m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      float fix = exp2f((top[h] - m) * 1.44269504f), add = 0;
      for (int n = 0; n < 8; n++)
        for (int e = 0; e < 2; e++) { float& x = p[n][2 * h + e]; x = exp2f((x * scale - m) * 1.44269504f); add += x; out[n][2 * h + e] *= fix; }
      sum[h] = sum[h] * fix + add;
      top[h] = m;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t fp[4];
      for (int e = 0; e < 4; e++) {
        float lo = p[2 * j + (e >> 1)][2 * (e & 1)], hi = p[2 * j + (e >> 1)][2 * (e & 1) + 1];
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(fp[e]) : "f"(hi), "f"(lo));
      }
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        uint32_t fv[4];
        ldmatrix4_trans(fv, shared_address(&sv[s][j * 16 + (lane & 7) + 8 * (lane >> 3 & 1)][n * 8 + 8 * (lane >> 4)]));
        mma_bf16(out[n], fp, fv[0], fv[1]);
        mma_bf16(out[n + 1], fp, fv[2], fv[3]);
      }
    }
  }
  for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1); sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    for (int n = 0; n < 8; n++)
      for (int e = 0; e < 2; e++)
        o[(row0 + warp * 16 + (lane >> 2) + 8 * h) * 64 + n * 8 + 2 * (lane & 3) + e] = out[n][2 * h + e] / sum[h];
  }
}
