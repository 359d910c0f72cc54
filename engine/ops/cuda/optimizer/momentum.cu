// Updates by momentum over weights and state in any of their types. Contract in
// engine/ops/optimizer/momentum.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/cuda/optimizer/update_state.h"

namespace trimtab {
namespace {

constexpr int kMomentumThreads = 256;
constexpr int kMomentumPack = 4;

/// What one update reads and writes, nullptr where there is none. W: weight; M: NoMaster, float or
/// uint16_t (a remainder); S: momentum; G: gradient.
template <typename W, typename M, typename S, typename G>
struct MomentumArrays {
  const G* gradient;
  const float* scalars;
  W* weight;
  M* master;
  S* momentum;
  float* scales;
  float* update;  // in one of two types
  Bf16* short_update;
  int64_t n;
  MomentumConfig config;
  bool aligned;
  CodeTable<S> codes;
};

template <typename W, typename M, typename S, typename G>
__global__ void __launch_bounds__(kMomentumThreads) MomentumKernel(MomentumArrays<W, M, S, G> a) {
  constexpr int kN = kMomentumPack;
  const float* codes = ShareCodes<0>(a.codes);
  const int64_t i = (int64_t{blockIdx.x} * kMomentumThreads + threadIdx.x) * kN;
  if (a.scalars[kApply] == 0.0f) return;
  const bool has_momentum = a.momentum != nullptr;
  const MomentumCoefficients c = MakeMomentumCoefficients(
      a.config.momentum, a.config.nesterov, a.config.weight_decay,
      a.config.learning_rate_factor * a.scalars[kLearningRate], a.config.update_scale,
      has_momentum ? a.scalars[kGradientScale] : 1.0f);
  const Pack<G, kN> gradient = Load<kN>(a.gradient, i, a.n, a.aligned);
  float update[kN];
#pragma unroll
  for (int j = 0; j < kN; ++j) update[j] = ToFloat(gradient[j]);
  // All lanes take the same way: blocks of scaled moments are made by all of a warp.
  if (has_momentum) {
    const Pack<S, kN> stored = Load<kN>(a.momentum, i, a.n, a.aligned);
    const float scale = kHasScales<S> && i < a.n ? a.scales[i / kMomentBlock] : 1.0f;
    float momentum[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      momentum[j] = StoredValue(stored[j], codes) * scale;
      update[j] = MomentumElement(c, update[j], momentum[j]);
    }
    Store(a.momentum, i, a.n, a.aligned, RoundMoments<S>(momentum, codes, a.scales, i, a.n));
  }
  if (a.update != nullptr) {
    Pack<float, kN> stored;
#pragma unroll
    for (int j = 0; j < kN; ++j) stored[j] = update[j];
    Store(a.update, i, a.n, a.aligned, stored);
  }
  if (a.short_update != nullptr) {
    Pack<Bf16, kN> stored;
#pragma unroll
    for (int j = 0; j < kN; ++j) stored[j] = FromFloat<Bf16>(update[j]);
    Store(a.short_update, i, a.n, a.aligned, stored);
  }
  if (a.weight == nullptr) return;
  Pack<W, kN> weight = Load<kN>(a.weight, i, a.n, a.aligned);
  Pack<M, kN> master{};
  if constexpr (!std::is_same_v<M, NoMaster>) master = Load<kN>(a.master, i, a.n, a.aligned);
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    const float parameter = MasterOf(weight[j], master[j]);
    SetMaster(parameter * c.keep - c.step_size * update[j], weight[j], master[j]);
  }
  Store(a.weight, i, a.n, a.aligned, weight);
  if constexpr (!std::is_same_v<M, NoMaster>) Store(a.master, i, a.n, a.aligned, master);
}

template <typename W, typename M, typename S, typename G>
void LaunchMomentum(const MomentumConfig& config, const Tensor& scalars, const Tensor& gradient,
                    const MomentumState& state) {
  const LaunchContext context = ContextOf(scalars.device());
  const bool is_short = state.update.defined() && state.update.dtype() == DType::kBf16;
  MomentumArrays<W, M, S, G> a = {Data<G>(gradient),
                                  Data<float>(scalars),
                                  Data<W>(state.weight.weight),
                                  Data<M>(state.weight.master),
                                  Data<S>(state.momentum.values),
                                  Data<float>(state.momentum.scales),
                                  is_short ? nullptr : Data<float>(state.update),
                                  is_short ? Data<Bf16>(state.update) : nullptr,
                                  gradient.numel(),
                                  config,
                                  false,
                                  CodeTable<S>(MomentSign::kEither)};
  a.aligned = IsAligned(a.gradient) && IsAligned(a.weight) && IsAligned(a.master) &&
              IsAligned(a.momentum) && IsAligned(a.update) && IsAligned(a.short_update);
  constexpr int64_t kPerBlock = int64_t{kMomentumThreads} * kMomentumPack;
  Launch(context, MomentumKernel<W, M, S, G>,
         dim3(static_cast<unsigned>((a.n + kPerBlock - 1) / kPerBlock)), dim3(kMomentumThreads), 0,
         a);
}

void MomentumCuda(const MomentumConfig& config, const Tensor& scalars, const Tensor& gradient,
                  MomentumState& state) {
  DispatchGradient(gradient.dtype(), [&](auto* value) {
    using G = std::remove_pointer_t<decltype(value)>;
    if (!state.weight.weight.defined()) {
      return DispatchMoment(state.momentum.values.dtype(), [&](auto* moment) {
        using S = std::remove_pointer_t<decltype(moment)>;
        LaunchMomentum<float, NoMaster, S, G>(config, scalars, gradient, state);
      });
    }
    DispatchMasterWeight(state.weight, [&](auto* weight, auto* master) {
      using W = std::remove_pointer_t<decltype(weight)>;
      using M = std::remove_pointer_t<decltype(master)>;
      if (!state.momentum.values.defined()) {
        return LaunchMomentum<W, M, float, G>(config, scalars, gradient, state);
      }
      DispatchMoment(state.momentum.values.dtype(), [&](auto* moment) {
        using S = std::remove_pointer_t<decltype(moment)>;
        LaunchMomentum<W, M, S, G>(config, scalars, gradient, state);
      });
    });
  });
}

}  // namespace

void FillMomentumOps(CudaOps& ops) { ops.momentum = MomentumCuda; }

}  // namespace trimtab
