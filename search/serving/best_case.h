// Bounds of what the simulator will say of a candidate: a report that no schedule of its steps can
// better in any figure. README.md has the argument.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cost_model/serving_prediction.h"

namespace trimtab {

/// Of candidates of one branch.
class BestCases {
 public:
  /// Both must outlive it.
  BestCases(const ServingPredictor& predictor, const ServiceLoad& load, int64_t block_size);

  /// Latencies are no longer, throughput is no less. `blocks`: that the cache of a replica has at
  /// most.
  LoadReport Of(const EngineLimits& limits, int64_t blocks, int64_t replicas);

 private:
  /// Seconds of a step of these rows, at least.
  double Seconds(const StepRows& rows) const;
  /// Seconds after which each request's first token comes, at least.
  std::vector<double> FirstTokens(int64_t tokens_per_step, int64_t replicas) const;
  const LoadReport& Latencies(int64_t tokens_per_step, int64_t replicas);

  const ServingPredictor& predictor_;
  const ServiceLoad& load_;
  StepRows total_;          // of all requests
  double block_steps_ = 0;  // blocks of decoding sequences, summed over their steps
  int64_t output_tokens_ = 0;
  double decode_s_ = 0;                                          // of a step, at least
  std::map<std::pair<int64_t, int64_t>, LoadReport> latencies_;  // by tokens of a step, replicas
};

}  // namespace trimtab
