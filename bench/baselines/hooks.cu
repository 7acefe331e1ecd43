// What the program `bench_hooks` times, by hand in CUDA C++: GELU, SiLU, softmax and RMSNorm of bfloat16, each in one kernel. Prints lines like its.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 hooks.cu -o hooks && ./hooks ROWS..
#include <cuda_bf16.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int COLS = 4096;
#define CHECK(call)                                                                             \
  do {                                                                                          \
    cudaError_t error = (call);                                                                 \
    if (error != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                       \
      std::exit(1);                                                                             \
    }                                                                                           \
  } while (0)

// Eight elements: 16 bytes.
struct Pack {
  __nv_bfloat162 pairs[4];
};

__device__ Pack load(const __nv_bfloat16 *at) {
  uint4 words = __ldcs(reinterpret_cast<const uint4 *>(at));
  return *reinterpret_cast<Pack *>(&words);
}

__device__ void store(__nv_bfloat16 *at, Pack pack) { *reinterpret_cast<uint4 *>(at) = *reinterpret_cast<uint4 *>(&pack); }

__device__ float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct Gelu {
  __device__ float operator()(float x) const { return 0.5f * x * (1.0f + tanh_fast(0.7978846f * (x + 0.044715f * x * x * x))); }
};
struct Silu {
  __device__ float operator()(float x) const { return __fdividef(x, 1.0f + __expf(-x)); }
};

// Four packs of a thread in flight.
template <class F>
__global__ void by_element(const __nv_bfloat16 *in, __nv_bfloat16 *out, size_t packs, F f) {
  size_t first = size_t(blockIdx.x) * 4 * blockDim.x + threadIdx.x;
  Pack pack[4];
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (first + k * blockDim.x < packs) pack[k] = load(in + 8 * (first + k * blockDim.x));
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (first + k * blockDim.x < packs) {
      for (auto &pair : pack[k].pairs) {
        float2 x = __bfloat1622float2(pair);
        pair = __floats2bfloat162_rn(f(x.x), f(x.y));
      }
      store(out + 8 * (first + k * blockDim.x), pack[k]);
    }
}

template <class F>
__device__ float over_block(float x, F f, float *shared) {
  for (int d = 16; d > 0; d /= 2) x = f(x, __shfl_xor_sync(0xffffffff, x, d));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[threadIdx.x % 16];
  for (int d = 8; d > 0; d /= 2) x = f(x, __shfl_xor_sync(0xffffffff, x, d));
  return x;
}

// A row has a block of 512 threads, of which each has one pack.
__global__ void softmax(const __nv_bfloat16 *in, __nv_bfloat16 *out) {
  __shared__ float most[16], sums[16];
  size_t at = size_t(blockIdx.x) * COLS + 8 * threadIdx.x;
  Pack pack = load(in + at);
  float x[8], greatest = -INFINITY, sum = 0;
  for (int k = 0; k < 4; k++) {
    float2 pair = __bfloat1622float2(pack.pairs[k]);
    x[2 * k] = pair.x, x[2 * k + 1] = pair.y;
    greatest = fmaxf(greatest, fmaxf(pair.x, pair.y));
  }
  greatest = over_block(greatest, [](float a, float b) { return fmaxf(a, b); }, most);
  for (float &value : x) sum += value = __expf(value - greatest);
  float scale = __fdividef(1.0f, over_block(sum, [](float a, float b) { return a + b; }, sums));
  for (int k = 0; k < 4; k++) pack.pairs[k] = __floats2bfloat162_rn(x[2 * k] * scale, x[2 * k + 1] * scale);
  store(out + at, pack);
}

__global__ void rms_norm(const __nv_bfloat16 *in, const __nv_bfloat16 *gamma, __nv_bfloat16 *out) {
  __shared__ float sums[16];
  size_t at = size_t(blockIdx.x) * COLS + 8 * threadIdx.x;
  Pack pack = load(in + at), weights = *reinterpret_cast<const Pack *>(gamma + 8 * threadIdx.x);
  float x[8], squares = 0;
  for (int k = 0; k < 4; k++) {
    float2 pair = __bfloat1622float2(pack.pairs[k]);
    x[2 * k] = pair.x, x[2 * k + 1] = pair.y;
    squares += pair.x * pair.x + pair.y * pair.y;
  }
  float scale = rsqrtf(over_block(squares, [](float a, float b) { return a + b; }, sums) / COLS + 1e-6f);
  for (int k = 0; k < 4; k++) {
    float2 weight = __bfloat1622float2(weights.pairs[k]);
    pack.pairs[k] = __floats2bfloat162_rn(x[2 * k] * scale * weight.x, x[2 * k + 1] * scale * weight.y);
  }
  store(out + at, pack);
}

// As `fusewire_examples::rows::number`.
float number(int rank, size_t i) {
  uint32_t bits = (uint32_t(i) ^ uint32_t(rank) << 24) * 0x9e3779b9u;
  return float(((bits ^ bits >> 15) * 0x85ebca6bu) >> 8) / (1 << 21) - 4.0f;
}

template <class Launch, class Want>
void report(const char *what, size_t rows, const std::vector<__nv_bfloat16> &host, __nv_bfloat16 *out, cudaStream_t stream, Launch launch, Want want) {
  size_t n = rows * COLS;
  CHECK(cudaMemsetAsync(out, 0xff, 2 * n, stream));
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < 10; k++) launch();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&replay, graph, 0));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int window = 0; window < 12; window++) {
    CHECK(cudaEventRecord(begin, stream));
    for (int k = 0; k < 10; k++) CHECK(cudaGraphLaunch(replay, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (window > 0) times.push_back(10 * ms);
  }
  std::sort(times.begin(), times.end());
  std::vector<__nv_bfloat16> got(n);
  CHECK(cudaMemcpy(got.data(), out, 2 * n, cudaMemcpyDeviceToHost));
  for (size_t row = 0; row < rows; row++) {
    std::vector<double> x(COLS);
    for (int k = 0; k < COLS; k++) x[k] = __bfloat162float(host[row * COLS + k]);
    std::vector<double> y = want(x);
    for (int k = 0; k < COLS; k++) {
      double error = std::fabs(__bfloat162float(got[row * COLS + k]) - y[k]);
      if (!(error <= std::fabs(y[k]) / 200 + 2e-3)) {
        std::fprintf(stderr, "%s: element %d of row %zu is wrong\n", what, k, row);
        std::exit(1);
      }
    }
  }
  std::printf("CUDA C++, %s: %zu rows: %.2f us\n", what, rows, times[times.size() / 2]);
}

int main(int argc, char **argv) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int k = 1; k < argc; k++) {
    size_t rows = std::strtoull(argv[k], nullptr, 10), n = rows * COLS, packs = n / 8;
    std::vector<__nv_bfloat16> host(n), weights(COLS);
    for (size_t i = 0; i < n; i++) host[i] = __float2bfloat16(number(0, i));
    for (int i = 0; i < COLS; i++) weights[i] = __float2bfloat16(number(1, i));
    __nv_bfloat16 *in, *gamma, *out;
    CHECK(cudaMalloc(&in, 2 * n));
    CHECK(cudaMalloc(&out, 2 * n));
    CHECK(cudaMalloc(&gamma, 2 * COLS));
    CHECK(cudaMemcpy(in, host.data(), 2 * n, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(gamma, weights.data(), 2 * COLS, cudaMemcpyHostToDevice));
    unsigned blocks = unsigned((packs + 1023) / 1024);
    auto each = [](auto f) {
      return [f](const std::vector<double> &x) {
        std::vector<double> y;
        for (double value : x) y.push_back(f(value));
        return y;
      };
    };
    report("GELU", rows, host, out, stream, [&] { by_element<<<blocks, 256, 0, stream>>>(in, out, packs, Gelu{}); },
           each([](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }));
    report("SiLU", rows, host, out, stream, [&] { by_element<<<blocks, 256, 0, stream>>>(in, out, packs, Silu{}); },
           each([](double x) { return x / (1 + std::exp(-x)); }));
    report("softmax", rows, host, out, stream, [&] { softmax<<<unsigned(rows), 512, 0, stream>>>(in, out); }, [](const std::vector<double> &x) {
      double sum = 0;
      for (double value : x) sum += std::exp(value);
      std::vector<double> y;
      for (double value : x) y.push_back(std::exp(value) / sum);
      return y;
    });
    report("RMSNorm", rows, host, out, stream, [&] { rms_norm<<<unsigned(rows), 512, 0, stream>>>(in, gamma, out); }, [&](const std::vector<double> &x) {
      double squares = 0;
      for (double value : x) squares += value * value;
      std::vector<double> y;
      for (int k = 0; k < COLS; k++) y.push_back(x[k] / std::sqrt(squares / COLS + 1e-6) * __bfloat162float(weights[k]));
      return y;
    });
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    CHECK(cudaFree(gamma));
  }
}
