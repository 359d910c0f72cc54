// Space: every candidate configuration of a problem, walked and never stored.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "engine/config/run_config.h"
#include "search/space/narrowing.h"
#include "search/space/requirements.h"

namespace trimtab {

/// What a search is asked. `cluster.profile` prices it, but is not part of its identity: a study
/// goes on with the prices it began with.
struct Problem {
  ModelConfig model;
  Cluster cluster;
  int64_t global_batch = 0;
  std::vector<int64_t> global_batches;  // to choose among; empty = that one
  int64_t sequence_length = 0;
  /// Results differ in the last digits between precisions and between optimizer states (names of
  /// cost_model/hardware/numerics.h), so a search considers only what is named here. "auto" among
  /// the states stands for all that are legal under a precision.
  std::vector<Precision> precisions = {Precision::kFp32};
  std::vector<std::string> optimizer_states = {"full"};
  int64_t memory_per_rank_bytes = 0;  // 0 = an equal share of the machine on cpu, the GPU's on cuda
  int64_t max_ranks = 0;              // on cpu, the most ranks to try; 0 = cluster.max_ranks
  std::vector<int64_t> gpus;          // on cuda, how many to try; empty = all of the cluster's
  int64_t max_micro_batch = 64;
  std::vector<Narrowing> narrowings;              // all of them hold
  std::vector<TrainingRequirement> requirements;  // likewise
  OptimizerConfig optimizer;
  PackingConfig packing;  // of every candidate
  uint64_t seed = 1234;
  std::string data;   // prefix of .bin/.idx for trials and the recommended run; empty = synthetic
  int64_t steps = 0;  // of the recommended run
  double tokens = 0;  // to train on, for times and prices; 0 = not said
};

/// Throws UsageError when the problem itself makes no sense (a global batch of 0).
void RequireSensible(const Problem& problem);

/// Returns true for one problem: whatever prices its cluster, and is known of these prices, is no
/// part of it.
bool operator==(const Problem& one, const Problem& other);

/// A problem as a study stores it: what operator== compares. ProblemFromJson is strict; it leaves
/// the cluster's prices empty, and throws InputError naming the path behind `where`.
nlohmann::json ToJson(const Problem& problem);
nlohmann::json ToJson(const Cluster& cluster);
Cluster ClusterFromJson(const nlohmann::json& json, const std::string& where);
Problem ProblemFromJson(const nlohmann::json& json, const std::string& where);

/// Ids of rules and how many candidates each pruned.
using PrunedCounts = std::vector<std::pair<std::string, int64_t>>;

/// Candidates counted by what a walk made of them: enumerated = legal + the sum of pruned.
struct SpaceCounts {
  int64_t enumerated = 0;
  int64_t legal = 0;
  /// In the order of the rules. A candidate that breaks several counts for one of them.
  PrunedCounts pruned{};
};

/// Calls `visit` for every legal candidate, in a fixed order, and counts the others. Nothing is
/// stored: `visit` sees each candidate as long as the call takes. What the space is made of:
/// space_rows.h. Without `visit` they are only counted, which is faster. Throws UsageError when the
/// problem itself makes no sense (a global batch of 0).
SpaceCounts WalkSpace(const Problem& problem,
                      const std::function<void(const RunConfig& run)>& visit = {});

/// Bytes a rank of `run` may use under `problem`; 0 = unknown, no limit.
int64_t MemoryLimitBytes(const Problem& problem, const RunConfig& run);

/// Returns true for what one would start with: data parallelism alone, in micro batches of one.
bool IsPlain(const ParallelConfig& layout);

/// Name of a candidate within its problem: the layout string, behind "gbs=512," where there are
/// `several_batches` to choose among. Unique and stable.
std::string CandidateKey(const RunConfig& run, bool several_batches = false);

}  // namespace trimtab
