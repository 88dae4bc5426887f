// Products with both operands in shared memory: kinds, types, majors, swizzles, signs, shapes, sums that go on.
#include "product.cuh"
#define SS(name, adds, A, B, D, PLACE_A, PLACE_B, LOAD, STORE, ...)                                                    \
  extern "C" __global__ void __launch_bounds__(128) name(A const* a, B const* b, D* d) {                               \
    multiply_tile<adds, SM100_TMEM_LOAD_##LOAD, SM100_TMEM_STORE_##STORE, UMMA::Layout_##PLACE_A##_Atom<A>,            \
                  UMMA::Layout_##PLACE_B##_Atom<B>>(a, b, d, make_tiled_mma(__VA_ARGS__));                             \
  }
#define F8(A, B, D, M, N, MAJOR_A, MAJOR_B)                                                                            \
  MMA_Traits<SM100_MMA_F8F6F4_SS, A, B, D, C<M>, C<N>, integral_constant<Major, MAJOR_A>,                              \
             integral_constant<Major, MAJOR_B>, integral_constant<ScaleIn, ScaleIn::One>,                              \
             integral_constant<ScaleIn, ScaleIn::One>> {}
using E4 = cutlass::float_e4m3_t;
using E5 = cutlass::float_e5m2_t;
using S8 = int8_t;
using U8 = uint8_t;
using TF = tfloat32_t;
using H = half_t;
using BF = bfloat16_t;

SS(rows_128_64, false, H, H, float, K_SW128, K_SW64, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 48, K, K>{})
SS(rows_32_none, false, BF, BF, float, K_SW32, K_INTER, 32dp32b8x, 32dp32b16x, SM100_MMA_F16BF16_SS<BF, BF, float, 128, 80, K, K>{})
SS(rows_none_32, false, H, H, float, K_INTER, K_SW32, 32dp32b8x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 16, K, K>{})
SS(columns_128_64, false, H, H, float, MN_SW128, MN_SW64, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 64, MN, MN>{})
SS(columns_32_none, false, BF, BF, float, MN_SW32, MN_INTER, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<BF, BF, float, 128, 48, MN, MN>{})
SS(columns_none_rows, false, H, H, float, MN_INTER, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 32, MN, K>{})
SS(rows_columns_128, false, H, H, float, K_SW128, MN_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 128, K, MN>{})
SS(tf32_rows, false, TF, TF, float, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_TF32_SS<TF, TF, float, 128, 32, K, K>{})
SS(tf32_columns, false, TF, TF, float, MN_SW128_32B, MN_SW128_32B, 32dp32b16x, 32dp32b16x, SM100_MMA_TF32_SS<TF, TF, float, 128, 64, MN, MN>{})
SS(bytes_s8_u8, false, S8, U8, int, K_SW128, K_SW64, 32dp32b16x, 32dp32b16x, SM100_MMA_S8_SS<S8, U8, int, 128, 32, K, K>{})
SS(bytes_u8_s8_columns, false, U8, S8, int, MN_SW128, MN_SW64, 32dp32b16x, 32dp32b16x, SM100_MMA_S8_SS<U8, S8, int, 128, 64, MN, MN>{})
SS(bytes_saturated, true, S8, S8, int, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_S8_SS<S8, S8, int, 128, 16, K, K, Saturate::True>{})
SS(bytes_wrapped, true, S8, S8, int, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_S8_SS<S8, S8, int, 128, 16, K, K>{})
SS(fp8_e4m3_e5m2, false, E4, E5, float, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, F8(E4, E5, float, 128, 32, K, K))
SS(fp8_e5m2_e4m3_columns, false, E5, E4, float, MN_SW128, MN_SW128, 32dp32b16x, 32dp32b16x, F8(E5, E4, float, 128, 128, MN, MN))
SS(negated_a, false, H, H, float, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 16, K, K, ScaleIn::Neg>{})
SS(negated_b, false, H, H, float, K_SW128, K_SW128, 32dp32b16x, 32dp32b16x, SM100_MMA_F16BF16_SS<H, H, float, 128, 16, K, K, ScaleIn::One, ScaleIn::Neg>{})
SS(added, true, H, H, float, K_SW128, K_SW128, 32dp32b32x, 32dp32b32x, SM100_MMA_F16BF16_SS<H, H, float, 128, 32, K, K>{})
SS(scaled_sums, true, H, H, float, K_SW128, K_SW128, 32dp32b32x, 32dp32b32x, SM100_MMA_F16BF16_SS_SCALED<H, H, float, 128, 32, K, K, 3>{})
SS(half_sums, false, H, H, H, K_SW128, K_SW128, 32dp32b16x_16b, 32dp32b16x_16b, SM100_MMA_F16BF16_SS<H, H, H, 128, 32, K, K>{})
SS(half_sums_added, true, H, H, H, K_SW128, K_SW128, 32dp32b16x_16b, 32dp32b16x_16b, SM100_MMA_F16BF16_SS<H, H, H, 128, 32, K, K>{})
// 64 rows: every shape of tcgen05.ld and tcgen05.st.
SS(half_lanes_64b, true, H, H, float, K_SW128, K_SW128, 16dp64b8x, 16dp256b2x, SM100_MMA_F16BF16_SS<H, H, float, 64, 32, K, K>{})
SS(half_lanes_128b, true, H, H, float, K_SW128, K_SW128, 16dp128b4x, 16dp64b8x, SM100_MMA_F16BF16_SS<H, H, float, 64, 32, K, K>{})
SS(half_lanes_256b, true, H, H, float, K_SW128, K_SW128, 16dp256b2x, 16dp128b4x, SM100_MMA_F16BF16_SS<H, H, float, 64, 32, K, K>{})
SS(half_lanes_32b, true, H, H, float, K_SW128, K_SW128, 16dp32b8x, 16dp32b8x, SM100_MMA_F16BF16_SS<H, H, float, 64, 32, K, K>{})
SS(half_lanes_bytes, false, S8, S8, int, K_SW128, K_SW128, 16dp256b1x, 16dp256b1x, SM100_MMA_S8_SS<S8, S8, int, 64, 8, K, K>{})
SS(half_lanes_packed_64b, true, H, H, H, K_SW128, K_SW128, 16dp64b4x_16b, 16dp256b1x_16b, SM100_MMA_F16BF16_SS<H, H, H, 64, 32, K, K>{})
SS(half_lanes_packed_128b, true, H, H, H, K_SW128, K_SW128, 16dp128b2x_16b, 16dp64b4x_16b, SM100_MMA_F16BF16_SS<H, H, H, 64, 32, K, K>{})
SS(half_lanes_packed_256b, true, H, H, H, K_SW128, K_SW128, 16dp256b1x_16b, 16dp128b2x_16b, SM100_MMA_F16BF16_SS<H, H, H, 64, 32, K, K>{})
SS(half_lanes_packed_32b, true, H, H, H, K_SW128, K_SW128, 16dp32b4x_16b, 16dp32b4x_16b, SM100_MMA_F16BF16_SS<H, H, H, 64, 32, K, K>{})
