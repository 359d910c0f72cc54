// MessageStream: when asynchronous messages are under way, of a program that submits and waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {

/// One message at a time, in the order of submission. Times are in seconds on any one clock.
class MessageStream {
 public:
  /// A message that takes `seconds` is submitted at `now`. Returns when it begins.
  double Submit(int64_t id, double now, double seconds) {
    const double begin = std::max(now, free_s_);
    free_s_ = begin + seconds;
    under_way_.push_back({id, free_s_});
    return begin;
  }

  /// It is waited for at `now`. Returns for how long.
  double Wait(int64_t id, double now) {
    const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                    [id](const Message& each) { return each.id == id; });
    TRIMTAB_ASSERT(found != under_way_.end(), "message {} was not submitted", id);
    const double wait = std::max(0.0, found->end_s - now);
    under_way_.erase(found);
    return wait;
  }

  bool idle() const { return under_way_.empty(); }

 private:
  struct Message {
    int64_t id = 0;
    double end_s = 0;
  };

  std::vector<Message> under_way_;
  double free_s_ = 0;
};

}  // namespace trimtab
