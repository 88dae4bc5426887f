/* A library in the place of the CUDA driver's, so that the real bindings can be called without a GPU: memory is the
   host's, the only kernel is "add" (y[i] = x[i] + z[i] + s), and what a launch is given can be asked for afterwards.
   Types and numbers: CUDA driver API, cuda.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int id; char pad[4]; union { char raw[64]; unsigned dim[3]; int flag; } value; } Attribute;
typedef struct {
  unsigned grid[3], block[3], smem; void *stream; Attribute *attributes; unsigned count;
} Config;

static Config last;
static Attribute last_attributes[8];
static int launches, capturing;
static int graph_count;
static int strict_maps, refused_maps; /* whether tensor maps are written to multiples of 128 bytes alone */

#define OK 0
int cuInit(unsigned flags) { return OK; }
int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
int cuDeviceGetCount(int *n) { *n = 1; return OK; }
int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return OK; }
int cuDeviceGetName(char *name, int length, int d) { snprintf(name, length, "NVIDIA H200"); return OK; }
int cuDeviceGetPCIBusId(char *id, int length, int d) { snprintf(id, length, "0000:00:00.0"); return OK; }
int cuDeviceTotalMem(size_t *n, int d) { *n = 1u << 30; return OK; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  switch (a) {
    case 75: *v = 9; break;      /* compute capability, major */
    case 76: *v = 0; break;      /* minor */
    case 16: *v = 132; break;    /* multiprocessors */
    case 38: *v = 60 << 20; break; /* L2 */
    case 97: *v = 232448; break; /* shared memory per block, opted in */
    case 1: *v = 1024; break;    /* threads per block */
    default: *v = 1;
  }
  return OK;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x10; return OK; }
int cuCtxSetCurrent(void *c) { return c == (void *)0x10 ? OK : 201; }
int cuCtxSynchronize(void) { return OK; }
int cuMemGetInfo(size_t *free_, size_t *total) { *free_ = 1u << 29; *total = 1u << 30; return OK; }
int cuMemAlloc(uint64_t *p, size_t n) { return (*p = (uint64_t)aligned_alloc(256, (n + 255) / 256 * 256)) ? OK : 2; }
int cuMemFree(uint64_t p) { free((void *)p); return OK; }
int cuMemcpyHtoD(uint64_t to, const void *from, size_t n) { memcpy((void *)to, from, n); return OK; }
int cuMemcpyDtoH(void *to, uint64_t from, size_t n) { memcpy(to, (void *)from, n); return OK; }
int cuMemcpyDtoD(uint64_t to, uint64_t from, size_t n) { memcpy((void *)to, (void *)from, n); return OK; }
int cuMemsetD8(uint64_t p, unsigned char b, size_t n) { memset((void *)p, b, n); return OK; }
int cuMemsetD8Async(uint64_t p, unsigned char b, size_t n, void *s) { return capturing ? OK : cuMemsetD8(p, b, n); }
int cuPointerGetAttribute(void *out, int a, uint64_t p) { *(int *)out = 0; return OK; }
int cuModuleLoadData(void **m, const void *image) { *m = (void *)0x20; return image ? OK : 1; }
int cuModuleUnload(void *m) { return m == (void *)0x20 ? OK : 400; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
  *f = (void *)0x30;
  return strcmp(name, "add") ? 500 : OK;
}
int cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 8 ? 49152 : 0; return OK; }
static int smem_limit = 49152;
int cuFuncSetAttribute(void *f, int a, int v) { if (a == 8) smem_limit = v; return OK; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t smem) { *n = 2; return OK; }
int cuOccupancyMaxActiveClusters(int *n, void *f, const Config *c) { *n = 132 * 2 / (int)c->attributes[0].value.dim[0]; return OK; }

int cuLaunchKernelEx(const Config *c, void *f, void **p, void **extra) {
  if (f != (void *)0x30 || c->smem > (unsigned)smem_limit) return 1;
  last = *c;
  memcpy(last_attributes, c->attributes, c->count * sizeof(Attribute));
  launches++;
  if (capturing) { graph_count++; return OK; }
  const float *x = *(float **)p[0], *z = *(float **)p[1];
  float *y = *(float **)p[2], s = *(float *)p[3];
  unsigned n = *(unsigned *)p[4], threads = c->grid[0] * c->block[0];
  for (unsigned i = 0; i < n && i < threads; i++) y[i] = x[i] + z[i] + s;
  return OK;
}
int cuStreamCreate(void **s, unsigned flags) { *s = (void *)0x40; return OK; }
int cuStreamDestroy(void *s) { return OK; }
int cuStreamSynchronize(void *s) { return OK; }
int cuStreamBeginCapture(void *s, int mode) { capturing = 1; return OK; }
int cuStreamEndCapture(void *s, void **g) { capturing = 0; *g = (void *)0x50; return OK; }
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long flags) { *e = (void *)0x60; return OK; }
int cuGraphInstantiate(void **e, void *g, unsigned long long flags) { *e = (void *)0x60; return OK; }
int cuGraphDestroy(void *g) { return OK; }
int cuGraphExecDestroy(void *e) { return OK; }
int cuGraphLaunch(void *e, void *s) { return e == (void *)0x60 ? OK : 400; }
int cuEventCreate(void **e, unsigned flags) { *e = (void *)0x70; return OK; }
int cuEventDestroy(void *e) { return OK; }
int cuEventRecord(void *e, void *s) { return OK; }
int cuEventRecordWithFlags(void *e, void *s, unsigned flags) { return flags == 1 ? OK : 1; }
int cuEventElapsedTime(float *ms, void *a, void *b) { *ms = 2.0f; return OK; }
int cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int l2, int fill) {
  uint64_t seen[16] = {(uint64_t)type, rank, (uint64_t)address, dims[0], rank > 1 ? dims[1] : 0,
                       rank > 1 ? strides[0] : 0, box[0], rank > 1 ? box[1] : 0, steps[0], (uint64_t)interleave,
                       (uint64_t)swizzle, (uint64_t)l2, (uint64_t)fill};
  if (strict_maps && (uintptr_t)map % 128) { refused_maps++; return 1; }
  memcpy(map, seen, sizeof seen);
  return OK;
}
int cuGetErrorName(int e, const char **name) { *name = "CUDA_ERROR_OF_THE_STUB"; return OK; }

/* what the tests ask */
int stub_launches(void) { return launches; }
int stub_captured(void) { return graph_count; }
void stub_align_maps(int strict) { strict_maps = strict; }
int stub_refused_maps(void) { return refused_maps; }
int stub_last(unsigned *out) {
  out[0] = last.grid[0]; out[1] = last.block[0]; out[2] = last.smem; out[3] = last.count;
  out[4] = (unsigned)(uintptr_t)last.stream;
  for (unsigned i = 0; i < last.count && i < 3; i++) {
    out[5 + 2 * i] = last_attributes[i].id;
    out[6 + 2 * i] = last_attributes[i].value.dim[0];
  }
  return 0;
}

int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status) {
  static void *self;
  Dl_info info;
  if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (status) *status = 0; /* found */
  *f = strcmp(name, "cuGetProcAddress") ? dlsym(self, name) : (void *)cuGetProcAddress_v2;
  return *f ? OK : 500;
}
int cuGetProcAddress(const char *name, void **f, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, f, version, flags, 0);
}
