#include "search/race/race.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "engine/config/json/text_values.h"
#include "search/race/correct.h"
#include "search/race/retry.h"
#include "search/space/space_rows.h"

namespace trimtab {
namespace {

// Of the best. How much visits scatter shows only when one is repeated.
constexpr int64_t kLeastVisits = 2;
// Of the indifference: what a further visit may gain is not worth it once no more loss is expected.
// Of one rival at par the doubt goes first, so that a tie is called one.
constexpr double kSmallLossShare = 0.2;
// Behind by this many times the indifference is no tie, however unsure.
constexpr double kClearlyBehind = 3;
// Visits that leave a larger loss possible do not say how large it is.
constexpr double kLargestKnownLoss = 1;

constexpr std::array kStandingNames = {"predicted", "failed", "racing", "behind", "tied", "best"};
constexpr std::array kEndNames = {"not_run", "open", "separated", "tie", "small_loss", "rounds"};

/// Natural logarithm of the score of a step that takes e^`log_s` seconds.
double LogScore(Objective objective, const CandidateRecord& candidate, double log_s) {
  const int64_t peak = candidate.visits.empty()
                           ? candidate.prediction()->peak_mem_bytes
                           : candidate.visits.back().measurement.peak_mem_bytes;
  const double step_time_s = std::exp(log_s);
  const auto tokens =
      static_cast<double>(candidate.run.global_batch * candidate.run.sequence_length);
  return std::log(Score(objective, candidate, {step_time_s, tokens / step_time_s}, peak));
}

std::vector<RaceVisit> VisitsOf(const std::vector<CandidateRecord>& candidates, Race& race) {
  std::vector<RaceVisit> visits;
  size_t entrants = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].visits.empty()) continue;
    race.entrant[i] = entrants++;
    for (const VisitRecord& visit : candidates[i].visits) {
      visits.push_back(
          RaceVisitOf(*race.entrant[i], visit.round, candidates[i].run, visit.measurement));
    }
  }
  return visits;
}

/// Simpler is smaller.
auto Simplicity(const CandidateRecord& candidate) {
  return std::tuple(candidate.visits.back().measurement.peak_mem_bytes, candidate.key.size(),
                    candidate.id);
}

/// The words of the key of a service, "tp=4,weights=fp8", by dimension.
std::map<std::string, std::string> WordsOf(const std::string& key) {
  std::map<std::string, std::string> words;
  for (const std::string& word : Split(key, ',')) words[word.substr(0, word.find('='))] = word;
  return words;
}

/// Numbers the values of each dimension as they are met.
class ValuesOf {
 public:
  explicit ValuesOf(const std::vector<CandidateRecord>& candidates) {
    for (const CandidateRecord& each : candidates) {
      if (!each.serving) continue;
      for (const auto& [dimension, word] : WordsOf(each.key)) words_[dimension];
    }
  }

  std::vector<size_t> operator()(const CandidateRecord& candidate) {
    return candidate.serving ? OfService(candidate.key) : OfTraining(candidate.run);
  }

 private:
  template <typename T, typename Alike>
  static size_t NumberOf(const T& value, std::vector<T>& met, const Alike& alike) {
    const auto at =
        std::find_if(met.begin(), met.end(), [&](const T& each) { return alike(each, value); });
    const auto number = static_cast<size_t>(at - met.begin());
    if (at == met.end()) met.push_back(value);
    return number;
  }

  std::vector<size_t> OfTraining(const RunConfig& run) {
    std::vector<size_t> values;
    for (const SpaceRow& row : SpaceRows()) {
      if (row.alike == nullptr) continue;
      const auto alike = [&](const RunConfig* a, const RunConfig* b) { return row.alike(*a, *b); };
      values.push_back(NumberOf(&run, runs_[&row], alike));
    }
    return values;
  }

  std::vector<size_t> OfService(const std::string& key) {
    std::map<std::string, std::string> words = WordsOf(key);
    std::vector<size_t> values;
    for (auto& [dimension, met] : words_) {
      values.push_back(NumberOf(words[dimension], met, std::equal_to<>()));
    }
    return values;
  }

  std::map<const SpaceRow*, std::vector<const RunConfig*>> runs_;  // one with each value
  std::map<std::string, std::vector<std::string>> words_;          // by dimension of serving
};

/// Those that may win, with what is known of them; notes their numbers in `race`.
std::vector<Contestant> ContestantsOf(const RaceRules& rules,
                                      const std::vector<CandidateRecord>& candidates, Race& race) {
  std::vector<Contestant> contestants;
  std::vector<PredictionGroup> groups;
  ValuesOf values(candidates);
  for (const size_t index : RankByPrediction(rules.objective, candidates)) {
    const CandidateRecord& candidate = candidates[index];
    if (HasFailed(candidate)) continue;
    race.contestant[index] = contestants.size();
    Contestant& mine = contestants.emplace_back();
    const Prediction& prediction = *candidate.prediction();
    mine.predicted = LogScore(rules.objective, candidate, std::log(prediction.step_time_s));
    // An interval reaches two standard deviations to either side.
    mine.group_error = std::log(prediction.step_time_high_s / prediction.step_time_low_s) / 4;
    const PredictionGroup group = GroupOf(candidate);
    const auto at = std::find(groups.begin(), groups.end(), group);
    mine.group = static_cast<size_t>(at - groups.begin());
    if (at == groups.end()) groups.push_back(group);
    mine.values = values(candidate);
    if (!race.entrant[index]) continue;
    mine.entrant = *race.entrant[index];
    mine.measured = LogScore(rules.objective, candidate, race.fit->StepTime(mine.entrant).log);
  }
  return contestants;
}

/// The best of `visited`: of the one that is expected to be and those that it is not better than by
/// more than the indifference, as surely as a race must know, the simplest.
size_t ChooseBest(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates,
                  const std::vector<size_t>& visited) {
  const auto simpler = [&](size_t a, size_t b) {
    return Simplicity(candidates[a]) < Simplicity(candidates[b]);
  };
  if (IsExact(rules.objective)) {
    const auto key = [&](size_t i) {
      const double log_s = race.fit->StepTime(*race.entrant[i]).log;
      const double score = LogScore(rules.objective, candidates[i], log_s);
      const double seconds = rules.objective == Objective::kGpus ? log_s : 0;
      return std::tuple(score, seconds, Simplicity(candidates[i]));
    };
    return *std::min_element(visited.begin(), visited.end(),
                             [&](size_t a, size_t b) { return key(a) < key(b); });
  }
  const auto better = [&](size_t a, size_t b) {
    return race.belief->mean(*race.contestant[a]) < race.belief->mean(*race.contestant[b]);
  };
  const size_t first = *std::min_element(visited.begin(), visited.end(), better);
  size_t best = first;
  for (const size_t i : visited) {
    const double worse =
        race.belief->Chance(*race.contestant[first], *race.contestant[i], rules.log_indifference());
    if (worse <= rules.allowed_doubt() && simpler(i, best)) best = i;
  }
  return best;
}

/// Which candidates may still be better than the best: all but the least likely ones that have, all
/// together, no more than the allowed chance.
std::vector<bool> MayBeBetter(const RaceRules& rules, const Race& race) {
  std::vector<bool> may(race.contestant.size(), false);
  if (IsExact(rules.objective)) return may;
  std::vector<std::pair<double, size_t>> chances;
  for (size_t i = 0; i < race.contestant.size(); ++i) {
    if (!race.contestant[i]) continue;
    chances.emplace_back(race.belief->Chance(*race.contestant[i], *race.contestant[*race.best],
                                             rules.log_indifference()),
                         i);
  }
  std::sort(chances.begin(), chances.end());
  double together = 0;
  for (const auto& [chance, i] : chances) {
    together += chance;
    may[i] = together > rules.allowed_doubt();
  }
  return may;
}

/// How the race has ended, by the standings, the loss that is expected, and who may still be
/// better.
RaceEnd EndOf(const RaceRules& rules, const Race& race, double loss,
              const std::vector<bool>& may_be_better) {
  if (race.BestIsUnproved(rules)) return RaceEnd::kOpen;
  if (std::find(may_be_better.begin(), may_be_better.end(), true) == may_be_better.end()) {
    return race.With(Standing::kTied).empty() ? RaceEnd::kSeparated : RaceEnd::kTie;
  }
  return LosesLittle(rules, loss) ? RaceEnd::kSmallLoss : RaceEnd::kOpen;
}

}  // namespace

std::string Name(Standing standing) { return kStandingNames[static_cast<size_t>(standing)]; }

std::string Name(RaceEnd end) { return kEndNames[static_cast<size_t>(end)]; }

bool LosesLittle(const RaceRules& rules, double loss) {
  return loss < kSmallLossShare * rules.log_indifference();
}

PredictionGroup GroupOf(const CandidateRecord& candidate) {
  return {ModeOf(candidate.run), NumericsOf(candidate)};
}

RaceFit::Estimate Race::AgainstBest(const RaceRules& rules,
                                    const std::vector<CandidateRecord>& candidates,
                                    size_t candidate) const {
  if (IsExact(rules.objective)) {
    const double bytes = LogScore(rules.objective, candidates[candidate], 0);
    return {bytes - LogScore(rules.objective, candidates[*best], 0), 0};
  }
  const size_t mine = *contestant[candidate];
  const size_t other = *contestant[*best];
  return {belief->mean(mine) - belief->mean(other),
          fit->normal_quantile() * belief->Deviation(mine, other)};
}

RaceFit::Estimate Race::MeasuredAgainstBest(const RaceRules& rules,
                                            const std::vector<CandidateRecord>& candidates,
                                            size_t candidate) const {
  if (IsExact(rules.objective)) return AgainstBest(rules, candidates, candidate);
  const auto score = [&](size_t index) {
    return LogScore(rules.objective, candidates[index], fit->StepTime(*entrant[index]).log);
  };
  const size_t mine = *entrant[candidate];
  const size_t other = *entrant[*best];
  const double variance = fit->Covariance(mine, mine) + fit->Covariance(other, other) -
                          2 * fit->Covariance(mine, other);
  return {score(candidate) - score(*best),
          fit->normal_quantile() * std::sqrt(std::max(0.0, variance))};
}

bool Race::BestIsUnproved(const RaceRules& rules) const {
  return !IsExact(rules.objective) && fit->visits(*entrant[*best]) < kLeastVisits;
}

std::vector<size_t> Race::With(Standing wanted) const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < standing.size(); ++i) {
    if (standing[i] == wanted) indices.push_back(i);
  }
  return indices;
}

Race JudgeRace(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
               const std::map<Mode, ProbeReference>& references) {
  Race race;
  race.entrant.resize(candidates.size());
  race.contestant.resize(candidates.size());
  race.standing.assign(candidates.size(), Standing::kPredicted);
  const std::vector<RaceVisit> visits = VisitsOf(candidates, race);
  const auto entrants = static_cast<size_t>(std::count_if(
      race.entrant.begin(), race.entrant.end(), [](const auto& e) { return e.has_value(); }));
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (HasFailed(candidates[i])) race.standing[i] = Standing::kFailed;
  }
  if (visits.empty()) return race;
  race.fit.emplace(visits, entrants, references, rules.confidence);
  race.belief.emplace(ContestantsOf(rules, candidates, race), *race.fit);
  std::vector<size_t> visited;  // and may be recommended
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (race.entrant[i] && race.contestant[i]) visited.push_back(i);
  }
  if (visited.empty()) return race;

  race.best = ChooseBest(rules, race, candidates, visited);
  const std::vector<bool> may_be_better = MayBeBetter(rules, race);
  for (const size_t i : visited) {
    const RaceFit::Estimate worse = race.AgainstBest(rules, candidates, i);
    const double margin = rules.log_indifference();
    const bool behind =
        worse.log > kClearlyBehind * margin || (worse.log > margin && worse.low() > 0);
    race.standing[i] = may_be_better[i] ? Standing::kRacing
                       : behind         ? Standing::kBehind
                                        : Standing::kTied;
  }
  race.standing[*race.best] = Standing::kBest;
  const double loss = race.belief->Loss(*race.contestant[*race.best]);
  race.end = EndOf(rules, race, loss, may_be_better);
  if (IsExact(rules.objective)) {
    race.expected_loss = 0;  // measured to the byte
  } else if (!race.BestIsUnproved(rules) && std::expm1(loss) < kLargestKnownLoss) {
    race.expected_loss = std::expm1(loss);
  }
  return race;
}

void ApplyRace(const Race& race, const std::vector<Residual>& seed,
               std::vector<CandidateRecord>& candidates) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!race.entrant[i]) continue;
    CandidateRecord& candidate = candidates[i];
    const RaceFit::Estimate step = race.fit->StepTime(*race.entrant[i]);
    Measurement measured = candidate.visits.front().measurement;
    for (const VisitRecord& visit : candidate.visits) {
      if (visit.measurement.breakdown_s.empty()) continue;
      measured = visit.measurement;
      break;
    }
    const double scale = std::exp(step.log) / measured.step_time_s;
    measured.step_time_s *= scale;
    measured.step_time_mad_s *= scale;
    measured.tokens_per_s /= scale;
    measured.tokens_per_s_per_gpu /= scale;
    measured.model_tflops_per_gpu /= scale;
    measured.mfu /= scale;
    for (auto& [part, seconds] : measured.breakdown_s) seconds *= scale;
    measured.steps_measured = 0;
    for (const VisitRecord& visit : candidate.visits) {
      measured.steps_measured += visit.measurement.steps_measured;
      measured.peak_mem_bytes = std::max(measured.peak_mem_bytes, visit.measurement.peak_mem_bytes);
    }
    if (measured.service) {
      std::vector<LoadReport> reports;
      for (const VisitRecord& visit : candidate.visits) {
        reports.push_back(*visit.measurement.service);
      }
      measured.service = MedianOf(reports);
    }
    candidate.measured_half_width = step.half_width;
    candidate.measured = std::move(measured);
  }
  CorrectPredictions(seed, candidates);
}

}  // namespace trimtab
