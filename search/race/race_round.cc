#include "search/race/race_round.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "search/race/retry.h"

namespace trimtab {
namespace {

constexpr uint64_t kOrderSeed = 0x7472696d;
// Against a later one: a worker starts, and warms up.
constexpr double kFirstVisitCost = 2;
// Of a round. Visits of one round are compared most surely, but are chosen without the others'
// outcome.
constexpr size_t kVisitsOfARound = 3;
// Who is thought of for a visit: those that add most to the loss. It bounds the time that thinking
// takes.
constexpr size_t kMostRivals = 64;

/// Draws an order by `round`, the same whenever it is asked for.
void Shuffle(int64_t round, std::vector<size_t>& order) {
  std::mt19937_64 random(kOrderSeed + static_cast<uint64_t>(round));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

/// By prediction; but the best of each group that may be the best of all, as unsure as predictions
/// are, before any second one.
std::vector<size_t> OneOfEachGroupFirst(const RaceRules& rules,
                                        const std::vector<CandidateRecord>& candidates) {
  std::vector<size_t> ranked = RankByPrediction(rules.objective, candidates);
  if (ranked.empty() || rules.objective == Objective::kMemory) return ranked;
  const double leader_high_s = candidates[ranked.front()].prediction()->step_time_high_s;
  std::set<PredictionGroup> seen;
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
    if (HasFailed(candidate) || (candidate.visits.empty() && IsSuspect(candidate))) ++failed;
  }
  std::vector<size_t> newcomers;
  for (const size_t index : OneOfEachGroupFirst(rules, candidates)) {
    if (!candidates[index].visits.empty() || HasFailed(candidates[index])) continue;
    if (IsSuspect(candidates[index])) continue;
    const int64_t tried = visited + static_cast<int64_t>(newcomers.size());
    // One that fails is replaced by the next, up to as many again: a machine on which nothing runs
    // is found out early.
    if (tried >= rules.prove_count || tried + failed >= 2 * rules.prove_count) break;
    newcomers.push_back(index);
  }
  return newcomers;
}

/// Fills up a round that visits `round` in any case: with one visit after the other, each the one
/// that takes most off the expected loss of recommending the best for the time it costs.
void PlanRound(const RaceRules& rules, const Race& race,
               const std::vector<CandidateRecord>& candidates, std::vector<size_t>& round) {
  RaceBelief belief = *race.belief;
  belief.BeginRound();
  if (race.BestIsUnproved(rules)) round.push_back(*race.best);
  for (const size_t index : round) {
    if (race.contestant[index]) belief.Visit(*race.contestant[index]);
  }
  std::vector<size_t> candidate_of(belief.size());  // by contestant
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (race.contestant[i]) candidate_of[*race.contestant[i]] = i;
  }
  const size_t best = *race.contestant[*race.best];
  while (round.size() < kVisitsOfARound) {
    if (belief.Doubt(best, rules.log_indifference()) <= rules.allowed_doubt()) return;
    const double loss = belief.Loss(best);
    if (LosesLittle(rules, loss)) return;
    std::optional<size_t> next;
    double most = 0;
    std::vector<size_t> thought_of = belief.Rivals(best, kMostRivals);
    thought_of.push_back(best);
    std::erase_if(thought_of, [&](size_t contestant) {
      return std::find(round.begin(), round.end(), candidate_of[contestant]) != round.end();
    });
    const std::vector<double> after = belief.LossesAfter(thought_of, best);
    for (size_t t = 0; t < thought_of.size(); ++t) {
      const size_t i = candidate_of[thought_of[t]];
      const double cost = candidates[i].visits.empty() ? kFirstVisitCost : 1;
      const double gain = (loss - after[t]) / cost;
      if (next && gain <= most) continue;
      most = gain;
      next = i;
    }
    if (!next) return;
    belief.Visit(*race.contestant[*next]);
    round.push_back(*next);
  }
}

/// A candidate that ran, to run beside those that failed: the best, unless it failed too.
std::optional<size_t> ReferenceOf(const Race& race,
                                  const std::vector<CandidateRecord>& candidates) {
  const auto fit = [&](size_t index) {
    const CandidateRecord& candidate = candidates[index];
    return !candidate.visits.empty() && !IsSuspect(candidate) && !HasFailed(candidate) &&
           candidate.pruned_by.empty();
  };
  if (race.best && fit(*race.best)) return race.best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (fit(i)) return i;
  }
  return std::nullopt;
}

bool VisitedIn(const CandidateRecord& candidate, int64_t round) {
  return std::any_of(candidate.visits.begin(), candidate.visits.end(),
                     [&](const VisitRecord& visit) { return visit.round == round; });
}

}  // namespace

RaceStep NextStep(const RaceRules& rules, const Race& race,
                  const std::vector<CandidateRecord>& candidates,
                  const std::vector<RoundRecord>& rounds) {
  RaceStep step;
  const bool suspects = std::any_of(candidates.begin(), candidates.end(), IsSuspect);
  if (suspects && !rounds.empty()) {
    step.visit = ReferenceOf(race, candidates);
    if (step.visit) return step;
  }
  if (!rounds.empty()) {
    for (const int64_t id : rounds.back().candidates) {
      const auto at = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const CandidateRecord& each) { return each.id == id; });
      TRIMTAB_ASSERT(at != candidates.end(), "round {} visits candidate {}", rounds.back().id, id);
      if (VisitedIn(*at, rounds.back().id) || HasFailed(*at)) continue;
      if (!at->pruned_by.empty()) continue;  // since the round began
      if (IsSuspect(*at)) continue;          // until another has run
      step.visit = static_cast<size_t>(at - candidates.begin());
      return step;
    }
  }
  step.begin_round = Newcomers(rules, candidates);
  if (race.best && race.end == RaceEnd::kOpen) {
    PlanRound(rules, race, candidates, step.begin_round);
  }
  // One that runs is enough to tell whether those failed by themselves.
  if (suspects && !race.best && !step.begin_round.empty()) {
    step.begin_round.erase(step.begin_round.begin() + 1, step.begin_round.end());
  }
  std::erase_if(step.begin_round, [&](size_t index) { return IsSuspect(candidates[index]); });
  step.unexplained = suspects && step.begin_round.empty();
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
