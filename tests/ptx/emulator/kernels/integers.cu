// Integer instructions: division, high products, bit operations, 64- and 128-bit arithmetic, video and dot products.
#include <cstdint>

extern "C" __global__ void divisions(const int* a, const int* b, int* q, unsigned* uq, long long* lq, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i], y = b[i];
  q[i] = x / y; q[n + i] = x % y;
  uq[i] = (unsigned)x / (unsigned)y; uq[n + i] = (unsigned)x % (unsigned)y;
  long long lx = (long long)x * 1000003LL, ly = y;
  lq[i] = lx / ly; lq[n + i] = lx % ly;
  q[2 * n + i] = x / 7 + x % 12; uq[2 * n + i] = (unsigned)x / 10u + (unsigned)x % 1000u;
}

extern "C" __global__ void bits(const unsigned* a, const unsigned* b, unsigned* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = a[i], y = b[i];
  o[0 * n + i] = __popc(x) + __clz(y) + __ffs(x);
  o[1 * n + i] = __brev(x) ^ __byte_perm(x, y, 0x3276 + (y & 7));
  o[2 * n + i] = __funnelshift_l(x, y, y) + __funnelshift_r(x, y, x & 31) + __funnelshift_lc(x, y, y & 63);
  o[3 * n + i] = (x & y) | (~x & (y >> 3)) ^ (x << (y & 31));
  o[4 * n + i] = __umulhi(x, y) + (unsigned)__mulhi((int)x, (int)y);
  o[5 * n + i] = (unsigned)__dp4a((int)x, (int)y, 17) + __dp4a(x, y, 5u);
  o[6 * n + i] = __usad(x, y, 3u) + (unsigned)__sad((int)x, (int)y, 9u) + min(x, y) + (unsigned)max((int)x, (int)y);
  o[7 * n + i] = (unsigned)((int)x >> (y & 31)) + __umul24(x, y) + (unsigned)__mul24((int)x, (int)y);
  unsigned long long w = ((unsigned long long)x << 32) | y;
  o[8 * n + i] = __popcll(w) + __clzll(w) + (unsigned)(w >> (x & 63)) + (unsigned)__umul64hi(w, w * 3);
  unsigned __int128 big = (unsigned __int128)w * (w ^ 0x123456789abcdefULL) + w;
  o[9 * n + i] = (unsigned)(big >> 70) ^ (unsigned)(big >> 20);
  o[10 * n + i] = abs((int)x) + ((int)x < (int)y ? x : y) + (x == y ? 1u : 2u);
}
