// What a search found, as its study has it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "search/enumeration.h"
#include "search/front.h"
#include "search/race/race.h"
#include "search/recipes.h"
#include "search/recommend.h"
#include "search/study/study.h"
#include "search/walk/alternatives.h"

namespace trimtab {

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
