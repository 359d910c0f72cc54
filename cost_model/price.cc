#include "cost_model/price.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cost_model/numerics.h"
#include "engine/base/error.h"
#include "engine/comm/process_groups.h"
#include "engine/ops/adamw.h"

namespace trimtab {
namespace {

/// Cores a rank has to itself when `mode` runs on `cores` (0 = unknown: as many as it asks for).
double CoresPerRank(const Mode& mode, int64_t cores) {
  const double asked = mode.threads;
  if (cores <= 0) return asked;
  return std::min(asked, static_cast<double>(cores) / mode.ranks);
}

/// The tables of `mode`, or of the mode nearest to it in ratio; nullptr without any.
const ModeTables* NearestTables(const HardwareProfile& profile, const Mode& mode) {
  const ModeTables* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  for (const ModeTables& tables : profile.modes) {
    const double distance =
        std::abs(std::log2(static_cast<double>(tables.mode.ranks) / mode.ranks)) +
        std::abs(std::log2(static_cast<double>(tables.mode.threads) / mode.threads));
    if (distance < nearest_distance) {
      nearest = &tables;
      nearest_distance = distance;
    }
  }
  return nearest;
}

/// Points of a grid with holes.
struct Sample3 {
  std::array<double, 3> at{};
  double value = 0;
};

size_t IndexOf(const std::vector<double>& axis, double value) {
  return static_cast<size_t>(std::lower_bound(axis.begin(), axis.end(), value) - axis.begin());
}

/// A full grid from `samples`. Cells never measured, which are those too large to be worth the
/// time, take the largest neighbour's value one step down: rates have levelled off there.
LogGrid3 MakeGrid(const std::vector<Sample3>& samples) {
  if (samples.empty()) return {};
  std::array<std::vector<double>, 3> axes;
  for (size_t i = 0; i < 3; ++i) {
    for (const Sample3& sample : samples) axes[i].push_back(sample.at[i]);
    std::sort(axes[i].begin(), axes[i].end());
    axes[i].erase(std::unique(axes[i].begin(), axes[i].end()), axes[i].end());
  }
  const std::array<size_t, 3> stride = {axes[1].size() * axes[2].size(), axes[2].size(), 1};
  std::vector<double> values(axes[0].size() * stride[0], 0.0);
  for (const Sample3& sample : samples) {
    size_t cell = 0;
    for (size_t i = 0; i < 3; ++i) cell += IndexOf(axes[i], sample.at[i]) * stride[i];
    values[cell] = sample.value;
  }
  const double typical = samples.front().value;
  for (size_t cell = 0; cell < values.size(); ++cell) {
    if (values[cell] > 0) continue;
    for (size_t i = 0; i < 3; ++i) {
      if ((cell / stride[i]) % axes[i].size() == 0) continue;
      values[cell] = std::max(values[cell], values[cell - stride[i]]);
    }
    if (values[cell] <= 0) values[cell] = typical;
  }
  return LogGrid3(axes, values);
}

LogCurve MakeCurve(const std::vector<BytesPoint>& points) {
  std::vector<double> x;
  std::vector<double> y;
  for (const BytesPoint& point : points) {
    x.push_back(static_cast<double>(point.bytes));
    y.push_back(point.seconds);
  }
  // Below the table an op costs its call, above it its bytes.
  return LogCurve(x, y, LogCurve::Ends::kHold, LogCurve::Ends::kProportional);
}

LogGrid3 GemmGrid(const ModeTables& tables, bool accumulate) {
  std::vector<Sample3> samples;
  for (const GemmPoint& point : tables.gemm) {
    if (point.accumulate != accumulate) continue;
    const auto m = static_cast<double>(point.m);
    const auto n = static_cast<double>(point.n);
    const auto k = static_cast<double>(point.k);
    samples.push_back({{m, n, k}, point.seconds / (2 * m * n * k)});
  }
  return MakeGrid(samples);
}

/// FLOPs as AttentionForwardRecord and AttentionBackwardRecord count them.
double AttentionFlops(const AttentionPoint& point, bool backward) {
  const auto pairs = static_cast<double>(point.sequence * (point.sequence + 1) / 2);
  const double product = 2.0 * static_cast<double>(point.head_size) * pairs;
  return static_cast<double>(point.batch_heads) * product * (backward ? 5 : 2);
}

LogGrid3 AttentionGrid(const ModeTables& tables, bool backward) {
  std::vector<Sample3> samples;
  for (const AttentionPoint& point : tables.attention) {
    const double seconds = backward ? point.backward_s : point.forward_s;
    samples.push_back({{static_cast<double>(point.batch_heads), static_cast<double>(point.sequence),
                        static_cast<double>(point.head_size)},
                       seconds / AttentionFlops(point, backward)});
  }
  return MakeGrid(samples);
}

/// Traffic of the same op in fp32, which the tables are over: a cpu's time goes by the elements.
int64_t Fp32Bytes(const OpRecord& op) {
  constexpr int64_t kFp32 = SizeOf(DType::kF32);
  switch (op.kind) {
    case OpKind::kAdamW:
      return AdamWRecord(op.dims[0]).bytes;
    case OpKind::kQuantize:  // its results are fp8 either way
      return op.bytes + op.dims[0] * op.dims[1] * (kFp32 - SizeOf(op.dtype));
    case OpKind::kLayerNormForwardFp8:
    case OpKind::kRmsNormForwardFp8:
    case OpKind::kGeluForwardFp8:
    case OpKind::kGeluBackwardFp8:
    case OpKind::kSwiGluForwardFp8:
    case OpKind::kSwiGluBackwardFp8: {
      const int64_t widths = op.kind == OpKind::kSwiGluBackwardFp8 ? 2 : 1;
      const int64_t copies = 2 * widths * op.dims[0] * op.dims[1];  // one byte an element each
      return (op.bytes - copies) * kFp32 / SizeOf(op.dtype) + copies;
    }
    default:
      return op.bytes * kFp32 / SizeOf(op.dtype);
  }
}

/// Share of the peak by size.
LogCurve ShareCurve(const EfficiencyCurve& curve) {
  std::vector<double> sizes;
  std::vector<double> shares;
  for (const EfficiencyPoint& point : curve.points) {
    sizes.push_back(static_cast<double>(point.size));
    shares.push_back(point.efficiency);
  }
  return LogCurve(sizes, shares, LogCurve::Ends::kProportional, LogCurve::Ends::kHold);
}

/// A tile of an output: what one multiprocessor works on at a time, and its speed against others.
struct Tile {
  int64_t rows;
  int64_t columns;
  double speed;
};
/// The shapes of CUTLASS and cuBLAS; small ones reuse less of what they load.
constexpr Tile kTiles[] = {
    {256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95}, {64, 128, 0.8}, {64, 64, 0.6}};

// Attention that is not fused: a product's rate, for each of its matrices is small, and passes over
// the square of scores in 16 bits: softmax, mask, scale, dropout and the products themselves.
constexpr double kUnfusedProductShare = 0.53;
constexpr double kUnfusedForwardPasses = 7;
constexpr double kUnfusedBackwardPasses = 8.4;
constexpr double kScoreBytes = 2;

// Heads below this size leave tensor cores idle beside the exponentials.
constexpr double kFullHead = 128;
constexpr double kSmallHeadExponent = 0.12;

bool IsProduct(const OpRecord& op) {
  return op.kind == OpKind::kGemm || op.kind == OpKind::kGroupedGemm;
}

/// How many products of its dimensions an op is.
int64_t ProductsOf(const OpRecord& op) { return op.kind == OpKind::kGroupedGemm ? op.dims[3] : 1; }

/// A product that adds to its output moves it twice (see GemmRecord): how weight gradients show.
bool Accumulates(const OpRecord& op) {
  const int64_t once = ProductsOf(op) * (op.dims[0] * op.dims[2] + op.dims[2] * op.dims[1] +
                                         op.dims[0] * op.dims[1]);
  return op.bytes > once * SizeOf(op.dtype);
}

}  // namespace

double TileShare(int64_t m, int64_t n, int64_t products, int64_t multiprocessors) {
  double best = 0;
  for (const Tile& tile : kTiles) {
    const int64_t down = (m + tile.rows - 1) / tile.rows;
    const int64_t across = (n + tile.columns - 1) / tile.columns;
    const int64_t tiles = products * down * across;
    const int64_t waves = (tiles + multiprocessors - 1) / multiprocessors;
    const auto paid = static_cast<double>(waves * multiprocessors * tile.rows * tile.columns);
    best = std::max(best, tile.speed * static_cast<double>(products * m * n) / paid);
  }
  return best;
}

int64_t StrideOf(GroupKind group, const ParallelConfig& layout) {
  return PlaceInGroup(layout, group, 0).stride;
}

Precision Pricer::RateOf(const OpRecord& op) const {
  switch (op.dtype) {
    case DType::kBf16:
      return Precision::kBf16;
    case DType::kF16:
      return Precision::kFp16;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return Precision::kFp8;
    default:
      return run_rate_ == Precision::kTf32 && IsProduct(op) ? Precision::kTf32 : Precision::kFp32;
  }
}

Pricer::Pricer(const HardwareProfile& profile, const Mode& mode, int64_t ranks_per_node,
               int64_t cores, Precision precision, const SoftwareStack& stack)
    : overlaps_(profile.device != "cpu"),
      run_rate_(precision),
      link_domain_(std::max<int64_t>({ranks_per_node, profile.link_domain, 1})),
      multiprocessors_(profile.multiprocessors),
      attention_kernel_(stack.attention_kernel),
      attention_speed_(stack.attention.value),
      memory_traffic_(stack.memory_traffic.value),
      host_layer_s_(stack.host_layer_s.value),
      host_tp_growth_(stack.host_tp_growth.value),
      blocking_launches_(stack.blocking_launches),
      fp8_layers_(stack.fp8_layers),
      dispatch_s_(stack.dispatch_s.value),
      tp_exposed_(stack.tp_exposed.value),
      dp_exposed_(stack.dp_exposed.value),
      slowdown_(stack.slowdown.value),
      recompute_(stack.recompute.value),
      step_s_(stack.step_s.value) {
  const std::string why = Unpriceable(profile, precision);
  if (!why.empty()) throw UsageError(fmt::format("precision {}: {}", Name(precision), why));
  const bool cpu = profile.device == "cpu";
  const double share = cpu ? CoresPerRank(mode, cores) : 1;
  for (size_t i = 0; i < kRateCount; ++i) {
    const std::string name(Name(static_cast<Precision>(i)));
    const auto peak = profile.peak_flops.find(name);
    if (peak != profile.peak_flops.end()) rates_[i].peak = peak->second.value * share;
    rates_[i].speed = rates_[i].peak * stack.compute.value;
    const auto own = profile.gemm_efficiency_of.find(name);
    rates_[i].efficiency =
        ShareCurve(own == profile.gemm_efficiency_of.end() ? profile.gemm_efficiency : own->second);
  }
  attention_forward_ = ShareCurve(profile.attention_forward);
  attention_backward_ = ShareCurve(profile.attention_backward);
  // Ranks of a cpu share its memory; a GPU has its own.
  bandwidth_ = profile.memory_bandwidth.value * profile.bandwidth_efficiency.value /
               (cpu ? std::max(1, mode.ranks) : 1);
  launch_overhead_s_ = profile.launch_overhead_s.value;
  link_latency_s_ = profile.link_latency_s.value;
  link_bandwidth_ = profile.link_bandwidth.value * profile.link_efficiency.value;
  network_latency_s_ = profile.network_latency_s.value;
  network_bandwidth_ =
      profile.network_bandwidth.value * profile.network_efficiency.value * stack.network.value;
  if (attention_kernel_ == AttentionKernel::kFlash2) {
    attention_speed_ *= profile.flash_attention_2.value;
  }

  const ModeTables* tables = NearestTables(profile, mode);
  if (tables == nullptr) return;
  has_tables_ = true;
  calibrated_ = tables->mode == mode;
  scale_ = CoresPerRank(tables->mode, cores) / CoresPerRank(mode, cores);
  step_factor_ = tables->step_factor;
  spread_ = SpreadOf(*tables);
  for (const auto& [name, factors] : tables->precisions) {
    for (size_t i = 0; i < kRateCount; ++i) {
      if (name == Name(static_cast<Precision>(i))) rates_[i].factors = factors;
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    gemm_[i] = GemmGrid(*tables, i == 1);
    attention_[i] = AttentionGrid(*tables, i == 1);
  }
  for (const auto& [kind, points] : tables->ops) {
    ops_[static_cast<size_t>(kind)] = MakeCurve(points);
  }
  for (const auto& [key, points] : tables->collectives) {
    std::vector<LogCurve>& by_ranks = collectives_[static_cast<size_t>(key.first)];
    const auto ranks = static_cast<size_t>(key.second);
    if (by_ranks.size() <= ranks) by_ranks.resize(ranks + 1);
    by_ranks[ranks] = MakeCurve(points);
  }
}

double Pricer::Seconds(const OpRecord& op) const {
  if (!has_tables_) return Roofline(op);
  const PrecisionFactors& factors = rates_[static_cast<size_t>(RateOf(op))].factors;
  const auto flops = static_cast<double>(op.flops);
  const LogGrid3* grid = nullptr;
  double factor = factors.attention;
  if (IsProduct(op)) {
    grid = &gemm_[Accumulates(op) ? 1 : 0];
    factor = factors.gemm;
  } else if (op.kind == OpKind::kAttentionForward) {
    grid = &attention_[0];
  } else if (op.kind == OpKind::kAttentionBackward) {
    grid = &attention_[1];
  }
  if (grid != nullptr && !grid->empty()) {
    return factor * scale_ * flops *
           grid->At(static_cast<double>(op.dims[0]), static_cast<double>(op.dims[1]),
                    static_cast<double>(op.dims[2]));
  }
  const LogCurve& curve = ops_[static_cast<size_t>(op.kind)];
  if (curve.empty()) return Roofline(op);
  return factors.ops * scale_ * curve.At(static_cast<double>(std::max<int64_t>(Fp32Bytes(op), 1)));
}

double Pricer::SecondsInLayer(const OpRecord& op) const {
  if (!fp8_layers_ || !IsProduct(op) || SizeOf(op.dtype) != 2) return Seconds(op);
  OpRecord product = op;
  product.dtype = DType::kF8E4M3;
  // What is multiplied is read in 16 bits and written in 8 before; weights are so once a step.
  constexpr double kCastBytes = 3;
  const auto values = static_cast<double>(ProductsOf(op) * op.dims[0] * op.dims[2]);
  return Seconds(product) + kCastBytes * values * memory_traffic_ / bandwidth_;
}

double Pricer::Seconds(const CommRecord& message, int64_t stride) const {
  const std::vector<LogCurve>& by_ranks = collectives_[static_cast<size_t>(message.kind)];
  const auto ranks = static_cast<size_t>(message.ranks);
  const auto bytes = static_cast<double>(std::max<int64_t>(message.bytes, 1));
  if (ranks < by_ranks.size() && !by_ranks[ranks].empty()) {
    return scale_ * by_ranks[ranks].At(bytes);
  }
  // The largest group measured stands for one that was not.
  if (!by_ranks.empty()) return scale_ * by_ranks.back().At(bytes);
  const bool hidden = message.group == GroupKind::kTensor && !message.asynchronous();
  return Ring(message, stride) * (hidden ? tp_exposed_ : 1);
}

double Pricer::Roofline(const OpRecord& op) const {
  const auto bytes = static_cast<double>(op.bytes);
  if (op.kind == OpKind::kSortByExpert) {
    return dispatch_s_ + bytes * memory_traffic_ / bandwidth_ + launch_overhead_s_;
  }
  if (op.flops == 0) return bytes * memory_traffic_ / bandwidth_ + launch_overhead_s_;
  if (!IsProduct(op)) return Attention(op) + launch_overhead_s_;
  const RateTable& rate = rates_[static_cast<size_t>(RateOf(op))];
  TRIMTAB_ASSERT(rate.peak > 0, "the profile has no peak rate for {}", Name(op.dtype));
  const int64_t smallest = std::min({op.dims[0], op.dims[1], op.dims[2]});
  double share = rate.efficiency.At(static_cast<double>(std::max<int64_t>(smallest, 1)));
  if (multiprocessors_ > 0) {
    share *= TileShare(op.dims[0], op.dims[1], ProductsOf(op), multiprocessors_);
  }
  const double compute_s = static_cast<double>(op.flops) / (rate.speed * share);
  return std::max(compute_s, bytes / bandwidth_) + launch_overhead_s_;
}

double Pricer::Attention(const OpRecord& op) const {
  if (attention_kernel_ == AttentionKernel::kUnfused) return UnfusedAttention(op);
  const RateTable& rate = rates_[static_cast<size_t>(RateOf(op))];
  TRIMTAB_ASSERT(rate.peak > 0, "the profile has no peak rate for {}", Name(op.dtype));
  const bool backward = op.kind == OpKind::kAttentionBackward;
  double share =
      (backward ? attention_backward_ : attention_forward_).At(static_cast<double>(op.dims[1]));
  const auto head = static_cast<double>(op.dims[2]);
  if (multiprocessors_ > 0 && head < kFullHead) {
    share *= std::pow(head / kFullHead, kSmallHeadExponent);
  }
  const double compute_s = static_cast<double>(op.flops) / (rate.peak * share * attention_speed_);
  return std::max(compute_s, static_cast<double>(op.bytes) / bandwidth_);
}

double Pricer::UnfusedAttention(const OpRecord& op) const {
  const RateTable& rate = rates_[static_cast<size_t>(RateOf(op))];
  TRIMTAB_ASSERT(rate.peak > 0, "the profile has no peak rate for {}", Name(op.dtype));
  const bool backward = op.kind == OpKind::kAttentionBackward;
  // The record counts the causal half, of 2 products forward and 5 backward, one of which is the
  // forward pass's again; what is not fused keeps the scores, and multiplies the whole square.
  const double products = backward ? 4 : 2;
  const double recorded = backward ? 5 : 2;
  const double flops = 2 * static_cast<double>(op.flops) * products / recorded;
  const double scores = flops / (2 * products * static_cast<double>(op.dims[2]));
  const double share = rate.efficiency.At(kFullHead) * kUnfusedProductShare;
  const double passes = backward ? kUnfusedBackwardPasses : kUnfusedForwardPasses;
  return flops / (rate.speed * share * attention_speed_) +
         passes * scores * kScoreBytes * memory_traffic_ / bandwidth_;
}

double Pricer::HostSeconds(const ParallelConfig& layout) const {
  return host_layer_s_ * (1 + host_tp_growth_ * std::log2(static_cast<double>(layout.tp)));
}

double Pricer::Ring(const CommRecord& message, int64_t stride) const {
  // A group's rings leave a domain through the ports of all its members there.
  const auto members = static_cast<double>(std::max<int64_t>(1, link_domain_ / stride));
  const auto ranks = static_cast<double>(message.ranks);
  const double domains = std::ceil(ranks / members);
  const bool within_domain = domains == 1;
  const double bandwidth =
      within_domain ? link_bandwidth_ : std::min(link_bandwidth_, network_bandwidth_ * members);
  const double latency = within_domain ? link_latency_s_ : network_latency_s_;
  // A turn around the ring, which leaves each domain once.
  const double turn_s =
      within_domain ? (ranks - 1) * link_latency_s_
                    : (domains - 1) * network_latency_s_ + (ranks - domains) * link_latency_s_;
  const double share_s = static_cast<double>(message.bytes) / bandwidth * (ranks - 1) / ranks;
  const double all_s = static_cast<double>(message.bytes) / bandwidth;
  switch (message.kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (share_s + turn_s);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return share_s + turn_s;
    case CollectiveKind::kBroadcast:
      return all_s + std::ceil(std::log2(ranks)) * latency;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return all_s + latency;
    case CollectiveKind::kBarrier:
      return 2 * std::ceil(std::log2(ranks)) * latency;
  }
  return 0;
}

}  // namespace trimtab
