// f32 matmul on CUDA cores: 64x64 tiles, 256 threads, 4x4 values per thread; any m, n, k (row-major a, b, c).
extern "C" __global__ void __launch_bounds__(256) matmul_simt(const float* __restrict__ a, const float* __restrict__ b,
                                                              float* __restrict__ c, int m, int n, int k) {
  __shared__ float sa[16][64 + 4];
  __shared__ __align__(16) float sb[16][64];
  const int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
  const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = tid; i < 64 * 16; i += 256) {
      int r = i / 16, kk = i % 16;
      sa[kk][r] = (row0 + r < m && k0 + kk < k) ? a[(size_t)(row0 + r) * k + k0 + kk] : 0.f;
      int cc = i % 64, kb = i / 64;
      sb[kb][cc] = (col0 + cc < n && k0 + kb < k) ? b[(size_t)(k0 + kb) * n + col0 + cc] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; kk++) {
      float4 va = *reinterpret_cast<const float4*>(&sa[kk][ty * 4]);
      float4 vb = *reinterpret_cast<const float4*>(&sb[kk][tx * 4]);
      float ra[4] = {va.x, va.y, va.z, va.w}, rb[4] = {vb.x, vb.y, vb.z, vb.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] = fmaf(ra[i], rb[j], acc[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int r = row0 + ty * 4 + i, cc = col0 + tx * 4 + j;
      if (r < m && cc < n) c[(size_t)r * n + cc] = acc[i][j];
    }
}
