#include "tools/cli/common_flags.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json/text_values.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "tools/cli/machine_profile.h"

namespace trimtab {

std::string OptimizerKindNames() {
  std::string names;
  for (const OptimizerKind kind : kOptimizerKinds) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Name(kind));
  }
  return names;
}

void RequireMemoryOfGpu(int64_t memory_per_rank_bytes, const Cluster& cluster) {
  if (cluster.device == DeviceKind::kCpu || memory_per_rank_bytes <= cluster.memory_bytes) return;
  throw UsageError(fmt::format("--memory-per-rank: {}; a GPU of the cluster {} has {}",
                               FormatBytes(memory_per_rank_bytes), cluster.name,
                               FormatBytes(cluster.memory_bytes)));
}

void RequireHuggingFaceFolder(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return;
  const bool there = std::filesystem::exists(path, ignored);
  throw InputError(fmt::format("{}: {}; expected a Hugging Face folder", path,
                               there ? "not a folder" : "no such folder"));
}

void RequireNotInLayout(const std::string& layout, const std::vector<std::string>& keys,
                        const std::string& why) {
  for (const std::string& each : Split(layout, ',')) {
    const std::string key = each.substr(0, each.find('='));
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
      throw UsageError(fmt::format("--layout {}: {}", each, why));
    }
  }
}

void ClusterFlags::Declare(FlagSet& flags) {
  flags.Group("Problem");
  flags.Text("--cluster CLUSTER", cluster,
             {"machines, e.g. 8xh200 or 16x8xh100",
              "NODESxGPUSxKIND (see 'trimtab clusters'), a JSON file, or 'local': this machine."});
  flags.Text(
      "--profile FILE", profile,
      {"hardware profile that prices the cluster, or 'generic'",
       "'trimtab calibrate' writes one. Without it, 'local' takes the profile that 'search' or "
       "'calibrate' measured on this machine."});
}

Cluster ClusterFlags::Resolve() const {
  if (takes_machine_profile()) {
    if (auto kept = KeptMachineProfile(MachineProfilePath())) return LocalMachine(*std::move(kept));
  }
  return LoadCluster(cluster, profile == "generic" ? "" : profile);
}

Cluster ClusterFlags::ResolveMeasuring(const OutputOptions& output) const {
  if (!takes_machine_profile()) return Resolve();
  return LocalMachine(MachineProfile(MachineProfilePath(), [&] { return MeasureMachine(output); }));
}

Cluster ClusterFlags::ResolvePricedBy(const HardwareProfile& priced,
                                      const std::string& where) const {
  if (!profile.empty()) {
    throw UsageError(fmt::format(
        "--profile {}: {} has a profile of its own; expected only one of the two", profile, where));
  }
  return PricedBy(LoadCluster(cluster), priced, where);
}

Cluster ClusterFlags::ResolveForRunning() const {
  if (cluster != "local" || !profile.empty()) return Resolve();
  Cluster local;
  local.name = "local";
  local.device = DeviceKind::kCpu;
  local.max_ranks = local.ranks_per_node = kMaxLocalRanks;
  return local;
}

void RunFlags::Declare(FlagSet& flags) {
  flags_ = &flags;
  flags.Group("Problem");
  flags.Text(
      "--config FILE", config,
      {"run to take: RUN.json or a search's report.json", "Of a report, its recommended run."});
  flags.Text("--model MODEL", model,
             {"preset, model JSON or Hugging Face folder",
              "'trimtab models' lists the presets. A config.json will do. Instead of --config."});
  flags.Integer("--gbs", global_batch, 1, kMax32, "global batch, in sequences");
  flags.Integer("--seq", sequence_length, 1, kMax32, "sequence length, in tokens");
  flags.Text("--layout KEY=V,...", layout,
             {"how the run is split: tp=2,mbs=4,recompute=full,...",
              "The keys are below. Those left out take their defaults."});
  flags.AfterHelp([] { return "Keys of --layout:\n" + DescribeLayoutKeys(); });
  flags.Text("--precision NAME", precision, "fp32, tf32, bf16, fp16 or fp8 [as in the run]");
  flags.Text("--optimizer NAME", optimizer,
             fmt::format("{} [as in the run]", OptimizerKindNames()));
  flags.Text("--optimizer-state NAME", optimizer_state,
             "full, reduced, minimal or MASTER/MOMENTS/GRADS [as in the run]");
  flags.Text("--data PREFIX", data,
             {"dataset to read [synthetic tokens]", "'trimtab data build' writes one."});
  flags.Bytes("--memory-per-rank", memory_per_rank_bytes, "memory limit of each rank, e.g. 8GiB");
  flags.Integer("--threads", threads_per_rank, 0, 1024,
                "threads of each rank [an equal share of the cores]");
  flags.Integer("--seed", seed, 0, std::numeric_limits<int64_t>::max(),
                "seed of the weights and the shuffling");
  flags.Positive("--lr", learning_rate, 1e3, "peak learning rate [as in the run]");
  packing.Declare(flags);
}

RunConfig RunFlags::FromParts(const Cluster& cluster) const {
  const std::pair<const char*, bool> needed[] = {
      {"--model", !model.empty()}, {"--gbs", global_batch > 0}, {"--seq", sequence_length > 0}};
  for (const auto& [flag, given] : needed) {
    if (!given) {
      throw UsageError(
          fmt::format("{} is missing; expected --config FILE, or --model, --gbs and --seq", flag));
    }
  }
  RunConfig run;
  run.model = LoadModelConfig(model);
  // On GPUs the run takes the whole cluster; a cpu has no natural number of ranks.
  run.layout = ParseLayout(layout, cluster.device == DeviceKind::kCpu ? 0 : cluster.max_ranks);
  run.device = cluster.device;
  run.global_batch = global_batch;
  run.sequence_length = sequence_length;
  return run;
}

RunConfig RunFlags::Resolve(const Cluster& cluster) const {
  RunConfig run;
  if (config.empty()) {
    run = FromParts(cluster);
  } else {
    const std::string other = flags_->FirstGiven({"--model", "--gbs", "--seq", "--layout"});
    if (!other.empty()) {
      throw UsageError(fmt::format("{} contradicts --config, which already says it", other));
    }
    run = LoadRunConfig(config);
  }
  if (flags_->Given("--precision")) {
    RequireNotInLayout(layout, {"precision"}, "--precision says it, too; expected one of them");
    run.layout.numerics.precision = ParsePrecision(precision);
  }
  if (flags_->Given("--optimizer")) run.optimizer.kind = ParseOptimizerKind(optimizer);
  if (flags_->Given("--optimizer-state")) {
    RequireNotInLayout(layout, {"master", "moments", "grads"},
                       "--optimizer-state says it, too; expected one of them");
    SetOptimizerState(optimizer_state, run.layout.numerics);
  }
  if (flags_->Given("--data")) run.data = data;
  if (flags_->Given("--memory-per-rank")) {
    RequireMemoryOfGpu(memory_per_rank_bytes, cluster);
    run.memory_per_rank_bytes = memory_per_rank_bytes;
  }
  if (flags_->Given("--threads")) run.threads_per_rank = threads_per_rank;
  if (flags_->Given("--seed")) run.seed = static_cast<uint64_t>(seed);
  if (learning_rate > 0) run.optimizer.ScaleTo(learning_rate);
  packing.Apply(run.packing);
  RequireLegal(run);
  if (run.layout.world_size() > cluster.max_ranks) {
    throw InfeasibleError(
        fmt::format("the layout needs {} ranks; the cluster '{}' (--cluster) has "
                    "at most {}",
                    run.layout.world_size(), cluster.name, cluster.max_ranks));
  }
  return run;
}

}  // namespace trimtab
