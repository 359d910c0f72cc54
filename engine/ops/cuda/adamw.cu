// AdamW over weights and state in any of their types. Contract in engine/ops/adamw.h.
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

/// The weight is its own master.
struct NoMaster {};

/// What one update reads and writes. W: weight; M: NoMaster, float or uint16_t (a remainder);
/// S: moments; G: gradient.
template <typename W, typename M, typename S, typename G>
struct AdamWArrays {
  static constexpr bool kOwnMaster = std::is_same_v<M, NoMaster>;
  static constexpr bool kRemainder = std::is_same_v<M, uint16_t>;
  static constexpr bool kScaled = std::is_same_v<S, F16>;
  /// Elements of a thread that stand together. Where some types are wider, 8 would make
  /// neighbouring threads' accesses to those leave gaps.
  static constexpr int kN =
      sizeof(W) == 2 && kRemainder && sizeof(S) == 2 && sizeof(G) == 2 ? 8 : 4;

  static constexpr int kUnroll = 8 / kN;  // packs per thread and tensor

  W* weight;
  M* master;
  S* m;
  S* v;
  float* m_scale;
  float* v_scale;
  const G* gradient;
  const float* scalars;
  int64_t n;
  AdamWConfig config;
  bool aligned;
};

// Elements [i, i + N) of `source`, zeros from n on.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> Load(const T* source, int64_t i, int64_t n, bool aligned) {
  if (aligned && i + N <= n) return LoadPack<N>(source + i);
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack[j] = i + j < n ? source[i + j] : T{};
  return pack;
}

template <int N, typename T>
__device__ __forceinline__ void Store(T* target, int64_t i, int64_t n, bool aligned,
                                      const Pack<T, N>& pack) {
  if (aligned && i + N <= n) return StorePack(target + i, pack);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (i + j < n) target[i + j] = pack[j];
  }
}

// Rounds moments to S. fp16 ones first get the scale of their block of kMomentBlock, which belongs
// to kMomentBlock / N neighbouring lanes: all of a warp must call it.
template <typename S, int N>
__device__ __forceinline__ Pack<S, N> RoundMoments(float (&values)[N], float* scales, int64_t i,
                                                   int64_t n) {
  if constexpr (std::is_same_v<S, F16>) {
    constexpr int kLanes = static_cast<int>(kMomentBlock) / N;
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) largest = fmaxf(largest, fabsf(values[j]));
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
    }
    float scale = 0.0f;
    float inverse = 0.0f;
    MomentScale(largest, scale, inverse);
    if (static_cast<int>(threadIdx.x) % kLanes == 0 && i < n) scales[i / kMomentBlock] = scale;
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= inverse;
  }
  Pack<S, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack[j] = FromFloat<S>(values[j]);
  return pack;
}

template <typename W, typename M, typename S, typename G>
__global__ void __launch_bounds__(kThreads) AdamWKernel(AdamWArrays<W, M, S, G> a) {
  using Arrays = AdamWArrays<W, M, S, G>;
  constexpr int kN = Arrays::kN;
  constexpr int kUnroll = Arrays::kUnroll;
  const int64_t first = (int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x) * kN;
  Pack<G, kN> gradient[kUnroll];
  Pack<W, kN> weight[kUnroll];
  Pack<M, kN> master[kUnroll];
  Pack<S, kN> m[kUnroll];
  Pack<S, kN> v[kUnroll];
  float scale[kUnroll][2];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = first + int64_t{u} * kThreads * kN;
    gradient[u] = Load<kN>(a.gradient, i, a.n, a.aligned);
    m[u] = Load<kN>(a.m, i, a.n, a.aligned);
    v[u] = Load<kN>(a.v, i, a.n, a.aligned);
    // An fp32 master says all that the weight does.
    if constexpr (Arrays::kOwnMaster || Arrays::kRemainder) {
      weight[u] = Load<kN>(a.weight, i, a.n, a.aligned);
    }
    if constexpr (!Arrays::kOwnMaster) master[u] = Load<kN>(a.master, i, a.n, a.aligned);
    if constexpr (Arrays::kScaled) {
      scale[u][0] = i < a.n ? a.m_scale[i / kMomentBlock] : 0.0f;
      scale[u][1] = i < a.n ? a.v_scale[i / kMomentBlock] : 0.0f;
    }
  }
  // After the loads, which need not wait for it.
  if (a.scalars[kApply] == 0.0f) return;
  const AdamWCoefficients coefficients = MakeAdamWCoefficients(
      a.config.beta1, a.config.beta2, a.config.epsilon, a.config.weight_decay,
      a.config.learning_rate_factor * a.scalars[kLearningRate], a.scalars[kBiasCorrection],
      a.scalars[kRootCorrection], a.scalars[kGradientScale]);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = first + int64_t{u} * kThreads * kN;
    float new_m[kN];
    float new_v[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      float parameter = 0.0f;
      if constexpr (Arrays::kOwnMaster) {
        parameter = ToFloat(weight[u][j]);
      } else if constexpr (Arrays::kRemainder) {
        parameter = MasterOfParts(weight[u][j].bits, master[u][j]);
      } else {
        parameter = master[u][j];
      }
      new_m[j] = ToFloat(m[u][j]);
      new_v[j] = ToFloat(v[u][j]);
      if constexpr (Arrays::kScaled) {
        new_m[j] *= scale[u][0];
        new_v[j] *= scale[u][1];
      }
      AdamWElement(coefficients, ToFloat(gradient[u][j]), parameter, new_m[j], new_v[j]);
      if constexpr (Arrays::kRemainder) {
        weight[u][j] = {WeightBitsOfMaster(parameter)};
        master[u][j] = RemainderOfMaster(parameter);
      } else {
        weight[u][j] = FromFloat<W>(parameter);
        if constexpr (!Arrays::kOwnMaster) master[u][j] = parameter;
      }
    }
    Store(a.weight, i, a.n, a.aligned, weight[u]);
    if constexpr (!Arrays::kOwnMaster) Store(a.master, i, a.n, a.aligned, master[u]);
    Store(a.m, i, a.n, a.aligned, RoundMoments<S>(new_m, a.m_scale, i, a.n));
    Store(a.v, i, a.n, a.aligned, RoundMoments<S>(new_v, a.v_scale, i, a.n));
  }
}

template <typename W, typename M, typename S, typename G>
void LaunchAdamW(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
                 const AdamWState& state) {
  const LaunchContext context = ContextOf(scalars.device());
  AdamWArrays<W, M, S, G> a = {Data<W>(state.weight),
                               Data<M>(state.master),
                               Data<S>(state.m),
                               Data<S>(state.v),
                               Data<float>(state.m_scale),
                               Data<float>(state.v_scale),
                               Data<G>(gradient),
                               Data<float>(scalars),
                               gradient.numel(),
                               config,
                               false};
  a.aligned = IsAligned(a.weight) && IsAligned(a.master) && IsAligned(a.m) && IsAligned(a.v) &&
              IsAligned(a.gradient);
  using Arrays = AdamWArrays<W, M, S, G>;
  constexpr int64_t kPerBlock = int64_t{kThreads} * Arrays::kUnroll * Arrays::kN;
  Launch(context, AdamWKernel<W, M, S, G>,
         dim3(static_cast<unsigned>((a.n + kPerBlock - 1) / kPerBlock)), dim3(kThreads), 0, a);
}

void AdamWCuda(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
               AdamWState& state) {
  DispatchFloat(state.m.dtype(), [&](auto* moment) {
    using S = std::remove_pointer_t<decltype(moment)>;
    DispatchGradient(gradient.dtype(), [&](auto* value) {
      using G = std::remove_pointer_t<decltype(value)>;
      switch (state.weight.dtype()) {
        case DType::kF32:
          return LaunchAdamW<float, NoMaster, S, G>(config, scalars, gradient, state);
        case DType::kF16:
          return LaunchAdamW<F16, float, S, G>(config, scalars, gradient, state);
        default:
          break;
      }
      if (state.master.dtype() == DType::kU16) {
        LaunchAdamW<Bf16, uint16_t, S, G>(config, scalars, gradient, state);
      } else {
        LaunchAdamW<Bf16, float, S, G>(config, scalars, gradient, state);
      }
    });
  });
}

}  // namespace

void FillAdamWOps(CudaOps& ops) { ops.adamw = AdamWCuda; }

}  // namespace trimtab
