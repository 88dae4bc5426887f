// Kernels of CUB's device-wide algorithms, instantiated by calls that are never made here.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

struct Positive {
  __host__ __device__ bool operator()(int v) const { return v > 0; }
};
void instantiate() {
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(nullptr, bytes, (const int*)nullptr, (int*)nullptr, 0);
  cub::DeviceReduce::Sum(nullptr, bytes, (const float*)nullptr, (float*)nullptr, 0);
  cub::DeviceSelect::If(nullptr, bytes, (const int*)nullptr, (int*)nullptr, (int*)nullptr, 0, Positive());
}
