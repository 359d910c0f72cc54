// The problem of a search for serving.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/serving/serving_prediction.h"
#include "engine/infer/serving_config.h"
#include "search/race/strategy.h"
#include "search/serving/requirement.h"
#include "search/space/narrowing.h"

namespace trimtab {

/// The cost of fewer bits in quality.
struct ServingQuality {
  std::string of{};  // the text that was read, and the weights that read it; empty: it was told
  /// The perplexity with weights and cache so stored, in that of the original weights.
  std::map<std::pair<WeightFormat, DType>, double> rises{};

  bool operator==(const ServingQuality&) const = default;
};

/// `cluster.profile`, `rates` and `perplexity` price and measure it, but are not part of its
/// identity.
struct ServingProblem {
  ModelConfig model{};
  Cluster cluster{};
  ServiceLoad load{};
  std::string workload{};  // how the load was asked for
  std::string stack{};     // whose engine serves
  std::vector<WeightFormat> weights{};
  std::vector<DType> caches{};
  std::optional<ModelConfig> draft{};         // may propose tokens, and
  double draft_acceptance = 0;                // so often one of them is accepted in its turn
  std::optional<double> lookup_acceptance{};  // likewise of looked-up tokens; empty: are not
  std::vector<Requirement> requirements{};
  ServingQuality quality{};             // of whatever is legal, where a requirement limits it
  int64_t max_ranks = 0;                // 0 = the cluster's
  std::vector<int64_t> gpus{};          // numbers of ranks to choose among; empty = up to all
  int64_t memory_bytes = 0;             // of a rank; what the engine may take
  std::vector<Narrowing> narrowings{};  // all of them hold
  Objective objective = Objective::kThroughput;

  /// Prices of a configuration on a machine of `profile`.
  std::function<ServingRates(const ServingConfig& config, const HardwareProfile& profile)> rates{};
  /// The perplexity with weights and cache so stored, in that of the original weights. Empty: what
  /// `quality` says is all.
  std::function<double(WeightFormat weights, DType cache)> perplexity{};

  int64_t ranks() const {
    return max_ranks > 0 ? std::min(max_ranks, cluster.max_ranks) : cluster.max_ranks;
  }
  /// How many neighbouring ranks the fast link joins: those of a node, or of several.
  int64_t joined_ranks() const;
  /// How fast the replicas of a configuration copy what is in their caches.
  CopyRates CopyOf(const ServingConfig& config) const;
  /// How often a token is accepted that a configuration proposes.
  double AcceptanceOf(const ServingConfig& config) const;
  /// True if a requirement limits the loss of quality.
  bool limits_quality() const;
  /// In what the weights and the cache are stored, against the original weights; 1 where nothing
  /// limits it.
  double PerplexityRiseOf(const ServingConfig& config) const;
  /// The first requirement of quality that a configuration misses; null where it meets all.
  const Requirement* MissedQuality(const ServingConfig& config) const;
  /// True if a narrowing names the dimension and does not only forbid.
  bool Names(const std::string& dimension) const;
};

/// Objectives of a search for serving.
inline constexpr std::array kServingObjectives = {Objective::kThroughput, Objective::kLatency,
                                                  Objective::kCost, Objective::kGpus};

/// Compares what identifies two problems.
bool operator==(const ServingProblem& one, const ServingProblem& other);
/// A problem as a study stores it: what operator== compares. ServingProblemFromJson is strict; it
/// leaves prices empty, and throws InputError naming the path behind `where`.
nlohmann::json ToJson(const ServingProblem& problem);
ServingProblem ServingProblemFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
