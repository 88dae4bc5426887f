// Thin wrappers of tcgen05 and tensor memory.
#pragma once
#include "../sm_90a/hopper.cuh"

// ---- tensor memory
template <int kColumns, int G = 1> __device__ inline void tmem_alloc(uint32_t to) {
  if constexpr (G == 1) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to), "n"(kColumns) : "memory");
  else asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to), "n"(kColumns) : "memory");
  if constexpr (G == 1) asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  else asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
}
template <int kColumns, int G = 1> __device__ inline void tmem_free(uint32_t tmem) {
  if constexpr (G == 1) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "n"(kColumns));
  else asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "n"(kColumns));
}
__device__ inline void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ inline void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ inline void wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ inline void wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
#define V4(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3])
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define W4(i) "r"(v[i]), "r"(v[i + 1]), "r"(v[i + 2]), "r"(v[i + 3])
#define W16(i) W4(i), W4(i + 4), W4(i + 8), W4(i + 12)
__device__ inline void tmem_ld32(uint32_t (&v)[32], uint32_t from) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" R32 "}, [%32];" : V16(0), V16(16) : "r"(from));
}
__device__ inline void tmem_ld16_256(uint32_t (&v)[16], uint32_t from) {
  asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {" R16 "}, [%16];" : V16(0) : "r"(from));
}
__device__ inline void tmem_st32(uint32_t to, const uint32_t (&v)[32]) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" R32 "};" ::W16(0), W16(16), "r"(to) : "memory");
}

// ---- products. Accumulates where p is not 0.
__device__ inline constexpr uint32_t idesc(uint32_t d, uint32_t a, uint32_t b, int m, int n) {
  return d << 4 | a << 7 | b << 10 | (uint32_t)(n >> 3) << 17 | (uint32_t)(m >> 4) << 24;
}
// K-major rows of 128 bytes, 128-byte swizzle.
__device__ inline uint64_t desc_k128(uint32_t address) { return 0x4000404000000000ull | (address & 0x3FFFF) >> 4; }
__device__ inline uint64_t desc_any(uint32_t address, uint32_t lbo, uint32_t sbo, uint64_t swizzle) {
  return swizzle << 61 | 1ull << 46 | (uint64_t)(sbo >> 4) << 32 | (uint64_t)(lbo >> 4) << 16 | (address & 0x3FFFF) >> 4;
}
#define MMA(name, kind)                                                                                                                    \
  template <int G = 1> __device__ inline void name(uint32_t d, uint64_t a, uint64_t b, uint32_t id, uint32_t p) {                          \
    if constexpr (G == 1)                                                                                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p;\n}"            \
                   ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(p) : "memory");                                                                  \
    else                                                                                                                                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::2.kind::" kind " [%0], %1, %2, %3, p;\n}"            \
                   ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(p) : "memory");                                                                  \
  }
MMA(mma_f16, "f16")
MMA(mma_tf32, "tf32")
MMA(mma_f8, "f8f6f4")
MMA(mma_i8, "i8")
__device__ inline void mma_f16_ws(uint32_t d, uint64_t a, uint64_t b, uint32_t id, uint32_t p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.ws.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(p) : "memory");
}
__device__ inline void mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t id, uint32_t p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n}"
               ::"r"(d), "r"(a), "l"(b), "r"(id), "r"(p) : "memory");
}
__device__ inline void mma_mxf8(uint32_t d, uint64_t a, uint64_t b, uint32_t id, uint32_t sfa, uint32_t sfb, uint32_t p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\ntcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(sfa), "r"(sfb), "r"(p) : "memory");
}
__device__ inline void mma_nvf4(uint32_t d, uint64_t a, uint64_t b, uint32_t id, uint32_t sfa, uint32_t sfb, uint32_t p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\ntcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(sfa), "r"(sfb), "r"(p) : "memory");
}
__device__ inline void copy_scales(uint32_t to, uint32_t from) {
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(desc_any(from, 0, 128, 0)) : "memory");
}
__device__ inline void commit(uint32_t bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ inline void commit_pair(uint32_t bar) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar), "h"((uint16_t)3) : "memory");
}
__device__ inline void tma_load_pair(uint32_t to, const TensorMap& map, uint32_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
}
__device__ inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
