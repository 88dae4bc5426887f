// CUDA kernels for the operations of our machines, in the usual way: loads of 16 bytes, CUB where threads meet.
// Each is compiled alone, with -DKERNEL_name and -DTHREADS=n.
#include <cfloat>
#include <cuda_fp16.h>

#ifdef KERNEL_axpby
extern "C" __global__ void __launch_bounds__(THREADS)
axpby(float a, const float* __restrict__ x, float b, const float* __restrict__ z, float* __restrict__ y, int n) {
  int i = (blockIdx.x * THREADS + threadIdx.x) * 4;
  if (i + 3 < n) {
    float4 u = *reinterpret_cast<const float4*>(x + i), v = *reinterpret_cast<const float4*>(z + i);
    *reinterpret_cast<float4*>(y + i) =
        make_float4(a * u.x + b * v.x, a * u.y + b * v.y, a * u.z + b * v.z, a * u.w + b * v.w);
  } else {
    for (; i < n; i++) y[i] = a * x[i] + b * z[i];
  }
}
#endif

#ifdef KERNEL_softmax
#include <cub/block/block_reduce.cuh>
// A row of 16 * THREADS elements stays in registers.
extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
  using Reduce = cub::BlockReduce<float, THREADS>;
  __shared__ typename Reduce::TempStorage of_max, of_sum;
  __shared__ float shared_top, shared_total;
  const float4* in = reinterpret_cast<const float4*>(x + blockIdx.x * n);
  float4* out = reinterpret_cast<float4*>(y + blockIdx.x * n);
  float4 v[ITEMS];
  float top = -FLT_MAX, total = 0;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = k * THREADS + threadIdx.x;
    v[k] = 4 * i < n ? in[i] : make_float4(-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX);
    top = fmaxf(top, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
  }
  top = Reduce(of_max).Reduce(top, [](float p, float q) { return fmaxf(p, q); });
  if (threadIdx.x == 0) shared_top = top;
  __syncthreads();
  top = shared_top;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    v[k] = make_float4(__expf(v[k].x - top), __expf(v[k].y - top), __expf(v[k].z - top), __expf(v[k].w - top));
    total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  }
  total = Reduce(of_sum).Sum(total);
  if (threadIdx.x == 0) shared_total = 1 / total;
  __syncthreads();
  float scale = shared_total;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = k * THREADS + threadIdx.x;
    if (4 * i < n) out[i] = make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale);
  }
}
#endif

#ifdef KERNEL_layer_norm
#include <cub/block/block_reduce.cuh>
// A row of 8 * ITEMS * THREADS elements stays in registers, as halves.
__device__ float block_sum(float value, bool last) {
  using Reduce = cub::BlockReduce<float, THREADS>;
  __shared__ typename Reduce::TempStorage storage[2];
  __shared__ float result[2];
  float total = Reduce(storage[last]).Sum(value);
  if (threadIdx.x == 0) result[last] = total;
  __syncthreads();
  return result[last];
}
__device__ uint4 eight(const __half* at) { return *reinterpret_cast<const uint4*>(at); }
__device__ __half2& pair(uint4& eight, int j) { return reinterpret_cast<__half2*>(&eight)[j]; }
extern "C" __global__ void __launch_bounds__(THREADS)
layer_norm(const __half* __restrict__ x, const __half* __restrict__ w, const __half* __restrict__ shift,
           __half* __restrict__ y, int n, float eps) {
  uint4 v[ITEMS];
  float sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = (k * THREADS + threadIdx.x) * 8;
    if (i < n) {
      v[k] = eight(x + blockIdx.x * n + i);
      for (int j = 0; j < 4; j++) { float2 f = __half22float2(pair(v[k], j)); sum += f.x + f.y; }
    }
  }
  float mean = block_sum(sum, false) / n;
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = (k * THREADS + threadIdx.x) * 8;
    if (i < n)
      for (int j = 0; j < 4; j++) {
        float2 f = __half22float2(pair(v[k], j));
        squares += (f.x - mean) * (f.x - mean) + (f.y - mean) * (f.y - mean);
      }
  }
  float scale = rsqrtf(block_sum(squares, true) / n + eps);
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    int i = (k * THREADS + threadIdx.x) * 8;
    if (i < n) {
      uint4 weights = eight(w + i), shifts = eight(shift + i), out;
      for (int j = 0; j < 4; j++) {
        float2 f = __half22float2(pair(v[k], j)), g = __half22float2(pair(weights, j)), s = __half22float2(pair(shifts, j));
        pair(out, j) = __floats2half2_rn((f.x - mean) * scale * g.x + s.x, (f.y - mean) * scale * g.y + s.y);
      }
      *reinterpret_cast<uint4*>(y + blockIdx.x * n + i) = out;
    }
  }
}
#endif

#ifdef KERNEL_row_sum
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void __launch_bounds__(THREADS) row_sum(const float* __restrict__ x, float* __restrict__ y, int n) {
  using Reduce = cub::BlockReduce<float, THREADS>;
  __shared__ typename Reduce::TempStorage storage;
  const float4* in = reinterpret_cast<const float4*>(x + blockIdx.x * n);
  float total = 0;
#pragma unroll 4
  for (int i = threadIdx.x; 4 * i < n; i += THREADS) {
    float4 v = in[i];
    total += (v.x + v.y) + (v.z + v.w);
  }
  total = Reduce(storage).Sum(total);
  if (threadIdx.x == 0) y[blockIdx.x] = total;
}
#endif

#ifdef KERNEL_transpose
// A tile of 32 by 32 in shared memory, its rows one word apart from the banks.
extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const float* __restrict__ x, float* __restrict__ y, int m, int n) {
  __shared__ float tile[32][33];
  int across = threadIdx.x % 32, down = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32;
#pragma unroll
  for (int k = down; k < 32; k += THREADS / 32)
    if (row + k < m && column + across < n) tile[k][across] = x[(row + k) * n + column + across];
  __syncthreads();
#pragma unroll
  for (int k = down; k < 32; k += THREADS / 32)
    if (column + k < n && row + across < m) y[(column + k) * m + row + across] = tile[across][k];
}
#endif

#ifdef KERNEL_row_scan
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
struct Carry {
  float before;
  __device__ float operator()(float total) { float now = before; before += total; return now; }
};
extern "C" __global__ void __launch_bounds__(THREADS) row_scan(const float* __restrict__ x, float* __restrict__ y, int n) {
  using Load = cub::BlockLoad<float, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<float, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<float, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; typename Scan::TempStorage scan; } s;
  Carry carry{0};
  for (int first = 0; first < n; first += THREADS * ITEMS) {
    float v[ITEMS];
    int left = n - first;
    bool whole = left >= THREADS * ITEMS;
    if (whole) Load(s.load).Load(x + blockIdx.x * n + first, v);
    else Load(s.load).Load(x + blockIdx.x * n + first, v, left, 0.f);
    __syncthreads();
    Scan(s.scan).InclusiveSum(v, v, carry);
    __syncthreads();
    if (whole) Store(s.store).Store(y + blockIdx.x * n + first, v);
    else Store(s.store).Store(y + blockIdx.x * n + first, v, left);
    __syncthreads();
  }
}
#endif
