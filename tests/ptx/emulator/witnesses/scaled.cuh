// Products with block scales in CuTe's words: scales go from shared to tensor memory by tcgen05.cp, as CUTLASS places them.
#pragma once
#include "product.cuh"
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
#include <cutlass/float8.h>
#include <cutlass/float_subbyte.h>

// As copy_each; whole bytes of two elements where elements have four bits.
template <class From, class To> __device__ inline void copy_bytes(From const& from, To&& to) {
  if constexpr (sizeof_bits_v<typename remove_cvref_t<To>::value_type> < 8) copy_each(recast<uint8_t const>(from), recast<uint8_t>(to));
  else copy_each(from, to);
}

// Scale factors of `rows` rows, `count` of each, k contiguous.
template <class Scale, class Rows, class Size, class Layout>
__device__ auto stage_scales(Scale const* from, Scale* to, Rows rows, Size size, Layout layout) {
  auto staged = make_tensor(make_smem_ptr(to), filter_zeros(layout));
  auto given = make_tensor(make_gmem_ptr(from), make_layout(make_shape(rows, make_shape(_1{}, size)), make_stride(size, make_stride(_0{}, _1{}))));
  copy_each(given, staged);
  return make_tensor(make_smem_ptr(to), layout);
}

template <class AtomA, class AtomB, class Mma>
__device__ void multiply_scaled(typename Mma::ValTypeA const* a, typename Mma::ValTypeB const* b, typename Mma::ValTypeSFA const* sfa,
                                typename Mma::ValTypeSFA const* sfb, float* d, Mma mma) {
  using A = typename Mma::ValTypeA;
  using B = typename Mma::ValTypeB;
  using Scale = typename Mma::ValTypeSFA;
  constexpr int kVector = Mma::SFVecSize;
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<kVector>;
  auto m = tile_size<0>(mma);
  auto n = tile_size<1>(mma);
  auto k = tile_size<2>(mma) * _4{};
  auto slice = mma.get_slice(0);
  auto at_a = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));
  auto at_b = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));
  auto at_d = make_tensor(make_gmem_ptr(d), make_shape(m, n), make_stride(n, _1{}));
  auto layout_a = UMMA::tile_to_mma_shape(AtomA{}, partition_shape_A(mma, make_shape(m, k)));
  auto layout_b = UMMA::tile_to_mma_shape(AtomB{}, partition_shape_B(mma, make_shape(n, k)));
  auto layout_sfa = Config::deduce_smem_layoutSFA(mma, make_shape(m, n, k));
  auto layout_sfb = Config::deduce_smem_layoutSFB(mma, make_shape(m, n, k));
  __shared__ alignas(1024) ArrayEngine<A, cosize_v<decltype(layout_a)>> store_a;
  __shared__ alignas(1024) ArrayEngine<B, cosize_v<decltype(layout_b)>> store_b;
  __shared__ alignas(128) ArrayEngine<Scale, cosize_v<decltype(layout_sfa)>> store_sfa;
  __shared__ alignas(128) ArrayEngine<Scale, cosize_v<decltype(layout_sfb)>> store_sfb;
  __shared__ alignas(8) uint64_t done;
  __shared__ uint32_t where;
  auto sa = make_tensor(make_smem_ptr(store_a.begin()), layout_a);
  auto sb = make_tensor(make_smem_ptr(store_b.begin()), layout_b);
  copy_bytes(slice.partition_A(at_a), sa);
  copy_bytes(slice.partition_B(at_b), sb);
  auto ssfa = stage_scales(sfa, store_sfa.begin(), m, k / Int<kVector>{}, layout_sfa);
  auto ssfb = stage_scales(sfb, store_sfb.begin(), n, k / Int<kVector>{}, layout_sfb);
  cutlass::arch::fence_view_async_shared();
  auto parts = slice.partition_C(at_d);
  auto sums = slice.make_fragment_C(parts);
  auto tsfa = make_tensor<typename Mma::FrgTypeSFA>(shape(layout_sfa));
  auto tsfb = make_tensor<typename Mma::FrgTypeSFB>(shape(layout_sfb));
  TMEM::Allocator1Sm memory{};
  if (threadIdx.x / 32 == 0) memory.allocate(512, &where);
  if (threadIdx.x == 0) {
    initialize_barrier(done, 1);
    cutlass::arch::fence_barrier_init();
  }
  fence_before();
  __syncthreads();
  fence_after();
  sums.data() = where;
  tsfa.data() = where + 256;
  tsfb.data() = where + 384;
  if (threadIdx.x / 32 == 0) {
    using Copy = SM100_UTCCP_4x32dp128bit_1cta;
    auto give = [&](auto const& staged, auto const& held) {
      auto from = make_tensor(staged.data(), filter_zeros(staged.layout()));
      auto to = make_tensor(held.data(), filter_zeros(held.layout()));
      auto moves = make_utccp_copy(Copy{}, to);
      auto mine = moves.get_slice(0);
      auto described = get_utccp_smem_desc_tensor<Copy>(mine.partition_S(from));
      if (elect_one_sync()) copy(moves, described, mine.partition_D(to));
    };
    give(ssfa, tsfa);
    give(ssfb, tsfb);
    auto ra = slice.make_fragment_A(sa);
    auto rb = slice.make_fragment_B(sb);
    auto going = UMMA::ScaleOut::Zero;
#pragma unroll
    for (int step = 0; step < size<2>(ra); ++step) {
      gemm(mma.with(going, tsfa(_, _, step), tsfb(_, _, step)), ra(_, _, step), rb(_, _, step), sums);
      going = UMMA::ScaleOut::One;
    }
    cutlass::arch::umma_arrive(&done);
  }
  wait_barrier(done, 0);
  fence_after();
  auto out = make_tmem_copy(SM100_TMEM_LOAD_32dp32b16x{}, sums);
  auto mine = out.get_slice(threadIdx.x);
  auto to = mine.partition_D(parts);
  auto held = make_tensor<float>(shape(to));
  copy(out, mine.partition_S(sums), held);
  cutlass::arch::fence_view_async_tmem_load();
  copy(held, to);
  fence_before();
  __syncthreads();
  fence_after();
  if (threadIdx.x / 32 == 0) {
    memory.release_allocation_lock();
    memory.free(where, 512);
  }
}
