#include "search/serving/serving_workload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cost_model/serving/serving_fit.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/infer/serving_json.h"
#include "profiler/serving/serving_rates.h"
#include "profiler/serving/serving_trial.h"
#include "search/serving/serving_findings.h"
#include "search/serving/serving_search.h"

namespace trimtab {
namespace {

/// No candidate that is left out is better than the last of the first so many.
constexpr int64_t kCertain = 16;
constexpr size_t kMostStored = 500;
/// Half width of a prediction's interval, relative: nine of ten published servers are predicted to
/// 13.5 % or better (`trimtab validate --runs testdata/published/serving.json`).
constexpr double kUsualError = 0.15;

constexpr double kMillisecond = 1e-3;

/// Returns the seconds that the objective counts: of an answer, or of an output token.
double SecondsOf(Objective objective, const ServiceLoad& load, const LoadReport& report) {
  return objective == Objective::kLatency ? kMillisecond * report.e2e.mean
                                          : SecondsPerToken(report, load);
}

std::string StoredAs(WeightFormat weights, DType cache) {
  return fmt::format("weights={},cache={}", Name(weights), CacheName(cache));
}

/// True if the narrowings leave weights and a cache so stored.
bool IsAllowed(const ServingProblem& problem, WeightFormat weights, DType cache) {
  return std::ranges::all_of(problem.narrowings, [&](const Narrowing& each) {
    if (each.key == "weights") return each.Allows(std::string(Name(weights)));
    if (each.key == "cache") return each.Allows(CacheName(cache));
    return true;
  });
}

Prediction PredictionOf(const ServingProblem& problem, const ServingEvaluation& evaluation) {
  const ServingPrediction& p = evaluation.prediction;
  const bool calibrated = problem.cluster.device == DeviceKind::kCpu;
  Prediction prediction;
  prediction.step_time_s = SecondsOf(problem.objective, problem.load, p.report);
  prediction.step_time_low_s = prediction.step_time_s / (1 + kUsualError);
  prediction.step_time_high_s = prediction.step_time_s * (1 + kUsualError);
  prediction.tokens_per_s = p.report.output_tokens_per_s();
  prediction.peak_mem_bytes = evaluation.memory.total();
  prediction.trust = calibrated ? Trust::kCalibrated : Trust::kModelled;
  prediction.breakdown_s = BreakdownOf(p);
  prediction.service = {.report = p.report,
                        .memory_bytes = {{"weights", evaluation.memory.weights},
                                         {"cache", evaluation.memory.cache},
                                         {"step", evaluation.memory.step},
                                         {"draft", evaluation.memory.draft}},
                        .counts = {{"preemptions", static_cast<double>(p.preemptions)},
                                   {"most_running", static_cast<double>(p.most_running)},
                                   {"most_waiting", static_cast<double>(p.most_waiting)},
                                   {"busy_share", p.busy_share},
                                   {"moved_requests", static_cast<double>(p.moved)},
                                   {"proposed_tokens", static_cast<double>(p.proposed)},
                                   {"accepted_tokens", static_cast<double>(p.accepted)}},
                        .binds = WhatBinds(evaluation)};
  return prediction;
}

CandidateRecord RecordOf(const ServingProblem& problem, const ServingEvaluation& evaluation) {
  CandidateRecord record;
  record.key = evaluation.candidate.Key();
  record.serving = evaluation.candidate.config;
  record.run = RunOfService(*record.serving);
  record.closed_form = PredictionOf(problem, evaluation);
  return record;
}

/// Returns how far the candidate misses what is required, as measured or else as predicted: 0 where
/// it misses nothing.
double StrainOf(const ServingProblem& problem, const CandidateRecord& candidate) {
  std::vector<LoadReport> reports;
  for (const VisitRecord& visit : candidate.visits) {
    reports.push_back(*visit.measurement.service);
  }
  const LoadReport report =
      reports.empty() ? candidate.prediction()->service->report : MedianOf(reports);
  const double strain =
      Strain(problem.requirements,
             {.report = report, .perplexity_rise = problem.PerplexityRiseOf(*candidate.serving)});
  return strain < 1 ? 0 : strain;
}

/// `problem` with the rates that `study` keeps: on a cpu they are measured once for a study.
ServingProblem PricedBy(Study& study, ServingProblem problem) {
  if (problem.cluster.device != DeviceKind::kCpu) return problem;
  problem.rates = [measure = problem.rates, &study](const ServingConfig& config,
                                                    const HardwareProfile& profile) {
    const std::string key = "rates " + ServingRatesKey(config);
    if (const auto found = study.FindMeasured(key)) return ServingRatesFromJson(*found, key);
    const ServingRates rates = measure(config, profile);
    study.AddMeasured(key, ToJson(rates));
    return rates;
  };
  return problem;
}

}  // namespace

ServingWorkload::ServingWorkload(ServingProblem problem) : problem_(std::move(problem)) {}

ServingWorkload::ServingWorkload(const Study& study) {
  try {
    problem_ = ServingProblemFromJson(study.problem(), study.path());
    problem_.cluster.profile = HardwareProfileFromJson(study.profile(), study.path());
    problem_.objective = study.goal().objective;
  } catch (const InputError& error) {
    throw StorageError(fmt::format("{}: a damaged study: {}", study.path(), error.what()));
  }
  for (const WeightFormat weights : problem_.weights) {
    for (const DType cache : problem_.caches) {
      const auto rise = study.FindMeasured("perplexity " + StoredAs(weights, cache));
      if (rise && rise->is_number()) problem_.quality.rises[{weights, cache}] = rise->get<double>();
    }
  }
}

StudyProblem ServingWorkload::Identity() const {
  return {.workload = "serving",
          .problem = ToJson(problem_),
          .profile = ToJson(problem_.cluster.profile)};
}

void ServingWorkload::Calibrate(Study& study) {
  if (problem_.perplexity) MeasureQuality(study);
}

void ServingWorkload::MeasureQuality(Study& study) {
  for (const WeightFormat weights : problem_.weights) {
    for (const DType cache : problem_.caches) {
      if (!IsAllowed(problem_, weights, cache)) continue;
      const std::string key = "perplexity " + StoredAs(weights, cache);
      double& rise = problem_.quality.rises[{weights, cache}];
      if (const auto known = study.FindMeasured(key)) {
        rise = known->get<double>();
        continue;
      }
      try {
        rise = problem_.perplexity(weights, cache);
      } catch (const InfeasibleError&) {
        problem_.quality.rises.erase({weights, cache});  // the engine cannot store them so
        continue;
      }
      study.AddMeasured(key, rise);
      LogInfo("{}: perplexity {:.5g}x the original's", StoredAs(weights, cache), rise);
    }
  }
}

void ServingWorkload::StoreSpace(Objective objective, const Walkers& walkers, Study& study) {
  problem_.objective = objective;
  const ServingSearchResult result = SearchServing(PricedBy(study, problem_), walkers, kCertain);
  std::vector<CandidateRecord> stored;
  for (const ServingEvaluation& each : result.ranking) {
    if (stored.size() == kMostStored) break;
    stored.push_back(RecordOf(problem_, each));
  }
  PrunedCounts left_out(result.cut_by_rule.begin(), result.cut_by_rule.end());
  const auto leave_out = [&left_out](const char* why, int64_t count) {
    if (count > 0) left_out.emplace_back(why, count);
  };
  leave_out(kUnlisted, result.alike + std::ssize(result.ranking) - std::ssize(stored));
  leave_out(kBound, result.cut_by_bound + result.cut_on_the_way);
  leave_out(kMemory, result.cut_by_memory);
  leave_out(kUnexplored, result.unexplored);
  std::vector<std::string> held_back;
  for (const auto& [weights, cache] : result.held_back) {
    held_back.push_back(fmt::format("{} ({:.5g}x)", StoredAs(weights, cache),
                                    problem_.quality.rises.at({weights, cache})));
  }
  if (!held_back.empty())
    study.AddMeasured(kHeldBack, fmt::format("{}", fmt::join(held_back, ", ")));
  study.StoreCandidates(stored, left_out, result.gap);
}

void ServingWorkload::Judge(Objective objective, std::vector<CandidateRecord>& candidates) const {
  for (CandidateRecord& candidate : candidates) {
    for (VisitRecord& visit : candidate.visits) {
      visit.measurement.step_time_s =
          SecondsOf(objective, problem_.load, *visit.measurement.service);
    }
    candidate.strain = StrainOf(problem_, candidate);
  }
}

TrialJob ServingWorkload::JobOf(const CandidateRecord& candidate,
                                const MeasureOptions& /*visit*/) const {
  ServingTrial trial = {.serving = *candidate.serving, .load = problem_.load};
  if (trial.serving.proposed_tokens() > 0) {
    trial.acceptance = problem_.AcceptanceOf(trial.serving);
  }
  return ServingJob(trial, candidate.key);
}

}  // namespace trimtab
