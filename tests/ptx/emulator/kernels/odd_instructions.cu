// Instructions that compilers seldom emit, by inline assembly; and intrinsics of packed halves and bytes.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// One instruction per row of o, 32-bit operands.
extern "C" __global__ void odd_integers(const uint32_t* a, const uint32_t* b, uint32_t* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint32_t x = a[i], y = b[i], r, at = i;
#define ROW(text) asm(text : "=r"(r) : "r"(x), "r"(y)); o[at] = r; at += n;
  ROW("bfe.u32 %0, %1, 5, 11;")
  ROW("bfe.s32 %0, %1, %2, 7;")
  ROW("bfi.b32 %0, %1, %2, 8, 12;")
  ROW("bfind.u32 %0, %1;")
  ROW("bfind.shiftamt.s32 %0, %1;")
  ROW("lop3.b32 %0, %1, %2, 0x0f0f3c3c, 0xd2;")
  ROW("prmt.b32.b4e %0, %1, %2, 2;")
  ROW("prmt.b32.ecl %0, %1, %2, 1;")
  ROW("sad.u32 %0, %1, %2, 5;")
  ROW("mad.hi.s32 %0, %1, %2, %1;")
  ROW("mul24.hi.u32 %0, %1, %2;")
  ROW("vadd.s32.u32.s32.sat %0, %1, %2;")
  ROW("vabsdiff4.u32.u32.u32.add %0, %1, %2, %1;")
  ROW("vmax2.s32.s32.s32 %0, %1, %2, %2;")
  ROW("vset.u32.u32.lt %0, %1.b1, %2.h0;")
  ROW("vshl.u32.u32.u32.clamp.add %0, %1, %2, %1;")
  ROW("slct.b32.s32 %0, %1, %2, -3;")
  ROW("{ .reg .pred p, q; setp.lt.and.u32 p|q, %1, %2, 1; selp.u32 %0, 5, 9, q; }")
  ROW("{ .reg .f32 f; set.lt.f32.s32 f, %1, %2; mov.b32 %0, f; }")
  ROW("set.ge.u32.s32 %0, %1, %2;")
  ROW("{ .reg .u64 t; mul.wide.u32 t, %1, %2; mov.b64 {%0, _}, t; }")
  ROW("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l}; add.u32 %0, %0, %2; }")
  ROW("{ .reg .b32 c; add.cc.u32 %0, %1, %2; addc.cc.u32 c, %1, %1; subc.u32 %0, %0, c; }")
  ROW("szext.wrap.s32 %0, %1, %2;")
  ROW("bmsk.clamp.b32 %0, %1, %2;")
  ROW("cnot.b32 %0, %2; add.u32 %0, %0, %1;")
  ROW("abs.s32 %0, %1; neg.s32 %0, %0; sub.sat.s32 %0, %0, %2;")
  ROW("{ .reg .b32 t; shf.r.clamp.b32 t, %1, %2, 40; shf.l.clamp.b32 %0, t, %1, %2; }")
  ROW("fns.b32 %0, %1, 3, 2;")
  ROW("dp2a.hi.s32.u32 %0, %1, %2, 7;")
#undef ROW
}

extern "C" __global__ void odd_floats(const float* a, const float* b, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i], y = b[i], r;
  int at = i;
#define ROW(text) asm(text : "=f"(r) : "f"(x), "f"(y)); o[at] = r; at += n;
  ROW("add.rm.f32 %0, %1, %2;")
  ROW("mul.rp.f32 %0, %1, %2;")
  ROW("fma.rz.f32 %0, %1, %2, %1;")
  ROW("div.full.f32 %0, %1, %2;")
  ROW("div.rp.f32 %0, %1, %2;")
  ROW("{ .reg .f32 t; abs.f32 t, %1; sqrt.rm.f32 %0, t; }")
  ROW("{ .reg .f32 t; abs.f32 t, %2; sqrt.approx.f32 %0, t; }")
  ROW("rcp.rz.f32 %0, %1;")
  ROW("fma.rn.sat.f32 %0, %1, %2, 0f3F000000;")
  ROW("copysign.f32 %0, %1, %2;")
  ROW("max.NaN.f32 %0, %1, %2;")
  ROW("tanh.approx.f32 %0, %1;")
  ROW("ex2.approx.ftz.f32 %0, %1;")
  ROW("{ .reg .f32 t; abs.f32 t, %1; lg2.approx.f32 %0, t; }")
  ROW("cos.approx.f32 %0, %1;")
  ROW("cvt.rni.f32.f32 %0, %1;")
  ROW("cvt.rmi.f32.f32 %0, %1;")
  ROW("{ .reg .b32 t; cvt.rzi.s32.f32 t, %1; cvt.rp.f32.s32 %0, t; }")
  ROW("{ .reg .f64 t, u; cvt.f64.f32 t, %1; cvt.f64.f32 u, %2; fma.rm.f64 t, t, u, t; cvt.rz.f32.f64 %0, t; }")
  ROW("{ .reg .pred p; testp.finite.f32 p, %1; selp.f32 %0, %2, %1, p; }")
  ROW("{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t; }")
#undef ROW
}

extern "C" __global__ void packed_halves(const half2* a, const half2* b, half2* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  half2 x = a[i], y = b[i];
  int at = i;
  auto put = [&](half2 v) { o[at] = v; at += n; };
  put(__hfma2_relu(x, y, x));
  put(__hadd2_sat(x, y));
  put(__h2div(x, y));
  put(h2exp2(x));
  put(h2rsqrt(__habs2(y)));
  put(__hcmadd(x, y, x));
  put(__hmin2_nan(x, y));
  put(__hge2(x, y));
  put(__lows2half2(x, y));
  put(__lowhigh2highlow(x));
  put(h2floor(x));
  put(__floats2half2_rn(__low2float(x) * 3.f, __high2float(y)));
  put(__halves2half2(__int2half_rz(__half2int_rd(x.x)), __ushort2half_ru(__half2ushort_rn(__habs(y.y)))));
  put(h2tanh_approx(x));
  put(__half2half2(hsin(x.x)));
  put(__halves2half2(__hgt(x.x, y.x) ? x.x : y.x, __heq(x.y, y.y) ? x.y : hrint(y.y)));
}

extern "C" __global__ void packed_bfloats(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat162 x = a[i], y = b[i];
  int at = i;
  auto put = [&](__nv_bfloat162 v) { o[at] = v; at += n; };
  put(__hfma2(x, y, x));
  put(__hadd2(x, y));
  put(__hmul2(x, y));
  put(__hmax2(x, __hneg2(y)));
  put(h2exp(x));
  put(__hsub2(x, y));
  put(__float22bfloat162_rn(make_float2(__low2float(x) + 1.f, __high2float(y) / 3.f)));
  put(__halves2bfloat162(__float2bfloat16_rz(__bfloat162float(x.x) * 1.01f), __int2bfloat16_rn(__bfloat162int_rz(y.y))));
  put(__halves2bfloat162(__double2bfloat16((double)__bfloat162float(x.x) / 7.0), hsqrt(__habs(y.x))));
}

// Bytes in words: the SIMD-in-a-word intrinsics.
extern "C" __global__ void packed_bytes(const unsigned* a, const unsigned* b, unsigned* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = a[i], y = b[i];
  int at = i;
  auto put = [&](unsigned v) { o[at] = v; at += n; };
  put(__vadd4(x, y)); put(__vaddus4(x, y)); put(__vsubss4(x, y)); put(__vabsdiffs4(x, y)); put(__vavgu4(x, y));
  put(__vcmpgtu4(x, y)); put(__vmaxs2(x, y)); put(__vsads4(x, y)); put(__vseteq4(x, y & 0xff00ff00u)); put(__vhaddu4(x, y));
  put(__viaddmax_s32((int)x, (int)y, 5)); put(__vimin3_s32((int)x, (int)y, -9)); put(__vimax_s16x2_relu(x, y));
  put(__byte_perm(x, y, x)); put(__brev(x) + __ffs(y)); put(__rhadd((int)x, (int)y)); put(__uhadd(x, y));
  put((unsigned)__dp2a_lo((short2){(short)x, (short)y}, (char4){1, -2, 3, -4}, 9));
}

// Loads and stores of odd shapes by inline assembly; predicated ones; volatile, relaxed, acquire, release; fences.
extern "C" __global__ void odd_memory(uint32_t* p, uint32_t* o) {
  __shared__ __align__(16) uint32_t s[128];
  uint32_t t = threadIdx.x, r, q, u, v;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %1, %2};" ::"r"(at + t * 16), "r"(t), "r"(t * 3) : "memory");
  __syncwarp();
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2+8];" : "=r"(r), "=r"(q) : "r"(at + (31 - t) * 16) : "memory");
  asm volatile("{ .reg .pred p; setp.gt.u32 p, %2, 15; mov.u32 %0, 77; @p ld.global.u32 %0, [%1]; @!p ld.global.relaxed.gpu.u32 %0, [%1+128]; }"
               : "=&r"(u) : "l"(p + t), "r"(t) : "memory");
  asm volatile("ld.weak.global.L1::evict_last.L2::128B.u32 %0, [%1];" : "=r"(v) : "l"(p + t));
  asm volatile("{ .reg .b8 c; ld.global.nc.u8 c, [%1+1]; cvt.u32.u8 %0, c; }" : "=r"(q) : "l"(p + t));
  o[t] = r + q * 1000 + u + v;
  asm volatile("fence.sc.gpu; fence.acq_rel.sys; membar.cta; fence.proxy.alias;" ::: "memory");
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(o + 32 + t), "r"(r) : "memory");
  asm volatile("prefetch.global.L2 [%0]; prefetchu.L1 [%0];" ::"l"(p));
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 0.5;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(r) : "l"(p + t), "l"(policy));
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(o + 64 + t), "r"(r) : "memory");
}

// Warp instructions by inline assembly.
extern "C" __global__ void odd_warp(const int* x, int* o) {
  int t = threadIdx.x, v = x[t], r, p;
  unsigned m;
  auto put = [&](int value) { o[t] = value; o += 32; };
  asm volatile("{ .reg .pred q; shfl.sync.up.b32 %0|q, %2, 5, 0x1000, -1; selp.s32 %1, 1, 0, q; }" : "=r"(r), "=r"(p) : "r"(v)); put(r + p * 1000);
  asm volatile("{ .reg .pred q; shfl.sync.bfly.b32 %0|q, %2, 9, 0x181f, -1; selp.s32 %1, 1, 0, q; }" : "=r"(r), "=r"(p) : "r"(v)); put(r + p * 1000);
  asm volatile("{ .reg .pred q, s; setp.gt.s32 q, %1, 10; vote.sync.uni.pred s, q, -1; selp.s32 %0, 1, 0, s; }" : "=r"(r) : "r"(v)); put(r);
  asm volatile("{ .reg .pred q; setp.gt.s32 q, %1, 10; vote.sync.ballot.b32 %0, !q, -1; }" : "=r"(m) : "r"(v)); put((int)m);
  asm volatile("redux.sync.min.s32 %0, %1, -1;" : "=r"(r) : "r"(v)); put(r);
  asm volatile("redux.sync.or.b32 %0, %1, -1;" : "=r"(r) : "r"(v)); put(r);
  asm volatile("match.any.sync.b64 %0, %1, -1;" : "=r"(m) : "l"((long long)(v & 3) << 40)); put((int)m);
  asm volatile("{ .reg .pred q; match.all.sync.b32 %0|q, %1, -1; }" : "=r"(m) : "r"(v & 0)); put((int)m);
  asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(m)); put((int)m);
  asm volatile("activemask.b32 %0;" : "=r"(m)); put((int)m);
  if (v & 1) { m = __activemask(); m = __reduce_add_sync(m, 1u); } else m = 100;
  put((int)m);
}

// Atomics of every operation and type that sm_80 has.
extern "C" __global__ void odd_atomics(int* i, unsigned* u, unsigned long long* w, float* f, double* d, half2* h, __nv_bfloat162* b, unsigned short* c) {
  int t = threadIdx.x;
  atomicMin(i, t * 7 % 31 - 12); atomicMax(i + 1, t - 40); atomicAnd(i + 2, ~(1 << (t & 7))); atomicOr(i + 3, 1 << t % 20);
  atomicInc(u, 10); atomicDec(u + 1, 6); atomicSub((int*)u + 2, t); atomicXor(u + 3, t * t);
  atomicMax(w, (unsigned long long)t << 33); atomicExch(w + 1 + t, 5ull); atomicMin((long long*)w + 40, -3ll - t);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(h, __floats2half2_rn(1.f, 2.f)); atomicAdd((half*)(h + 1), __float2half(0.5f));
  atomicAdd(b, __floats2bfloat162_rn(1.f, -1.f));
  unsigned short seen = c[1], old;
  do { old = seen; seen = atomicCAS(c, old, (unsigned short)(old + 3)); } while (seen != old);
  asm volatile("red.relaxed.cta.global.add.u64 [%0], %1;" ::"l"(w + 41), "l"(2ull) : "memory");
  int got = atomicExch(i + 4, t);
  atomicAdd(i + 5, got);
}
