// Products with block scales: every kind, type of the scales and number of them.
#include "scaled.cuh"
using E4 = cutlass::float_e4m3_t;
using E5 = cutlass::float_e5m2_t;
using E2 = cutlass::float_e2m1_t;
using P2 = cutlass::float_ue8m0_t;
using UE4 = cutlass::float_ue4m3_t;
#define SCALED(name, A, B, SF, PLACE_A, PLACE_B, ...)                                                                  \
  extern "C" __global__ void __launch_bounds__(128) name(A const* a, B const* b, SF const* sfa, SF const* sfb, float* d) { \
    multiply_scaled<UMMA::Layout_##PLACE_A##_Atom<A>, UMMA::Layout_##PLACE_B##_Atom<B>>(a, b, sfa, sfb, d,          \
        make_tiled_mma(__VA_ARGS__{}));                                                                                \
  }
SCALED(mxf8, E4, E5, P2, K_SW128, K_SW128, SM100_MMA_MXF8F6F4_SS<E4, E5, float, P2, 128, 128, K, K>)
SCALED(mxf8_wide, E5, E4, P2, MN_SW128, K_SW128, SM100_MMA_MXF8F6F4_SS<E5, E4, float, P2, 128, 256, MN, K>)
SCALED(mxf4, E2, E2, P2, K_SW128, K_SW128, SM100_MMA_MXF4_SS<E2, E2, float, P2, 128, 128, 32, K, K>)
SCALED(nvf4, E2, E2, UE4, K_SW128, K_SW128, SM100_MMA_MXF4_SS<E2, E2, float, UE4, 128, 128, 16, K, K>)
SCALED(nvf4_powers, E2, E2, P2, K_SW128, K_SW128, SM100_MMA_MXF4_SS<E2, E2, float, P2, 128, 128, 16, K, K>)
SCALED(mxf8_negated, E4, E5, P2, K_SW128, K_SW128, SM100_MMA_MXF8F6F4_SS<E4, E5, float, P2, 128, 128, K, K, ScaleIn::Neg, ScaleIn::One>)
