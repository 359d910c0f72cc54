// Messages that are under way while their rank computes: what of them shows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/device/record.h"

namespace trimtab {

/// Whether what submits the message also waits for it, within one pass through one piece: those
/// between context-parallel ranks. Others are waited for elsewhere, or by the call itself.
inline bool WaitedForWithinPiece(const CommRecord& message) {
  return message.asynchronous() && message.group == GroupKind::kContext;
}

/// The clock of a rank, with a stream for each kind of such messages: the two ways of a link do not
/// hold each other up.
class OverlapClock {
 public:
  /// `seconds` of ops, and of messages that are waited for at once, go by.
  void Pass(double seconds) { now_s_ += seconds; }

  /// A message of `seconds` begins when those of its kind are done. Returns in how many seconds.
  double Submit(const CommRecord& message, double seconds) {
    double& free_s = free_s_[static_cast<size_t>(message.kind)];
    const double start_s = std::max(now_s_, free_s);
    free_s = start_s + seconds;
    done_s_.emplace_back(message.id, free_s);
    return start_s - now_s_;
  }

  /// Waits for one that was submitted. Returns the seconds that go by.
  double Wait(const CommRecord& message) {
    const auto found = std::find_if(done_s_.begin(), done_s_.end(),
                                    [&](const auto& each) { return each.first == message.id; });
    if (found == done_s_.end()) return 0;
    const double wait_s = std::max(0.0, found->second - now_s_);
    done_s_.erase(found);
    now_s_ += wait_s;
    return wait_s;
  }

 private:
  double now_s_ = 0;
  std::array<double, kCollectiveKindCount> free_s_{};
  std::vector<std::pair<int64_t, double>> done_s_;  // by the message's id
};

}  // namespace trimtab
