// The flags that describe a run, shared by estimate, profile and train.
#pragma once

#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/cli/packing_flags.h"

namespace trimtab {

/// Ranks that run on this machine where no cluster says how many: more would only wait.
constexpr int64_t kMaxLocalRanks = 256;

/// Throws UsageError where --memory-per-rank says more than each of the cluster's GPUs has.
void RequireMemoryOfGpu(int64_t memory_per_rank_bytes, const Cluster& cluster);

/// Throws InputError where --load-hf names no folder.
void RequireHuggingFaceFolder(const std::string& path);

/// Throws UsageError that says why for the first of `keys` that `layout`, a text of --layout, has.
void RequireNotInLayout(const std::string& layout, const std::vector<std::string>& keys,
                        const std::string& why);

/// "adamw, sgd, ...", for help.
std::string OptimizerKindNames();

/// --cluster and --profile.
struct ClusterFlags {
  std::string cluster = "local";
  std::string profile;

  void Declare(FlagSet& flags);
  /// The cluster, to predict with. Without --profile, "local" takes the profile of this machine
  /// that is kept (machine_profile.h), or else the generic one, which "generic" asks for.
  Cluster Resolve() const;
  /// The same, but a profile of this machine that is not there yet is measured first.
  Cluster ResolveMeasuring(const OutputOptions& output) const;
  /// The cluster as `profile` prices it, which comes from `where`. Throws UsageError with
  /// --profile.
  Cluster ResolvePricedBy(const HardwareProfile& profile, const std::string& where) const;
  /// The cluster, to run on: nothing is priced, so "local" needs no profile of this machine.
  Cluster ResolveForRunning() const;

 private:
  bool takes_machine_profile() const { return cluster == "local" && profile.empty(); }
};

/// Either --config FILE, or --model, --gbs, --seq, --layout and friends. Some flags also change a
/// run that came from a file.
struct RunFlags {
  std::string config;
  std::string model;
  int64_t global_batch = 0;
  int64_t sequence_length = 0;
  std::string layout;
  std::string precision;
  std::string optimizer;
  std::string optimizer_state;
  std::string data;
  int64_t memory_per_rank_bytes = 0;
  int64_t threads_per_rank = 0;
  int64_t seed = 1234;
  double learning_rate = 0;
  PackingFlags packing;

  void Declare(FlagSet& flags);
  /// The run that was asked for, checked against the legality rules and the size of the cluster.
  /// Throws UsageError, InputError or InfeasibleError.
  RunConfig Resolve(const Cluster& cluster) const;

 private:
  RunConfig FromParts(const Cluster& cluster) const;

  const FlagSet* flags_ = nullptr;
};

}  // namespace trimtab
