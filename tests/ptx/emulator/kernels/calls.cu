// Calls that no compiler can inline: virtual functions, function pointers, recursion of one and of two functions.
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual float scaled(float s) const { return area() * s; }
};
struct Square : Shape {
  float a;
  __device__ explicit Square(float v) : a(v) {}
  __device__ __noinline__ float area() const override { return a * a; }
};
struct Circle : Shape {
  float r;
  __device__ explicit Circle(float v) : r(v) {}
  __device__ __noinline__ float area() const override { return 3.f * r * r; }
  __device__ __noinline__ float scaled(float s) const override { return area() * s + 1.f; }
};
extern "C" __global__ void virtual_calls(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Square square(x[i]);
  Circle circle(x[i]);
  const Shape* shape = i % 3 == 0 ? static_cast<const Shape*>(&square) : &circle;
  y[i] = shape->area() + shape->scaled(2.f);
}

using Op = int (*)(int, int);
__device__ __noinline__ int op_add(int a, int b) { return a + b; }
__device__ __noinline__ int op_mul(int a, int b) { return a * b; }
__device__ __noinline__ int op_xor(int a, int b) { return a ^ b; }
__device__ Op const op_table[3] = {op_add, op_mul, op_xor};
__device__ Op current_op = op_xor;
extern "C" __global__ void function_pointers(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = op_table[x[i] % 3](x[i], i) + current_op(i, 5);
}

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ int is_odd(int n);
__device__ __noinline__ int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1); }
__device__ __noinline__ int is_odd(int n) { return n == 0 ? 0 : is_even(n - 1); }
__device__ __noinline__ void quicksort(int* a, int lo, int hi) {
  if (lo >= hi) return;
  int p = a[hi], at = lo;
  for (int k = lo; k < hi; k++)
    if (a[k] < p) { int t = a[k]; a[k] = a[at]; a[at++] = t; }
  a[hi] = a[at]; a[at] = p;
  quicksort(a, lo, at - 1);
  quicksort(a, at + 1, hi);
}
extern "C" __global__ void recursion(const int* x, int* y, int* sorted, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = fib(x[i]) * 2 + is_even(x[i]);
  int a[12];
  for (int k = 0; k < 12; k++) a[k] = x[(i * 5 + k * 7) % n] * 3 + k;
  quicksort(a, 0, 11);
  for (int k = 0; k < 12; k++) sorted[i * 12 + k] = a[k];
}
