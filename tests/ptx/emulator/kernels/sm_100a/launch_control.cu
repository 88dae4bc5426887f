// Cluster launch control: a running block takes over the work of blocks that have not started.
#include "blackwell.cuh"

__device__ inline void try_cancel(uint32_t to, uint32_t bar) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(to), "r"(bar) : "memory");
}
__device__ inline bool cancelled(uint32_t from, uint32_t& first) {
  uint32_t yes;
  asm volatile("{\n.reg .b128 w;\n.reg .pred p;\nld.shared.b128 w, [%2];\n"
               "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, w;\nselp.u32 %0, 1, 0, p;\nmov.u32 %1, 0;\n"
               "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, w;\n}"
               : "=r"(yes), "=r"(first) : "r"(from) : "memory");
  return yes;
}

// y = 3 x + tile, one tile of 128 a block; work[b] counts how many tiles each block did.
extern "C" __global__ void steal(const int* x, int* y, int* work) {
  __shared__ __align__(16) unsigned char answer[16];
  __shared__ __align__(8) uint64_t bar;
  if (threadIdx.x == 0) { bar_init(smem(&bar), 1); fence_bar_init(); }
  __syncthreads();
  uint32_t tile = blockIdx.x;
  int done = 0;
  for (uint32_t phase = 0;; phase ^= 1) {
    if (threadIdx.x == 0) {
      fence_async();  // the last answer has been read
      bar_expect(smem(&bar), 16);
      try_cancel(smem(answer), smem(&bar));
    }
    int i = tile * 128 + threadIdx.x;
    y[i] = 3 * x[i] + tile;
    done++;
    bar_wait(smem(&bar), phase);
    uint32_t next;
    bool more = cancelled(smem(answer), next);
    fence_async();
    __syncthreads();
    if (!more) break;
    tile = next;
  }
  if (threadIdx.x == 0) atomicAdd(&work[blockIdx.x], done);
}
