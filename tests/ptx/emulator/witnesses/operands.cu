// Products with A in tensor memory, put there by tcgen05.st, and tiles that tcgen05.cp moves.
#include "product.cuh"
#include <cutlass/float8.h>

// d = a b^T with a in tensor memory.
template <class Store, class AtomB, class D, class Mma>
__device__ void multiply_held(typename Mma::ValTypeA const* a, typename Mma::ValTypeB const* b, D* d, Mma mma) {
  using A = typename Mma::ValTypeA;
  using B = typename Mma::ValTypeB;
  auto m = tile_size<0>(mma);
  auto n = tile_size<1>(mma);
  auto k = tile_size<2>(mma) * _4{};
  auto slice = mma.get_slice(0);
  auto at_a = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));
  auto at_b = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));
  auto at_d = make_tensor(make_gmem_ptr(d), make_shape(m, n), make_stride(n, _1{}));
  auto layout_b = UMMA::tile_to_mma_shape(AtomB{}, partition_shape_B(mma, make_shape(n, k)));
  __shared__ alignas(1024) ArrayEngine<B, cosize_v<decltype(layout_b)>> store_b;
  __shared__ alignas(8) uint64_t done;
  __shared__ uint32_t where;
  auto sb = make_tensor(make_smem_ptr(store_b.begin()), layout_b);
  copy_each(slice.partition_B(at_b), sb);
  cutlass::arch::fence_view_async_shared();
  auto parts = slice.partition_C(at_d);
  auto sums = slice.make_fragment_C(parts);
  auto parts_a = slice.partition_A(at_a);
  auto left = slice.make_fragment_A(shape(parts_a));
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
  left.data() = where + 128;
  {
    auto to = make_tmem_copy(Store{}, left);
    auto mine = to.get_slice(threadIdx.x);
    auto from = mine.partition_S(parts_a);
    auto held = make_tensor<A>(shape(from));
    copy(from, held);
    copy(to, held, mine.partition_D(left));
    cutlass::arch::fence_view_async_tmem_store();
    fence_before();
    __syncthreads();
    fence_after();
  }
  if (threadIdx.x / 32 == 0) {
    auto rb = slice.make_fragment_B(sb);
    mma.accumulate_ = UMMA::ScaleOut::Zero;
#pragma unroll
    for (int step = 0; step < size<2>(left); ++step) {
      gemm(mma, left(_, _, step), rb(_, _, step), sums);
      mma.accumulate_ = UMMA::ScaleOut::One;
    }
    cutlass::arch::umma_arrive(&done);
  }
  wait_barrier(done, 0);
  fence_after();
  auto out = make_tmem_copy(SM100_TMEM_LOAD_16dp256b1x{}, sums);
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
#define TS(name, A, B, D, STORE, ...)                                                                                  \
  extern "C" __global__ void __launch_bounds__(128) name(A const* a, B const* b, D* d) {                               \
    multiply_held<SM100_TMEM_STORE_##STORE, UMMA::Layout_K_SW128_Atom<B>>(a, b, d, make_tiled_mma(__VA_ARGS__{}));     \
  }
using E4 = cutlass::float_e4m3_t;
using F8 = SM100_MMA_F8F6F4_TS<E4, E4, float, 128, 32, K, K, ScaleIn::One, ScaleIn::One, Saturate::False>;
TS(held_f16, half_t, half_t, float, 32dp32b8x, SM100_MMA_F16BF16_TS<half_t, half_t, float, 128, 32, K, K>)
TS(held_f16_half_lanes, half_t, half_t, float, 16dp64b4x, SM100_MMA_F16BF16_TS<half_t, half_t, float, 64, 32, K, K>)
TS(held_tf32, tfloat32_t, tfloat32_t, float, 32dp32b8x, SM100_MMA_TF32_TS<tfloat32_t, tfloat32_t, float, 128, 32, K, K>)
TS(held_bytes, int8_t, uint8_t, int, 32dp32b8x, SM100_MMA_S8_TS<int8_t, uint8_t, int, 128, 32, K, K>)
TS(held_fp8, E4, E4, float, 32dp32b8x, F8)

// y = x (128 x 32 words) through shared and tensor memory.
template <class Copy, class Atom> __device__ void move_tile(uint32_t const* x, uint32_t* y) {
  auto shape = Shape<_128, _32>{};
  auto layout = tile_to_shape(Atom{}, shape);
  __shared__ alignas(1024) ArrayEngine<uint32_t, cosize_v<decltype(layout)>> store;
  __shared__ alignas(8) uint64_t done;
  __shared__ uint32_t where;
  auto staged = make_tensor(make_smem_ptr(store.begin()), layout);
  auto at_x = make_tensor(make_gmem_ptr(x), shape, Stride<_32, _1>{});
  auto at_y = make_tensor(make_gmem_ptr(y), shape, Stride<_32, _1>{});
  copy_each(at_x, staged);
  cutlass::arch::fence_view_async_shared();
  auto held = make_tensor(make_tmem_ptr<uint32_t>(), Layout<Shape<_128, _32>, Stride<TMEM::DP<uint32_t>, _1>>{});
  TMEM::Allocator1Sm memory{};
  if (threadIdx.x / 32 == 0) memory.allocate(32, &where);
  if (threadIdx.x == 0) {
    initialize_barrier(done, 1);
    cutlass::arch::fence_barrier_init();
  }
  fence_before();
  __syncthreads();
  fence_after();
  held.data() = where;
  if (threadIdx.x / 32 == 0) {
    auto moves = make_utccp_copy(Copy{}, held);
    auto mine = moves.get_slice(0);
    auto described = get_utccp_smem_desc_tensor<Copy>(mine.partition_S(staged));
    if (elect_one_sync()) copy(moves, described, mine.partition_D(held));
    cutlass::arch::umma_arrive(&done);
  }
  wait_barrier(done, 0);
  fence_after();
  auto out = make_tmem_copy(SM100_TMEM_LOAD_32dp32b32x{}, held);
  auto mine = out.get_slice(threadIdx.x);
  auto to = mine.partition_D(at_y);
  auto values = make_tensor<uint32_t>(cute::shape(to));
  copy(out, mine.partition_S(held), values);
  cutlass::arch::fence_view_async_tmem_load();
  copy(values, to);
  fence_before();
  __syncthreads();
  fence_after();
  if (threadIdx.x / 32 == 0) {
    memory.release_allocation_lock();
    memory.free(where, 32);
  }
}
#define CP(name, COPY, PLACE)                                                                                          \
  extern "C" __global__ void __launch_bounds__(128) name(uint32_t const* x, uint32_t* y) {                            \
    move_tile<SM100_UTCCP_##COPY##_1cta, UMMA::Layout_##PLACE##_Atom<uint32_t>>(x, y);                                 \
  }
CP(moved_128b, 128dp128bit, K_SW128)
CP(moved_128b_plain, 128dp128bit, K_INTER)
CP(moved_256b, 128dp256bit, K_SW64)
CP(moved_256b_plain, 128dp256bit, K_INTER)
