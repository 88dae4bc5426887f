// Control flow: divergence, switches, calls, local arrays, constants, votes, matches, spin locks, named barriers.
__constant__ float table[8] = {1.f, 2.f, 4.f, 8.f, 16.f, 32.f, 64.f, 128.f};
__device__ int mutex = 0;

extern "C" __global__ void collatz(const unsigned* x, int* steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long v = x[i];
  int count = 0;
  while (v != 1) {
    if (v & 1) v = 3 * v + 1; else v >>= 1;
    if (++count > 400) break;
  }
  steps[i] = count;
}

__device__ __noinline__ float polynomial(float x, int terms) {
  float r = 0;
  for (int k = terms - 1; k >= 0; k--) r = r * x + table[k];
  return r;
}
__device__ __noinline__ void sort_pair(int* a, int* b) { if (*a > *b) { int t = *a; *a = *b; *b = t; } }

extern "C" __global__ void calls(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = polynomial(x[i], 1 + i % 8);
}

extern "C" __global__ void sort8(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v[8];
  for (int k = 0; k < 8; k++) v[k] = x[i * 8 + k];
  for (int a = 0; a < 8; a++)
#pragma unroll 1
    for (int b = 0; b + 1 < 8 - a; b++) sort_pair(&v[b], &v[b + 1]);
  for (int k = 0; k < 8; k++) y[i * 8 + k] = v[k];
}

extern "C" __global__ void switches(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = x[i];
  switch (v & 7) {
    case 0: v = v * 3; break;
    case 1: v = v - 11; break;
    case 2: for (int k = 0; k < (v & 15); k++) v += k * k; break;
    case 3: v = v ^ 0x55; break;
    case 4: v = -v; break;
    case 5: v = v / 3; break;
    case 6: y[i] = 7; return;
    default: v = v + y[i];
  }
  y[i] = v;
}

extern "C" __global__ void votes(const int* x, unsigned* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = x[i];
  unsigned b = __ballot_sync(~0u, v & 1);
  unsigned m = __match_any_sync(~0u, v & 3);
  int pred;
  unsigned ma = __match_all_sync(~0u, v >> 30, &pred);
  unsigned r = __reduce_add_sync(~0u, (unsigned)v) + __reduce_max_sync(~0u, (unsigned)v) + __reduce_xor_sync(~0u, (unsigned)v);
  unsigned s = __shfl_up_sync(~0u, v, 3, 8) + __shfl_sync(~0u, v, v & 31, 16) + __any_sync(~0u, v > 100) + __all_sync(~0u, v > 0);
  unsigned d = 0;
  if (v & 1) { d = __activemask(); d += __shfl_sync(d, v, __ffs(d) - 1); }
  y[i] = b; y[n + i] = m; y[2 * n + i] = ma + pred; y[3 * n + i] = r; y[4 * n + i] = s; y[5 * n + i] = d;
}

extern "C" __global__ void spin_lock(int* counter) {
  for (int turn = 0; turn < 2; turn++) {
    bool done = false;
    while (!done) {
      if (atomicCAS(&mutex, 0, 1) == 0) {
        __threadfence();
        *counter = *counter + 1;
        __threadfence();
        atomicExch(&mutex, 0);
        done = true;
      }
    }
  }
}

extern "C" __global__ void producer_consumer(const float* x, float* y, int rounds) {
  __shared__ float slot[2][64];
  int t = threadIdx.x % 64;
  if (threadIdx.x < 64) {
    for (int r = 0; r < rounds; r++) {
      if (r >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + r % 2) : "memory");
      slot[r % 2][t] = x[(blockIdx.x * rounds + r) * 64 + t] * 2.f;
      asm volatile("bar.arrive %0, 128;" ::"r"(1 + r % 2) : "memory");
    }
  } else {
    for (int r = 0; r < rounds; r++) {
      asm volatile("bar.sync %0, 128;" ::"r"(1 + r % 2) : "memory");
      y[(blockIdx.x * rounds + r) * 64 + t] = slot[r % 2][63 - t];
      if (r + 2 < rounds) asm volatile("bar.arrive %0, 128;" ::"r"(3 + r % 2) : "memory");
    }
  }
}

extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int m, int n) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < m && c < n) tile[threadIdx.y + k][threadIdx.x] = x[(size_t)(r + k) * n + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < n && c < m) y[(size_t)(r + k) * m + c] = tile[threadIdx.x][threadIdx.y + k];
}
