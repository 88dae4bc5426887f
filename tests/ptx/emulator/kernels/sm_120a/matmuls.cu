// mma.sync of narrow floats on sm_120a: one warp a tile of 16 x 8, operands from global memory in fragment order.
#include <cstdint>

__device__ inline uint32_t word(const uint8_t* p) { return *(const uint32_t*)p; }

// a (16 x k) e4m3, b (8 x k) e2m1 in the low four bits of bytes, k a multiple of 32; e2m1 stands in bits 5:2 of a container.
extern "C" __global__ void mixed_f8f6f4(const uint8_t* a, const uint8_t* b, float* c, int k) {
  int g = threadIdx.x >> 2, t = threadIdx.x & 3;
  float d[4] = {};
  for (int i = 0; i < k; i += 32) {
    uint32_t fa[4], fb[2];
    for (int j = 0; j < 4; j++) fa[j] = word(a + (g + 8 * (j & 1)) * k + i + 4 * t + 16 * (j >> 1));
    for (int j = 0; j < 2; j++) fb[j] = word(b + g * k + i + 4 * t + 16 * j) << 2;
    asm volatile("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }
  for (int j = 0; j < 4; j++) c[(g + 8 * (j >> 1)) * 8 + 2 * t + (j & 1)] = d[j];
}

// Block-scaled: e3m2 times e2m3, one ue8m0 scale for 32 values of a row; sfa (16 x k/32), sfb (8 x k/32).
extern "C" __global__ void scaled_mxf6(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, float* c, int k) {
  int g = threadIdx.x >> 2, t = threadIdx.x & 3, groups = k / 32;
  float d[4] = {};
  for (int i = 0; i < groups; i++) {
    uint32_t fa[4], fb[2];
    for (int j = 0; j < 4; j++) fa[j] = word(a + (g + 8 * (j & 1)) * k + i * 32 + 4 * t + 16 * (j >> 1));
    for (int j = 0; j < 2; j++) fb[j] = word(b + g * k + i * 32 + 4 * t + 16 * j);
    // Lanes 0 and 1 of each quad give the scales of rows g and g + 8, lane 0 that of column g.
    uint32_t sa = sfa[(g + 8 * (t & 1)) * groups + i], sb = sfb[g * groups + i];
    asm volatile("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e2m3.f32.ue8m0 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, 0};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(sa), "r"(sb));
  }
  for (int j = 0; j < 4; j++) c[(g + 8 * (j >> 1)) * 8 + 2 * t + (j & 1)] = d[j];
}

// nvfp4: two values a byte, a ue4m3 scale for 16 of them; sfa (16 x k/16), sfb (8 x k/16).
extern "C" __global__ void scaled_nvf4(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, float* c, int k) {
  int g = threadIdx.x >> 2, t = threadIdx.x & 3;
  float d[4] = {};
  for (int i = 0; i < k; i += 64) {
    uint32_t fa[4], fb[2];
    for (int j = 0; j < 4; j++) fa[j] = word(a + ((g + 8 * (j & 1)) * k + i + 8 * t + 32 * (j >> 1)) / 2);
    for (int j = 0; j < 2; j++) fb[j] = word(b + (g * k + i + 8 * t + 32 * j) / 2);
    uint32_t sa = word(sfa + (g + 8 * (t & 1)) * (k / 16) + i / 16), sb = word(sfb + g * (k / 16) + i / 16);
    asm volatile("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, 0};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(sa), "r"(sb));
  }
  for (int j = 0; j < 4; j++) c[(g + 8 * (j >> 1)) * 8 + 2 * t + (j & 1)] = d[j];
}

// A ring of tensor copies between a producer warp and mma.sync: f16, 32 x 32 tiles, as wgmma and tcgen05 are missing here.
#include "../sm_90a/hopper.cuh"
extern "C" __global__ void __launch_bounds__(160) tma_mma(MAP a, MAP b, float* c, int n, int k) {
  constexpr int kStages = 2;
  __shared__ __align__(1024) unsigned char pool[kStages][8192];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, blocks = k / 64;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) { bar_init(smem(&full[s]), 1); bar_init(smem(&empty[s]), 4); }
    fence_bar_init();
  }
  __syncthreads();
  if (warp == 4) {
    if (elect_one())
      for (int kb = 0; kb < blocks; kb++) {
        int s = kb % kStages;
        bar_wait(smem(&empty[s]), (kb / kStages & 1) ^ 1);
        bar_expect(smem(&full[s]), 8192);
        tma_load(smem(pool[s]), a, smem(&full[s]), kb * 64, blockIdx.y * 32);
        tma_load(smem(pool[s]) + 4096, b, smem(&full[s]), kb * 64, blockIdx.x * 32);
      }
    return;
  }
  int wm = warp / 2 * 16, wn = warp % 2 * 16;
  float d[2][4] = {};
  for (int kb = 0; kb < blocks; kb++) {
    int s = kb % kStages;
    bar_wait(smem(&full[s]), kb / kStages & 1);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t fa[4], fb[4];
      int row = wm + (lane & 15), chunk = (2 * j + (lane >> 4)) ^ (row & 7);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(smem(pool[s]) + row * 128 + chunk * 16) : "memory");
      row = wn + (lane & 7) + 8 * (lane >> 4);
      chunk = (2 * j + (lane >> 3 & 1)) ^ (row & 7);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3]) : "r"(smem(pool[s]) + 4096 + row * 128 + chunk * 16) : "memory");
      for (int q = 0; q < 2; q++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[q][0]), "+f"(d[q][1]), "+f"(d[q][2]), "+f"(d[q][3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * q]), "r"(fb[2 * q + 1]));
    }
    __syncwarp();
    if (lane == 0) bar_arrive(smem(&empty[s]));
  }
  for (int q = 0; q < 2; q++)
    for (int e = 0; e < 4; e++)
      c[(blockIdx.y * 32 + wm + lane / 4 + 8 * (e >> 1)) * n + blockIdx.x * 32 + wn + q * 8 + 2 * (lane & 3) + (e & 1)] = d[q][e];
}
