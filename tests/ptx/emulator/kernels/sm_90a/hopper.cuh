// Thin wrappers of the instructions that Hopper brought: mbarriers, tensor and bulk copies, wgmma, clusters.
#pragma once
#include <cstdint>

struct alignas(64) TensorMap { char bytes[128]; };
#define MAP const __grid_constant__ TensorMap

__device__ inline uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline bool elect_one() {
  uint32_t yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}
__device__ inline uint32_t uniform(uint32_t v) { return __shfl_sync(0xffffffffu, v, 0); }

// ---- mbarriers
__device__ inline void bar_init(uint32_t bar, uint32_t count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)); }
__device__ inline void fence_bar_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void bar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ inline void bar_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ inline uint32_t at_rank(uint32_t address, uint32_t rank) {
  uint32_t r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
__device__ inline void bar_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at_rank(bar, rank)) : "memory");
}
__device__ inline void bar_wait(uint32_t bar, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nTRY:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra TRY;\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ inline void bar_wait_cluster(uint32_t bar, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nTRY:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@!done bra TRY;\n}" ::"r"(bar), "r"(parity) : "memory");
}

// ---- copies
__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void tma_load(uint32_t to, const TensorMap& map, uint32_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
}
__device__ inline void tma_load_multicast(uint32_t to, const TensorMap& map, uint32_t bar, int x, int y, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "h"(mask) : "memory");
}
__device__ inline void tma_store(const TensorMap& map, uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(from), "r"(x), "r"(y) : "memory");
}
__device__ inline void tma_add(const TensorMap& map, uint32_t from, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(from), "r"(x), "r"(y) : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ inline void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N> __device__ inline void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ inline void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// ---- clusters
__device__ inline uint32_t cluster_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ inline void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
template <int N> __device__ inline void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ inline void registers_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// ---- wgmma
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// K-major rows of 128 bytes with the 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ inline uint64_t desc_128b(uint32_t address) { return (uint64_t)0x40000040 << 32 | (address & 0x3FFFF) >> 4; }
__device__ inline uint64_t desc_of(uint32_t address, uint32_t lbo, uint32_t sbo, uint32_t layout) {
  return (uint64_t)layout << 62 | (uint64_t)(sbo >> 4) << 32 | (uint64_t)(lbo >> 4) << 16 | (address & 0x3FFFF) >> 4;
}
#define R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R32 R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define R64 R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define D16(c, i) D4(c, i), D4(c, i + 4), D4(c, i + 8), D4(c, i + 12)
#define D32(c) D16(c, 0), D16(c, 16)
#define D64(c) D32(c), D16(c, 32), D16(c, 48)
#define INTO_F(v) "+f"(v)
#define INTO_R(v) "+r"(v)

// d (64 x 64) = a b + p d; operands in shared memory. TA, TB: 1 where M or N is contiguous.
template <int TA = 0, int TB = 0> __device__ inline void wgmma64_f16(float (&d)[32], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R32 "}, %32, %33, p, 1, 1, %35, %36;\n}"
               : D32(INTO_F) : "l"(a), "l"(b), "r"(p), "n"(TA), "n"(TB));
}
__device__ inline void wgmma64_f16_rs(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int p, int) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
               : D32(INTO_F) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(p));
}
template <int TB> __device__ inline void wgmma64_bf16_rs(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
               : D32(INTO_F) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(p), "n"(TB));
}
__device__ inline void wgmma64_bf16(float (&d)[32], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" R32 "}, %32, %33, p, 1, 1, 0, 0;\n}"
               : D32(INTO_F) : "l"(a), "l"(b), "r"(p));
}
__device__ inline void wgmma128_bf16(float (&d)[64], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" R64 "}, %64, %65, p, 1, 1, 0, 0;\n}"
               : D64(INTO_F) : "l"(a), "l"(b), "r"(p));
}
__device__ inline void wgmma64_tf32(float (&d)[32], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" R32 "}, %32, %33, p, 1, 1;\n}"
               : D32(INTO_F) : "l"(a), "l"(b), "r"(p));
}
__device__ inline void wgmma64_e4m3(float (&d)[32], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 {" R32 "}, %32, %33, p, 1, -1;\n}"
               : D32(INTO_F) : "l"(a), "l"(b), "r"(p));
}
__device__ inline void wgmma64_s8(int (&d)[32], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.s32.s8.u8 {" R32 "}, %32, %33, p;\n}"
               : D32(INTO_R) : "l"(a), "l"(b), "r"(p));
}
__device__ inline void wgmma64_half_sums(uint32_t (&d)[16], uint64_t a, uint64_t b, int p) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {" R16 "}, %16, %17, p, 1, 1, 0, 0;\n}"
               : D16(INTO_R, 0) : "l"(a), "l"(b), "r"(p));
}
