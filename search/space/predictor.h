// Predictor: what the search asks the cost model. Tests put a fake in its place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cost_model/closed_form/closed_form.h"
#include "engine/infer/load/load_report.h"
#include "search/space/space.h"

namespace trimtab {

/// The predicted service of a configuration, as its clients see it.
struct ServicePrediction {
  LoadReport report{};
  std::map<std::string, int64_t>
      memory_bytes{};                      // of the fullest rank: weights, cache, step, draft
  std::map<std::string, double> counts{};  // preemptions, most_running, busy_share, ...
  std::string binds{};                     // what keeps it from being better, in a sentence

  bool operator==(const ServicePrediction&) const = default;
};

/// One predicted step, as a study stores it.
struct Prediction {
  double step_time_s = 0;
  double step_time_low_s = 0;  // the interval the step time is expected in
  double step_time_high_s = 0;
  double tokens_per_s = 0;         // all ranks
  int64_t peak_mem_bytes = 0;      // of the fullest rank
  double peak_flops_per_rank = 0;  // 0 = unknown
  Trust trust = Trust::kModelled;
  std::map<std::string, double> breakdown_s;  // adds up to step_time_s
  std::optional<ServicePrediction> service;   // of a service; a step is then an output token, or
                                              // with the objective latency an answer

  bool operator==(const Prediction&) const = default;
};

nlohmann::json ToJson(const Prediction& prediction);
/// Throws InputError naming `where`.
Prediction PredictionFromJson(const nlohmann::json& json, const std::string& where);

class Predictor {
 public:
  virtual ~Predictor() = default;
  /// `run` breaks no legality rule.
  virtual Prediction ClosedForm(const RunConfig& run) = 0;
  virtual Prediction DryRun(const RunConfig& run) = 0;
  /// What no closed form is below of any candidate that fits memory_per_rank_bytes and that `run`
  /// can become with one of `plans`. Where nothing is known, zeros.
  virtual StepBound Bound(const RunConfig& /*run*/, LayoutPart /*chosen*/,
                          const PlanRange& /*plans*/) {
    return {};
  }
  /// Forgets what takes much memory. Only while no thread asks any predictor of the problem.
  virtual void ForgetIfMany() {}
  /// The one of thread `number`, of the same problem: this one's is 0. It lives as long as this one
  /// and keeps what it learns. nullptr where there can be one only.
  virtual Predictor* OfThread(int number) { return number == 0 ? this : nullptr; }
  /// Another, of the runs of `problem`; nullptr where there can be one only, of any problem.
  virtual std::unique_ptr<Predictor> For(const Problem& /*problem*/) const { return nullptr; }
};

/// The cost model on the problem's cluster. Keeps no reference to `problem`.
std::unique_ptr<Predictor> MakeCostModelPredictor(const Problem& problem);

}  // namespace trimtab
