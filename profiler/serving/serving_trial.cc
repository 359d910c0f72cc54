#include "profiler/serving/serving_trial.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/json/strict_json.h"
#include "engine/infer/replicas/make_engine.h"
#include "engine/infer/serving_json.h"
#include "engine/runtime/weights/random_weights.h"
#include "profiler/serving/load_generator.h"

namespace trimtab {
namespace {

Measurement MeasurementOf(const LoadReport& report, const ServingTrial& trial,
                          const EngineMetrics& metrics) {
  const auto ranks = static_cast<double>(trial.serving.layout.world_size());
  Measurement measurement;
  measurement.step_time_s = SecondsPerToken(report, trial.load);
  measurement.steps_measured = report.output_tokens;
  measurement.tokens_per_s = report.output_tokens_per_s();
  measurement.tokens_per_s_per_gpu = measurement.tokens_per_s / ranks;
  measurement.peak_mem_bytes = metrics.peak_mem_bytes;
  measurement.service = report;
  return measurement;
}

/// Serves `requests` once.
LoadReport ServeOnce(LoadTarget& target, const ServingTrial& trial,
                     const std::vector<LoadRequest>& requests, uint64_t seed) {
  const LoadOptions options = {.concurrency = trial.load.concurrency,
                               .vocab_size = trial.serving.model.vocab_size,
                               .seed = seed,
                               .stop = [&target] { return !target.failure().empty(); }};
  return MakeLoadReport(PutLoad(target, requests, options), {});
}

/// Serves a few requests, so that what is measured is not what an engine does first.
void WarmUp(Engine& engine, const ServingTrial& trial) {
  constexpr int64_t kRequests = 4;
  std::vector<LoadRequest> few = trial.load.requests;
  few.resize(std::min<size_t>(few.size(), kRequests));
  for (LoadRequest& each : few) each.at_s = 0;
  ServeOnce(*MakeEngineTarget(engine), trial, few, /*seed=*/0);
}

/// Serves the load as often as it takes for the figures to say something. `seed`: of the last time
/// that it was served.
TrialResult Serve(Engine& engine, const ServingTrial& trial, uint64_t& seed) {
  constexpr double kLeastSeconds = 1;
  constexpr size_t kMostTimes = 20;
  const std::unique_ptr<LoadTarget> target = MakeEngineTarget(engine);
  std::vector<LoadReport> reports;
  for (double seconds = 0; seconds < kLeastSeconds && reports.size() < kMostTimes;) {
    const LoadReport report = ServeOnce(*target, trial, trial.load.requests, ++seed);
    if (const std::string failure = target->failure(); !failure.empty()) {
      return {.state = TrialState::kFailed, .message = failure};
    }
    if (report.failed > 0) {
      return {.state = TrialState::kFailed,
              .message = fmt::format("{} of {} requests failed: {}", report.failed, report.requests,
                                     report.first_failure)};
    }
    seconds += report.duration_s;
    reports.push_back(report);
  }
  Measurement measurement = MeasurementOf(MedianOf(reports), trial, engine.metrics());
  if (std::string fault = WhyNotNumeric(measurement); !fault.empty()) {
    return {.state = TrialState::kNumeric, .message = std::move(fault)};
  }
  return {.state = TrialState::kDone, .measurement = std::move(measurement)};
}

}  // namespace

nlohmann::json ToJson(const ServingTrial& trial) {
  nlohmann::json json = {{"serving", ToJson(trial.serving)}, {"load", ToJson(trial.load)}};
  if (trial.acceptance) json["acceptance"] = *trial.acceptance;
  return json;
}

ServingTrial ServingTrialFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ServingTrial trial;
  trial.serving =
      ServingConfigFromJson(*object.Find("serving", Need::kRequired), where + ".serving");
  trial.load = ServiceLoadFromJson(*object.Find("load", Need::kRequired), where + ".load");
  if (json.contains("acceptance")) object.Number("acceptance", trial.acceptance.emplace(), 0, 1);
  object.Finish();
  return trial;
}

TrialJob ServingJob(const ServingTrial& trial, std::string key) {
  return {.key = std::move(key),
          .command = "bench",
          .config = ToJson(trial).dump(1) + "\n",
          .options = {},
          .ranks = trial.serving.layout.world_size(),
          .gpus = trial.serving.device != DeviceKind::kCpu};
}

Visits ServingVisits(const ServingTrial& trial) {
  return [trial](VisitClerk& clerk) {
    const ServingConfig config = PrepareServing(trial.serving);
    const RandomWeights weights(config.model);
    std::optional<RandomWeights> draft;
    if (config.draft.tokens > 0) draft.emplace(config.draft.model);
    const WeightSource* const drafts = draft ? &*draft : nullptr;
    if (LaunchedRank() != 0) return FollowEngine(config, weights, drafts, trial.acceptance);
    const std::unique_ptr<Engine> engine = MakeEngine(config, weights, drafts, trial.acceptance);
    uint64_t seed = 0;
    WarmUp(*engine, trial);
    do {
      clerk.NoteStart();
      clerk.Write(Serve(*engine, trial, seed));
    } while (clerk.last()->state == TrialState::kDone && clerk.NextVisit());
  };
}

}  // namespace trimtab
