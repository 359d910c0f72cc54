#include "search/page/findings.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace trimtab {

std::string InWords(const Finding& finding) {
  if (finding.layouts.empty()) return finding.text;
  return fmt::format("{}: {}", finding.text, fmt::join(finding.layouts, "; "));
}

std::string StandingWords(std::string_view standing, std::string_view state,
                          std::string_view why_below) {
  std::string why(standing == "failed" ? state : why_below);
  if (why.empty() || why == standing) return std::string(standing);
  if (standing == "failed") std::ranges::replace(why, '_', ' ');
  return fmt::format("{}: {}", standing, why);
}

}  // namespace trimtab
