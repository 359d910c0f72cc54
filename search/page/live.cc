#include "search/page/live.h"

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "search/page/html.h"
#include "search/page/page.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string ProgressHtml(const json& progress) {
  const auto number = [&](const char* key) { return progress[key].get<int64_t>(); };
  const bool runs = progress["runs"].get<bool>();
  const std::string stopped = progress["stopped_by"].get<std::string>();
  std::string state = runs              ? "running: " + EscapedText(progress["phase"])
                      : stopped.empty() ? std::string("ended")
                                        : "stopped: " + Escape(stopped);
  std::string html = fmt::format(
      "<section id=\"progress\" data-runs=\"{}\" aria-live=\"polite\">\n<h2>Progress</h2>\n"
      "<p id=\"phase\">The search is {}.</p>\n<div class=\"tiles\">\n",
      runs, state);
  html += Tile("Candidates", Grouped(static_cast<double>(number("candidates"))),
               "<p>" + Counted(number("dry_runs"), "dry run") + "</p>\n");
  html += Tile("Race", Counted(number("rounds"), "round"),
               fmt::format("<p>{} of {}</p>\n", Counted(number("visits"), "visit"),
                           Counted(number("measured"), "candidate")));
  html += Tile("Failures", Grouped(static_cast<double>(number("failures"))),
               "<p>trials that failed by themselves</p>\n");
  html += "</div>\n";
  if (progress.contains("why_no_report")) {
    html += fmt::format("<p class=\"warning\" role=\"note\">No ranking: {}.</p>\n",
                        EscapedText(progress["why_no_report"]));
  }
  return html + "</section>\n";
}

std::string LogHtml(const json& log) {
  if (log.empty()) return "";
  return "<section id=\"log\">\n<h2>Trials, the last first</h2>\n" +
         Table({{"at_s", "at", Shown::kSeconds},
                {"round", "round", Shown::kCount},
                {"key", "layout", Shown::kLayout},
                {"tokens_per_s", "tokens/s", Shown::kFigure},
                {"what", "failure"}},
               log) +
         "</section>\n";
}

}  // namespace

std::string LiveHtml(const json& progress, const std::string& report) {
  return ProgressHtml(progress) + report + LogHtml(progress["log"]);
}

std::string WaitingHtml(const std::string& study_path) {
  return fmt::format(
      "<section id=\"progress\" data-runs=\"false\">\n<h2>Progress</h2>\n"
      "<p id=\"phase\">Waiting for a search to write {}.</p>\n</section>\n",
      Escape(study_path));
}

std::string LivePageHtml(const std::string& version, const std::string& html) {
  return LiveFrame(
      fmt::format("<p id=\"connection\" class=\"warning\" role=\"alert\" hidden></p>\n"
                  "<main id=\"live\" data-version=\"{}\">\n{}</main>\n",
                  Escape(version), html));
}

}  // namespace trimtab
