#include "search/space/predictor.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cost_model/dry_run/dry_run.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

Prediction FromEstimate(const Estimate& estimate) {
  Prediction prediction = {
      .step_time_s = estimate.step_time_s,
      .step_time_low_s = estimate.step_time_low_s,
      .step_time_high_s = estimate.step_time_high_s,
      .tokens_per_s = estimate.tokens_per_s(),
      .peak_mem_bytes = estimate.memory.peak_total,
      .peak_flops_per_rank = estimate.peak_flops_per_rank,
      .trust = estimate.trust,
      .breakdown_s = {},
      .service = {},
  };
  for (const BreakdownPart& part : kBreakdownParts) {
    prediction.breakdown_s[part.key] = estimate.breakdown_s.*part.seconds;
  }
  return prediction;
}

class CostModelPredictor : public Predictor {
 public:
  CostModelPredictor(const Problem& problem, ClosedFormEstimator closed_form)
      : problem_(problem), closed_form_(std::move(closed_form)) {}

  Prediction ClosedForm(const RunConfig& run) override {
    return FromEstimate(closed_form_.Run(run));
  }
  Prediction DryRun(const RunConfig& run) override {
    return FromEstimate(BriefDryRun(run, problem_.cluster, closed_form_.Stages(run)));
  }
  StepBound Bound(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) override {
    return closed_form_.Bound(run, chosen, plans);
  }
  void ForgetIfMany() override { closed_form_.ForgetIfMany(); }
  Predictor* OfThread(int number) override {
    if (number == 0) return this;
    while (static_cast<int>(others_.size()) < number) {
      others_.push_back(std::make_unique<CostModelPredictor>(problem_, closed_form_.ForThread()));
    }
    return others_[static_cast<size_t>(number) - 1].get();
  }
  std::unique_ptr<Predictor> For(const Problem& problem) const override {
    return MakeCostModelPredictor(problem);
  }

 private:
  Problem problem_;
  ClosedFormEstimator closed_form_;
  std::vector<std::unique_ptr<Predictor>> others_;  // of threads from 1 on
};

}  // namespace

nlohmann::json ToJson(const Prediction& prediction) {
  nlohmann::json json = {
      {"step_time_s", prediction.step_time_s},
      {"step_time_low_s", prediction.step_time_low_s},
      {"step_time_high_s", prediction.step_time_high_s},
      {"tokens_per_s", prediction.tokens_per_s},
      {"peak_mem_bytes", prediction.peak_mem_bytes},
      {"peak_flops_per_rank", prediction.peak_flops_per_rank},
      {"trust", Name(prediction.trust)},
      {"breakdown_s", prediction.breakdown_s},
  };
  if (prediction.service) {
    const ServicePrediction& service = *prediction.service;
    json["service"] = {{"report", ToJson(service.report)},
                       {"memory_bytes", service.memory_bytes},
                       {"counts", service.counts},
                       {"binds", service.binds}};
  }
  return json;
}

Prediction PredictionFromJson(const nlohmann::json& json, const std::string& where) {
  RequireNoNegative(json,
                    {"step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s",
                     "peak_mem_bytes", "peak_flops_per_rank"},
                    where);
  try {
    Prediction prediction;
    json.at("step_time_s").get_to(prediction.step_time_s);
    json.at("step_time_low_s").get_to(prediction.step_time_low_s);
    json.at("step_time_high_s").get_to(prediction.step_time_high_s);
    json.at("tokens_per_s").get_to(prediction.tokens_per_s);
    json.at("peak_mem_bytes").get_to(prediction.peak_mem_bytes);
    json.at("peak_flops_per_rank").get_to(prediction.peak_flops_per_rank);
    prediction.trust = ParseTrust(json.at("trust").get<std::string>());
    json.at("breakdown_s").get_to(prediction.breakdown_s);
    if (json.contains("service")) {
      const nlohmann::json& service = json.at("service");
      prediction.service = {.report = LoadReportFromJson(service.at("report"), where + ": report"),
                            .memory_bytes = service.at("memory_bytes"),
                            .counts = service.at("counts"),
                            .binds = service.at("binds")};
    }
    return prediction;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("{}: not a prediction: {}", where, error.what()));
  }
}

std::unique_ptr<Predictor> MakeCostModelPredictor(const Problem& problem) {
  return std::make_unique<CostModelPredictor>(
      problem, ClosedFormEstimator(problem.model, problem.sequence_length, problem.cluster));
}

}  // namespace trimtab
