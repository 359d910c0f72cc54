// Walkers: who walks a space, and for how long.
#pragma once

#include <exception>
#include <functional>
#include <utility>

namespace trimtab {

/// What a walk ends with when nobody waits for its result any more.
class WalkStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "the walk over the space was stopped"; }
};

struct Walkers {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of threads that nobody stops
  Walkers(int number, std::function<bool()> ask = {}) : threads(number), stopped(std::move(ask)) {}

  /// Throws WalkStopped once `stopped` says so.
  void GoOnOrThrow() const {
    if (stopped && stopped()) throw WalkStopped();
  }

  int threads;                    // at least 1
  std::function<bool()> stopped;  // asked between rounds; empty: never
};

}  // namespace trimtab
