// The proof: the best predicted ones serve the load for real, in rounds, and what was measured
// decides.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search/serving/serving_search.h"
#include "search/serving/serving_study.h"

namespace trimtab {

struct ServingProofOptions {
  int64_t candidates = 0;      // the first of the ranking
  int64_t rounds = 3;          // each visits every candidate once, in an order of its own
  double indifference = 0.01;  // a difference below it is a tie
};

/// What one candidate was measured to do.
struct ProvedServing {
  size_t place = 0;  // in the ranking
  int64_t visits = 0;
  LoadReport report{};    // each figure the median of the visits
  ServingRank rank{};     // of this report; its score with the machine's wandering taken out
  double scatter = 0;     // standard deviation of the score's logarithm
  std::string failure{};  // why it is out; empty while it is not
};

struct ServingProof {
  std::vector<ProvedServing> proved{};  // in the order of the ranking
  std::optional<size_t> winner{};       // of these; nobody when it ended before any visit
  bool sure = false;   // nobody else is better by more than the indifference, with 95 %
  bool ended = false;  // all rounds were made
};

class ServingProofEvents {
 public:
  virtual ~ServingProofEvents() = default;
  virtual void OnVisit(const ServingVisit& visit, int64_t done, int64_t total) = 0;
  /// Asked before each visit.
  virtual bool stop_requested() = 0;
};

/// Serves the load with a candidate, once; nullopt when that was cancelled. `name` is of this visit
/// alone.
using ServeOnce = std::function<std::optional<ServingVisit>(const ServingCandidate& candidate,
                                                            const std::string& name)>;

/// Makes the visits that the study does not have, and keeps its report up to date. Throws
/// InfeasibleError when all candidates fail.
ServingProof ProveServing(const ServingProblem& problem, const ServingSearchResult& result,
                          const ServingProofOptions& options, const ServeOnce& serve,
                          ServingStudy& study, ServingProofEvents& events);

}  // namespace trimtab
