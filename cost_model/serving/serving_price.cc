#include "cost_model/serving/serving_price.h"

#include <algorithm>
#include <cmath>

#include "cost_model/prices/overlap.h"
#include "engine/base/error.h"
#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {
namespace {

// A step with prompts and what it takes to launch it without a graph: nearly the larger one.
constexpr double kFloorSharpness = 3;
// Some experts are chosen far more often than others: how often, against the mean, is taken to be
// Gamma distributed with this shape.
constexpr double kPopularity = 0.5;
// Of each doubling of the ranks of an all-reduce beyond two.
constexpr double kMessageGrowth = 1e-6;
// No kernel reaches more of the memory's bandwidth, or of the peak.
constexpr double kMostBandwidth = 1;
constexpr double kMostCompute = 0.85;
// Bytes/s between a GPU and its host: PCIe 4.0 x16, 31.5 GB/s by its specification, of which
// bandwidthTest of NVIDIA's cuda-samples shows four fifths.
constexpr double kHostLink = 25e9;
// fp4 against fp8, on GPUs that have both: NVIDIA B200 and RTX PRO 6000 datasheets.
constexpr double kFp4Speed = 2;

double PeakOf(const HardwareProfile& profile, const char* precision) {
  const auto found = profile.peak_flops.find(precision);
  return found == profile.peak_flops.end() ? 0 : found->second.value;
}

/// Bytes of a message of n ranks that each moves, against those of the full buffer, with a ring
/// (Patarasuk and Yuan, JPDC 2009): an all-reduce is a reduce-scatter and an all-gather.
double RingShare(CollectiveKind kind, double ranks) {
  if (kind == CollectiveKind::kSend) return 1;
  return (kind == CollectiveKind::kAllReduce ? 2 : 1) * (ranks - 1) / ranks;
}

struct ExpertKernels {
  double bandwidth;
  double compute;
  double overhead;
};

/// GPUs that multiply fp4.
bool HasFp4(const HardwareProfile& profile) { return profile.generation.starts_with("blackwell"); }

}  // namespace

ServingBreakdown& ServingBreakdown::operator+=(const ServingBreakdown& other) {
  dense_s += other.dense_s;
  experts_s += other.experts_s;
  head_s += other.head_s;
  attention_s += other.attention_s;
  messages_s += other.messages_s;
  other_s += other.other_s;
  gaps_s += other.gaps_s;
  prompt_floor_s += other.prompt_floor_s;
  host_s += other.host_s;
  return *this;
}

CopyRates CopyRatesOf(const HardwareProfile& profile, bool in_one_node) {
  if (profile.device == DeviceKind::kCpu) {
    const double rate = profile.memory_bandwidth.value * profile.bandwidth_efficiency.value;
    return {.bytes_per_s = rate / 2, .latency_s = 0};
  }
  if (in_one_node) return {.bytes_per_s = kHostLink, .latency_s = profile.link_latency_s.value};
  const double network = profile.network_bandwidth.value * profile.network_efficiency.value;
  return {.bytes_per_s = std::min(network, kHostLink),
          .latency_s = profile.network_latency_s.value};
}

ServingRates ServingRatesOf(const HardwareProfile& profile, const ServingGpu& gpu,
                            const ServingEngine& engine, ServingPrecision weights,
                            double kv_bytes) {
  ServingRates rates = {.weight_bytes = BytesPerWeight(weights), .kv_bytes = kv_bytes};
  const double memory = profile.memory_bandwidth.value;
  const auto rate = [memory](double share) { return memory * std::min(share, kMostBandwidth); };
  const double peak16 = PeakOf16Bits(profile);
  const double peak8 = PeakOf(profile, "fp8");
  if (peak16 <= 0) throw UsageError(fmt::format("profile {}: no rate in 16 bits", profile.name));

  rates.kv_rate = rate(gpu.kv_bandwidth.value);
  rates.other_rate = rate(gpu.other_bandwidth.value);
  double peak = peak16;
  double compute = gpu.compute_16.value;
  double widened = 1;
  ExpertKernels experts = {gpu.expert_bandwidth.value, gpu.expert_compute.value, /*overhead=*/1};
  if (weights == ServingPrecision::k32Bit) {
    peak = PeakOf(profile, "fp32");
    if (peak <= 0) throw UsageError(fmt::format("profile {}: no fp32 rate", profile.name));
  } else if (weights == ServingPrecision::kFp8 && peak8 > 0 && !engine.widens_weights) {
    peak = peak8;
    compute = gpu.compute_8.value;
    experts.overhead = gpu.expert_overhead_8.value;
  } else if (weights == ServingPrecision::kNvFp4 && HasFp4(profile)) {
    rates.multiplies_fp4 = true;
    peak = kFp4Speed * peak8;
    compute = gpu.compute_4.value;
    experts.compute = gpu.expert_compute_4.value;
    experts.overhead = gpu.expert_overhead_4.value;
  } else if (weights == ServingPrecision::kMxFp4 && HasFp4(profile)) {
    peak = peak8;  // activations have 8 bits
    compute = gpu.compute_8.value;
    experts.compute = gpu.expert_compute_4.value;
    experts.overhead = gpu.expert_overhead_4.value;
  } else if (weights != ServingPrecision::k16Bit) {
    widened = gpu.weight_only.value;  // to 16 bits, then multiplied
    experts = {gpu.expert_bandwidth_widened.value, gpu.expert_compute_widened.value,
               gpu.expert_overhead_widened.value};
  }
  rates.weight_rate = rate(gpu.weight_bandwidth.value * engine.bandwidth.value);
  rates.low_rate = rates.weight_rate * widened;
  const double speed = engine.compute.value;
  rates.rate_16 = peak16 * std::min(gpu.compute_16.value * speed, kMostCompute);
  rates.rate_low = peak * std::min(compute * speed, kMostCompute) * widened;
  rates.expert_rate = rate(experts.bandwidth * engine.expert_bandwidth.value);
  rates.popularity = kPopularity;
  rates.expert_flops = peak * std::min(experts.compute * engine.expert_compute.value, kMostCompute);
  rates.attention_flops = peak16 * gpu.attention.value;
  rates.link_rate =
      profile.link_bandwidth.value * std::min(gpu.link.value * engine.link.value, 1.0);
  rates.message_s = gpu.message_s.value;
  rates.gap_s = engine.gap_s.value;
  rates.launches_each_op = engine.launches_each_op;
  rates.expert_layer_s = engine.expert_layer_s.value * experts.overhead;
  rates.quantise_s = engine.quantise_s.value;
  rates.host_s = engine.host_s.value;
  rates.sequence_s = engine.sequence_s.value;
  rates.prompt_layer_s = engine.prompt_layer_s.value;
  return rates;
}

double ServingPricer::Product(const ServingProduct& product) const {
  const double bytes =
      product.low_precision ? rates_.weight_bytes : BytesPerWeight(ServingPrecision::k16Bit);
  const double read = product.low_precision ? rates_.low_rate : rates_.weight_rate;
  const double multiply = product.low_precision ? rates_.rate_low : rates_.rate_16;
  const double unpacked = product.low_precision ? Unpacking(product.weights, product.flops) : 0;
  const double seconds =
      BesideEachOther(product.weights * bytes / read, product.flops / multiply + unpacked) *
      ByRows(product.weights, product.flops);
  return seconds + (product.low_precision && rates_.multiplies_fp4 ? rates_.quantise_s : 0);
}

// Of E experts, those that at least one of T tokens goes to: 1 - (1 - k / E)^T where all are chosen
// equally often; with popularity of shape a the mean of 1 - exp(-T k / E x) over Gamma distributed
// x.
double ServingPricer::Touched(const ServingWork& work) const {
  const double share = work.routed_share;
  if (rates_.popularity == 0) return 1 - std::pow(1 - share, std::max(1.0, work.all_tokens));
  const double shape = rates_.popularity;
  return std::max(share, 1 - std::pow(1 + work.all_tokens * share / shape, -shape));
}

double ServingPricer::Experts(const ServingProduct& product, const ServingWork& work) const {
  const double weights = product.weights * Touched(work);
  return BesideEachOther(weights * rates_.weight_bytes / rates_.expert_rate,
                         product.flops / rates_.expert_flops + Unpacking(weights, product.flops));
}

// A cpu unpacks weights for each of few rows and once for many
// (engine/ops/cpu/packed/packed_gemm.cc). Few rows multiply by those in 32 bits where they are.
double ServingPricer::Unpacking(double weights, double flops) const {
  if (rates_.unpack_rate == 0) return 0;
  const double rows = flops / (2 * weights);
  const bool as_they_are = rates_.weight_bytes == BytesPerWeight(ServingPrecision::k32Bit);
  const double times = rows > kSingleRows ? 1 : as_they_are ? 0 : rows;
  return times * weights / rates_.unpack_rate;
}

// Nothing is interpolated between two kernels.
static_assert(std::ranges::count(kRowKnots, double{kSingleRows}) == 1 &&
              std::ranges::count(kRowKnots, double{kSingleRows + 1}) == 1);

double ServingPricer::ByRows(double weights, double flops) const {
  if (rates_.by_rows.empty()) return 1;
  const double rows = std::clamp(flops / (2 * weights), kRowKnots.front(), kRowKnots.back());
  size_t next = 1;
  while (next + 1 < kRowKnots.size() && kRowKnots[next] < rows) ++next;
  const double from = kRowKnots[next - 1];
  const double part = std::log(rows / from) / std::log(kRowKnots[next] / from);
  return rates_.by_rows[next - 1] + part * (rates_.by_rows[next] - rates_.by_rows[next - 1]);
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
  parts.experts_s += work.expert_layers * rates_.expert_layer_s;
  parts.attention_s = BesideEachOther(work.kv_values * rates_.kv_bytes / rates_.kv_rate,
                                      work.decode_flops / rates_.attention_flops) +
                      work.attention_flops / rates_.attention_flops;
  for (const ServingMessage& message : work.messages) {
    if (message.ranks < 2) continue;
    const auto ranks = static_cast<double>(message.ranks);
    const double latency = rates_.message_s + kMessageGrowth * std::log2(ranks / 2);
    const double moved = RingShare(message.kind, ranks) * message.bytes;
    parts.messages_s += message.count * (latency + moved / rates_.link_rate);
  }
  parts.other_s = work.other_bytes / rates_.other_rate;
  parts.gaps_s = (rates_.launches_each_op ? work.ops : work.kernels) * rates_.gap_s;
  if (work.prompt_tokens > 0) {
    const double device = parts.seconds();
    const double floor = work.layers * rates_.prompt_layer_s;
    parts.prompt_floor_s =
        std::pow(std::pow(device, kFloorSharpness) + std::pow(floor, kFloorSharpness),
                 1 / kFloorSharpness) -
        device;
  }
  parts.host_s = rates_.host_s + work.sequences * rates_.sequence_s;
  return parts;
}

}  // namespace trimtab
