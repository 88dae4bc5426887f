// What C++ brings along: local arrays, globals of all kinds, printing, structs, switches, narrow integers, generic pointers.
#include <cassert>
#include <cstdio>
#include <cstdint>

// Towers of Hanoi by an explicit stack in local memory, addressed at run time.
extern "C" __global__ void local_stack(const int* depth, unsigned* moves, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  struct Frame { short disks; char from, to; } stack[16];
  int top = 0;
  unsigned hash = 17;
  stack[top++] = {(short)depth[i], 0, 2};
  while (top) {
    Frame f = stack[--top];
    if (f.disks == 0) continue;
    if (f.disks < 0) { hash = hash * 31 + f.from * 3 + f.to; continue; }
    char other = 3 - f.from - f.to;
    stack[top++] = {(short)(f.disks - 1), other, f.to};
    stack[top++] = {-1, f.from, f.to};
    stack[top++] = {(short)(f.disks - 1), f.from, other};
  }
  moves[i] = hash;
}

__device__ int counter = 5;
__device__ float4 vector_global = {1.f, 2.f, 3.f, 4.f};
__device__ const char text[] = "tiny machines";
__device__ const char* text_pointer = text + 5;
__device__ int* counter_pointer = &counter;
__device__ double table2[2][3] = {{1.5, -2.25}, {0.1}};
struct Mixed { char a; short b; double c; int* p; float f[3]; };
__device__ Mixed mixed = {'x', -7, 2.5, &counter, {1.f, 2.f, 3.f}};
__managed__ int managed_value = 11;
__shared__ int module_shared[4];
extern "C" __global__ void globals(double* out) {
  int i = threadIdx.x;
  if (i == 0) { *counter_pointer += 3; module_shared[1] = *mixed.p; }
  __syncthreads();
  if (i < 13) out[i] = text[i];
  if (i == 13) out[i] = text_pointer[0] + module_shared[1];
  if (i == 14) out[i] = vector_global.x + vector_global.w + table2[0][1] + table2[1][0] + table2[1][2];
  if (i == 15) out[i] = mixed.a + mixed.b + mixed.c + mixed.f[2];
}

extern "C" __global__ void printing(const int* x, int n) {
  int i = threadIdx.x;
  if (i < n && x[i] < 0) printf("thread %d: %d and %f, %s\n", i, x[i], x[i] * 0.5, "end");
  assert(i >= n || x[i] != 12345);
}

template <typename T, int N> struct Vec {
  T v[N];
  __device__ T dot(const Vec& o) const { T s = 0; for (int k = 0; k < N; k++) s += v[k] * o.v[k]; return s; }
};
struct Params { int n; float scale; long long offset; unsigned char flags[5]; Vec<float, 3> w; };
template <int N> __device__ __noinline__ Vec<float, N> scale_by(Vec<float, N> a, float s) {
  for (int k = 0; k < N; k++) a.v[k] *= s;
  return a;
}
extern "C" __global__ void structs(const __grid_constant__ Params p, const Vec<float, 3>* x, float* y) {
  int i = threadIdx.x;
  if (i >= p.n) return;
  Vec<float, 3> a = scale_by(x[i], p.scale);
  y[i] = a.dot(p.w) + p.offset + p.flags[i % 5];
}

extern "C" __global__ void switch_dense(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = x[i], r = 0;
  for (int pc = 0; pc < 6; pc++) {
    switch ((v + pc * 5) % 12) {
      case 0: r += 3; break;
      case 1: r ^= v; break;
      case 2: r = r * 3 + 1; break;
      case 3: r -= pc; [[fallthrough]];
      case 4: r += 2; break;
      case 5: r = __popc(r); break;
      case 6: r <<= 1; break;
      case 7: r >>= 1; break;
      case 8: if (r & 1) break; r += 9; break;
      case 9: r = -r; break;
      case 10: r = r / 7; break;
      default: r = ~r;
    }
  }
  y[i] = r;
}

// Bytes and shorts, signed and unsigned, shifts by too much, and 128-bit integers.
extern "C" __global__ void narrow_integers(const int8_t* a, const uint16_t* b, int* out, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  int8_t x = a[i];
  uint16_t y = b[i];
  int16_t s = (int16_t)(x * y);
  uint8_t u = (uint8_t)(x + (y >> 3));
  __int128 big = (__int128)x * ((__int128)y << 70) - 5;
  unsigned __int128 ub = (unsigned __int128)big / 1000003u;
  out[i] = s + u * 3 + (int)(big >> 64) + (x << (y & 7)) + (int)(big < 0) + (int)(ub % 1009);
}

extern "C" __global__ void __launch_bounds__(128, 2) clocks(long long* out) {
  long long start = clock64();
  unsigned t0 = clock();
  unsigned long long g0, g1;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g0));
  __nanosleep(100);
  float v = threadIdx.x;
  for (int i = 0; i < 20; i++) v = sinf(v);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g1));
  long long end = clock64();
  out[threadIdx.x] = (end > start) + 2 * (g1 >= g0) + (v > 5.f) * 100 + 4 * (clock() != t0);
}

// alloca-like use of malloc on the device is left out; dynamic shared memory with two arrays cut from one block.
extern "C" __global__ void dynamic_shared(const double* x, const int* k, double* y, int n) {
  extern __shared__ double block[];
  double* a = block;
  int* b = reinterpret_cast<int*>(block + n);
  for (int i = threadIdx.x; i < n; i += blockDim.x) { a[i] = x[i]; b[n - 1 - i] = k[i]; }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = a[n - 1 - i] * b[i];
}

// A generic pointer that may be global, shared, local or constant.
__constant__ int constants[4] = {10, 20, 30, 40};
__device__ __noinline__ int fetch(const int* p) { return *p; }
extern "C" __global__ void generic_pointers(const int* x, int* y) {
  __shared__ int s[32];
  int local[4] = {1, 2, 3, 4};
  local[threadIdx.x & 3] += x[threadIdx.x];
  s[threadIdx.x] = 100 + threadIdx.x;
  __syncthreads();
  const int* p;
  switch (threadIdx.x & 3) {
    case 0: p = x + threadIdx.x; break;
    case 1: p = &s[31 - threadIdx.x]; break;
    case 2: p = &local[threadIdx.x >> 3]; break;
    default: p = &constants[threadIdx.x >> 3];
  }
  y[threadIdx.x] = fetch(p) + __isGlobal(p) * 1000 + __isShared(p) * 2000 + __isLocal(p) * 4000 + __isConstant(p) * 8000;
}

// Vector loads of every width, and loads with every cache hint of the intrinsics.
extern "C" __global__ void cache_hints(const float4* a, const short4* b, const uchar2* c, const double2* d, float4* o) {
  int i = threadIdx.x;
  float4 v = __ldg(a + i), w = __ldcs(a + i), u = __ldcg(a + i), t = __ldca(a + i), s = __ldlu(a + i), r = __ldcv(a + i);
  short4 h = b[i];
  uchar2 g = __ldg(c + i);
  double2 f = d[i];
  float4 sum = {v.x + w.x + u.x + t.x + s.x + r.x + h.x, v.y + h.y + g.x, v.z + h.z + g.y, (float)(v.w + h.w + f.x * f.y)};
  if (i & 1) __stcs(o + i, sum); else __stwt(o + i, sum);
}
