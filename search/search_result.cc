#include "search/search_result.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "search/race/race_round.h"
#include "search/serving/serving_findings.h"
#include "search/serving/serving_workload.h"

namespace trimtab {
namespace {

[[noreturn]] void ThrowNothingRan(const std::string& path, const std::vector<RankingRow>& ranking,
                                  const std::vector<CandidateRecord>& candidates) {
  const auto failed = [](const RankingRow& row) { return row.state == RowState::kFailed; };
  const auto first = std::find_if(ranking.begin(), ranking.end(), failed);
  if (first == ranking.end()) {
    throw StorageError(fmt::format("{}: a damaged study: its candidates are not there", path));
  }
  throw InfeasibleError(fmt::format("none of the {} candidates tried ran; the first, {}: {}",
                                    std::count_if(ranking.begin(), ranking.end(), failed),
                                    first->layout,
                                    FailureText(first->failure.value_or(TrialState::kFailed),
                                                candidates[first->candidate].last_message)));
}

RaceRules RulesOf(const SearchGoal& goal) {
  return {.objective = goal.objective,
          .prove_count = goal.prove_count,
          .indifference = goal.indifference,
          .most_rounds = goal.most_rounds};
}

/// Why the race of `result`, which `stopped_by` stopped unless that is empty, did not end; empty
/// when it did.
std::string WhyOpen(const SearchResult& result, const RaceStep& step,
                    const std::string& stopped_by) {
  const bool over = !step.visit && step.begin_round.empty();
  if (over && step.end != RaceEnd::kRounds) return "";
  if (!stopped_by.empty()) return stopped_by;
  const int64_t racing = static_cast<int64_t>(result.race.With(Standing::kRacing).size());
  const std::string open =
      racing == 1  ? "1 candidate is not told apart from the best yet"
      : racing > 1 ? fmt::format("{} candidates are not told apart from the best yet", racing)
                   : "the best was visited only once, or some that may be better not at all";
  if (step.end == RaceEnd::kRounds) {
    return fmt::format("{} rounds were not enough: {}", result.rules.most_rounds, open);
  }
  return open;
}

/// Tokens that times and prices are of where nobody says.
constexpr double kTokensUnsaid = 1e9;

/// The problem of a study, priced as its predictions were.
Problem ProblemOf(const Study& study) {
  Problem problem = ProblemFromJson(study.problem(), study.path() + ": problem: $");
  problem.cluster.profile = HardwareProfileFromJson(study.profile(), study.path());
  return problem;
}

std::optional<double> ExtraCost(Objective objective, const CandidateRecord& best,
                                const RecipePlace& place) {
  if (!place.prediction || !place.refused.empty() || !best.closed_form) return std::nullopt;
  RunConfig run = best.run;
  run.layout = ParseLayout(place.layout, 0);
  const auto score = [&](const RunConfig& of, const Prediction& prediction) {
    return PredictionKey(objective, of, prediction).first;
  };
  return score(run, *place.prediction) / score(best.run, *best.closed_form) - 1;
}

/// Adds what only a search for training has: numerics, explanations, times and prices, recipes.
void AddTraining(const Study& study, SearchResult& result) {
  const Problem& problem = result.problem;
  result.numerics = SummarizeNumerics(result.rules.objective, result.candidates, result.ranking);
  result.explanations =
      Explain(problem, result.rules.objective, result.candidates, result.recommended().candidate);
  result.tokens = problem.tokens > 0 ? problem.tokens : kTokensUnsaid;
  result.front =
      TimeAgainstPrice(result.ranking, result.candidates, result.tokens, problem.cluster);
  if (problem.tokens > 0) {
    result.training = TrainingWith(result.ranking, result.recommendation.row, result.candidates,
                                   result.tokens, problem.cluster);
    result.unmet =
        UnmetByTraining(problem.requirements, result.training->hours, result.training->price);
  }
  result.recipes = RecipePlacesFromJson(study.recipes(), study.path());
  for (RecipePlace& each : result.recipes) {
    each.extra_cost = ExtraCost(result.rules.objective, result.recommended_candidate(), each);
  }
}

ServingResult ServingResultOf(const ServingProblem& problem, const Study& study,
                              const SearchResult& result) {
  std::vector<ServiceSpeed> speeds;
  for (const RankingRow& row : result.ranking) {
    const CandidateRecord& candidate = result.candidates[row.candidate];
    if (row.standing == Standing::kFailed) break;  // these come last
    const int64_t gpus = candidate.run.layout.world_size();
    ServiceSpeed speed = SpeedOf(ReportOf(candidate), gpus);
    speed.per_gpu = row.figure.tokens_per_s / static_cast<double>(gpus);
    speeds.push_back(speed);
  }
  const CandidateRecord& best = result.recommended_candidate();
  const LoadReport& seen = ReportOf(best);
  ServingResult serving = {
      .problem = problem,
      .frontier = ServingFrontier(speeds),
      .binds = best.prediction()->service->binds,
      .relaxations = Relaxations(problem, *best.serving, seen),
      .price_per_million = PricePerMillionTokens(problem.cluster, best.run.layout.world_size(),
                                                 result.recommended().figure.tokens_per_s),
      .perplexity_rise = {}};
  if (const auto held_back = study.FindMeasured(kHeldBack)) {
    serving.binds += fmt::format("; the limit of perplexity leaves out {}, which may do better",
                                 held_back->get<std::string>());
  }
  if (problem.limits_quality()) serving.perplexity_rise = problem.PerplexityRiseOf(*best.serving);
  return serving;
}

}  // namespace

std::map<Mode, ProbeReference> ReferencesOf(const Study& study) {
  return ProbeReferences(HardwareProfileFromJson(study.profile(), study.path()));
}

SearchResult ResultFromStudy(const Study& study) {
  if (!study.enumerated()) {
    throw InputError(
        fmt::format("{}: no candidate in it yet: the search has just begun, or was ended too early",
                    study.path()));
  }
  SearchResult result;
  result.study_path = study.path();
  std::optional<ServingWorkload> service;
  if (study.workload() == "serving") {
    service.emplace(study);
    result.problem.cluster = service->cluster();
  } else {
    result.problem = ProblemOf(study);
  }
  result.versions = study.Versions();
  result.rules = RulesOf(study.goal());
  const Objective objective = result.rules.objective;
  result.candidates = study.Candidates();
  if (service) service->Judge(objective, result.candidates);
  result.rounds = study.Rounds();
  result.space = Summarize(study.Pruned(), result.candidates, study.gap());
  const bool any = std::any_of(result.candidates.begin(), result.candidates.end(),
                               [](const auto& each) { return each.pruned_by.empty(); });
  if (!any) ThrowInfeasible(result.space, result.candidates);

  result.race = JudgeRace(result.rules, result.candidates, ReferencesOf(study));
  ApplyRace(result.race, study.seed(), result.candidates);
  if (result.rules.prove_count > 0 || result.race.best) {
    const RaceStep step = NextStep(result.rules, result.race, result.candidates, result.rounds);
    result.race.end = step.end;
    result.partial_reason = WhyOpen(result, step, study.stopped_by());
    result.partial = !result.partial_reason.empty();
  }
  if (result.space.unexplored > 0) {
    const std::string open =
        fmt::format("{} candidates were not looked at, of which one could take up to {:.1f} % less",
                    result.space.unexplored, 100 * result.space.gap);
    result.partial_reason += (result.partial_reason.empty() ? "" : "; ") + open;
    result.partial = true;
  }
  result.ranking = RankAll(result.rules, result.race, result.candidates);
  const std::optional<Recommendation> choice =
      Recommend(objective, result.candidates, result.ranking);
  const bool failed = !result.race.With(Standing::kFailed).empty();
  if (!choice || (!choice->measured && failed && !result.partial)) {
    ThrowNothingRan(study.path(), result.ranking, result.candidates);
  }
  result.recommendation = *choice;
  if (service) {
    result.serving = ServingResultOf(service->problem(), study, result);
  } else {
    AddTraining(study, result);
  }
  result.accuracy = SummarizeAccuracy(result.ranking);
  return result;
}

}  // namespace trimtab
