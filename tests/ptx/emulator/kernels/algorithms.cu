// Whole algorithms: scans with look-back, grid barriers, sorting, graphs, stencils, transforms, random numbers, bodies.
#include <cstdint>

// Inclusive scan in one pass: each block publishes its sum, then its prefix, and looks back until it meets a prefix.
// state: two 64-bit words would do; here flag (high half) and value (low half) travel in one word.
constexpr unsigned long long kSum = 1ull << 32, kPrefix = 2ull << 32;
extern "C" __global__ void lookback_scan(const int* x, int* y, unsigned long long* state, unsigned* ticket, int n) {
  __shared__ unsigned tile;
  __shared__ int warp_sums[8], exclusive;
  if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
  __syncthreads();
  int i = tile * 256 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int v = i < n ? x[i] : 0;
  for (int d = 1; d < 32; d <<= 1) { int u = __shfl_up_sync(~0u, v, d); if (lane >= d) v += u; }
  if (lane == 31) warp_sums[warp] = v;
  __syncthreads();
  int before = 0, total = 0;
  for (int w = 0; w < 8; w++) { if (w < warp) before += warp_sums[w]; total += warp_sums[w]; }
  if (threadIdx.x == 0) {
    volatile unsigned long long* s = state;
    unsigned long long word = (unsigned)total;
    s[tile] = (tile == 0 ? kPrefix : kSum) | word;
    int sum = 0;
    for (int at = (int)tile - 1; at >= 0; at--) {
      unsigned long long seen;
      while (((seen = s[at]) >> 32) == 0) { }
      sum += (int)(unsigned)seen;
      if (seen >> 32 == 2) break;
    }
    if (tile != 0) s[tile] = kPrefix | (unsigned)(sum + total);
    exclusive = sum;
  }
  __syncthreads();
  if (i < n) y[i] = exclusive + before + v;
}

// A barrier over the whole grid, made by hand: arrive with a counter, leave when the generation changes.
__device__ void grid_barrier(unsigned* bar) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    unsigned old = atomicAdd(bar, 1u);
    unsigned target = (old / gridDim.x + 1) * gridDim.x;
    while (*(volatile unsigned*)bar < target) { }
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void jacobi(float* a, float* b, unsigned* bar, int n, int steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int s = 0; s < steps; s++) {
    if (i > 0 && i < n - 1) b[i] = 0.25f * a[i - 1] + 0.5f * a[i] + 0.25f * a[i + 1];
    grid_barrier(bar);
    float* t = a; a = b; b = t;
  }
}

// One 4-bit pass of a radix sort within a block of 128 keys per thread block: count by ballots, scan, scatter.
extern "C" __global__ void radix_sort_block(unsigned* keys, int passes) {
  __shared__ unsigned s[128];
  __shared__ int counts[16][4], starts[16];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  unsigned key = keys[blockIdx.x * 128 + t];
  for (int p = 0; p < passes; p++) {
    unsigned digit = key >> (4 * p) & 15;
    unsigned same = ~0u;
    for (int b = 0; b < 4; b++) {
      unsigned votes = __ballot_sync(~0u, digit >> b & 1);
      same &= digit >> b & 1 ? votes : ~votes;
    }
    if (t < 64) counts[t >> 2][t & 3] = 0;
    __syncthreads();
    unsigned below = (1u << lane) - 1;
    int rank = __popc(same & below);
    if (rank == 0) counts[digit][warp] = __popc(same);
    __syncthreads();
    if (t < 16) {
      int sum = 0;
      for (int w = 0; w < 4; w++) sum += counts[t][w];
      int mine = sum;
      for (int d = 1; d < 16; d <<= 1) { int u = __shfl_up_sync(0xffffu, sum, d, 16); if (t >= d) sum += u; }
      starts[t] = sum - mine;
    }
    __syncthreads();
    int to = starts[digit] + rank;
    for (int w = 0; w < warp; w++) to += counts[digit][w];
    s[to] = key;
    __syncthreads();
    key = s[t];
  }
  keys[blockIdx.x * 128 + t] = key;
}

// Breadth-first search: one level per launch; the frontier's neighbours are claimed by compare-and-swap and appended.
extern "C" __global__ void bfs_level(const int* row, const int* col, int* dist, const int* frontier, int count,
                                     int* next, int* next_count, int level) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    int v = frontier[i];
    for (int e = row[v]; e < row[v + 1]; e++) {
      int w = col[e];
      if (atomicCAS(&dist[w], -1, level) == -1) next[atomicAdd(next_count, 1)] = w;
    }
  }
}

// Sparse matrix times vector: a warp per row.
extern "C" __global__ void spmv(const int* row, const int* col, const double* val, const double* x, double* y, int m) {
  int r = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
  if (r >= m) return;
  double sum = 0;
  for (int e = row[r] + lane; e < row[r + 1]; e += 32) sum += val[e] * x[col[e]];
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
  if (lane == 0) y[r] = sum;
}

// Seven-point stencil in three dimensions: a 2-D tile in shared memory marches through z with a register pipeline.
extern "C" __global__ void stencil3d(const float* x, float* y, int nx, int ny, int nz, float c0, float c1) {
  __shared__ float tile[10][18];
  int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y;
  bool in = i < nx && j < ny;
  auto at = [&](int a, int b, int c) {
    return a >= 0 && a < nx && b >= 0 && b < ny && c >= 0 && c < nz ? x[(c * ny + b) * nx + a] : 0.f;
  };
  float below = 0.f, here = at(i, j, 0), above = at(i, j, 1);
  for (int k = 0; k < nz; k++) {
    tile[threadIdx.y + 1][threadIdx.x + 1] = here;
    if (threadIdx.x == 0) { tile[threadIdx.y + 1][0] = at(i - 1, j, k); tile[threadIdx.y + 1][17] = at(i + 16, j, k); }
    if (threadIdx.y == 0) { tile[0][threadIdx.x + 1] = at(i, j - 1, k); tile[9][threadIdx.x + 1] = at(i, j + 8, k); }
    __syncthreads();
    float (*t)[18] = tile;
    int a = threadIdx.x + 1, b = threadIdx.y + 1;
    if (in) y[(k * ny + j) * nx + i] = c0 * here + c1 * (t[b][a - 1] + t[b][a + 1] + t[b - 1][a] + t[b + 1][a] + below + above);
    __syncthreads();
    below = here; here = above; above = at(i, j, k + 2);
  }
}

// Two-dimensional convolution, filter in constant memory.
__constant__ float filter[25];
__constant__ float default_filter[5] = {1.f / 16, 4.f / 16, 6.f / 16, 4.f / 16, 1.f / 16};
extern "C" __global__ void convolve5x5(const float* x, float* y, int w, int h) {
  __shared__ float tile[12][36];
  int x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
  for (int t = threadIdx.y * 32 + threadIdx.x; t < 12 * 36; t += 256) {
    int r = y0 + t / 36 - 2, c = x0 + t % 36 - 2;
    r = min(max(r, 0), h - 1); c = min(max(c, 0), w - 1);
    tile[t / 36][t % 36] = x[r * w + c];
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int r = 0; r < 5; r++)
#pragma unroll
    for (int c = 0; c < 5; c++) sum += default_filter[r] * default_filter[c] * tile[threadIdx.y + r][threadIdx.x + c] + filter[r * 5 + c];
  if (x0 + threadIdx.x < w && y0 + threadIdx.y < h) y[(y0 + threadIdx.y) * w + x0 + threadIdx.x] = sum;
}

// Pi by Monte Carlo: PCG32 per thread, block sums, one float atomic per block and one integer atomic per warp.
__device__ uint32_t pcg(uint64_t& state) {
  uint64_t old = state;
  state = old * 6364136223846793005ull + 1442695040888963407ull;
  uint32_t mixed = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);
  return (mixed >> turn) | (mixed << ((-turn) & 31));
}
extern "C" __global__ void monte_carlo(unsigned long long* hits, float* sum, int samples, uint64_t seed) {
  uint64_t state = seed + blockIdx.x * blockDim.x + threadIdx.x;
  pcg(state);
  unsigned in = 0;
  float acc = 0;
  for (int s = 0; s < samples; s++) {
    float u = pcg(state) * 0x1p-32f, v = pcg(state) * 0x1p-32f;
    in += u * u + v * v < 1.f;
    acc += u;
  }
  in = __reduce_add_sync(~0u, in);
  if ((threadIdx.x & 31) == 0) atomicAdd(hits, (unsigned long long)in);
  acc = __syncthreads_or(acc < 0) ? 0.f : acc;
  __shared__ float parts[4];
  for (int d = 16; d; d >>= 1) acc += __shfl_down_sync(~0u, acc, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = acc;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, parts[0] + parts[1] + parts[2] + parts[3]);
}

// Gravity, all pairs, in tiles of shared memory; single precision with rsqrt, and double precision.
extern "C" __global__ void nbody(const float4* p, float3* a, int n, float soft) {
  __shared__ float4 tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  float4 me = p[min(i, n - 1)];
  float3 f = {0, 0, 0};
  for (int t = 0; t < n; t += 64) {
    tile[threadIdx.x] = t + threadIdx.x < n ? p[t + threadIdx.x] : make_float4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 64; k++) {
      float4 o = tile[k];
      float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + soft);
      float s = o.w * r * r * r;
      f.x += dx * s; f.y += dy * s; f.z += dz * s;
    }
    __syncthreads();
  }
  if (i < n) a[i] = f;
}
extern "C" __global__ void nbody_double(const double* p, double* energy, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double e = 0;
  if (i < n)
    for (int j = 0; j < n; j++)
      if (j != i) {
        double dx = p[3 * j] - p[3 * i], dy = p[3 * j + 1] - p[3 * i + 1], dz = p[3 * j + 2] - p[3 * i + 2];
        e -= 0.5 * rsqrt(dx * dx + dy * dy + dz * dz);
      }
  for (int d = 16; d; d >>= 1) e += __shfl_down_sync(~0u, e, d);
  if ((threadIdx.x & 31) == 0) atomicAdd(energy, e);
}

// Radix-2 transform of 256 complex numbers in shared memory; bit reversal by brev, twiddles by sincospif.
extern "C" __global__ void fft256(const float2* x, float2* y) {
  __shared__ float2 s[256];
  for (int t = threadIdx.x; t < 256; t += 128) s[__brev(t) >> 24] = x[blockIdx.x * 256 + t];
  for (int half = 1; half < 256; half <<= 1) {
    __syncthreads();
    int k = threadIdx.x & (half - 1), at = (threadIdx.x - k) * 2 + k;
    float sn, cs;
    sincospif(-(float)k / half, &sn, &cs);
    float2 a = s[at], b = s[at + half], w = {b.x * cs - b.y * sn, b.x * sn + b.y * cs};
    s[at] = {a.x + w.x, a.y + w.y};
    s[at + half] = {a.x - w.x, a.y - w.y};
  }
  __syncthreads();
  for (int t = threadIdx.x; t < 256; t += 128) y[blockIdx.x * 256 + t] = s[t];
}

// Transpose of 32x32 tiles without padding: the column is exclusive-ored with the row.
extern "C" __global__ void transpose_swizzled(const double* x, double* y, int m, int n) {
  __shared__ double tile[32][32];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x ^ (threadIdx.y + k)] = x[(r + k) * n + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[(r + k) * m + c] = tile[threadIdx.x][(threadIdx.y + k) ^ threadIdx.x];
}

// Bitonic sort of 512 64-bit keys by 256 threads.
extern "C" __global__ void bitonic(long long* keys) {
  __shared__ long long s[512];
  s[threadIdx.x] = keys[threadIdx.x]; s[threadIdx.x + 256] = keys[threadIdx.x + 256];
  for (int size = 2; size <= 512; size <<= 1)
    for (int stride = size >> 1; stride > 0; stride >>= 1) {
      __syncthreads();
      int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      bool up = (i & size) == 0;
      long long a = s[i], b = s[i + stride];
      if ((a > b) == up) { s[i] = b; s[i + stride] = a; }
    }
  __syncthreads();
  keys[threadIdx.x] = s[threadIdx.x]; keys[threadIdx.x + 256] = s[threadIdx.x + 256];
}

// A queue in global memory that blocks fill and drain: persistent threads take work items until none is left.
extern "C" __global__ void work_queue(const int* items, int count, int* head, unsigned long long* out) {
  __shared__ int item;
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) item = atomicAdd(head, 1);
    __syncthreads();
    int i = item;
    if (i >= count) break;
    unsigned long long v = items[i];
    for (int k = 0; k < (items[i] & 7); k++) v = v * 31 + threadIdx.x;
    atomicAdd(&out[i], v);
  }
}

// A linked list of free nodes with a 64-bit head (tag and index), pushed and popped by compare-and-swap.
extern "C" __global__ void free_list(unsigned long long* head, unsigned* next, int* owners) {
  unsigned mine;
  unsigned long long seen = *(volatile unsigned long long*)head;
  while (true) {
    mine = (unsigned)seen;
    unsigned long long want = ((seen >> 32) + 1) << 32 | *(volatile unsigned*)&next[mine];
    unsigned long long got = atomicCAS(head, seen, want);
    if (got == seen) break;
    seen = got;
  }
  atomicAdd(&owners[mine], 1);
}

// The largest value by compare-and-swap loops that begin with a plain load; places taken once per warp; a flag to end on.
extern "C" __global__ void largest_and_count(const float* x, float* top, int* total, volatile int* flag, int n) {
  __shared__ int smax;
  if (threadIdx.x == 0) smax = 0x80000000;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : -1e30f;
  int old = smax, assumed;
  do { assumed = old; if (__int_as_float(assumed) >= v && assumed != (int)0x80000000) break; old = atomicCAS(&smax, assumed, __float_as_int(v)); } while (old != assumed);
  __syncthreads();
  if (threadIdx.x == 0) {
    int* address = (int*)top; int o = *address, a;
    do { a = o; if (__int_as_float(a) >= __int_as_float(smax)) break; o = atomicCAS(address, a, smax); } while (o != a);
  }
  bool mine = v > 0;
  unsigned m = __ballot_sync(~0u, mine);
  int base = 0, leader = __ffs(m) - 1;
  if (m && (int)(threadIdx.x & 31) == leader) base = atomicAdd(total, __popc(m));
  base = __shfl_sync(~0u, base, m ? leader : 0);
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) { __threadfence(); *flag = 1; }
  if (threadIdx.x == 0) while (*flag == 0) __nanosleep(50);
}
