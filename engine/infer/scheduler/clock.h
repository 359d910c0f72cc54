// Clock: what time it is, for whoever measures how long requests wait. Virtual in a simulation.
#pragma once

#include <chrono>

namespace trimtab {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds since some moment.
  virtual double Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double Now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace trimtab
