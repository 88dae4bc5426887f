// Conversions of 8-, 6- and 4-bit floats by the toolkit's intrinsics, and packed single precision.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

// Each output holds one byte (or container) per value; the two-value conversions are used.
extern "C" __global__ void to_narrow(const float2* x, __nv_fp8x2_storage_t* e4m3, __nv_fp8x2_storage_t* e5m2, __nv_fp6x2_storage_t* e2m3,
                                     __nv_fp6x2_storage_t* e3m2, __nv_fp4x2_storage_t* e2m1, __nv_fp8x2_storage_t* half8,
                                     __nv_fp8x2_storage_t* scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float2 v = x[i];
  e4m3[i] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);
  e5m2[i] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E5M2);
  e2m3[i] = __nv_cvt_float2_to_fp6x2(v, __NV_E2M3, cudaRoundNearest);
  e3m2[i] = __nv_cvt_float2_to_fp6x2(v, __NV_E3M2, cudaRoundNearest);
  e2m1[i] = __nv_cvt_float2_to_fp4x2(v, __NV_E2M1, cudaRoundNearest);
  half8[i] = __nv_cvt_halfraw2_to_fp8x2(__floats2half2_rn(v.x, v.y), __NV_SATFINITE, __NV_E4M3);
  scale[i] = __nv_cvt_float2_to_e8m0x2(v, __NV_SATFINITE, cudaRoundPosInf);
}

extern "C" __global__ void from_narrow(const __nv_fp8x2_storage_t* e4m3, const __nv_fp8x2_storage_t* e5m2, const __nv_fp6x2_storage_t* e2m3,
                                       const __nv_fp6x2_storage_t* e3m2, const __nv_fp4x2_storage_t* e2m1, const __nv_fp8x2_storage_t* scale,
                                       float2* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  auto put = [&](__half2_raw h) { half2 v = h; *o = __half22float2(v); };
  o += i;
  put(__nv_cvt_fp8x2_to_halfraw2(e4m3[i], __NV_E4M3)); o += n;
  put(__nv_cvt_fp8x2_to_halfraw2(e5m2[i], __NV_E5M2)); o += n;
  put(__nv_cvt_fp6x2_to_halfraw2(e2m3[i], __NV_E2M3)); o += n;
  put(__nv_cvt_fp6x2_to_halfraw2(e3m2[i], __NV_E3M2)); o += n;
  put(__nv_cvt_fp4x2_to_halfraw2(e2m1[i], __NV_E2M1)); o += n;
  __nv_bfloat162 s = __nv_cvt_e8m0x2_to_bf162raw(scale[i]);
  *o = __bfloat1622float2(s);
}

// The class types, which convert through constructors and operators.
extern "C" __global__ void classes(const float4* x, __nv_fp8x4_e4m3* y, float4* back, __nv_fp8_e5m2* one, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = __nv_fp8x4_e4m3(x[i]);
  back[i] = float4(y[i]);
  one[i] = __nv_fp8_e5m2(x[i].x);
}

// Two floats in a 64-bit register.
extern "C" __global__ void pairs(const float2* a, const float2* b, float2* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float2 x = a[i], y = b[i];
  o[i] = __ffma2_rn(x, y, x);
  o[n + i] = __fadd2_rn(x, y);
  o[2 * n + i] = __fmul2_rn(x, y);
  float m;
  asm("max.f32 %0, %1, %2, %3;" : "=f"(m) : "f"(x.x), "f"(y.x), "f"(x.y));
  float r = __reduce_max_sync(__activemask(), (unsigned)i);
  o[3 * n + i] = make_float2(m, r);
}

// 256-bit loads and stores.
extern "C" __global__ void wide(const float* x, float* y, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (i >= n) return;
  float v[8];
  asm volatile("ld.global.v8.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]) : "l"(x + i));
  for (int j = 0; j < 8; j++) v[j] = v[j] * 2.f + j;
  asm volatile("st.global.v8.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8};"
               ::"l"(y + i), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]) : "memory");
}
