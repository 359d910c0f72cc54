#include "cost_model/prices/price_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/cpu/attention/attention_tile.h"
#include "engine/ops/optimizer/adamw.h"

namespace trimtab {
namespace {

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

/// FLOPs of causal attention over as many tokens that takes a cpu as long as `op`. Its kernels
/// compute tiles of queries against all keys that one of them sees: n (n + tile) / 2 scores of a
/// causal sequence, n (n + 1) / 2 of them visible, but no more than n^2 of a block of which all are
/// visible, as context-parallel ranks have them.
double CausalFlops(const OpRecord& op) {
  const auto flops = static_cast<double>(op.flops);
  const AttentionPoint sequence = {op.dims[0], op.dims[1], op.dims[2], 0, 0};
  const double causal = AttentionFlops(sequence, op.kind == OpKind::kAttentionBackward);
  const auto tokens = static_cast<double>(op.dims[1]);
  const auto tile = static_cast<double>(std::min(kQueryTile, op.dims[1]));
  const double more = (flops / causal - 1) * tokens * (tokens + 1) / 2;  // visible scores
  if (more <= 0) return flops;
  const double hidden = tokens * (tile - 1) / 2;
  return causal * (1 + std::max(0.0, more - hidden) / (tokens * (tokens + tile) / 2));
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
    case OpKind::kSwiGluBackwardFp8:
    case OpKind::kRopeBackwardFp8: {
      const int64_t widths = op.kind == OpKind::kSwiGluBackwardFp8 ? 2 : 1;
      const int64_t copies = 2 * widths * op.dims[0] * op.dims[1];  // one byte an element each
      return (op.bytes - copies) * kFp32 / SizeOf(op.dtype) + copies;
    }
    default:
      return op.bytes * kFp32 / SizeOf(op.dtype);
  }
}

/// The op whose curve prices one of `kind`: its own, but for updates that profiles do not measure,
/// which move bytes as AdamW does.
OpKind PricedAs(OpKind kind) {
  switch (kind) {
    case OpKind::kMomentum:
    case OpKind::kNormalize:
    case OpKind::kQuintic:
      return OpKind::kAdamW;
    default:
      return kind;
  }
}

/// Whether the op quantises its result, which costs a cpu more than the bytes.
bool Quantises(const OpRecord& op) {
  return op.fused.bytes > 0 && op.fused.kind == OpKind::kQuantize;
}

/// A product that adds to its output moves it twice (see GemmRecord): how weight gradients show.
bool Accumulates(const OpRecord& op) {
  const int64_t once = ProductsOf(op) * (op.dims[0] * op.dims[2] + op.dims[2] * op.dims[1] +
                                         op.dims[0] * op.dims[1]);
  return op.bytes > once * SizeOf(op.dtype);
}

}  // namespace

bool IsProduct(const OpRecord& op) {
  return op.kind == OpKind::kGemm || op.kind == OpKind::kGroupedGemm;
}

int64_t ProductsOf(const OpRecord& op) { return op.kind == OpKind::kGroupedGemm ? op.dims[3] : 1; }

Precision RateOf(const OpRecord& op, Precision run) {
  switch (op.dtype) {
    case DType::kBf16:
      return Precision::kBf16;
    case DType::kF16:
      return Precision::kFp16;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return Precision::kFp8;
    default:
      return run == Precision::kTf32 && IsProduct(op) ? Precision::kTf32 : Precision::kFp32;
  }
}

double CoresPerRank(const Mode& mode, int64_t cores) {
  const double asked = mode.threads;
  if (cores <= 0) return asked;
  return std::min(asked, static_cast<double>(cores) / mode.ranks);
}

PriceTables::PriceTables(const HardwareProfile& profile, const Mode& mode, int64_t cores) {
  const ModeTables* tables = NearestTables(profile, mode);
  if (tables == nullptr) return;
  has_tables_ = true;
  calibrated_ = tables->mode == mode;
  scale_ = CoresPerRank(tables->mode, cores) / CoresPerRank(mode, cores);
  threads_ = tables->mode.threads;
  step_factor_ = tables->step_factor;
  spread_ = SpreadOf(*tables);
  for (const auto& [name, factors] : tables->precisions) {
    for (size_t i = 0; i < kPrecisions.size(); ++i) {
      if (name == Name(static_cast<Precision>(i))) factors_[i] = factors;
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

double PriceTables::FusedSeconds(const OpRecord& op) const {
  const LogCurve& curve = ops_[static_cast<size_t>(op.fused.kind)];
  const bool computes = op.fused.kind == OpKind::kActivationForward ||
                        op.fused.kind == OpKind::kActivationBackward ||
                        op.fused.kind == OpKind::kBiasBackward || Quantises(op);
  if (op.fused.bytes == 0 || !computes || curve.empty()) return 0;
  const OpRecord alone = {
      .kind = op.fused.kind, .dtype = op.dtype, .dims = op.dims, .bytes = op.fused.bytes};
  return curve.At(static_cast<double>(Fp32Bytes(alone)));
}

double PriceTables::Seconds(const OpRecord& op, Precision run) const {
  if (!has_tables_) return 0;
  const PrecisionFactors& factors = factors_[static_cast<size_t>(RateOf(op, run))];
  auto flops = static_cast<double>(op.flops);
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
  if (grid != nullptr && !IsProduct(op)) flops = CausalFlops(op);
  if (grid != nullptr && !grid->empty()) {
    auto rows = static_cast<double>(op.dims[0]);
    // Threads take whole groups, where there are as many: what a product of all threads has of rows
    // for each, a group has for one.
    if (op.kind == OpKind::kGroupedGemm) {
      rows *= static_cast<double>(std::min<int64_t>(threads_, ProductsOf(op)));
    }
    return factor * scale_ * flops *
               grid->At(rows, static_cast<double>(op.dims[1]), static_cast<double>(op.dims[2])) +
           factors.ops * scale_ * FusedSeconds(op);
  }
  const LogCurve& curve = ops_[static_cast<size_t>(PricedAs(op.kind))];
  if (curve.empty()) return 0;
  OpRecord own = op;
  if (Quantises(op)) own.bytes -= op.fused.beside;
  const double seconds = curve.At(static_cast<double>(std::max<int64_t>(Fp32Bytes(own), 1)));
  return factors.ops * scale_ * (seconds + (Quantises(op) ? FusedSeconds(op) : 0));
}

double PriceTables::Seconds(const CommRecord& message) const {
  const std::vector<LogCurve>& by_ranks = collectives_[static_cast<size_t>(message.kind)];
  if (by_ranks.empty()) return 0;
  const auto ranks = static_cast<size_t>(message.ranks);
  const auto bytes = static_cast<double>(std::max<int64_t>(message.bytes, 1));
  const bool known = ranks < by_ranks.size() && !by_ranks[ranks].empty();
  return scale_ * (known ? by_ranks[ranks] : by_ranks.back()).At(bytes);
}

}  // namespace trimtab
