#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "search/page/chart.h"
#include "search/page/layout_words.h"
#include "search/page/sections.h"

namespace trimtab {

std::string ServingHtml(const nlohmann::json& report, const Findings& findings) {
  const nlohmann::json& problem = report["problem"];
  const nlohmann::json& best = report["recommended"];
  std::string html = fmt::format(
      "<header>\n<p class=\"quiet\">Trimtab report: serving {} on {}, {}, best {}</p>\n"
      "<h1>{} on {}</h1>\n</header>\n",
      EscapedText(problem["model"]["name"]), EscapedText(problem["cluster"]["name"]),
      EscapedText(problem["workload"]), EscapedText(report["objective"]),
      LayoutHtml(best["layout"].get<std::string>()),
      Counted(best["ranks"].get<int64_t>(),
              DeviceOf(problem) == DeviceKind::kCpu ? "rank" : "GPU"));
  for (const Finding& each : findings.limits) html += WarningHtml(SentenceHtml(each));
  html += fmt::format(
      "<p>{} tokens/s {}: {}.</p>\n", Grouped(best["figure"]["tokens_per_s"].get<double>()),
      TrustLabel(best["figure"]["trust"].get<std::string>()), EscapedText(best["binds"]["text"]));
  return html + ParagraphsHtml(findings.takes) + ChartHtml(PrunedChart(report)) +
         RaceHtml(report, findings) + FrontierHtml(report) + RankingHtml(report);
}

}  // namespace trimtab
