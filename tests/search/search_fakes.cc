#include "tests/search/search_fakes.h"

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/families/load_config.h"
#include "search/training_workload.h"

namespace trimtab {

std::string ScratchPath(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
  for (const char* suffix : {"", ".results.jsonl", ".results.jsonl.run.json", ".log", "-journal"}) {
    std::filesystem::remove_all(path + suffix);
  }
  return path;
}

Problem TinyProblem() {
  Problem problem;
  ModelConfig& model = problem.model;
  model.name = "tiny";
  model.vocab_size = 128;
  model.hidden_size = 64;
  model.num_layers = 2;
  model.num_heads = 2;
  model.num_kv_heads = 2;
  model.ffn_hidden_size = 256;
  model.max_sequence_length = 64;
  problem.cluster.name = "local";
  problem.cluster.device = DeviceKind::kCpu;
  problem.cluster.max_ranks = 4;
  problem.cluster.ranks_per_node = 4;
  problem.cluster.cores = 2;
  problem.cluster.memory_bytes = int64_t{8} << 30;
  problem.cluster.profile = BuiltinProfile("cpu");
  problem.cluster.profile.name = "fake-cpu";
  problem.global_batch = 4;
  problem.sequence_length = 16;
  return problem;
}

std::vector<RunConfig> LegalCandidates(const Problem& problem) {
  std::vector<RunConfig> candidates;
  WalkSpace(problem, [&](const RunConfig& run) { candidates.push_back(run); });
  return candidates;
}

SearchResult RunSearch(const TrainingSearch& search, Predictor& predictor, TrialRunner& runner,
                       SearchEvents& events) {
  TrainingWorkload workload(search.problem, predictor);
  return RunSearch(workload, search, runner, events);
}

RunConfig RunOfTrial(const TrialRequest& request) {
  return RunConfigFromJson(nlohmann::json::parse(request.job.config), "trial");
}

TrainingSearch TinySearch(const std::string& study_path) {
  TrainingSearch options;
  options.problem = TinyProblem();
  options.dry_run_count = 4;
  options.race.prove_count = 3;
  options.study_path = study_path;
  options.study.program_version = "test";
  return options;
}

Prediction FakePredictor::ClosedForm(const RunConfig& run) {
  ++closed_forms;
  const ParallelConfig& layout = run.layout;
  double step_s = 1.0 / static_cast<double>(layout.micro_batch);
  step_s += 0.1 * static_cast<double>(layout.tp) + 0.01 * static_cast<double>(layout.dp);
  step_s += 0.5 * static_cast<double>(layout.pp - 1);
  step_s += 0.4 * static_cast<double>(layout.cp - 1);
  if (layout.cp_comm_type == CpCommType::kAllGather) step_s += 0.02;
  if (layout.zero > 1) step_s += 0.2 * static_cast<double>(layout.zero);
  if (layout.shard > 0) step_s += 0.05;
  if (!layout.reshard_after_forward) step_s += 0.03;
  const auto modules = std::popcount(layout.recompute[0].modules.bits);
  const bool full = layout.recompute[0].kind == RecomputeKind::kFull;
  const double recompute_s = full ? 0.3 : 0.05 * modules;
  Prediction prediction;
  prediction.step_time_s = step_s + recompute_s;
  prediction.step_time_low_s = prediction.step_time_s * 0.9;
  prediction.step_time_high_s = prediction.step_time_s * 1.1;
  prediction.tokens_per_s =
      static_cast<double>(run.global_batch * run.sequence_length) / prediction.step_time_s;
  prediction.peak_mem_bytes = (1000 + 500 * layout.micro_batch / (full ? 2 : 1)) / layout.tp;
  prediction.trust = Trust::kModelled;
  prediction.breakdown_s = {{"compute", step_s}, {"recompute", recompute_s}};
  return prediction;
}

Prediction FakePredictor::DryRun(const RunConfig& run) {
  --closed_forms;
  ++dry_runs;
  return ClosedForm(run);
}

Measurement FakeMeasurement(const RunConfig& run) {
  const Prediction prediction = FakePredictor().ClosedForm(run);
  Measurement measurement;
  // The measured order differs from the predicted one: every data-parallel rank helps.
  measurement.step_time_s =
      prediction.step_time_s * (1.1 - 0.1 * static_cast<double>(run.layout.dp));
  measurement.steps_measured = 10;
  measurement.tokens_per_s =
      static_cast<double>(run.global_batch * run.sequence_length) / measurement.step_time_s;
  measurement.tokens_per_s_per_gpu =
      measurement.tokens_per_s / static_cast<double>(run.layout.world_size());
  measurement.peak_mem_bytes = prediction.peak_mem_bytes;
  measurement.memory_bytes = {{"weights", prediction.peak_mem_bytes}};
  measurement.breakdown_s = {{"gemm", measurement.step_time_s}};
  measurement.losses = {5.0, 4.5};
  measurement.blocks.assign(3, {.step_s = measurement.step_time_s, .probe_s = 0.005});
  return measurement;
}

TrialOutcome FakeRunner::Run(const TrialRequest& request, const std::function<bool()>& cancelled) {
  const auto moment = [this] {
    if (tick) tick();
  };
  TrialOutcome outcome{.state = TrialState::kDone, .exit_code = 0, .message = "", .seconds = 0.1};
  moment();
  if (cancelled()) {
    outcome.state = TrialState::kCancelled;
    return outcome;
  }
  const RunConfig run = RunOfTrial(request);
  const std::string layout = CandidateKey(run);
  std::vector<TrialState>& planned = failures[layout];
  if (!planned.empty()) {
    outcome.state = planned.front();
    outcome.message = "planned";
    planned.erase(planned.begin());
  }
  if (outcome.state == TrialState::kCrashed || outcome.state == TrialState::kTimedOut) {
    return outcome;
  }
  TrialResult result{.attempt = request.attempt,
                     .state = outcome.state,
                     .message = outcome.message,
                     .measurement = {}};
  if (outcome.state == TrialState::kDone) {
    result.measurement = FakeMeasurement(run);
    const double factor = 1 + noise * (static_cast<double>(random_() % 1001) / 500 - 1);
    for (StepBlock& block : result.measurement->blocks) {
      if (step_s > 0) block.step_s = step_s;
      block.step_s *= slowness * (layout == slow_layout ? 2 * factor : factor);
    }
    if (const auto slow = stragglers.extract(layout); !slow.empty()) {
      for (StepBlock& block : result.measurement->blocks) block.step_s *= 3;
      result.measurement->stragglers = {{.rank = 1, .host = slow.mapped(), .times = 3}};
    }
  }
  {
    // A write that is cut short by a kill leaves a torn line.
    std::ofstream(request.results_path, std::ios::app)
        << R"({"schema_version": 1, "attem)" << std::flush;
    moment();
    ResultsFile(request.results_path).Append(result);
  }
  ++runs[layout];
  moment();
  return outcome;
}

}  // namespace trimtab
