// Findings: what a report says in sentences. The page and the terminal print the same ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// A sentence, without a capital letter and a full stop, and the layouts that it names at its end.
struct Finding {
  std::string text;
  std::vector<std::string> layouts{};
};

/// The sentences of a report, by section. Made once from a search's result (search/report.h).
struct Findings {
  std::vector<Finding> limits{};   // to know before any figure: what is open, or not met
  std::vector<Finding> takes{};    // what the recommended one costs
  std::vector<Finding> decided{};  // how the race ended, and what else may be as good
  std::vector<Finding> trust{};    // how far its figures can be trusted
  std::string worse{};             // what 3 % behind is by the objective: "slower"
};

/// Returns the text with its layouts, separated by semicolons.
std::string InWords(const Finding& finding);

/// Says where a row of the ranking stands: "failed: out of memory", "racing", "behind: slower, as
/// ...". The arguments are the row's members in report.json.
std::string StandingWords(std::string_view standing, std::string_view state,
                          std::string_view why_below);

}  // namespace trimtab
