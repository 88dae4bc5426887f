// A product of one tile in CuTe's words: every descriptor, every place in shared and in tensor memory and every address
// is CuTe's doing. No bit of a tcgen05 operand is written here.
#pragma once
#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/tmem_allocator_sm100.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/half.h>
#include <cutlass/bfloat16.h>

using namespace cute;
using UMMA::Major;
using UMMA::ScaleIn;
using UMMA::Saturate;
using cutlass::bfloat16_t;
using cutlass::half_t;
using cutlass::tfloat32_t;
constexpr Major K = Major::K, MN = Major::MN;

__device__ inline void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ inline void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Element by element, in the order in which CuTe counts the coordinates of both.
template <class From, class To> __device__ inline void copy_each(From const& from, To&& to) {
#pragma unroll 1
  for (int i = threadIdx.x; i < size(to); i += 128) to(i) = from(i);
}

// d = a b^T, or d = a b^T + d where kAdds; a (m x k) and b (n x k) with k contiguous, d (m x n) with n contiguous.
// Load and Store are CuTe's copies between tensor memory and registers.
template <bool kAdds, class Load, class Store, class AtomA, class AtomB, class D, class TiledMma>
__device__ void multiply_tile(typename TiledMma::ValTypeA const* a, typename TiledMma::ValTypeB const* b, D* d, TiledMma mma) {
  using A = typename TiledMma::ValTypeA;
  using B = typename TiledMma::ValTypeB;
  constexpr int kSteps = 4;
  auto m = tile_size<0>(mma);
  auto n = tile_size<1>(mma);
  auto k = tile_size<2>(mma) * Int<kSteps>{};
  auto slice = mma.get_slice(0);
  auto at_a = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));
  auto at_b = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));
  auto at_d = make_tensor(make_gmem_ptr(d), make_shape(m, n), make_stride(n, _1{}));
  auto layout_a = UMMA::tile_to_mma_shape(AtomA{}, partition_shape_A(mma, make_shape(m, k)));
  auto layout_b = UMMA::tile_to_mma_shape(AtomB{}, partition_shape_B(mma, make_shape(n, k)));
  __shared__ alignas(1024) ArrayEngine<A, cosize_v<decltype(layout_a)>> store_a;
  __shared__ alignas(1024) ArrayEngine<B, cosize_v<decltype(layout_b)>> store_b;
  __shared__ alignas(8) uint64_t done;
  __shared__ uint32_t where;
  auto sa = make_tensor(make_smem_ptr(store_a.begin()), layout_a);
  auto sb = make_tensor(make_smem_ptr(store_b.begin()), layout_b);
  copy_each(slice.partition_A(at_a), sa);
  copy_each(slice.partition_B(at_b), sb);
  cutlass::arch::fence_view_async_shared();
  auto parts = slice.partition_C(at_d);
  auto sums = slice.make_fragment_C(parts);
  TMEM::Allocator1Sm memory{};
  if (threadIdx.x / 32 == 0) memory.allocate(256, &where);
  if (threadIdx.x == 0) {
    initialize_barrier(done, 1);
    cutlass::arch::fence_barrier_init();
  }
  fence_before();
  __syncthreads();
  fence_after();
  sums.data() = where;
  if constexpr (kAdds) {
    auto to = make_tmem_copy(Store{}, sums);
    auto mine = to.get_slice(threadIdx.x);
    auto from = mine.partition_S(parts);
    auto held = make_tensor<D>(shape(from));
    copy(from, held);
    copy(to, held, mine.partition_D(sums));
    cutlass::arch::fence_view_async_tmem_store();
    fence_before();
    __syncthreads();
    fence_after();
  }
  if (threadIdx.x / 32 == 0) {
    auto ra = slice.make_fragment_A(sa);
    auto rb = slice.make_fragment_B(sb);
    mma.accumulate_ = kAdds ? UMMA::ScaleOut::One : UMMA::ScaleOut::Zero;
#pragma unroll
    for (int step = 0; step < size<2>(ra); ++step) {
      gemm(mma, ra(_, _, step), rb(_, _, step), sums);
      mma.accumulate_ = UMMA::ScaleOut::One;
    }
    cutlass::arch::umma_arrive(&done);
  }
  wait_barrier(done, 0);
  fence_after();
  auto out = make_tmem_copy(Load{}, sums);
  auto mine = out.get_slice(threadIdx.x);
  auto to = mine.partition_D(parts);
  auto held = make_tensor<D>(shape(to));
  copy(out, mine.partition_S(sums), held);
  cutlass::arch::fence_view_async_tmem_load();
  copy(held, to);
  fence_before();
  __syncthreads();
  fence_after();
  if (threadIdx.x / 32 == 0) {
    memory.release_allocation_lock();
    memory.free(where, 256);
  }
}
