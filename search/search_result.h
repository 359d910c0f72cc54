// What a search found, as its study has it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "search/front.h"
#include "search/race/race.h"
#include "search/recipes.h"
#include "search/recommend.h"
#include "search/serving/serving_problem.h"
#include "search/study/study.h"
#include "search/walk/alternatives.h"
#include "search/workload/space_summary.h"

namespace trimtab {

/// The findings of a search for serving beyond its ranking.
struct ServingResult {
  ServingProblem problem;
  std::vector<size_t> frontier;  // rows of the ranking: see ServingFrontier
  std::string binds;             // what keeps the recommended one from being better, in a sentence
  std::vector<std::string> relaxations;     // of requirements that it does not meet
  std::optional<double> price_per_million;  // output tokens; where the price of a GPU hour is known
  std::optional<double> perplexity_rise;    // where a requirement limits it
};

struct SearchResult {
  std::string study_path;
  RaceRules rules;
  SpaceSummary space;
  std::vector<CandidateRecord> candidates;
  Race race;
  std::vector<RoundRecord> rounds;
  std::vector<RankingRow> ranking;  // of those in the running
  Recommendation recommendation;
  std::vector<NumericsRow> numerics;
  double tokens = 0;                      // that times and prices are of
  std::vector<FrontRow> front;            // time against price, by number of GPUs
  std::optional<FrontRow> training;       // with the recommended row, where the problem has tokens
  std::vector<std::string> unmet;         // requirements that it does not meet: phrases
  std::vector<Explanation> explanations;  // of the choices of the recommended layout
  std::vector<RecipePlace> recipes;       // what frameworks publish, as predicted here
  std::optional<ServingResult> serving;  // of a search for serving; then the members about training
                                         // and `problem`, but for its cluster, are empty
  Accuracy accuracy;
  Problem problem;                                            // priced as the predictions were
  std::vector<std::pair<std::string, std::string>> versions;  // component, version
  bool partial = false;        // the race is open: a budget, a stop request or the rounds ended it
  std::string partial_reason;  // one line; empty when whole

  const RankingRow& recommended() const { return ranking.at(recommendation.row); }
  const CandidateRecord& recommended_candidate() const {
    return candidates.at(recommended().candidate);
  }
};

/// Returns the result as the study has it, without running anything. Throws InputError while no
/// candidate is stored, InfeasibleError when none of them runs.
SearchResult ResultFromStudy(const Study& study);

/// What a step of the reference probe took, by mode, when the study's profile was measured.
std::map<Mode, ProbeReference> ReferencesOf(const Study& study);

}  // namespace trimtab
