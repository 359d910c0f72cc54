// AdamW over weights and state in any of their types. Contract in engine/ops/optimizer/adamw.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/cuda/optimizer/update_state.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;

/// What one update reads and writes. W: weight; M: NoMaster, float or uint16_t (a remainder);
/// S: moments; G: gradient.
template <typename W, typename M, typename S, typename G>
struct AdamWArrays {
  static constexpr bool kOwnMaster = std::is_same_v<M, NoMaster>;
  static constexpr bool kRemainder = std::is_same_v<M, uint16_t>;
  static constexpr bool kScaled = kHasScales<S>;
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
  CodeTable<S> m_codes;
  CodeTable<S> v_codes;
};

template <typename W, typename M, typename S, typename G>
__global__ void __launch_bounds__(kThreads) AdamWKernel(AdamWArrays<W, M, S, G> a) {
  using Arrays = AdamWArrays<W, M, S, G>;
  constexpr int kN = Arrays::kN;
  constexpr int kUnroll = Arrays::kUnroll;
  const float* m_codes = ShareCodes<0>(a.m_codes);
  const float* v_codes = ShareCodes<1>(a.v_codes);
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
      float parameter = MasterOf(weight[u][j], master[u][j]);
      new_m[j] = StoredValue(m[u][j], m_codes);
      new_v[j] = StoredValue(v[u][j], v_codes);
      if constexpr (Arrays::kScaled) {
        new_m[j] *= scale[u][0];
        new_v[j] *= scale[u][1];
      }
      AdamWElement(coefficients, ToFloat(gradient[u][j]), parameter, new_m[j], new_v[j]);
      SetMaster(parameter, weight[u][j], master[u][j]);
    }
    Store(a.weight, i, a.n, a.aligned, weight[u]);
    if constexpr (!Arrays::kOwnMaster) Store(a.master, i, a.n, a.aligned, master[u]);
    Store(a.m, i, a.n, a.aligned, RoundMoments<S>(new_m, m_codes, a.m_scale, i, a.n));
    Store(a.v, i, a.n, a.aligned, RoundMoments<S>(new_v, v_codes, a.v_scale, i, a.n));
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
                               false,
                               CodeTable<S>(MomentSign::kEither),
                               CodeTable<S>(MomentSign::kNever)};
  a.aligned = IsAligned(a.weight) && IsAligned(a.master) && IsAligned(a.m) && IsAligned(a.v) &&
              IsAligned(a.gradient);
  using Arrays = AdamWArrays<W, M, S, G>;
  constexpr int64_t kPerBlock = int64_t{kThreads} * Arrays::kUnroll * Arrays::kN;
  Launch(context, AdamWKernel<W, M, S, G>,
         dim3(static_cast<unsigned>((a.n + kPerBlock - 1) / kPerBlock)), dim3(kThreads), 0, a);
}

void AdamWCuda(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
               AdamWState& state) {
  DispatchMoment(state.m.dtype(), [&](auto* moment) {
    using S = std::remove_pointer_t<decltype(moment)>;
    DispatchGradient(gradient.dtype(), [&](auto* value) {
      using G = std::remove_pointer_t<decltype(value)>;
      DispatchMasterWeight({state.weight, state.master}, [&](auto* weight, auto* master) {
        using W = std::remove_pointer_t<decltype(weight)>;
        using M = std::remove_pointer_t<decltype(master)>;
        LaunchAdamW<W, M, S, G>(config, scalars, gradient, state);
      });
    });
  });
}

}  // namespace

void FillAdamWOps(CudaOps& ops) { ops.adamw = AdamWCuda; }

}  // namespace trimtab
