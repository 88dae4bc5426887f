// Element-wise kernels: vectors with edges, half types, special functions, doubles.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void saxpy4(float a, const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) {
    float4 vx = *reinterpret_cast<const float4*>(x + i), vy = *reinterpret_cast<float4*>(y + i);
    vy.x = fmaf(a, vx.x, vy.x); vy.y = fmaf(a, vx.y, vy.y); vy.z = fmaf(a, vx.z, vy.z); vy.w = fmaf(a, vx.w, vy.w);
    *reinterpret_cast<float4*>(y + i) = vy;
  } else {
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
  }
}

extern "C" __global__ void half_math(const half2* x, const half2* y, half2* z, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    half2 p = __hfma2(x[i], y[i], x[i]);
    half2 q = __hmax2(__hadd2(x[i], y[i]), __hmul2(x[i], y[i]));
    z[i] = __hsub2(__hmin2(p, q), __habs2(__hneg2(y[i])));
  }
}

extern "C" __global__ void bfloat_math(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = __float2bfloat16(__bfloat162float(__hfma(x[i], y[i], x[i])) * 0.5f + __bfloat162float(y[i]));
}

extern "C" __global__ void special(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  out[i] = expf(v) + logf(fabsf(v) + 1.f);
  out[n + i] = sinf(v) * cosf(v);
  out[2 * n + i] = rsqrtf(v * v + 1.f) + sqrtf(fabsf(v));
  out[3 * n + i] = tanhf(v) + erff(v) + powf(fabsf(v) + 0.5f, 1.7f);
  out[4 * n + i] = v / (1.f + fabsf(v)) + floorf(v) + rintf(v) + fmodf(v, 0.7f);
  out[5 * n + i] = __expf(v) + __sinf(v) + __fdividef(v, 3.f);
}

extern "C" __global__ void doubles(const double* x, const double* y, double* z, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) z[i] = fma(x[i], y[i], sqrt(fabs(x[i]))) / (1.0 + y[i] * y[i]) + exp(-fabs(x[i])) + log(fabs(y[i]) + 2.0);
}

extern "C" __global__ void conversions(const float* x, int* si, unsigned* ui, unsigned char* b, short* h, long long* l,
                                       float* back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  si[i] = __float2int_rn(v) + static_cast<int>(v);
  ui[i] = __float2uint_rd(fabsf(v));
  b[i] = static_cast<unsigned char>(static_cast<int>(v));
  h[i] = static_cast<short>(v * 100.f);
  l[i] = __float2ll_ru(v * 1e10f);
  back[i] = __ll2float_rz(l[i]) + __int2float_rn(si[i]) + static_cast<float>(static_cast<double>(v) * 3.0) +
            static_cast<signed char>(b[i]);
}
