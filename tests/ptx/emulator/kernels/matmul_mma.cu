// f16 matmul with f32 accumulation: cp.async in four stages, ldmatrix, mma.sync; tiles of 128x128x32, 128 threads.
// a is m x k (row-major), b is n x k (row-major: k contiguous), c is m x n f32. m, n multiples of 128, k of 32.
#include <cstdint>
#include <cuda_fp16.h>

__device__ inline uint32_t swizzled(int row, int chunk) { return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4); }

extern "C" __global__ void __launch_bounds__(128) matmul_mma(const half* __restrict__ a, const half* __restrict__ b,
                                                             float* __restrict__ c, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char smem[];
  constexpr int kStages = 4, kStageBytes = 16384;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int wm = (warp & 1) * 64, wn = (warp >> 1) * 64;
  const int row0 = blockIdx.y * 128, col0 = blockIdx.x * 128;
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
  float acc[4][8][4] = {};
  auto load = [&](int stage, int kt) {
    uint32_t sa = base + stage * kStageBytes, sb = sa + 8192;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = (tid >> 2) + 32 * i, chunk = tid & 3;
      const half* pa = a + (size_t)(row0 + row) * k + kt * 32 + chunk * 8;
      const half* pb = b + (size_t)(col0 + row) * k + kt * 32 + chunk * 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(sa + swizzled(row, chunk)), "l"(pa));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(sb + swizzled(row, chunk)), "l"(pb));
    }
  };
  const int kt_count = k / 32;
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) {
    if (s < kt_count) load(s, s);
    asm volatile("cp.async.commit_group;\n");
  }
  for (int kt = 0; kt < kt_count; kt++) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kStages - 2));
    __syncthreads();
    int next = kt + kStages - 1;
    if (next < kt_count) load(next % kStages, next);
    asm volatile("cp.async.commit_group;\n");
    uint32_t sa = base + (kt % kStages) * kStageBytes, sb = sa + 8192;
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
      uint32_t fa[4][4], fb[8][2];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t at = sa + swizzled(wm + i * 16 + (lane & 15), kk * 2 + (lane >> 4));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3]) : "r"(at));
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint32_t at = sb + swizzled(wn + j * 16 + (lane & 7) + 8 * (lane >> 4), kk * 2 + ((lane >> 3) & 1));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(fb[2 * j][0]), "=r"(fb[2 * j][1]), "=r"(fb[2 * j + 1][0]), "=r"(fb[2 * j + 1][1]) : "r"(at));
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                       : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                       : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      int row = row0 + wm + i * 16 + (lane >> 2), col = col0 + wn + j * 8 + (lane & 3) * 2;
      *reinterpret_cast<float2*>(c + (size_t)row * n + col) = make_float2(acc[i][j][0], acc[i][j][1]);
      *reinterpret_cast<float2*>(c + (size_t)(row + 8) * n + col) = make_float2(acc[i][j][2], acc[i][j][3]);
    }
}
