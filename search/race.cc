#include "search/race.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "search/correct.h"

namespace trimtab {
namespace {

constexpr uint64_t kOrderSeed = 0x7472696d;
// A visit that scatters by less than this tells candidates apart better than predictions do.
constexpr double kTellingScatter = 0.01;
constexpr int64_t kNewcomersARound = 4;
constexpr int64_t kVisitsToLeave = 3;
constexpr double kEarly = 1.5;
// Behind by this many times the indifference is no tie, however unsure.
constexpr double kClearlyBehind = 3;

constexpr std::array kStandingNames = {"predicted", "failed", "racing", "behind", "tied", "best"};
constexpr std::array kEndNames = {"not_run", "open", "separated", "tie", "rounds"};

/// Natural logarithm of the score of a step that takes e^`log_s` seconds.
double LogScore(Objective objective, const CandidateRecord& candidate, double log_s) {
  const double tokens =
      static_cast<double>(candidate.run.global_batch * candidate.run.sequence_length);
  const int64_t peak = candidate.visits.empty()
                           ? candidate.prediction()->peak_mem_bytes
                           : candidate.visits.back().measurement.peak_mem_bytes;
  return std::log(Score(objective, candidate.run, tokens / std::exp(log_s), peak));
}

double LogScoreOf(const Race& race, Objective objective,
                  const std::vector<CandidateRecord>& candidates, size_t index) {
  return LogScore(objective, candidates[index], race.fit->StepTime(*race.entrant[index]).log);
}

/// The upper end of the score's interval. The best is the one that is surely good: not one of which
/// a single lucky visit is known.
double WorstOf(const Race& race, Objective objective,
               const std::vector<CandidateRecord>& candidates, size_t index) {
  const double unsure =
      objective == Objective::kMemory ? 0 : race.fit->StepTime(*race.entrant[index]).half_width;
  return LogScoreOf(race, objective, candidates, index) + unsure;
}

/// How much worse than `other`, by their scores. Memory is measured to the byte.
RaceFit::Estimate Against(const Race& race, Objective objective,
                          const std::vector<CandidateRecord>& candidates, size_t index,
                          size_t other) {
  RaceFit::Estimate estimate = race.fit->Ratio(*race.entrant[index], *race.entrant[other]);
  estimate.log = LogScoreOf(race, objective, candidates, index) -
                 LogScoreOf(race, objective, candidates, other);
  if (objective == Objective::kMemory) estimate.half_width = 0;
  return estimate;
}

std::vector<RaceVisit> VisitsOf(const std::vector<CandidateRecord>& candidates, Race& race) {
  std::vector<RaceVisit> visits;
  size_t entrants = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].visits.empty()) continue;
    race.entrant[i] = entrants++;
    for (const VisitRecord& visit : candidates[i].visits) {
      RaceVisit& mine = visits.emplace_back();
      mine.entrant = *race.entrant[i];
      mine.round = visit.round;
      mine.mode = ModeOf(candidates[i].run);
      for (const StepBlock& block : visit.measurement.blocks) {
        mine.blocks.push_back({block.step_s, block.probe_s});
      }
      if (mine.blocks.empty()) mine.blocks.push_back({visit.measurement.step_time_s, 0});
    }
  }
  return visits;
}

/// Simpler is smaller.
auto Simplicity(const CandidateRecord& candidate) {
  return std::tuple(candidate.visits.back().measurement.peak_mem_bytes, candidate.key.size(),
                    candidate.id);
}

/// Draws an order by `round`, the same whenever it is asked for.
void Shuffle(int64_t round, std::vector<size_t>& order) {
  std::mt19937_64 random(kOrderSeed + static_cast<uint64_t>(round));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

/// How much better a candidate must perhaps be to be looked at further, in logarithms. What is left
/// out costs at most this and what the intervals miss: together within the indifference.
double Matters(const RaceRules& rules) { return std::log1p(rules.indifference) / 2; }

/// The low end of the candidate's predicted score, in logarithms.
double BestExpected(Objective objective, const CandidateRecord& candidate) {
  return LogScore(objective, candidate, std::log(candidate.prediction()->step_time_low_s));
}

/// How many newcomers may enter. On a quiet machine one visit tells whether a newcomer is worth
/// another; where noise keeps candidates from being told apart, more of them at a time would only
/// be known less well, so no more race than are measured in any case.
int64_t RoomForNewcomers(const RaceRules& rules, const Race& race) {
  if (!race.fit) return rules.prove_count;
  if (race.fit->scatter() < kTellingScatter) return kNewcomersARound;
  return rules.prove_count - 1 - static_cast<int64_t>(race.With(Standing::kRacing).size());
}

/// Candidates that no visit has told about yet and that may be better than the best, in predicted
/// order.
std::vector<size_t> Newcomers(const RaceRules& rules, const Race& race,
                              const std::vector<CandidateRecord>& candidates) {
  int64_t visited = 0;
  int64_t failed = 0;
  for (const CandidateRecord& candidate : candidates) {
    if (!candidate.visits.empty()) ++visited;
    if (HasFailed(candidate)) ++failed;
  }
  const int64_t room = RoomForNewcomers(rules, race);
  std::vector<size_t> newcomers;
  for (const size_t index : RankByPrediction(rules.objective, candidates)) {
    if (!candidates[index].visits.empty() || HasFailed(candidates[index])) continue;
    const auto entering = static_cast<int64_t>(newcomers.size());
    if (visited + entering < rules.prove_count) {
      // One that fails is replaced by the next, up to as many again: a machine on which nothing
      // runs is found out early.
      if (visited + failed + entering < 2 * rules.prove_count) newcomers.push_back(index);
      continue;
    }
    if (entering >= room) break;
    if (!race.best || rules.objective == Objective::kMemory) break;
    const double best = LogScoreOf(race, rules.objective, candidates, *race.best);
    const double reach = BestExpected(rules.objective, candidates[index]) - best;
    if (reach < -Matters(rules)) newcomers.push_back(index);
  }
  return newcomers;
}

bool VisitedIn(const CandidateRecord& candidate, int64_t round) {
  return std::any_of(candidate.visits.begin(), candidate.visits.end(),
                     [&](const VisitRecord& visit) { return visit.round == round; });
}

}  // namespace

std::string Name(Standing standing) { return kStandingNames[static_cast<size_t>(standing)]; }

std::string Name(RaceEnd end) { return kEndNames[static_cast<size_t>(end)]; }

Mode ModeOf(const RunConfig& run) {
  if (run.device != "cpu") return {};
  return {.ranks = static_cast<int>(run.layout.world_size()),
          .threads = static_cast<int>(run.threads_per_rank)};
}

std::map<Mode, ProbeReference> ProbeReferences(const HardwareProfile& profile) {
  std::map<Mode, ProbeReference> references;
  for (const ModeTables& tables : profile.modes) {
    if (tables.probe_s <= 0) continue;
    references[tables.mode] = {.probe_s = tables.probe_s, .spread = tables.probe_spread};
  }
  return references;
}

RaceFit::Estimate Race::AgainstBest(const RaceRules& rules,
                                    const std::vector<CandidateRecord>& candidates,
                                    size_t candidate) const {
  return Against(*this, rules.objective, candidates, candidate, *best);
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
  race.standing.assign(candidates.size(), Standing::kPredicted);
  const std::vector<RaceVisit> visits = VisitsOf(candidates, race);
  const auto entrants = static_cast<size_t>(std::count_if(
      race.entrant.begin(), race.entrant.end(), [](const auto& e) { return e.has_value(); }));
  if (!visits.empty()) race.fit.emplace(visits, entrants, references, rules.confidence);

  std::optional<size_t> first;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (HasFailed(candidates[i])) race.standing[i] = Standing::kFailed;
    if (!race.entrant[i] || race.standing[i] == Standing::kFailed) continue;
    if (!first || WorstOf(race, rules.objective, candidates, i) <
                      WorstOf(race, rules.objective, candidates, *first)) {
      first = i;
    }
  }
  if (!first) return race;
  const double indifferent = std::log1p(rules.indifference);
  // A race looks again after every round, and one look in twenty misleads: wider intervals keep
  // that from adding up in long ones.
  const auto looks = static_cast<double>(race.fit->speed_of_round().size());
  const double wider = 1.25 - std::min(0.25, 1 / looks);
  race.best = first;
  race.end = RaceEnd::kSeparated;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!race.entrant[i] || race.standing[i] == Standing::kFailed || i == *first) continue;
    const RaceFit::Estimate worse = Against(race, rules.objective, candidates, i, *first);
    // Where visits are disturbed one by one, one or two of them may all have been.
    const bool early = race.fit->scatter() > kTellingScatter &&
                       race.fit->visits(*race.entrant[i]) < kVisitsToLeave;
    const double reach = wider * (early ? kEarly : 1) * worse.half_width;
    if (worse.log - reach < -Matters(rules)) {
      race.standing[i] = Standing::kRacing;
    } else {
      // It may be better, but by too little to matter.
      const bool behind =
          worse.log > kClearlyBehind * indifferent || (worse.log > indifferent && worse.low() > 0);
      race.standing[i] = behind ? Standing::kBehind : Standing::kTied;
    }
    // Only one that is surely as good takes the place of the first.
    if (worse.high() <= indifferent &&
        Simplicity(candidates[i]) < Simplicity(candidates[*race.best])) {
      race.best = i;
    }
  }
  race.standing[*first] = Standing::kTied;
  race.standing[*race.best] = Standing::kBest;
  if (!race.With(Standing::kTied).empty()) race.end = RaceEnd::kTie;
  if (!race.With(Standing::kRacing).empty()) race.end = RaceEnd::kOpen;
  return race;
}

void ApplyRace(const Race& race, std::vector<CandidateRecord>& candidates) {
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
    candidate.measured_half_width = step.half_width;
    candidate.measured = std::move(measured);
  }
  CorrectPredictions(candidates);
}

RaceStep NextStep(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates,
                  const std::vector<RoundRecord>& rounds) {
  RaceStep step;
  if (!rounds.empty()) {
    for (const int64_t id : rounds.back().candidates) {
      const auto at = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const CandidateRecord& each) { return each.id == id; });
      TRIMTAB_ASSERT(at != candidates.end(), "round {} visits candidate {}", rounds.back().id, id);
      if (VisitedIn(*at, rounds.back().id) || HasFailed(*at)) continue;
      step.visit = static_cast<size_t>(at - candidates.begin());
      return step;
    }
  }
  const std::vector<size_t> racing = race.With(Standing::kRacing);
  const std::vector<size_t> newcomers = Newcomers(rules, race, candidates);
  if (racing.empty() && newcomers.empty()) {
    step.end = race.end;
    return step;
  }
  if (static_cast<int64_t>(rounds.size()) >= rules.most_rounds) {
    step.end = RaceEnd::kRounds;
    return step;
  }
  step.begin_round = newcomers;
  step.begin_round.insert(step.begin_round.end(), racing.begin(), racing.end());
  if (race.best) step.begin_round.push_back(*race.best);
  std::sort(step.begin_round.begin(), step.begin_round.end());
  Shuffle(rounds.empty() ? 1 : rounds.back().id + 1, step.begin_round);
  return step;
}

}  // namespace trimtab
