// The space of a search for serving: rows of dimensions, whose product is walked with the engine's
// rules of serving.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/serving/serving_prediction.h"
#include "engine/infer/serving_config.h"
#include "search/serving/requirement.h"

namespace trimtab {

enum class ServingObjective { kThroughput, kLatency, kPrice, kGpus };
/// "throughput", "latency", "price", "gpus".
std::string_view Name(ServingObjective objective);
/// Throws UsageError.
ServingObjective ParseServingObjective(const std::string& name);

/// What fewer bits cost in quality.
struct ServingQuality {
  std::string of{};  // the text that was read, and the weights that read it; empty: it was told
  /// The perplexity with weights and cache so stored, in that of the original weights.
  std::map<std::pair<WeightFormat, DType>, double> rises{};
};

struct ServingProblem {
  ModelConfig model{};
  Cluster cluster{};
  ServiceLoad load{};
  std::string workload{};  // how the load was asked for
  std::vector<WeightFormat> weights{};
  std::vector<DType> caches{};
  std::optional<ModelConfig> draft{};         // may propose tokens, and
  double draft_acceptance = 0;                // so often stands one of them in its turn
  std::optional<double> lookup_acceptance{};  // likewise of looked-up tokens; empty: are not
  std::vector<Requirement> requirements{};
  ServingQuality quality{};  // of whatever is legal, where a requirement limits it
  ServingObjective objective = ServingObjective::kThroughput;
  int64_t max_ranks = 0;                                      // 0 = the cluster's
  int64_t memory_bytes = 0;                                   // of a rank; what the engine may take
  std::map<std::string, std::vector<std::string>> allowed{};  // values of dimensions, by name
  /// Prices of a configuration.
  std::function<ServingRates(const ServingConfig& config)> rates{};

  int64_t ranks() const {
    return max_ranks > 0 ? std::min(max_ranks, cluster.max_ranks) : cluster.max_ranks;
  }
  /// How many neighbouring ranks the fast link joins: those of a node, or of several.
  int64_t joined_ranks() const;
  /// How fast the replicas of a configuration copy what is in their caches.
  CopyRates CopyOf(const ServingConfig& config) const;
  /// How often a token stands that a configuration proposes.
  double AcceptanceOf(const ServingConfig& config) const;
  /// Whether a requirement limits the loss of quality.
  bool limits_quality() const;
  /// In what the weights and the cache are stored, against the original weights; 1 where nothing
  /// limits it.
  double PerplexityRiseOf(const ServingConfig& config) const;
  /// The first requirement of quality that a configuration misses; null where it meets all.
  const Requirement* MissedQuality(const ServingConfig& config) const;
};

/// Requests that one of so many replicas can have at once.
int64_t MostInFlight(const ServiceLoad& load, int64_t replicas);

/// A configuration, whose replicas (layout.dp) share the load.
struct ServingCandidate {
  ServingConfig config{};

  int64_t gpus() const { return config.layout.world_size(); }
  /// "tp=4,pp=1,ep=1,weights=fp8,cache=fp8,prefix=on,replicas=2,sequences=64,tokens=2048"; what is
  /// 0 is left out.
  std::string Key() const;
};

/// One dimension.
struct ServingDimension {
  const char* name;
  const char* meaning;
  /// What it can be, given the problem and the dimensions before it.
  std::vector<int64_t> (*values)(const ServingProblem& problem, const ServingCandidate& bound);
  void (*bind)(ServingCandidate& candidate, int64_t value);
  int64_t (*value)(const ServingCandidate& candidate);
  /// Of names, in the order of their values; null where values are numbers.
  const std::vector<std::string>& (*names)();
  int64_t least = 1;  // of numbers

  std::string Text(int64_t of) const;
  /// A value that `flag` gives. Throws UsageError naming that and the dimension.
  int64_t Parse(const std::string& text, const char* flag) const;
};
const std::vector<ServingDimension>& ServingDimensions();

/// Candidates that differ only in their limits and, but on cpu, in how many replicas there are:
/// they share recordings, prices and weights. On cpu replicas share what the machine reaches.
struct ServingBranch {
  ServingConfig config{};  // legal, with the longest sequence of the load
  std::vector<ServingCandidate> candidates{};
};

struct ServingSpace {
  int64_t size = 0;
  std::map<std::string, int64_t> cut_by_rule{};  // candidates, by the first rule that they break
  std::vector<ServingBranch> branches{};
};

/// "tp=4,weights=fp8,sequences=64,..." as a candidate, which is legal but may not fit. What is left
/// out is 1, or the first of the problem's weights and caches, or as usual. Throws UsageError,
/// InfeasibleError.
ServingCandidate ParseServingCandidate(const ServingProblem& problem, const std::string& text);

/// Throws UsageError for a dimension or value in `allowed` that is not there, and where nothing
/// says the quality of what is legal and a requirement limits it.
ServingSpace WalkServingSpace(const ServingProblem& problem);

}  // namespace trimtab
