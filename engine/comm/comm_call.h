// What one rank asks of its group, to be compared with what the others ask.
#pragma once

#include <cstdint>
#include <string>

#include "engine/comm/communicator.h"

namespace trimtab {

/// `count` elements: the buffer of an all-reduce, broadcast or message, the part of one rank
/// otherwise; 0 for an all-to-all, whose parts are apart (CheckParts).
struct CommCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kF32;
  int64_t count = 0;
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;  // root of a broadcast, other end of a message
  DeviceKind device_kind = DeviceKind::kCpu;

  bool Matches(const CommCall& other) const;
  /// Whether this call of `rank` and the other one of `peer` are the two ends of a message.
  bool Completes(const CommCall& other, int other_rank, int rank) const;
  /// "all_reduce(sum) of 8 fp32", "send of 8 fp32 to rank 1".
  std::string Describe() const;
};

/// Throws Error unless an all-to-all has as many elements going from rank `sender` of the group to
/// rank `receiver` at both ends.
void CheckParts(GroupKind group, int sender, int64_t sent, int receiver, int64_t received);

/// What to say when the calls of two ranks of a group do not fit together.
std::string DescribeMismatch(GroupKind group, int size, int a, const CommCall& call_a, int b,
                             const CommCall& call_b);

}  // namespace trimtab
