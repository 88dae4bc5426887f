// Primitives of the CUB library, as nvcc inlines them: reductions, scans, sorts, exchanges, loads of a block or a warp.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

struct Larger {
  __device__ int2 operator()(const int2& a, const int2& b) const { return b.x > a.x ? b : a; }
};
extern "C" __global__ void block_reduce(const int* x, int* sums, int2* largest, int n) {
  using Raking = cub::BlockReduce<int, 128, cub::BLOCK_REDUCE_RAKING>;
  using Warps = cub::BlockReduce<int, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  using Pairs = cub::BlockReduce<int2, 128>;
  __shared__ union { Raking::TempStorage a; Warps::TempStorage b; Pairs::TempStorage c; } s;
  int i = blockIdx.x * 128 + threadIdx.x;
  int v = i < n ? x[i] : 0;
  int p = Raking(s.a).Sum(v);
  __syncthreads();
  int q = Warps(s.b).Sum(v * 2, min(128, n - (int)blockIdx.x * 128));
  __syncthreads();
  int2 m = Pairs(s.c).Reduce(make_int2(v, i), Larger());
  if (threadIdx.x == 0) { sums[blockIdx.x * 2] = p; sums[blockIdx.x * 2 + 1] = q; largest[blockIdx.x] = m; }
}

extern "C" __global__ void block_scan(const int* x, int* y, float* z) {
  using Load = cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 64, cub::BLOCK_SCAN_RAKING>;
  using ScanF = cub::BlockScan<float, 64, cub::BLOCK_SCAN_WARP_SCANS>;
  using Store = cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_TRANSPOSE>;
  __shared__ union { Load::TempStorage l; Scan::TempStorage s; ScanF::TempStorage f; Store::TempStorage o; } t;
  int v[4];
  float w[4];
  Load(t.l).Load(x + blockIdx.x * 256, v);
  __syncthreads();
  for (int k = 0; k < 4; k++) w[k] = v[k];
  Scan(t.s).InclusiveSum(v, v);
  __syncthreads();
  ScanF(t.f).ExclusiveScan(w, w, 0.f, [] __device__(float a, float b) { return a > b ? a : b; });
  __syncthreads();
  Store(t.o).Store(y + blockIdx.x * 256, v);
  for (int k = 0; k < 4; k++) z[blockIdx.x * 256 + threadIdx.x * 4 + k] = w[k];
}

extern "C" __global__ void block_radix_sort(unsigned* keys, float* values, double* reals) {
  using Sort = cub::BlockRadixSort<unsigned, 64, 4, float>;
  using SortD = cub::BlockRadixSort<double, 64, 2>;
  __shared__ union { Sort::TempStorage a; SortD::TempStorage b; } t;
  unsigned k[4];
  float v[4];
  double d[2];
  cub::LoadDirectBlocked(threadIdx.x, keys, k);
  cub::LoadDirectBlocked(threadIdx.x, values, v);
  cub::LoadDirectStriped<64>(threadIdx.x, reals, d);
  Sort(t.a).Sort(k, v);
  __syncthreads();
  SortD(t.b).SortDescendingBlockedToStriped(d);
  cub::StoreDirectBlocked(threadIdx.x, keys, k);
  cub::StoreDirectBlocked(threadIdx.x, values, v);
  cub::StoreDirectStriped<64>(threadIdx.x, reals, d);
}

extern "C" __global__ void block_merge_sort(short* keys) {
  using Sort = cub::BlockMergeSort<short, 64, 3>;
  __shared__ Sort::TempStorage t;
  short k[3];
  cub::LoadDirectBlocked(threadIdx.x, keys, k);
  Sort(t).Sort(k, [] __device__(short a, short b) { return a < b; });
  cub::StoreDirectBlocked(threadIdx.x, keys, k);
}

extern "C" __global__ void block_histogram(const unsigned char* x, unsigned* counts) {
  using Sorted = cub::BlockHistogram<unsigned char, 64, 4, 32, cub::BLOCK_HISTO_SORT>;
  using Atomic = cub::BlockHistogram<unsigned char, 64, 4, 32, cub::BLOCK_HISTO_ATOMIC>;
  __shared__ union { Sorted::TempStorage a; Atomic::TempStorage b; } t;
  __shared__ unsigned h[32], g[32];
  unsigned char v[4];
  cub::LoadDirectBlocked(threadIdx.x, x + blockIdx.x * 256, v);
  Sorted(t.a).Histogram(v, h);
  __syncthreads();
  cub::LoadDirectBlocked(threadIdx.x, x + blockIdx.x * 256, v);
  Atomic(t.b).Histogram(v, g);
  __syncthreads();
  if (threadIdx.x < 32) { counts[blockIdx.x * 64 + threadIdx.x] = h[threadIdx.x]; counts[blockIdx.x * 64 + 32 + threadIdx.x] = g[threadIdx.x]; }
}

extern "C" __global__ void block_neighbours(const int* x, int* heads, int* tails, int* diffs, int* offset) {
  using Flags = cub::BlockDiscontinuity<int, 64>;
  using Diff = cub::BlockAdjacentDifference<int, 64>;
  using Shuffle = cub::BlockShuffle<int, 64>;
  __shared__ union { Flags::TempStorage a; Diff::TempStorage b; Shuffle::TempStorage c; } t;
  int v[2], h[2], l[2], d[2];
  cub::LoadDirectBlocked(threadIdx.x, x, v);
  Flags(t.a).FlagHeadsAndTails(h, l, v, [] __device__(int a, int b) { return a != b; });
  __syncthreads();
  Diff(t.b).SubtractLeft(v, d, [] __device__(int a, int b) { return a - b; });
  __syncthreads();
  int o = -1;
  Shuffle(t.c).Offset(v[0], o, 3);
  cub::StoreDirectBlocked(threadIdx.x, heads, h);
  cub::StoreDirectBlocked(threadIdx.x, tails, l);
  cub::StoreDirectBlocked(threadIdx.x, diffs, d);
  offset[threadIdx.x] = o;
}

extern "C" __global__ void run_length_decode(const int* values, const unsigned* lengths, int* out, unsigned* total) {
  using Decode = cub::BlockRunLengthDecode<int, 32, 2, 4>;
  __shared__ Decode::TempStorage t;
  int v[2];
  unsigned l[2], size;
  cub::LoadDirectBlocked(threadIdx.x, values, v);
  cub::LoadDirectBlocked(threadIdx.x, lengths, l);
  Decode decode(t, v, l, size);
  for (unsigned from = 0; from < size; from += 128) {
    int w[4];
    decode.RunLengthDecode(w, from);
    for (int k = 0; k < 4; k++) if (from + threadIdx.x * 4 + k < size) out[from + threadIdx.x * 4 + k] = w[k];
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = size;
}

extern "C" __global__ void warp_primitives(const int* x, int* y, float* z, unsigned char* b) {
  using Scan8 = cub::WarpScan<int, 8>;
  using Reduce = cub::WarpReduce<float>;
  using Reduce12 = cub::WarpReduce<int, 12>;
  using Sort = cub::WarpMergeSort<int, 2>;
  __shared__ Scan8::TempStorage a[8];
  __shared__ Reduce::TempStorage r[2];
  __shared__ Reduce12::TempStorage r12[2];
  __shared__ Sort::TempStorage s[2];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, v = x[threadIdx.x], in, ex;
  Scan8(a[threadIdx.x / 8]).Scan(v, in, ex, [] __device__(int p, int q) { return p > q ? p : q; });
  if (lane % 8 == 0) ex = 0;
  y[threadIdx.x] = in * 1000 + ex;
  float m = Reduce(r[warp]).HeadSegmentedSum((float)v, lane % 5 == 0);
  if (lane % 5 == 0) z[threadIdx.x] = m;
  if (lane < 12) {
    int p = Reduce12(r12[warp]).Sum(v);
    if (lane == 0) z[64 + warp] = p;
  }
  __syncwarp();
  int k[2] = {v, -v};
  Sort(s[warp]).Sort(k, [] __device__(int p, int q) { return p < q; });
  for (int j = 0; j < 2; j++) b[threadIdx.x * 2 + j] = (unsigned char)k[j];
}
