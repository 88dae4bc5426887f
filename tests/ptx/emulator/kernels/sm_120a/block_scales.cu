// mma.sync with block scales by CuTe's own account of SM120 (cute/atom/mma_traits_sm120.hpp): which lane gives which scale.
// Needs the headers of CUTLASS: nvcc -I <cutlass>/include. Factors in fragment order of CuTe's layouts, from global memory.
#include <cstdint>
#include <cute/atom/mma_traits_sm120.hpp>
using namespace cute;

// a (16 x K), b (8 x K), scales (16 x K / VS) and (8 x K / VS), one element to a byte; K of one instruction.
template <class Op, int BITS, int K, int VS>
__device__ void one(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, float* c) {
  using T = MMA_Traits<Op>;
  typename T::ALayout la;
  typename T::BLayout lb;
  typename T::CLayout lc;
  typename T::SFALayout lsa;
  typename T::SFBLayout lsb;
  int t = threadIdx.x;
  uint32_t fa[4] = {}, fb[2] = {};
  uint32_t sa = 0, sb = 0;
  constexpr int PER = 32 / BITS, SCALES = K / VS;
  for (int v = 0; v < 4 * PER; v++) {
    int at = la(t, v);
    fa[v / PER] |= uint32_t(a[at % 16 * K + at / 16]) << (v % PER * BITS);
  }
  for (int v = 0; v < 2 * PER; v++) {
    int at = lb(t, v);
    fb[v / PER] |= uint32_t(b[at % 8 * K + at / 8]) << (v % PER * BITS);
  }
  for (int s = 0; s < SCALES; s++) {
    int ra = lsa(t, s * VS), rb = lsb(t, s * VS);
    sa |= uint32_t(sfa[ra % 16 * SCALES + ra / 16 / VS]) << (8 * s);
    sb |= uint32_t(sfb[rb % 8 * SCALES + rb / 8 / VS]) << (8 * s);
  }
  typename Op::SFARegisters wa, wb;
  wa[0] = sa, wb[0] = sb;
  float d[4];
  Op::fma(d[0], d[1], d[2], d[3], fa[0], fa[1], fa[2], fa[3], fb[0], fb[1], 0.f, 0.f, 0.f, 0.f, wa[0], wb[0]);
  for (int v = 0; v < 4; v++) {
    int at = lc(t, v);
    c[at % 16 * 8 + at / 16] = d[v];
  }
}

#define ARGS const uint8_t *a, const uint8_t *b, const uint8_t *sfa, const uint8_t *sfb, float *c
using Mx8 = SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<float_e4m3_t, float_e5m2_t, float, float_ue8m0_t, 32>;
using Mx4 = SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 32>;
using Nv4 = SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>;
extern "C" __global__ void mxfp8(ARGS) { one<Mx8, 8, 32, 32>(a, b, sfa, sfb, c); }
extern "C" __global__ void mxfp4(ARGS) { one<Mx4, 4, 64, 32>(a, b, sfa, sfb, c); }
extern "C" __global__ void nvfp4(ARGS) { one<Nv4, 4, 64, 16>(a, b, sfa, sfb, c); }
