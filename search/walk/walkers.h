// Walkers: who walks a space, and for how long.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

namespace trimtab {

/// What a walk ends with when nobody waits for its result any more.
class WalkStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "the walk over the space was stopped"; }
};

/// How far a walk is.
struct WalkProgress {
  int64_t settled = 0;           // candidates: visited, or cut by a bound or for memory
  int64_t open_branches = 0;     // parts of the space that are not settled yet
  double best_tokens_per_s = 0;  // of the best candidate so far; 0 = none fits yet
  double gap = 1;                // bounds how much less the best score could still become
};

struct Walkers {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of threads that nobody stops
  Walkers(int number, std::function<bool()> ask = {}) : threads(number), stopped(std::move(ask)) {}

  bool goes_on() const { return !stopped || !stopped(); }
  /// Throws WalkStopped once `stopped` says so.
  void GoOnOrThrow() const {
    if (!goes_on()) throw WalkStopped();
  }

  int threads;                    // at least 1
  std::function<bool()> stopped;  // asked between rounds; empty: never
  /// Likewise, but a walk that may be partial then goes on until it has found a candidate.
  std::function<bool()> enough{};
  std::function<void(const WalkProgress&)> progress{};  // told after rounds; empty: not told
};

}  // namespace trimtab
