// What recordings cost: their ops and messages priced and added up.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cost_model/prices/price.h"
#include "cost_model/recordings/recording.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {

/// Messages of one kind in one group.
struct MessageCount {
  CollectiveKind kind{};
  GroupKind group{};
  int64_t count = 0;
  int64_t bytes = 0;  // sum of CommRecord::bytes
};

/// Pieces that run one after the other.
struct PieceCost {
  double compute_s = 0;                             // without recomputation
  double recompute_s = 0;                           // of recomputation: ops and messages
  std::array<double, kGroupKindCount> message_s{};  // waiting for messages of a group
  double host_s = 0;                                // waiting for the host to launch ops
  // All of the messages that run beside ops: by group, receives apart.
  std::array<std::array<double, 2>, kGroupKindCount> beside_s{};
  int64_t flops = 0;
  int64_t ops = 0;
  int64_t products_of_groups = 0;  // that a host may launch one by one
  std::vector<MessageCount> messages;
  MemorySpan total;
  MemorySpan activations;

  /// Of everything, one after the other.
  double seconds() const;
  /// Goes on with `next`, so many times (>= 1).
  void Append(const PieceCost& next, int64_t times = 1);
};

/// A pricer, which must outlive it, with the last products that it priced: the ways through a piece
/// have most of theirs in common, and each is powers and logarithms. Not thread-safe.
class PricedOps {
 public:
  explicit PricedOps(const Pricer& pricer) : pricer_(pricer) {}

  const Pricer& pricer() const { return pricer_; }
  /// See Pricer::SecondsIn.
  double SecondsIn(const PieceRecord& piece, const OpRecord& op);

 private:
  struct Known {
    OpRecord op;
    bool in_layer = false;
    double seconds = 0;
  };
  const Pricer& pricer_;
  std::array<Known, 64> known_{};  // each at a place that follows from its op
};

/// Prices each of `pieces`, which follow one another, of a run in `layout`: what one leaves under
/// way goes on beside the next.
std::vector<PieceCost> PriceEach(std::span<const Recording> pieces, const ParallelConfig& layout,
                                 PricedOps& ops);

/// Seconds of the longer of what neighbouring stages send each other.
double LongerMessage(const MessageRecording& messages, const Pricer& pricer,
                     const ParallelConfig& layout);

}  // namespace trimtab
