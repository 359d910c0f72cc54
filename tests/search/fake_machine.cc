#include "tests/search/fake_machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "search/space/space.h"
#include "search/space/space_rows.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

constexpr int kTraceSeconds = 3600;
constexpr double kStartSeconds = 0.6;   // of a worker, until its first step
constexpr double kProbeSeconds = 0.03;  // of a reading
constexpr double kStepSeconds = 0.5;    // about
constexpr int kStepsOfAVisit = 2;
constexpr int kStepsOfASingleTrial = 13;  // two to warm up, ten counted, one for the breakdown
constexpr double kSlice = 0.05;           // of virtual time

double Uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1.0p-53);
}

double Normal(std::mt19937_64& random) {
  double sum = 0;  // of twelve uniform numbers: mean 6, variance 1
  for (int i = 0; i < 12; ++i) sum += Uniform(random, 0, 1);
  return sum - 6;
}

SpeedTrace Walk(int seconds, std::mt19937_64& random) {
  SpeedTrace trace;
  double position = Uniform(random, -1, 1);
  for (int i = 0; i < seconds; ++i) {
    position = 0.99 * position + 0.14 * Normal(random);  // of spread 1, over about 100 s
    trace.push_back(0.675 + 0.325 * std::tanh(position));
  }
  return trace;
}

void AddBursts(SpeedTrace& trace, std::mt19937_64& random) {
  for (size_t at = 0; at < trace.size();) {
    at += static_cast<size_t>(Uniform(random, 5, 60));
    const auto length = static_cast<size_t>(Uniform(random, 1, 6));
    for (size_t i = at; i < std::min(at + length, trace.size()); ++i) trace[i] *= 0.35;
    at += length;
  }
}

}  // namespace

SpeedTrace MakeTrace(const std::string& kind, int seconds, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (kind == "walk") return Walk(seconds, random);
  SpeedTrace trace(static_cast<size_t>(seconds), 1.0);
  if (kind == "steps") {
    for (size_t at = 0; at < trace.size();) {
      const double speed = Uniform(random, 0.35, 1.0);
      const auto length = static_cast<size_t>(Uniform(random, 10, 60));
      for (size_t i = at; i < std::min(at + length, trace.size()); ++i) trace[i] = speed;
      at += length;
    }
  }
  if (kind == "mixed") trace = Walk(seconds, random);
  if (kind == "bursts" || kind == "mixed") AddBursts(trace, random);
  return trace;
}

FakeMachineOptions MakeMachine(const std::string& kind, uint64_t seed) {
  FakeMachineOptions options;
  options.seed = seed;
  options.trace = MakeTrace(kind, kTraceSeconds, seed);
  options.throttled = kind == "throttled";
  options.reference_error = 0.015;
  if (kind == "mispriced") {
    options.rare_layouts = 4;
    options.visit_noise = 0.03;
    options.mode_error = 0.08;
    options.value_error = 0.04;
  }
  if (kind == "outliers") options.outlier_share = 0.1;
  if (kind == "loaded") {
    std::mt19937_64 random(seed);
    options.visit_noise = Uniform(random, 0.05, 0.10);
  }
  return options;
}

SpeedTrace ReadSpeedTrace(const std::string& path) {
  SpeedTrace trace;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    double second = 0;
    double first = 0;
    double other = 0;
    char comma = 0;
    std::istringstream(line) >> second >> comma >> first >> comma >> other;
    trace.push_back(std::min(first, other));
  }
  return trace;
}

FakeMachine::FakeMachine(const FakeMachineOptions& options)
    : options_(options), random_(options.seed) {
  const double spread = std::max(options.reference_error, 0.005);
  int64_t rare_met = 0;
  for (const RunConfig& run : LegalCandidates(TinyProblem())) {
    // As many candidates as the races were studied with.
    const RecomputeConfig& plan = run.layout.recompute[0];
    const bool in_part = plan.kind == RecomputeKind::kSelective || plan.num_layers > 0;
    const bool rare = in_part || run.layout.cp > 1 || run.layout.pp > 1 || run.layout.zero > 1;
    if (rare && (options.rare_layouts == 0 || rare_met++ % options.rare_layouts != 0)) continue;
    const Mode mode = ModeOf(run);
    if (!references_.contains(mode)) {
      true_probe_s_[mode] = 0.005 * std::exp(0.2 * Normal(random_));
      references_[mode] = {.probe_s = true_probe_s_[mode] * Noise(options.reference_error),
                           .spread = spread};
    }
    CandidateRecord& candidate = candidates_.emplace_back();
    candidate.id = static_cast<int64_t>(candidates_.size());
    candidate.key = CandidateKey(run);
    candidate.run = run;
    const double truth = kStepSeconds * std::exp(0.15 * std::abs(Normal(random_)));
    true_step_s_.push_back(truth);
    Prediction& prediction = candidate.closed_form.emplace();
    prediction.step_time_s = truth * Noise(options.model_error);
    prediction.peak_mem_bytes = 1000 + candidate.id;
  }
  throttled_mode_ = ModeOf(candidates_[random_() % candidates_.size()].run);
  Misprice();
  const double error = 2 * std::max(options.model_error, options.mode_error);
  for (CandidateRecord& candidate : candidates_) {
    Prediction& prediction = *candidate.closed_form;
    prediction.step_time_low_s = prediction.step_time_s * std::exp(-error);
    prediction.step_time_high_s = prediction.step_time_s * std::exp(error);
    prediction.tokens_per_s =
        static_cast<double>(candidate.run.global_batch * candidate.run.sequence_length) /
        prediction.step_time_s;
  }
}

void FakeMachine::Misprice() {
  std::map<Mode, double> of_mode;
  for (CandidateRecord& candidate : candidates_) {
    const auto [at, is_new] = of_mode.try_emplace(ModeOf(candidate.run), 1);
    if (is_new && options_.mode_error > 0) at->second = Noise(options_.mode_error);
    candidate.closed_form->step_time_s *= at->second;
  }
  if (options_.value_error == 0) return;
  for (const SpaceRow& row : SpaceRows()) {
    if (row.alike == nullptr) continue;
    std::vector<std::pair<const RunConfig*, double>> values;
    for (CandidateRecord& candidate : candidates_) {
      auto at = std::find_if(values.begin(), values.end(), [&](const auto& value) {
        return row.alike(*value.first, candidate.run);
      });
      if (at == values.end()) {
        at = values.emplace(at, &candidate.run, Noise(options_.value_error));
      }
      candidate.closed_form->step_time_s *= at->second;
    }
  }
}

double FakeMachine::Noise(double deviation) { return std::exp(deviation * Normal(random_)); }

double FakeMachine::Speed(const Mode& mode) const {
  const auto second = static_cast<size_t>(now_s_);
  const double part = now_s_ - static_cast<double>(second);
  const SpeedTrace& trace = options_.trace;
  const double speed =
      (1 - part) * trace[second % trace.size()] + part * trace[(second + 1) % trace.size()];
  const bool slow =
      options_.throttled && mode == throttled_mode_ && static_cast<int64_t>(now_s_ / 40) % 2 == 0;
  return slow ? speed / 2 : speed;
}

double FakeMachine::Work(double work_s, const Mode& mode) {
  const double start = now_s_;
  while (work_s > 0) {
    const double speed = Speed(mode);
    const double slice = std::min(kSlice, work_s / speed);
    now_s_ += slice;
    work_s -= slice * speed;
  }
  return now_s_ - start;
}

Measurement FakeMachine::Visit(size_t index) {
  const CandidateRecord& candidate = candidates_[index];
  const Mode mode = ModeOf(candidate.run);
  double step_s = true_step_s_[index];
  if (options_.visit_noise > 0) step_s *= Noise(options_.visit_noise);
  if (options_.outlier_share > 0 && Uniform(random_, 0, 1) < options_.outlier_share) step_s *= 1.5;
  if (candidate.visits.empty()) Work(kStartSeconds + step_s, mode);
  const auto probe = [&] {
    return Work(kProbeSeconds, mode) / kProbeSeconds * true_probe_s_[mode] *
           Noise(options_.probe_noise);
  };
  Measurement measurement;
  double before = probe();
  for (int i = 0; i < kStepsOfAVisit; ++i) {
    const double step = Work(step_s * Noise(options_.step_noise), mode);
    const double after = probe();
    measurement.blocks.push_back({.step_s = step, .probe_s = std::sqrt(before * after)});
    before = after;
  }
  if (candidate.visits.size() == 1) Work(step_s, mode);  // the breakdown
  measurement.step_time_s = measurement.blocks.front().step_s;
  measurement.tokens_per_s = 1 / measurement.step_time_s;
  measurement.peak_mem_bytes = candidate.closed_form->peak_mem_bytes;
  return measurement;
}

Race RacePolicy::Judge(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
                       const std::map<Mode, ProbeReference>& references) const {
  return JudgeRace(rules, candidates, references);
}

RaceStep RacePolicy::Next(const RaceRules& rules, const Race& race,
                          const std::vector<CandidateRecord>& candidates,
                          const std::vector<RoundRecord>& rounds) const {
  return NextStep(rules, race, candidates, rounds);
}

FakeMachine::Outcome FakeMachine::Run(const RaceRules& rules, int64_t most_visits,
                                      const RacePolicy& policy) {
  Outcome outcome;
  const std::vector<size_t> ranked = RankByPrediction(rules.objective, candidates_);
  for (size_t i = 0; i < ranked.size() && static_cast<int64_t>(i) < rules.prove_count; ++i) {
    outcome.single_seconds += kStartSeconds + kStepsOfASingleTrial * true_step_s_[ranked[i]];
  }
  std::vector<RoundRecord> rounds;
  std::vector<CandidateRecord> judged;
  while (true) {
    judged = candidates_;
    outcome.race = policy.Judge(rules, judged, references_);
    ApplyRace(outcome.race, {}, judged);
    const RaceStep step = policy.Next(rules, outcome.race, judged, rounds);
    if (outcome.visits >= most_visits) break;
    if (step.visit) {
      const Measurement measurement = Visit(*step.visit);
      candidates_[*step.visit].visits.push_back(
          {.round = rounds.back().id, .at_s = now_s_, .measurement = measurement});
      ++outcome.visits;
    } else if (!step.begin_round.empty()) {
      RoundRecord& round = rounds.emplace_back();
      round.id = static_cast<int64_t>(rounds.size());
      for (const size_t index : step.begin_round) round.candidates.push_back(judged[index].id);
    } else {
      outcome.race.end = step.end;
      break;
    }
  }
  outcome.rounds = static_cast<int64_t>(rounds.size());
  outcome.seconds = now_s_;
  const size_t best = *outcome.race.best;
  const double truth = *std::min_element(true_step_s_.begin(), true_step_s_.end());
  outcome.regret = true_step_s_[best] / truth - 1;
  for (size_t i = 0; i < judged.size(); ++i) {
    if (!outcome.race.entrant[i] || i == best) continue;
    const RaceFit::Estimate worse = outcome.race.belief
                                        ? outcome.race.AgainstBest(rules, judged, i)
                                        : outcome.race.MeasuredAgainstBest(rules, judged, i);
    const double right = std::log(true_step_s_[i] / true_step_s_[best]);
    ++outcome.intervals;
    if (worse.low() <= right && right <= worse.high()) ++outcome.intervals_right;
  }
  return outcome;
}

}  // namespace trimtab
