// Bounds of what the simulator will say of a candidate: a report that no schedule of its steps can
// better in any figure. README.md has the argument.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cost_model/serving_prediction.h"

namespace trimtab {

struct BestCase {
  LoadReport report{};
  double busy_s = 0;  // of the steps of an average replica
};

/// Of candidates of one branch.
class BestCases {
 public:
  /// Both must outlive it. `config` is the resolved one of the branch.
  BestCases(const ServingPredictor& predictor, const ServiceLoad& load,
            const ServingConfig& config);

  /// Latencies are no longer, throughput is no less. `blocks`: that the cache of a replica has at
  /// most. Knows nothing of when first tokens come, and takes no time.
  BestCase Rough(const EngineLimits& limits, int64_t blocks, int64_t replicas) const;
  /// The same with them; what is found out is kept.
  BestCase Of(const EngineLimits& limits, int64_t blocks, int64_t replicas);
  /// The same of a simulation on its way. `best` is what Of returned for the candidate.
  LoadReport Outlook(const LoadReport& best, const EngineLimits& limits, int64_t replicas,
                     const ServingProgress& progress) const;

 private:
  /// Tokens of its prompt that a request can find in the cache.
  int64_t Found(const LoadRequest& request) const;
  /// Rows of its prompt, at least.
  StepRows RowsOf(const LoadRequest& request) const;
  /// Seconds of a step of these rows, at least.
  double Seconds(const StepRows& rows) const;
  /// Seconds after which each request's first token comes, at least.
  std::vector<double> FirstTokens(int64_t tokens_per_step, int64_t replicas) const;
  /// Of requests whose first and last tokens come after so many seconds.
  LoadReport ReportOf(const std::vector<double>& first_s, const std::vector<double>& last_s) const;
  /// The same with the least time between first and last.
  LoadReport ReportOf(const std::vector<double>& first_s) const;
  BestCase WithRate(LoadReport report, const EngineLimits& limits, int64_t blocks,
                    int64_t replicas) const;

  const ServingPredictor& predictor_;
  const ServiceLoad& load_;
  int64_t block_size_;
  bool prefix_cache_;
  StepRows total_;          // of all requests
  double block_steps_ = 0;  // blocks of decoding sequences, summed over their steps
  double decode_s_ = 0;     // of a step, at least
  LoadReport rough_;        // as if all first tokens came at once
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> first_tokens_;  // step's, replicas
  std::map<std::pair<int64_t, int64_t>, LoadReport> reports_;                // likewise
};

}  // namespace trimtab
