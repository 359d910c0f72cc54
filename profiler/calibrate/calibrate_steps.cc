#include "profiler/calibrate/calibrate_steps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/hardware/cluster.h"
#include "profiler/measure.h"
#include "profiler/other_work.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

constexpr double kOneError = 0.6827;  // confidence of one standard error to either side

}  // namespace

std::vector<RunConfig> ReferenceRuns(const Mode& mode) {
  std::vector<RunConfig> runs;
  for (const auto& [least_heads, head_size] : {std::pair{8, 48}, std::pair{4, 32}}) {
    RunConfig run;
    ModelConfig& model = run.model;
    model.name = "reference";
    model.vocab_size = 512;
    model.num_heads = std::max(least_heads, mode.ranks);  // they divide by many ranks
    model.num_kv_heads = model.num_heads;
    model.hidden_size = head_size * model.num_heads;
    model.num_layers = 3;
    model.ffn_hidden_size = 4 * model.hidden_size;
    model.max_sequence_length = 128;
    run.sequence_length = 128;
    run.steps = 100;
    run.threads_per_rank = mode.threads;
    run.layout.micro_batch = 2;
    run.layout.tp = mode.ranks;
    run.global_batch = 4;
    runs.push_back(run);
    if (mode.ranks == 1) continue;
    run.layout.tp = 1;
    run.layout.dp = mode.ranks;
    run.layout.micro_batch = 1;
    run.global_batch = 2 * mode.ranks;
    runs.push_back(run);
    if (mode.ranks % 2 != 0) continue;
    run.layout.pp = 2;
    run.layout.dp = mode.ranks / 2;
    run.global_batch = 4 * run.layout.dp;
    runs.push_back(run);
  }
  return runs;
}

ReferenceRace::ReferenceRace(const std::vector<Mode>& modes) : modes_(modes) {
  for (size_t mode = 0; mode < modes.size(); ++mode) {
    for (const RunConfig& run : ReferenceRuns(modes[mode])) {
      runs_.push_back(run);
      mode_of_run_.push_back(mode);
    }
  }
}

std::vector<ProbeReading> ReferenceRace::Round(const CalibrationPlan& plan,
                                               std::mt19937_64& random) {
  std::vector<size_t> order(runs_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  // One step finds caches, pages and thread pools cold.
  const MeasureOptions options = {.warmup = 1,
                                  .steps = plan.reference_steps,
                                  .max_steps = plan.reference_steps,
                                  .breakdown_visit = 0};
  std::vector<std::vector<ProbeReading>> readings(modes_.size());
  for (const size_t i : order) {
    const Measurement measured = Measure(runs_[i], options);
    Add(RaceVisitOf(i, rounds_, runs_[i], measured));
    for (const StepBlock& block : measured.blocks) {
      readings[mode_of_run_[i]].push_back({block.probe_s, block.taken > kDisturbedShare});
    }
  }
  ++rounds_;
  std::vector<ProbeReading> probes;
  for (const std::vector<ProbeReading>& each : readings) probes.push_back(TypicalProbe(each));
  return probes;
}

RaceFit ReferenceRace::Fit(const std::map<Mode, ProbeReference>& references) const {
  return RaceFit(visits_, runs_.size(), references, kOneError);
}

std::vector<double> ReferenceRace::Spreads(const std::map<Mode, ProbeReference>& references) const {
  return SpreadsOf(Fit(references));
}

std::vector<double> ReferenceRace::SpreadsOf(const RaceFit& fit) const {
  std::vector<std::vector<double>> errors(modes_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    errors[mode_of_run_[i]].push_back(fit.StepTime(i).half_width);
  }
  std::vector<double> spreads;
  for (std::vector<double>& each : errors) spreads.push_back(Median(std::move(each)));
  return spreads;
}

void ReferenceRace::FillStepFactors(HardwareProfile& profile) const {
  const RaceFit fit = Fit(ProbeReferences(profile));
  const std::vector<double> spreads = SpreadsOf(fit);
  const Cluster cluster = LocalMachine(profile);
  std::vector<std::vector<double>> ratios(modes_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    ratios[mode_of_run_[i]].push_back(std::exp(fit.StepTime(i).log) /
                                      DryRun(runs_[i], cluster).step_time_s);
  }
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    profile.modes[mode].step_factor = Median(std::move(ratios[mode]));
    profile.modes[mode].spread["step"] = spreads[mode];
  }
}

}  // namespace trimtab
