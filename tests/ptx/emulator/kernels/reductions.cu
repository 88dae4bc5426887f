// Reductions, scans, softmax, layer norm: shuffles, shared memory, barriers, atomics, the last-block pattern.
extern "C" __global__ void row_softmax(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float partial[32];
  const float* row = x + (size_t)blockIdx.x * columns;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
  for (int d = 16; d; d >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, d));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  int warps = blockDim.x / 32;
  largest = threadIdx.x % 32 < warps ? partial[threadIdx.x % 32] : -INFINITY;
  for (int d = 16; d; d >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, d));
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - largest);
  for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < warps ? partial[threadIdx.x] : 0.f;
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) partial[0] = sum;
  }
  __syncthreads();
  float scale = 1.f / partial[0];
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[(size_t)blockIdx.x * columns + i] = expf(row[i] - largest) * scale;
}

extern "C" __global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int columns) {
  __shared__ float s1[8], s2[8];
  const float* row = x + (size_t)blockIdx.x * columns;
  float a = 0, b = 0;
  for (int i = threadIdx.x; i < columns; i += 256) { float v = row[i]; a += v; b += v * v; }
  for (int d = 16; d; d >>= 1) { a += __shfl_xor_sync(~0u, a, d); b += __shfl_xor_sync(~0u, b, d); }
  if (threadIdx.x % 32 == 0) { s1[threadIdx.x / 32] = a; s2[threadIdx.x / 32] = b; }
  __syncthreads();
  a = b = 0;
  for (int w = 0; w < 8; w++) { a += s1[w]; b += s2[w]; }
  float mean = a / columns, inv = rsqrtf(b / columns - mean * mean + 1e-5f);
  for (int i = threadIdx.x; i < columns; i += 256)
    y[(size_t)blockIdx.x * columns + i] = (row[i] - mean) * inv * gamma[i] + beta[i];
}

extern "C" __global__ void scan_block(const int* x, int* y, int n) {
  extern __shared__ int buffer[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  buffer[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d <<= 1) {
    int v = t >= d ? buffer[t - d] : 0;
    __syncthreads();
    buffer[t] += v;
    __syncthreads();
  }
  if (i < n) y[i] = buffer[t];
}

__device__ unsigned finished = 0;
extern "C" __global__ void last_block_sum(const float* x, float* partial, float* total, int n) {
  __shared__ float s[256];
  __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = 128; d; d >>= 1) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += partial[b];
    *total = sum;
  }
}

extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}
