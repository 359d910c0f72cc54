// Bounds of what the simulator will say of a candidate: a report that no schedule of its steps can
// better in any figure. README.md has the argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cost_model/serving/serving_prediction.h"

namespace trimtab {

struct BestCase {
  LoadReport report{};
  double busy_s = 0;  // of the steps of an average replica, of the kind that has more of them
};

/// What a candidate of a branch has of its own.
struct BestCaseOf {
  EngineLimits limits{};
  int64_t blocks = 0;  // that the cache of a replica has at most
  int64_t replicas = 1;
  int64_t prefill = 0;  // of these, that compute prompts alone
  // Whether the cache may fill up. Then a sequence may lose its place and go on with it later,
  // without its draft model's being asked.
  bool may_preempt = true;

  /// Parts of the load that have nothing to do with each other.
  int64_t shares() const { return prefill > 0 ? 1 : replicas; }
};

/// Of candidates of one branch.
class BestCases {
 public:
  /// Both must outlive it. `config` is the resolved one of the branch.
  BestCases(const ServingPredictor& predictor, const ServiceLoad& load,
            const ServingConfig& config);

  /// Latencies are no longer, throughput is no less. Knows nothing of when first tokens come, and
  /// takes no time.
  BestCase Rough(const BestCaseOf& of) const;
  /// The same with them; what is found out is kept.
  BestCase Of(const BestCaseOf& of);
  /// The same of a simulation on its way. `best` is what Of returned for the candidate.
  LoadReport Outlook(const LoadReport& best, const BestCaseOf& of,
                     const ServingProgress& progress) const;

 private:
  /// The least that is left to do of an answer.
  struct Left {
    int32_t steps = 0;
    int32_t proposed = 0;  // tokens
  };
  /// The least seconds of steps of one model.
  class StepBounds {
   public:
    StepBounds(const ServingPredictor& predictor, const ModelConfig& model)
        : predictor_(predictor), latent_(model.latent.used()) {}
    double Seconds(StepRows rows) const;

   private:
    const ServingPredictor& predictor_;
    bool latent_;
  };

  /// Tokens of its prompt that a request can find in the cache.
  int64_t Found(const LoadRequest& request) const;
  /// Rows of its prompt, at least.
  StepRows RowsOf(const LoadRequest& request) const;
  /// Of an answer after each number of its tokens, from 1 on; empty where nothing is proposed.
  std::vector<Left> LeftOf(const LoadRequest& request) const;
  /// Adds what its draft model does for a request.
  void AddDraft(const LoadRequest& request, const Left& left, StepRows& total) const;
  /// Seconds until request `index`, of whose answer so many tokens have come, is done, at least.
  double SecondsLeft(size_t index, int64_t got, const BestCaseOf& of) const;
  /// Of a prompt, at least: in steps of its own, and its part of full ones.
  struct PromptSeconds {
    double alone = 0;
    double amid_others = 0;
  };
  PromptSeconds SecondsOf(const LoadRequest& request, int64_t tokens_per_step) const;
  /// Seconds after which each request's first token comes, at least.
  std::vector<double> FirstTokens(const BestCaseOf& of) const;
  /// Of requests whose first and last tokens come after so many seconds.
  LoadReport ReportOf(const std::vector<double>& first_s, const std::vector<double>& last_s) const;
  /// The same with the least time between first and last.
  LoadReport ReportOf(const std::vector<double>& first_s, const BestCaseOf& of) const;
  BestCase WithRate(LoadReport report, const BestCaseOf& of) const;
  /// Seconds of an average one of so many engines that have work of `total` rows, each in so many
  /// steps at least.
  double BusySeconds(const BestCaseOf& of, const StepRows& total, int64_t engines,
                     double least_steps) const;

  const ServingPredictor& predictor_;
  const ServiceLoad& load_;
  StepBounds bounds_;
  std::optional<StepBounds> draft_bounds_;
  int64_t block_size_;
  bool prefix_cache_;
  int64_t proposed_;                     // tokens, per sequence and step
  std::vector<std::vector<Left>> left_;  // by request, where tokens are proposed
  StepRows prompt_total_;                // of all requests' prompts,
  StepRows answer_total_;                // and of their answers
  StepRows draft_total_[2];              // likewise, of the draft model; if prompts are apart
  double sequence_steps_ = 0;            // in which an answer goes on, of all requests
  double block_steps_ = 0;               // blocks of decoding sequences, summed over their steps
  double decode_s_ = 0;                  // of a step, at least
  double draft_s_ = 0;                   // of a proposed token, at least
  // As if all first tokens came at once; if prompts are apart, and if it may preempt.
  LoadReport rough_[2][2];
  // By tokens of a step, replicas, and those that compute prompts alone; may preempt.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<double>> first_tokens_;
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, LoadReport> reports_;
};

}  // namespace trimtab
