// Functions as CUDA C++ calls them: recursion, tables of pointers, virtual functions, the device heap, printf, assert.
#include <assert.h>
#include <stdio.h>

struct Pair { char tag; int value; double weight; };

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ Pair combine(Pair a, Pair b) {
    Pair c;
    c.tag = a.tag + b.tag; c.value = a.value * b.value; c.weight = a.weight - b.weight;
    return c;
}

__device__ __noinline__ int sum_tree(const int* keys, int low, int high, int* visits) {
    int here[2] = {low, high};
    (*visits)++;
    if (high - low == 1) return keys[low];
    int middle = (low + high) / 2;
    int left = sum_tree(keys, low, middle, visits);
    int right = sum_tree(keys, middle, high, visits);
    return left + right + (here[0] - low) + (here[1] - high);
}

__device__ bool is_odd(unsigned n);
__device__ __noinline__ bool is_even(unsigned n) { return n == 0 ? true : is_odd(n - 1); }
__device__ __noinline__ bool is_odd(unsigned n) { return n == 0 ? false : is_even(n - 1); }

typedef float (*Op)(float, float);
__device__ float op_add(float a, float b) { return a + b; }
__device__ float op_mul(float a, float b) { return a * b; }
__device__ float op_max(float a, float b) { return a > b ? a : b; }
__device__ Op ops[3] = {op_add, op_mul, op_max};

struct Shape {
    int id;
    __device__ Shape(int i) : id(i) {}
    __device__ virtual float area(float x) const = 0;
    __device__ virtual ~Shape() {}
};

struct Square : Shape {
    float k;
    __device__ Square(float f) : Shape(1), k(f) {}
    __device__ float area(float x) const override { return k * x * x; }
};

struct Circle : Shape {
    __device__ Circle() : Shape(2) {}
    __device__ float area(float x) const override { return 3.0f * x * x + id; }
};

extern "C" __global__ void recursion(int* out, const int* keys, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int visits = 0;
    out[4 * t] = ackermann(2, t % 4);
    out[4 * t + 1] = sum_tree(keys, t % 3, n - t % 5, &visits);
    out[4 * t + 2] = visits;
    out[4 * t + 3] = is_even(t % 9);
}

extern "C" __global__ void pointers(float* out, const float* x, const int* which) {
    int t = threadIdx.x;
    out[t] = ops[which[t]](x[t], x[t ^ 1]);
}

extern "C" __global__ void virtuals(float* out, const float* x) {
    int t = threadIdx.x;
    Shape* shape;
    if (t % 3 == 0) shape = new Circle(); else shape = new Square(t);
    out[t] = shape->area(x[t]);
    delete shape;
}

extern "C" __global__ void structs(double* out, const int* x) {
    int t = threadIdx.x;
    Pair a = {char(t), x[t], t * 0.5}, b = {3, t, 1.0};
    Pair c = combine(a, b);
    Pair d = combine(c, a);
    out[t] = d.tag + d.value + d.weight;
}

extern "C" __global__ void said(int* out, int limit) {
    int t = threadIdx.x;
    assert(t < limit);
    printf("thread %d of %f\n", t, 1.5 * t);
    out[t] = t;
}

extern "C" __global__ void heap(int* out, int n) {
    int t = threadIdx.x;
    int* mine = (int*)malloc(n * sizeof(int));
    for (int i = 0; i < n; i++) mine[i] = i * t;
    int sum = 0;
    for (int i = 0; i < n; i++) sum += mine[i];
    free(mine);
    out[t] = sum;
}
