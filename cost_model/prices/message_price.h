// Prices of messages from bandwidths and latencies of the links that they take.
#pragma once

#include <cstdint>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/hardware/software_stack.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/config/model/moe_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// Distance in ranks between neighbours of a group in `layout`.
int64_t StrideOf(GroupKind group, const ParallelConfig& layout);

/// A domain is what the link joins: a node, or several. Beyond it the network is used.
class MessagePrice {
 public:
  /// `ranks_per_node`: neighbouring ranks of a node. `moe`: whose tokens travel to experts.
  MessagePrice(const HardwareProfile& profile, int64_t ranks_per_node, const SoftwareStack& stack,
               const MoeConfig& moe);

  /// `stride`: StrideOf the message's group.
  double Seconds(const CommRecord& message, int64_t stride) const;
  /// Of a message from one pipeline stage to the next, in `layout`. A stack may send what all
  /// tensor-parallel ranks have in parts, which these gather again over the link (Narayanan et al.,
  /// arXiv:2104.04473, section 4.1).
  double BetweenStages(const CommRecord& message, const ParallelConfig& layout) const;

 private:
  /// Where the ranks of a group are.
  struct Spread {
    double ranks = 1;
    double members = 1;  // of a domain
    double domains = 1;
    double ports = 1;  // of a domain, that the group's messages leave it through
  };

  /// The fastest of the algorithms that the machine has for it: they differ in what they do with
  /// few bytes, and with many ranks.
  double AllReduce(const CommRecord& message, const Spread& spread) const;
  /// bytes/s of a group's ring or tree.
  double BusBandwidth(const Spread& spread) const;
  double RingShare(const CommRecord& message, const Spread& spread) const;
  double AllToAll(const CommRecord& message, const Spread& spread) const;
  /// Of a turn around a ring, which leaves each domain once.
  double TurnLatency(const Spread& spread) const;
  /// From the leaves of a tree to its root: along each domain, then from one to the next above.
  double ClimbLatency(const Spread& spread) const;

  int64_t domain_ranks_;
  bool trees_;
  bool switch_reduces_;
  double link_latency_s_;
  double link_bandwidth_;
  double network_latency_s_;
  double network_bandwidth_;
  double shared_ports_;
  bool once_per_node_;
  bool scatters_between_stages_;
  double tokens_copies_;
};

}  // namespace trimtab
