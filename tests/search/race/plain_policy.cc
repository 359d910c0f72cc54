#include "tests/search/race/plain_policy.h"

#include <algorithm>

namespace trimtab {

Race PlainPolicy::Judge(const RaceRules& rules, const std::vector<CandidateRecord>& candidates,
                        const std::map<Mode, ProbeReference>& references) const {
  Race race;
  race.entrant.resize(candidates.size());
  race.standing.assign(candidates.size(), Standing::kPredicted);
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
  if (visits.empty()) return race;
  race.fit.emplace(visits, entrants, references, rules.confidence);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!race.entrant[i]) continue;
    const auto log_step = [&](size_t index) {
      return race.fit->StepTime(*race.entrant[index]).log;
    };
    if (!race.best || log_step(i) < log_step(*race.best)) race.best = i;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!race.entrant[i]) continue;
    const RaceFit::Estimate worse = race.MeasuredAgainstBest(rules, candidates, i);
    race.standing[i] = worse.low() > 0                           ? Standing::kBehind
                       : worse.low() > -rules.log_indifference() ? Standing::kTied
                                                                 : Standing::kRacing;
  }
  race.standing[*race.best] = Standing::kBest;
  return race;
}

RaceStep PlainPolicy::Next(const RaceRules& rules, const Race& race,
                           const std::vector<CandidateRecord>& candidates,
                           const std::vector<RoundRecord>& rounds) const {
  RaceStep step;
  if (!rounds.empty()) {
    const RoundRecord& round = rounds.back();
    for (const int64_t id : round.candidates) {
      const auto index = static_cast<size_t>(id - 1);
      const std::vector<VisitRecord>& visits = candidates[index].visits;
      if (!visits.empty() && visits.back().round == round.id) continue;
      step.visit = index;
      return step;
    }
  }
  if (static_cast<int64_t>(rounds.size()) >= rules.most_rounds) {
    step.end = RaceEnd::kRounds;
    return step;
  }
  std::vector<size_t>& round = step.begin_round;
  if (race.best) round = race.With(Standing::kRacing);
  int64_t entrants = std::count_if(race.entrant.begin(), race.entrant.end(),
                                   [](const auto& each) { return each.has_value(); });
  for (const size_t index : RankByPrediction(rules.objective, candidates)) {
    if (std::ssize(round) + 1 >= rules.prove_count + (race.best ? 0 : 1)) break;
    if (entrants >= most_entrants_) break;
    if (race.entrant[index]) continue;
    const double low_s = candidates[index].prediction()->step_time_low_s;
    const bool may_win = !race.best || low_s * (1 + rules.indifference) <
                                           candidates[*race.best].measured->step_time_s;
    if (!may_win) continue;
    round.push_back(index);
    ++entrants;
  }
  const bool best_once = race.best && candidates[*race.best].visits.size() < 2;
  if (race.best && (best_once || !round.empty())) round.push_back(*race.best);
  if (round.empty()) {
    step.end = race.With(Standing::kTied).empty() ? RaceEnd::kSeparated : RaceEnd::kTie;
  }
  // There and back: what drifts steadily is the same for all after two rounds.
  if (rounds.size() % 2 == 1) std::reverse(round.begin(), round.end());
  return step;
}

}  // namespace trimtab
