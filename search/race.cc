#include "search/race.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "search/correct.h"
#include "search/retry.h"

namespace trimtab {
namespace {

constexpr uint64_t kOrderSeed = 0x7472696d;
// Against a later one: a worker starts, and warms up.
constexpr double kFirstVisitCost = 2;
// Of a round. Visits of one round are compared most surely, but are chosen without the others'
// outcome.
constexpr size_t kVisitsOfARound = 3;
// Of the best. How much visits scatter shows only when one is repeated.
constexpr int64_t kLeastVisits = 2;
// Candidates that were not visited and are thought about: the best by prediction. It bounds the
// time that thinking takes; no further one has any chance to speak of.
constexpr size_t kMostUnvisited = 64;
// Of the indifference: what a further visit may gain is not worth it once no more loss is expected.
// Of one rival at par the doubt goes first, so that a tie is called one.
constexpr double kSmallLossShare = 0.2;
// Behind by this many times the indifference is no tie, however unsure.
constexpr double kClearlyBehind = 3;

constexpr std::array kStandingNames = {"predicted", "failed", "racing", "behind", "tied", "best"};
constexpr std::array kEndNames = {"not_run", "open", "separated", "tie", "small_loss", "rounds"};

/// Natural logarithm of the score of a step that takes e^`log_s` seconds.
double LogScore(Objective objective, const CandidateRecord& candidate, double log_s) {
  const double tokens =
      static_cast<double>(candidate.run.global_batch * candidate.run.sequence_length);
  const int64_t peak = candidate.visits.empty()
                           ? candidate.prediction()->peak_mem_bytes
                           : candidate.visits.back().measurement.peak_mem_bytes;
  return std::log(Score(objective, candidate.run, tokens / std::exp(log_s), peak));
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

/// Draws an order by `round`, the same whenever it is asked for.
void Shuffle(int64_t round, std::vector<size_t>& order) {
  std::mt19937_64 random(kOrderSeed + static_cast<uint64_t>(round));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

/// The chance left that another is better by more than the indifference, at which a race ends.
double AllowedDoubt(const RaceRules& rules) { return 1 - rules.confidence; }

double Indifference(const RaceRules& rules) { return std::log1p(rules.indifference); }

/// Whether little enough is lost with contestant `best` to be content with it.
bool LosesLittle(const RaceRules& rules, const RaceBelief& belief, size_t best) {
  return belief.Loss(best) < kSmallLossShare * Indifference(rules);
}

/// Predictions of one mode and precision share most of their errors.
using Group = std::pair<Mode, Precision>;

Group GroupOf(const CandidateRecord& candidate) {
  return {ModeOf(candidate.run), candidate.run.layout.precision};
}

/// By prediction; but the best of each group that may be the best of all, as unsure as predictions
/// are, before any second one.
std::vector<size_t> OneOfEachGroupFirst(const RaceRules& rules,
                                        const std::vector<CandidateRecord>& candidates) {
  std::vector<size_t> ranked = RankByPrediction(rules.objective, candidates);
  if (ranked.empty() || rules.objective == Objective::kMemory) return ranked;
  const double leader_high_s = candidates[ranked.front()].prediction()->step_time_high_s;
  std::set<Group> seen;
  std::stable_partition(ranked.begin(), ranked.end(), [&](size_t index) {
    return candidates[index].prediction()->step_time_low_s <= leader_high_s &&
           seen.insert(GroupOf(candidates[index])).second;
  });
  return ranked;
}

/// The best by prediction that are visited in any case and were not yet.
std::vector<size_t> Newcomers(const RaceRules& rules,
                              const std::vector<CandidateRecord>& candidates) {
  int64_t visited = 0;
  int64_t failed = 0;
  for (const CandidateRecord& candidate : candidates) {
    if (!candidate.visits.empty()) ++visited;
    if (HasFailed(candidate)) ++failed;
  }
  std::vector<size_t> newcomers;
  for (const size_t index : OneOfEachGroupFirst(rules, candidates)) {
    if (!candidates[index].visits.empty() || HasFailed(candidates[index])) continue;
    const int64_t tried = visited + static_cast<int64_t>(newcomers.size());
    // One that fails is replaced by the next, up to as many again: a machine on which nothing runs
    // is found out early.
    if (tried >= rules.prove_count || tried + failed >= 2 * rules.prove_count) break;
    newcomers.push_back(index);
  }
  return newcomers;
}

/// Those that may win, with what is known of them; notes their numbers in `race`.
std::vector<Contestant> ContestantsOf(const RaceRules& rules,
                                      const std::vector<CandidateRecord>& candidates, Race& race) {
  std::vector<Contestant> contestants;
  std::vector<Group> groups;
  size_t unvisited = 0;
  for (const size_t index : RankByPrediction(rules.objective, candidates)) {
    const CandidateRecord& candidate = candidates[index];
    if (HasFailed(candidate)) continue;
    if (!race.entrant[index] && ++unvisited > kMostUnvisited) continue;
    race.contestant[index] = contestants.size();
    Contestant& mine = contestants.emplace_back();
    const Prediction& prediction = *candidate.prediction();
    mine.predicted = LogScore(rules.objective, candidate, std::log(prediction.step_time_s));
    // An interval reaches two standard deviations to either side.
    mine.group_error = std::log(prediction.step_time_high_s / prediction.step_time_low_s) / 4;
    const Group group = GroupOf(candidate);
    const auto at = std::find(groups.begin(), groups.end(), group);
    mine.group = static_cast<size_t>(at - groups.begin());
    if (at == groups.end()) groups.push_back(group);
    if (!race.entrant[index]) continue;
    mine.entrant = *race.entrant[index];
    mine.measured = LogScore(rules.objective, candidate, race.fit->StepTime(mine.entrant).log);
  }
  return contestants;
}

/// The best may have been lucky.
bool BestIsUnproved(const RaceRules& rules, const Race& race) {
  return rules.objective != Objective::kMemory &&
         race.fit->visits(*race.entrant[*race.best]) < kLeastVisits;
}

/// Fills up a round that visits `round` in any case: with one visit after the other, each the one
/// that takes most off the expected loss of recommending the best for the time it costs.
void PlanRound(const RaceRules& rules, const Race& race,
               const std::vector<CandidateRecord>& candidates, std::vector<size_t>& round) {
  RaceBelief belief = *race.belief;
  belief.BeginRound();
  if (BestIsUnproved(rules, race)) round.push_back(*race.best);
  for (const size_t index : round) {
    if (race.contestant[index]) belief.Visit(*race.contestant[index]);
  }
  const size_t best = *race.contestant[*race.best];
  while (round.size() < kVisitsOfARound) {
    if (belief.Doubt(best, Indifference(rules)) <= AllowedDoubt(rules)) return;
    if (LosesLittle(rules, belief, best)) return;
    const double loss = belief.Loss(best);
    std::optional<size_t> next;
    double most = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!race.contestant[i] || std::find(round.begin(), round.end(), i) != round.end()) continue;
      const double cost = candidates[i].visits.empty() ? kFirstVisitCost : 1;
      const double gain = (loss - belief.LossAfter(*race.contestant[i], best)) / cost;
      if (next && gain <= most) continue;
      most = gain;
      next = i;
    }
    if (!next) return;
    belief.Visit(*race.contestant[*next]);
    round.push_back(*next);
  }
}

/// The best of `visited`: of the one that is expected to be and those that it is not better than by
/// more than the indifference, as surely as a race must know, the simplest.
size_t ChooseBest(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates,
                  const std::vector<size_t>& visited) {
  const auto simpler = [&](size_t a, size_t b) {
    return Simplicity(candidates[a]) < Simplicity(candidates[b]);
  };
  // Memory is measured to the byte.
  if (rules.objective == Objective::kMemory) {
    return *std::min_element(visited.begin(), visited.end(), simpler);
  }
  const auto better = [&](size_t a, size_t b) {
    return race.belief->mean(*race.contestant[a]) < race.belief->mean(*race.contestant[b]);
  };
  const size_t first = *std::min_element(visited.begin(), visited.end(), better);
  size_t best = first;
  for (const size_t i : visited) {
    const double worse =
        race.belief->Chance(*race.contestant[first], *race.contestant[i], Indifference(rules));
    if (worse <= AllowedDoubt(rules) && simpler(i, best)) best = i;
  }
  return best;
}

/// Which candidates may still be better than the best: all but the least likely ones that have, all
/// together, no more than the allowed chance.
std::vector<bool> MayBeBetter(const RaceRules& rules, const Race& race) {
  std::vector<bool> may(race.contestant.size(), false);
  if (rules.objective == Objective::kMemory) return may;
  std::vector<std::pair<double, size_t>> chances;
  for (size_t i = 0; i < race.contestant.size(); ++i) {
    if (!race.contestant[i]) continue;
    chances.emplace_back(
        race.belief->Chance(*race.contestant[i], *race.contestant[*race.best], Indifference(rules)),
        i);
  }
  std::sort(chances.begin(), chances.end());
  double together = 0;
  for (const auto& [chance, i] : chances) {
    together += chance;
    may[i] = together > AllowedDoubt(rules);
  }
  return may;
}

/// How the race has ended, by the standings and by who may still be better.
RaceEnd EndOf(const RaceRules& rules, const Race& race, const std::vector<bool>& may_be_better) {
  if (BestIsUnproved(rules, race)) return RaceEnd::kOpen;
  if (std::find(may_be_better.begin(), may_be_better.end(), true) == may_be_better.end()) {
    return race.With(Standing::kTied).empty() ? RaceEnd::kSeparated : RaceEnd::kTie;
  }
  return LosesLittle(rules, *race.belief, *race.contestant[*race.best]) ? RaceEnd::kSmallLoss
                                                                        : RaceEnd::kOpen;
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

RaceVisit RaceVisitOf(size_t entrant, int64_t round, const RunConfig& run,
                      const Measurement& measurement) {
  RaceVisit visit = {.entrant = entrant, .round = round, .mode = ModeOf(run)};
  for (const StepBlock& block : measurement.blocks) {
    visit.blocks.push_back({block.step_s, block.probe_s, block.taken});
  }
  if (visit.blocks.empty()) visit.blocks.push_back({measurement.step_time_s, 0});
  for (const Straggler& each : measurement.stragglers) {
    visit.straggling = std::max(visit.straggling, each.times);
  }
  return visit;
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
  if (rules.objective == Objective::kMemory) {
    const double bytes = LogScore(rules.objective, candidates[candidate], 0);
    return {bytes - LogScore(rules.objective, candidates[*best], 0), 0};
  }
  const size_t mine = *contestant[candidate];
  const size_t other = *contestant[*best];
  return {belief->mean(mine) - belief->mean(other),
          fit->normal_quantile() * belief->Deviation(mine, other)};
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
    const double margin = Indifference(rules);
    const bool behind =
        worse.log > kClearlyBehind * margin || (worse.log > margin && worse.low() > 0);
    race.standing[i] = may_be_better[i] ? Standing::kRacing
                       : behind         ? Standing::kBehind
                                        : Standing::kTied;
  }
  race.standing[*race.best] = Standing::kBest;
  race.end = EndOf(rules, race, may_be_better);
  // Memory is measured to the byte: nothing is lost.
  if (rules.objective != Objective::kMemory) {
    race.expected_loss = std::expm1(race.belief->Loss(*race.contestant[*race.best]));
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
    candidate.measured_half_width = step.half_width;
    candidate.measured = std::move(measured);
  }
  CorrectPredictions(seed, candidates);
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
      if (!at->pruned_by.empty()) continue;  // since the round began
      step.visit = static_cast<size_t>(at - candidates.begin());
      return step;
    }
  }
  step.begin_round = Newcomers(rules, candidates);
  if (race.best && race.end == RaceEnd::kOpen) {
    PlanRound(rules, race, candidates, step.begin_round);
  }
  if (step.begin_round.empty()) {
    step.end = race.end;
    return step;
  }
  if (static_cast<int64_t>(rounds.size()) >= rules.most_rounds) {
    return {.visit = std::nullopt, .begin_round = {}, .end = RaceEnd::kRounds};
  }
  std::sort(step.begin_round.begin(), step.begin_round.end());
  Shuffle(rounds.empty() ? 1 : rounds.back().id + 1, step.begin_round);
  return step;
}

}  // namespace trimtab
