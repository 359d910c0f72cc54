// ServerStats: what a server counts, in the text format of Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/infer/api/engine.h"

namespace trimtab {

/// Counts of values below rising bounds.
class Histogram {
 public:
  void Add(double seconds);
  /// The lines of metric `name`.
  std::string Text(const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   60};
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

/// Safe to use from several threads.
class ServerStats {
 public:
  /// A request to `path` was answered with HTTP status `status`.
  void CountAnswer(const std::string& path, int status);
  void CountAbort();
  void AddFirstToken(double seconds);
  /// Of `gaps` tokens that came together: they share the time since the one before them.
  void AddBetweenTokens(double seconds, size_t gaps);
  void AddRequest(double seconds);

  std::string Text(const EngineMetrics& engine, int64_t in_flight) const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> answers_ TRIMTAB_GUARDED_BY(mutex_);
  int64_t aborts_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  Histogram first_token_ TRIMTAB_GUARDED_BY(mutex_);
  Histogram between_tokens_ TRIMTAB_GUARDED_BY(mutex_);
  Histogram request_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab
