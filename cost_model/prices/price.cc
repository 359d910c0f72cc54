#include "cost_model/prices/price.h"

#include <cmath>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/comm/process_groups.h"

namespace trimtab {
int64_t StrideOf(GroupKind group, const ParallelConfig& layout) {
  return PlaceInGroup(layout, group, 0).stride;
}

bool IsOfDataRanks(GroupKind group) {
  const ProcessGroup& row = kProcessGroups[static_cast<size_t>(group)];
  return row.axes == (row.grid == Grid::kDense ? kCpAxis | kDpAxis : unsigned{kEdpAxis});
}

Pricer::Pricer(const HardwareProfile& profile, const Mode& mode, int64_t ranks_per_node,
               int64_t cores, Precision precision, const SoftwareStack& stack, const MoeConfig& moe)
    : overlaps_(profile.device != "cpu"),
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

double Pricer::SecondsInLayer(const OpRecord& op) const {
  if (!stack_.fp8_layers || !IsProduct(op) || SizeOf(op.dtype) != 2) return Seconds(op);
  OpRecord product = op;
  product.dtype = DType::kF8E4M3;
  return Seconds(product) + roofline_.CastSeconds(op);
}

double Pricer::Seconds(const CommRecord& message, int64_t stride) const {
  const double measured_s = tables_.Seconds(message);
  if (measured_s > 0) return measured_s;
  const double seconds = messages_.Seconds(message, stride);
  if (!message.asynchronous() && message.group == GroupKind::kTensor) {
    const double wait_s = (message.ranks - 1) * stack_.tp_wait_s.value;
    return stack_.tp_exposed.value * (seconds + wait_s);
  }
  if (message.kind == CollectiveKind::kAllToAll && message.group == GroupKind::kExpert) {
    return stack_.ep_exposed.value * seconds;
  }
  return seconds;
}

double Pricer::BetweenStages(const CommRecord& message, const ParallelConfig& layout) const {
  const int64_t stride = StrideOf(message.group, layout);
  const bool alike = layout.tp > 1 && !layout.sequence_parallel;
  if (!alike || !stack_.scatters_between_stages) return Seconds(message, stride);
  CommRecord part = message;
  part.bytes = CeilDiv(message.bytes, layout.tp);
  const CommRecord whole = {CollectiveKind::kAllGather, GroupKind::kTensor, layout.tp,
                            message.bytes};
  return Seconds(part, stride) + messages_.Seconds(whole, StrideOf(whole.group, layout));
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

}  // namespace trimtab
