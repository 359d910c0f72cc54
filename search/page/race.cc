#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "search/page/html.h"
#include "search/page/sections.h"

namespace trimtab {

std::string RaceHtml(const nlohmann::json& report, const Findings& findings) {
  const nlohmann::json& race = report["race"];
  std::string html;
  if (race["ended"] != "not_run") {
    html += fmt::format(
        "<p>{} in {}. Intervals hold at {}; layouts within {} of each other count as equal.</p>\n",
        Counted(race["visits"].get<int64_t>(), "visit"),
        Counted(race["rounds"].get<int64_t>(), "round"), Percent(race["confidence"].get<double>()),
        Percent(race["indifference"].get<double>()));
  }
  html += ParagraphsHtml(findings.decided) + ParagraphsHtml(findings.trust);
  if (html.empty()) return "";
  return "<section>\n<h2>How it was decided</h2>\n" + html + "</section>\n";
}

}  // namespace trimtab
