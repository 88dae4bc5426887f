// z = x + y, one element per thread.
extern "C" __global__ void vector_add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z,
                                      int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}
