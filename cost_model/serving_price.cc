#include "cost_model/serving_price.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// Reading weights and multiplying overlap, but not wholly: (a^n + b^n)^(1/n).
constexpr double kOverlap = 1.8;
// A step with prompts and what it takes to launch it without a graph: nearly the larger one.
constexpr double kFloorSharpness = 3;
// Tokens agree about experts more often than independent draws do: as if there were fewer of them.
constexpr double kDistinctTokens = 0.71;
// Of each doubling of the ranks of an all-reduce beyond two.
constexpr double kMessageGrowth = 1e-6;
// No kernel reaches more of the memory's bandwidth, or of the peak.
constexpr double kMostBandwidth = 0.93;
constexpr double kMostCompute = 0.85;
// fp4 against fp8, on GPUs that have both: NVIDIA B200 and RTX PRO 6000 datasheets.
constexpr double kFp4Speed = 2;

double Join(double a, double b) {
  return std::pow(std::pow(a, kOverlap) + std::pow(b, kOverlap), 1 / kOverlap);
}

double PeakOf(const HardwareProfile& profile, const char* precision) {
  const auto found = profile.peak_flops.find(precision);
  return found == profile.peak_flops.end() ? 0 : found->second.value;
}

/// GPUs that multiply fp4.
bool HasFp4(const HardwareProfile& profile) { return profile.generation.starts_with("blackwell"); }

}  // namespace

double VisibleMemory(const HardwareProfile& profile) {
  constexpr double kGib = 1.073741824;
  constexpr double kShown = 0.99;
  return profile.memory_bytes.value * kGib * kShown;
}

ServingPricer::ServingPricer(const HardwareProfile& profile, const ServingGpu& gpu,
                             const ServingEngine& engine, ServingPrecision weights,
                             int64_t kv_bytes)
    : weight_bytes_(BytesPerWeight(weights)), kv_bytes_(static_cast<double>(kv_bytes)) {
  const double memory = profile.memory_bandwidth.value;
  const auto rate = [memory](double share) { return memory * std::min(share, kMostBandwidth); };
  const double peak16 = PeakOf(profile, "bf16");
  const double peak8 = PeakOf(profile, "fp8");
  if (peak16 <= 0) throw UsageError(fmt::format("profile {}: no bf16 rate", profile.name));

  kv_rate_ = rate(gpu.kv_bandwidth.value);
  other_rate_ = rate(gpu.other_bandwidth.value);
  double peak = peak16;
  double compute = gpu.compute_16.value;
  double widened = 1;
  if (weights == ServingPrecision::kFp8 && peak8 > 0) {
    peak = peak8;
    compute = gpu.compute_8.value;
  } else if (weights == ServingPrecision::kNvFp4 && HasFp4(profile)) {
    multiplies_fp4_ = true;
    peak = kFp4Speed * peak8;
    compute = gpu.compute_4.value;
  } else if (weights == ServingPrecision::kMxFp4 && HasFp4(profile)) {
    peak = peak8;  // activations have 8 bits
    compute = gpu.compute_8.value;
  } else if (weights != ServingPrecision::k16Bit) {
    widened = gpu.weight_only.value;  // to 16 bits, then multiplied
  }
  weight_rate_ = rate(gpu.weight_bandwidth.value * engine.bandwidth.value);
  low_rate_ = weight_rate_ * widened;
  const double speed = engine.compute.value;
  rate_16_ = peak16 * std::min(gpu.compute_16.value * speed, kMostCompute);
  rate_low_ = peak * std::min(compute * speed, kMostCompute) * widened;
  expert_rate_ = rate(gpu.expert_bandwidth.value * engine.expert_bandwidth.value) * widened;
  expert_flops_ =
      peak * std::min(gpu.expert_compute.value * engine.expert_compute.value, kMostCompute);
  attention_flops_ = peak16 * gpu.attention.value;
  link_rate_ = profile.link_bandwidth.value * std::min(gpu.link.value * engine.link.value, 1.0);
  message_s_ = gpu.message_s.value;
  gap_s_ = engine.gap_s.value;
  expert_layer_s_ = engine.expert_layer_s.value * gpu.expert_overhead.value;
  quantise_s_ = engine.quantise_s.value;
  host_s_ = engine.host_s.value;
  sequence_s_ = engine.sequence_s.value;
  prompt_layer_s_ = engine.prompt_layer_s.value;
}

double ServingPricer::Product(const ServingProduct& product) const {
  const double bytes =
      product.low_precision ? weight_bytes_ : BytesPerWeight(ServingPrecision::k16Bit);
  const double read = product.low_precision ? low_rate_ : weight_rate_;
  const double multiply = product.low_precision ? rate_low_ : rate_16_;
  const double seconds = Join(product.weights * bytes / read, product.flops / multiply);
  return seconds + (product.low_precision && multiplies_fp4_ ? quantise_s_ : 0);
}

double ServingPricer::Experts(const ServingProduct& product, const ServingWork& work) const {
  // Of E experts, those that at least one of T tokens goes to: 1 - (1 - k / E)^T.
  const double touched =
      1 - std::pow(1 - work.routed_share, std::max(1.0, kDistinctTokens * work.all_tokens));
  return Join(product.weights * weight_bytes_ * touched / expert_rate_,
              product.flops / expert_flops_);
}

ServingBreakdown ServingPricer::Price(const ServingWork& work) const {
  ServingBreakdown parts;
  for (const ServingProduct& product : work.products) {
    switch (product.kind) {
      case ServingProduct::Kind::kDense:
        parts.dense_s += product.count * Product(product);
        break;
      case ServingProduct::Kind::kExperts:
        parts.experts_s += product.count * Experts(product, work);
        break;
      case ServingProduct::Kind::kHead:
        parts.head_s += product.count * Product(product);
        break;
    }
  }
  parts.experts_s += work.expert_layers * expert_layer_s_;
  parts.attention_s =
      work.kv_values * kv_bytes_ / kv_rate_ + work.attention_flops / attention_flops_;
  for (const ServingMessage& message : work.messages) {
    if (message.ranks < 2) continue;
    const auto ranks = static_cast<double>(message.ranks);
    const double latency = message_s_ + kMessageGrowth * std::log2(ranks / 2);
    const double ring = 2 * (ranks - 1) / ranks * message.bytes / link_rate_;
    parts.messages_s += message.count * (latency + ring);
  }
  parts.other_s = work.other_bytes / other_rate_;
  parts.gaps_s = work.ops * gap_s_;
  if (work.prompt_tokens > 0) {
    const double device = parts.seconds();
    const double floor = work.layers * prompt_layer_s_;
    parts.prompt_floor_s =
        std::pow(std::pow(device, kFloorSharpness) + std::pow(floor, kFloorSharpness),
                 1 / kFloorSharpness) -
        device;
  }
  parts.host_s = host_s_ + work.sequences * sequence_s_;
  return parts;
}

}  // namespace trimtab
