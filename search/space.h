// Space: every candidate configuration of a problem.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/cluster.h"
#include "engine/config/run_config.h"

namespace trimtab {

/// What a search is asked. `cluster.profile` prices it, but is not part of its identity: a study
/// goes on with the prices it began with.
struct Problem {
  ModelConfig model;
  Cluster cluster;
  int64_t global_batch = 0;
  int64_t sequence_length = 0;
  /// Results differ in the last digits between precisions and between optimizer states (names of
  /// cost_model/numerics.h), so a search considers only what is named here. "auto" among the states
  /// stands for all that are legal under a precision.
  std::vector<Precision> precisions = {Precision::kFp32};
  std::vector<std::string> optimizer_states = {"full"};
  int64_t memory_per_rank_bytes = 0;  // 0 = an equal share of the machine on cpu, the GPU's on cuda
  int64_t max_ranks = 0;              // on cpu, the most ranks to try; 0 = cluster.max_ranks
  int64_t max_micro_batch = 64;
  OptimizerConfig optimizer;
  uint64_t seed = 1234;
  std::string data;   // prefix of .bin/.idx for trials and the recommended run; empty = synthetic
  int64_t steps = 0;  // of the recommended run
};

/// The identity of a problem, as stored in a study: everything but the prices of the profile.
nlohmann::json ToJson(const Problem& problem);

/// Every candidate, legal or not, in a fixed order. Throws UsageError when the problem itself makes
/// no sense (a global batch of 0).
///
/// cpu: world sizes 1, 2, 4, ... up to max_ranks, each with cores / ranks threads (at least 1).
/// cuda: all GPUs of the cluster. Then tp over the divisors of the world size, sequence parallel
/// off and on (with tp > 1), micro batch over the divisors of the global batch up to
/// max_micro_batch, recompute none and full, optimizer sharding 0 and 1; all of that for every
/// precision and optimizer state of the problem.
std::vector<RunConfig> EnumerateCandidates(const Problem& problem);

/// Bytes a rank of `run` may use under `problem`; 0 = unknown, no limit.
int64_t MemoryLimitBytes(const Problem& problem, const RunConfig& run);

/// Name of a candidate within its problem: the layout string. Unique and stable.
std::string CandidateKey(const RunConfig& run);

}  // namespace trimtab
