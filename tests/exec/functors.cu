#include <cuda/std/array>
#include <cuda/std/tuple>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/span>
template <class F, class R> struct Reducer { F f; R init; template <class G> __device__ R operator()(const float* x, int n, G g) const { R r = init; for (int i = threadIdx.x; i < n; i += blockDim.x) r = f(r, g(x[i])); return r; } };
template <class F, class R> __device__ Reducer<F, R> make(F f, R r) { return {f, r}; }
template <class T, class F> __device__ T block(T v, F f) {
    __shared__ T s[32]; auto warp = [&](T t) { for (int o = 16; o; o >>= 1) t = f(t, __shfl_xor_sync(~0u, t, o)); return t; };
    v = warp(v); if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v; __syncthreads();
    T t = s[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]; if constexpr (sizeof(T) == 8) t = threadIdx.x % 32 < blockDim.x / 32 ? t : T(0); else t = threadIdx.x % 32 < blockDim.x / 32 ? t : s[0]; t = warp(t); __syncthreads(); return t;
}
template <int... C> __device__ float poly(float x) { constexpr cuda::std::array<float, sizeof...(C)> c{float(C)...}; float r = 0; for (float k : c) r = r * x + k; return r; }
template <class... T> __device__ auto sum(T... t) { return (t + ...); }
struct Base { __device__ Base() {} __device__ virtual float at(float x) const = 0; __device__ virtual ~Base() {} };
struct Sq : Base { __device__ Sq() {} __device__ ~Sq() {} __device__ float at(float x) const override { return x * x; } }; struct Lin : Base { float k; __device__ ~Lin() {} __device__ Lin(float q) : k(q) {} __device__ float at(float x) const override { return k * x; } };
__global__ void all(const float* x, int n, double* out) {
    auto plus = [](auto a, auto b) { return a + b; }; auto big = [](float a, float b) { return fmaxf(a, b); };
    double s = block(make(plus, 0.0)(x, n, [](float v) { return double(v); }), plus);
    float m = block(make(big, -cuda::std::numeric_limits<float>::infinity())(x, n, [](float v) { return v; }), big);
    cuda::std::complex<float> z(1.f, 0.5f), w(1.f, 0.f); for (int i = 0; i < 5; ++i) w = w * z + z;
    cuda::std::tuple<int, float> tp{3, 0.5f}; auto [a, bb] = tp; cuda::std::span<const float> sp(x, n);
    Sq sq; Lin lin(3.f); const Base* p[2] = {&sq, &lin}; float v = 0; for (int i = 0; i < 4; ++i) v += p[(i + threadIdx.x) & 1]->at(float(i));
    if (threadIdx.x == 0) { out[0] = s; out[1] = m; out[2] = poly<1, -2, 3>(2.f); out[3] = sum(1, 2.5, 3ll, a, bb); out[4] = w.real(); out[5] = w.imag(); out[6] = sp.last(1)[0] + sp.size(); out[7] = v; out[8] = abs(z); }
}
