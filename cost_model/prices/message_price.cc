#include "cost_model/prices/message_price.h"

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"
#include "engine/comm/process_groups.h"

namespace trimtab {
namespace {

// Of a ring's bandwidth, and seconds that a switch takes however few the bytes are: what NCCL
// itself chooses among its algorithms by (src/graph/tuning.cc).
constexpr double kTreeBandwidth = 0.92;
constexpr double kSwitchBandwidth = 0.85;
constexpr double kSwitchLatency = 25e-6;

}  // namespace

int64_t StrideOf(GroupKind group, const ParallelConfig& layout) {
  return PlaceInGroup(layout, group, 0).stride;
}

MessagePrice::MessagePrice(const HardwareProfile& profile, int64_t ranks_per_node,
                           const SoftwareStack& stack, const MoeConfig& moe)
    : domain_ranks_(std::max<int64_t>({ranks_per_node, profile.link_domain, 1})),
      trees_(profile.device == DeviceKind::kCuda),
      switch_reduces_(profile.link_reduces && stack.switch_reduction),
      link_latency_s_(profile.link_latency_s.value),
      link_bandwidth_(profile.link_bandwidth.value * profile.link_efficiency.value),
      network_latency_s_(profile.network_latency_s.value),
      network_bandwidth_(profile.network_bandwidth.value * profile.network_efficiency.value *
                         stack.network.value),
      shared_ports_(profile.shared_ports.value),
      once_per_node_(stack.tokens_once_per_node),
      scatters_between_stages_(stack.scatters_between_stages),
      tokens_copies_(static_cast<double>(moe.router_topk)) {}

double MessagePrice::Seconds(const CommRecord& message, int64_t stride) const {
  Spread spread;
  spread.ranks = static_cast<double>(message.ranks);
  spread.members =
      std::min(spread.ranks, static_cast<double>(std::max<int64_t>(1, domain_ranks_ / stride)));
  spread.domains = std::ceil(spread.ranks / spread.members);
  // Groups that have a domain in common choose their ports without knowing of each other, and
  // rings that come in at one and leave at another cross the network's rails.
  spread.ports = stride == 1 ? spread.members : 1 + shared_ports_ * (spread.members - 1);
  const bool within = spread.domains == 1;
  const double latency_s = within ? link_latency_s_ : network_latency_s_;
  const double steps = std::ceil(std::log2(spread.ranks));
  switch (message.kind) {
    case CollectiveKind::kAllReduce:
      return AllReduce(message, spread);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return RingShare(message, spread) + TurnLatency(spread);
    case CollectiveKind::kAllToAll:
      return AllToAll(message, spread) + TurnLatency(spread);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: {
      const double all_s =
          static_cast<double>(message.bytes) /
          (within ? link_bandwidth_ : std::min(link_bandwidth_, network_bandwidth_ * spread.ports));
      return all_s + (message.kind == CollectiveKind::kBroadcast ? steps : 1) * latency_s;
    }
    case CollectiveKind::kBarrier:
      return 2 * steps * latency_s;
  }
  return 0;
}

double MessagePrice::BetweenStages(const CommRecord& message, const ParallelConfig& layout) const {
  const int64_t stride = StrideOf(message.group, layout);
  const bool alike = layout.tp > 1 && !layout.sequence_parallel;
  if (!alike || !scatters_between_stages_) return Seconds(message, stride);
  CommRecord part = message;
  part.bytes = CeilDiv(message.bytes, layout.tp);
  const CommRecord whole = {CollectiveKind::kAllGather, GroupKind::kTensor, layout.tp,
                            message.bytes};
  return Seconds(part, stride) + Seconds(whole, StrideOf(whole.group, layout));
}

double MessagePrice::BusBandwidth(const Spread& spread) const {
  // A group's rings leave a domain through the ports of its members there.
  return spread.domains == 1 ? link_bandwidth_
                             : std::min(link_bandwidth_, network_bandwidth_ * spread.ports);
}

double MessagePrice::RingShare(const CommRecord& message, const Spread& spread) const {
  return static_cast<double>(message.bytes) / BusBandwidth(spread) * (spread.ranks - 1) /
         spread.ranks;
}

double MessagePrice::AllReduce(const CommRecord& message, const Spread& spread) const {
  const auto bytes = static_cast<double>(message.bytes);
  double seconds = 2 * (RingShare(message, spread) + TurnLatency(spread));
  if (trees_ && spread.domains > 1) {
    // Everything goes up to the root and down again, in pieces that follow one another.
    const double moved_s = bytes / (kTreeBandwidth * BusBandwidth(spread));
    seconds = std::min(seconds, 2 * (moved_s + ClimbLatency(spread)));
  }
  if (switch_reduces_ && spread.domains == 1 && spread.ranks > 1) {
    // Each rank asks the switch for the sum of its share, which all ranks send theirs of, and has
    // it send the sum to all: of each rank's bytes, 1 + 1 / n go each way.
    const double moved = bytes * (spread.ranks + 1) / spread.ranks;
    seconds = std::min(seconds, moved / (kSwitchBandwidth * link_bandwidth_) + kSwitchLatency);
  }
  return seconds;
}

double MessagePrice::AllToAll(const CommRecord& message, const Spread& spread) const {
  // Every rank sends what is for other domains through its own port, beside what is for its own.
  const double each = static_cast<double>(message.bytes) / spread.ranks;
  const double link_s = each * (spread.members - 1) / link_bandwidth_;
  double share = 1;
  if (once_per_node_ && spread.domains > 1) {
    // A token goes once to each domain that it has experts in, of its copies that are spread over
    // them at random, and is copied there.
    const double reached = 1 - std::pow(1 - 1 / spread.domains, tokens_copies_);
    share = spread.domains * reached / tokens_copies_;
  }
  const double network_s = share * each * (spread.ranks - spread.members) / network_bandwidth_;
  return std::max(link_s, network_s);
}

double MessagePrice::TurnLatency(const Spread& spread) const {
  if (spread.domains == 1) return (spread.ranks - 1) * link_latency_s_;
  return (spread.domains - 1) * network_latency_s_ +
         (spread.ranks - spread.domains) * link_latency_s_;
}

double MessagePrice::ClimbLatency(const Spread& spread) const {
  return (spread.members - 1) * link_latency_s_ +
         std::ceil(std::log2(spread.domains)) * network_latency_s_;
}

}  // namespace trimtab
