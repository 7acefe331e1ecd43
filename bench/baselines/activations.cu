// The hooks of `device/tests/math_ptx.rs` in CUDA C++, on eight bfloat16: what docs/math.md counts the instructions of.
// nvcc -O3 -arch=sm_90 [-use_fast_math] -cubin activations.cu -o activations.cubin && nvdisasm -c activations.cubin
#include <cuda_bf16.h>
#include <stdint.h>
struct alignas(16) P { __nv_bfloat162 v[4]; };
template <class F> __device__ void each(const P* in, P* out, F f) {
  P p = in[threadIdx.x]; 
  for (int k = 0; k < 4; ++k) { float2 x = __bfloat1622float2(p.v[k]); p.v[k] = __floats2bfloat162_rn(f(x.x), f(x.y)); }
  out[threadIdx.x] = p;
}
extern "C" __global__ void gelu(const P* in, P* out) { each(in, out, [](float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }); }
extern "C" __global__ void gelu_tanh(const P* in, P* out) { each(in, out, [](float x) { return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }); }
extern "C" __global__ void silu(const P* in, P* out) { each(in, out, [](float x) { return __fdividef(x, 1.0f + __expf(-x)); }); }
extern "C" __global__ void softmax(const P* in, P* out) {
  P p = in[threadIdx.x]; float x[8]; float m = -INFINITY, s = 0;
  for (int k = 0; k < 4; ++k) { float2 v = __bfloat1622float2(p.v[k]); x[2*k]=v.x; x[2*k+1]=v.y; }
  for (int k = 0; k < 8; ++k) m = fmaxf(m, x[k]);
  for (int k = 0; k < 8; ++k) { x[k] = __expf(x[k] - m); s += x[k]; }
  float r = __fdividef(1.0f, s);
  for (int k = 0; k < 4; ++k) p.v[k] = __floats2bfloat162_rn(x[2*k]*r, x[2*k+1]*r);
  out[threadIdx.x] = p;
}
extern "C" __global__ void rmsnorm(const P* in, P* out) {
  P p = in[threadIdx.x]; float x[8]; float s = 0;
  for (int k = 0; k < 4; ++k) { float2 v = __bfloat1622float2(p.v[k]); x[2*k]=v.x; x[2*k+1]=v.y; }
  for (int k = 0; k < 8; ++k) s += x[k] * x[k];
  float r = rsqrtf(s * 0.125f + 1e-5f);
  for (int k = 0; k < 4; ++k) p.v[k] = __floats2bfloat162_rn(x[2*k]*r, x[2*k+1]*r);
  out[threadIdx.x] = p;
}
