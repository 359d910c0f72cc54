#include "cost_model/prices/price.h"

#include <cmath>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/comm/process_groups.h"

namespace trimtab {
namespace {

/// Whether ops wait for what tensor-parallel ranks send each other.
bool Blocks(const CommRecord& message) {
  return !message.asynchronous() && message.group == GroupKind::kTensor;
}

}  // namespace

bool IsOfDataRanks(GroupKind group) {
  const ProcessGroup& row = kProcessGroups[static_cast<size_t>(group)];
  return row.axes == (row.grid == ParallelGrid::kDense ? kCpAxis | kDpAxis : unsigned{kEdpAxis});
}

bool GoesBetweenStages(const CommRecord& message) {
  const bool goes = message.kind == CollectiveKind::kSend || message.kind == CollectiveKind::kRecv;
  return goes && message.group == GroupKind::kPipeline;
}

Pricer::Pricer(const HardwareProfile& profile, const Mode& mode, int64_t ranks_per_node,
               int64_t cores, Precision precision, const SoftwareStack& stack, const MoeConfig& moe)
    : overlaps_(profile.device != DeviceKind::kCpu),
      precision_(precision),
      stack_(stack),
      roofline_(profile, mode, cores, stack_),
      messages_(profile, ranks_per_node, stack_, moe),
      tables_(profile, mode, cores) {
  const std::string why = Unpriceable(profile, precision);
  if (!why.empty()) throw UsageError(fmt::format("precision {}: {}", Name(precision), why));
}

double Pricer::Seconds(const OpRecord& op) const {
  const double measured_s = tables_.Seconds(op, precision_);
  return measured_s > 0 ? measured_s : roofline_.Seconds(op, precision_);
}

bool Pricer::InFp8(const OpRecord& op) const {
  return stack_.fp8_layers && IsProduct(op) && SizeOf(op.dtype) == 2;
}

double Pricer::SecondsInLayer(const OpRecord& op) const {
  if (!InFp8(op)) return Seconds(op);
  OpRecord product = op;
  product.dtype = DType::kF8E4M3;
  return Seconds(product) + roofline_.CastSeconds(op);
}

double Pricer::Seconds(const CommRecord& message, int64_t stride) const {
  const double measured_s = tables_.Seconds(message);
  if (measured_s > 0) return measured_s;
  const double wait_s = Blocks(message) ? (message.ranks - 1) * stack_.tp_wait_s.value : 0;
  return Exposed(message) * (messages_.Seconds(message, stride) + wait_s);
}

double Pricer::Exposed(const CommRecord& message) const {
  if (Blocks(message)) return stack_.tp_exposed.value;
  const bool to_experts =
      message.kind == CollectiveKind::kAllToAll && message.group == GroupKind::kExpert;
  return to_experts ? stack_.ep_exposed.value : 1;
}

double Pricer::BetweenStages(const CommRecord& message, const ParallelConfig& layout) const {
  const double measured_s = tables_.Seconds(message);
  return measured_s > 0 ? measured_s : messages_.BetweenStages(message, layout);
}

double Pricer::SecondsIn(const PieceRecord& piece, const CommRecord& message,
                         const ParallelConfig& layout, int64_t stride) const {
  if (GoesBetweenStages(message)) return BetweenStages(message, layout);
  const double seconds = Seconds(message, stride);
  return IsOfDataRanks(message.group) ? seconds : ShareRun(piece) * seconds;
}

double Pricer::HostWait(const ParallelConfig& layout, const Launches& launches,
                        double device_s) const {
  const double growth = stack_.host_tp_growth.value * std::log2(static_cast<double>(layout.tp));
  const double host_s = launches.passes * stack_.host_layer_s.value * (1 + growth) +
                        static_cast<double>(launches.products) * stack_.expert_launch_s.value;
  if (host_s <= 0 || device_s <= 0) return 0;
  if (stack_.blocking_launches) return host_s;
  constexpr double kAheadAtTimes = 4;
  const double both_s = std::pow(
      std::pow(device_s, kAheadAtTimes) + std::pow(host_s, kAheadAtTimes), 1 / kAheadAtTimes);
  return both_s - device_s;
}

Pricer PricerOf(const Cluster& cluster, const Mode& mode, Precision precision,
                const MoeConfig& moe) {
  return Pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores, precision,
                cluster.stack, moe);
}

}  // namespace trimtab
