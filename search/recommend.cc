#include "search/recommend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cost_model/estimate.h"
#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/name_table.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

// An interval from half as fast to twice as fast, or wider, says nothing: the visits were too few
// and too disturbed for their scatter to be known.
constexpr double kWidestFactor = 2;

double RelativeError(double predicted, double measured) {
  return (predicted - measured) / measured;
}

/// The key of a candidate without its precision and optimizer state, which tables show apart.
std::string GroupsOf(const CandidateRecord& candidate) {
  if (candidate.serving) return candidate.key;
  ParallelConfig layout = candidate.run.layout;
  const std::string whole = ToString(layout);
  // What stands before the layout in the key.
  const std::string before = candidate.key.substr(0, candidate.key.size() - whole.size());
  layout.numerics = {};
  return before + ToString(layout);
}

RankingRow::Figure FigureOf(const CandidateRecord& candidate) {
  if (candidate.measured) {
    const double rate = candidate.measured->tokens_per_s;
    const double factor = std::exp(candidate.measured_half_width);
    RankingRow::Figure figure = {.tokens_per_s = rate, .trust = Trust::kMeasured};
    if (factor < kWidestFactor) {
      figure.low = rate / factor;
      figure.high = rate * factor;
    }
    return figure;
  }
  const Prediction& prediction = *candidate.prediction();
  const double tokens = prediction.tokens_per_s * prediction.step_time_s;
  return {.tokens_per_s = prediction.tokens_per_s,
          .low = tokens / prediction.step_time_high_s,
          .high = tokens / prediction.step_time_low_s,
          .trust = prediction.trust};
}

double StrainOfBest(const Race& race, const std::vector<CandidateRecord>& candidates) {
  return race.best ? candidates[*race.best].strain : 0;
}

RankingRow MakeRow(const RaceRules& rules, const Race& race,
                   const std::vector<CandidateRecord>& candidates, size_t index) {
  const CandidateRecord& candidate = candidates[index];
  const Prediction& prediction = *candidate.prediction();
  RankingRow row;
  row.candidate = index;
  row.layout = candidate.serving ? candidate.key : ToString(candidate.run.layout);
  row.groups = GroupsOf(candidate);
  row.precision = NumericsOf(candidate);
  if (!candidate.serving) row.optimizer_state = OptimizerStateName(candidate.run.layout.numerics);
  row.predicted_tokens_per_s = prediction.tokens_per_s;
  row.predicted_peak_mem_bytes = prediction.peak_mem_bytes;
  row.prediction_tier = candidate.serving   ? "simulation"
                        : candidate.dry_run ? "dry_run"
                                            : "closed_form";
  row.state = RowState::kPredicted;
  row.standing = race.standing[index];
  row.visits = static_cast<int64_t>(candidate.visits.size());
  row.figure = FigureOf(candidate);
  const bool compares = candidate.strain == 0 || candidate.strain == StrainOfBest(race, candidates);
  if (race.entrant[index] && race.contestant[index] && race.best && compares) {
    const RaceFit::Estimate worse = race.MeasuredAgainstBest(rules, candidates, index);
    row.against_best = {.by = std::expm1(worse.log)};
    if (std::exp(worse.half_width) < kWidestFactor) {
      row.against_best->low = std::expm1(worse.low());
      row.against_best->high = std::expm1(worse.high());
    }
  }
  if (row.standing == Standing::kFailed) {
    row.state = RowState::kFailed;
    row.failure = candidate.last_state;
  } else if (candidate.measured) {
    const Measurement& measured = *candidate.measured;
    row.state = RowState::kMeasured;
    row.measured_tokens_per_s = measured.tokens_per_s;
    row.measured_peak_mem_bytes = measured.peak_mem_bytes;
    row.step_time_error = RelativeError(prediction.step_time_s, measured.step_time_s);
    // A service's prediction is what it may take at most, by its limits.
    if (!candidate.serving) {
      row.peak_mem_error = RelativeError(static_cast<double>(prediction.peak_mem_bytes),
                                         static_cast<double>(measured.peak_mem_bytes));
    }
  }
  return row;
}

constexpr std::array<Named<RowState>, 3> kRowStateNames = {{{RowState::kMeasured, "measured"},
                                                            {RowState::kPredicted, "predicted"},
                                                            {RowState::kFailed, "failed"}}};

double ScoreOf(Objective objective, const std::vector<CandidateRecord>& candidates,
               const RankingRow& row) {
  const CandidateRecord& candidate = candidates[row.candidate];
  const Prediction& predicted = *candidate.prediction();
  const bool measured = row.state == RowState::kMeasured;
  return Score(objective, candidate,
               {measured ? candidate.measured->step_time_s : predicted.step_time_s,
                row.measured_tokens_per_s.value_or(row.predicted_tokens_per_s)},
               row.peak_mem_bytes());
}

/// Of a part of a step's time, in words.
std::string PartInWords(const std::string& key) {
  for (const BreakdownPart& part : kBreakdownParts) {
    if (key == part.key) return part.in_sentence;
  }
  return key;
}

/// Says why measured rows are below others of fewer tokens/s.
void ExplainOrder(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates, std::vector<RankingRow>& rows) {
  double least = std::numeric_limits<double>::infinity();
  for (RankingRow& row : rows) {
    if (row.state != RowState::kMeasured) continue;
    if (row.figure.tokens_per_s > least) {
      if (candidates[row.candidate].strain > 0) {
        row.why_below = "misses what is required";
      } else if (rules.objective != Objective::kThroughput) {
        row.why_below = fmt::format("ordered by {}", Name(rules.objective));
      } else if (!race.contestant[row.candidate]) {
        row.why_below = "predicted far behind";
      } else if (race.AgainstBest(rules, candidates, row.candidate).log > 0) {
        row.why_below = "slower, as visits and predictions together say";
      } else {
        row.why_below = "as fast as the best, which needs less memory or is simpler";
      }
    }
    least = std::min(least, row.figure.tokens_per_s);
  }
}

/// What one would start with, on as many ranks as there are GPUs, to train as `chosen` does.
bool IsDefault(const RunConfig& run, int64_t gpus, const RunConfig& chosen) {
  const ParallelConfig& layout = run.layout;
  return IsPlain(layout) && layout.dp == (run.device == DeviceKind::kCpu ? 1 : gpus) &&
         run.global_batch == chosen.global_batch && layout.numerics == chosen.layout.numerics;
}

}  // namespace

Binding WhatBinds(const Prediction& prediction) {
  Binding binding;
  if (prediction.service) {
    binding.text = prediction.service->binds;
    return binding;
  }
  for (const auto& [part, seconds] : prediction.breakdown_s) {
    const double share = seconds / prediction.step_time_s;
    if (part == "compute") {
      binding.compute_share = share;
    } else if (share > binding.share) {
      binding.what = part;
      binding.share = share;
    }
  }
  const std::string other =
      binding.what.empty()
          ? ""
          : fmt::format(", {:.1f} % is {}", 100 * binding.share, PartInWords(binding.what));
  if (binding.compute_share >= 0.5) {
    binding.text = fmt::format("compute-bound: {:.0f} % of the step computes{}",
                               100 * binding.compute_share, other);
  } else {
    binding.text = fmt::format("not compute-bound: only {:.0f} % of the step computes{}",
                               100 * binding.compute_share, other);
  }
  return binding;
}

std::vector<RankingRow> RankAll(const RaceRules& rules, const Race& race,
                                const std::vector<CandidateRecord>& candidates) {
  std::vector<RankingRow> rows;
  std::vector<RankingRow> failed;
  if (race.best) rows.push_back(MakeRow(rules, race, candidates, *race.best));
  for (const size_t index : RankByMeasurement(rules.objective, candidates)) {
    if (index == race.best || race.standing[index] == Standing::kFailed) continue;
    rows.push_back(MakeRow(rules, race, candidates, index));
  }
  for (const size_t index : RankByPrediction(rules.objective, candidates)) {
    if (race.standing[index] == Standing::kFailed) {
      failed.push_back(MakeRow(rules, race, candidates, index));
    } else if (!candidates[index].measured) {
      rows.push_back(MakeRow(rules, race, candidates, index));
    }
  }
  rows.insert(rows.end(), failed.begin(), failed.end());
  ExplainOrder(rules, race, candidates, rows);
  return rows;
}

std::string RankingRow::StateName() const {
  return failure ? Name(*failure) : std::string(NameIn(kRowStateNames, state));
}

std::optional<Recommendation> Recommend(Objective objective,
                                        const std::vector<CandidateRecord>& candidates,
                                        const std::vector<RankingRow>& ranking) {
  // The ranking is in this order already: the first row is the choice, if it is one that runs.
  if (ranking.empty()) return std::nullopt;
  const RankingRow& winner = ranking.front();
  if (winner.state == RowState::kFailed) return std::nullopt;

  Recommendation choice;
  choice.measured = winner.state == RowState::kMeasured;
  const Prediction& prediction = *candidates[winner.candidate].prediction();
  choice.binds = WhatBinds(prediction);
  if (ranking.size() > 1 && ranking[1].state == winner.state) {
    choice.alternative = 1;
    const double by =
        ScoreOf(objective, candidates, ranking[1]) / ScoreOf(objective, candidates, winner) - 1;
    choice.alternative_cost = ranking[1].against_best.value_or(RankingRow::Worse{.by = by});
  }
  const auto unproved = std::find_if(ranking.begin(), ranking.end(), [](const RankingRow& row) {
    return row.state == RowState::kPredicted;
  });
  if (choice.measured && unproved != ranking.end() && candidates[unproved->candidate].corrected) {
    const double gain =
        1 - ScoreOf(objective, candidates, *unproved) / ScoreOf(objective, candidates, winner);
    if (gain > 0) {
      choice.contender = static_cast<size_t>(unproved - ranking.begin());
      choice.contender_gain = gain;
    }
  }
  const RunConfig& chosen = candidates[winner.candidate].run;
  int64_t gpus = 0;
  for (const RankingRow& row : ranking) {
    gpus = std::max(gpus, candidates[row.candidate].run.layout.world_size());
  }
  for (size_t i = 0; i < ranking.size(); ++i) {
    if (ranking[i].standing == Standing::kFailed || candidates[ranking[i].candidate].serving ||
        !IsDefault(candidates[ranking[i].candidate].run, gpus, chosen)) {
      continue;
    }
    choice.plain = i;
    choice.plain_gain = winner.figure.tokens_per_s / ranking[i].figure.tokens_per_s - 1;
  }
  return choice;
}

std::vector<NumericsRow> SummarizeNumerics(Objective objective,
                                           const std::vector<CandidateRecord>& predicted,
                                           const std::vector<RankingRow>& ranking) {
  const auto predicted_score = [&](const RankingRow& row) {
    const CandidateRecord& candidate = predicted[row.candidate];
    return PredictionKey(objective, candidate.run, *candidate.stored_prediction()).first;
  };
  std::vector<NumericsRow> best;
  for (size_t i = 0; i < ranking.size(); ++i) {
    const RankingRow& row = ranking[i];
    const bool seen = std::any_of(best.begin(), best.end(), [&](const NumericsRow& each) {
      return each.precision == row.precision && each.optimizer_state == row.optimizer_state;
    });
    if (seen) continue;
    const RankingRow& winner = ranking.front();
    const bool measured = row.state == RowState::kMeasured && winner.state == RowState::kMeasured;
    const double cost =
        measured ? ScoreOf(objective, predicted, row) / ScoreOf(objective, predicted, winner)
                 : predicted_score(row) / predicted_score(winner);
    const RunConfig& run = predicted[row.candidate].run;
    best.push_back(
        {.precision = row.precision,
         .optimizer_state = row.optimizer_state,
         .precision_means = DescribePrecision(run.layout.numerics.precision),
         .optimizer_state_means = DescribeOptimizerState(run.layout.numerics, run.optimizer.kind),
         .row = i,
         .extra_cost = cost - 1});
  }
  return best;
}

Accuracy SummarizeAccuracy(const std::vector<RankingRow>& ranking) {
  std::vector<double> time_errors;
  Accuracy accuracy;
  for (const RankingRow& row : ranking) {
    if (!row.step_time_error) continue;
    time_errors.push_back(std::abs(*row.step_time_error));
    if (!row.peak_mem_error) continue;
    accuracy.max_peak_mem_error =
        std::max(accuracy.max_peak_mem_error.value_or(0), std::abs(*row.peak_mem_error));
  }
  if (time_errors.empty()) return accuracy;
  accuracy.proved = static_cast<int64_t>(time_errors.size());
  accuracy.median_step_time_error = Median(time_errors);
  accuracy.max_step_time_error = *std::max_element(time_errors.begin(), time_errors.end());
  return accuracy;
}

}  // namespace trimtab
