#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/report.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr size_t kMaxRows = 200;  // of the ranking: the page is for people, report.json has all

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trimtab report</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: right; padding: 0.3rem 0.6rem; border-bottom: 1px solid #d8dee4; }
th:first-child, td:first-child, .text { text-align: left; }
code, pre { font: 0.85rem ui-monospace, monospace; }
pre { background: #f6f8fa; padding: 1rem; overflow: auto; }
.chosen { background: #e8f4ec; font-weight: 600; }
.quiet { color: #59636e; }
.predicted { fill: #9ec5e8; } .measured { fill: #1f6fb2; }
svg text { font: 12px ui-monospace, monospace; fill: #1b1f24; }
</style></head><body>
)html";

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string EscapedText(const json& value) { return Escape(value.get<std::string>()); }

std::string Percent(const json& fraction) {
  return fraction.is_null() ? "" : fmt::format("{:+.1f}&nbsp;%", fraction.get<double>() * 100);
}

std::string TokensPerS(const json& figures) {
  return figures.is_null() ? "" : fmt::format("{:.0f}", figures["tokens_per_s"].get<double>());
}

std::string PeakMemory(const json& figures) {
  return figures.is_null() ? "" : FormatBytes(figures["peak_mem_bytes"].get<int64_t>());
}

std::string Row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><td>{}</td><td class=\"text\">{}</td></tr>\n", name, value);
}

std::string Summary(const json& report) {
  const json& recommended = report["recommended"];
  const json& problem = report["problem"];
  const bool measured = !recommended["measured"].is_null();
  const json& figures = measured ? recommended["measured"] : recommended["predicted"];
  std::string html = "<h1>Trimtab report</h1>\n<table>\n";
  html += Row("Model", EscapedText(problem["model"]["name"]));
  html += Row("Cluster", EscapedText(problem["cluster"]["name"]));
  html += Row("Global batch &times; sequence length",
              fmt::format("{} &times; {}", problem["global_batch"].get<int64_t>(),
                          problem["sequence_length"].get<int64_t>()));
  html += Row("Objective", EscapedText(report["objective"]));
  html += Row("Recommended", fmt::format("<code>{}</code>", EscapedText(recommended["layout"])));
  html += Row("Precision", EscapedText(recommended["precision"]));
  html += Row("Optimizer state", EscapedText(recommended["optimizer_state"]));
  html += Row(measured ? "Measured" : "Predicted, not measured",
              fmt::format("{:.0f} tokens/s, {:.3f} s a step, peak memory {} on the fullest rank",
                          figures["tokens_per_s"].get<double>(),
                          figures["step_time_s"].get<double>(), PeakMemory(figures)));
  html += Row("Besides compute", fmt::format("{}: {:.0f} % of the predicted step",
                                             EscapedText(recommended["binds"]["what"]),
                                             recommended["binds"]["share"].get<double>() * 100));
  if (const json& alternative = recommended["alternative"]; !alternative.is_null()) {
    html += Row("Next best",
                fmt::format("<code>{}</code>, {:.1f} % worse", EscapedText(alternative["layout"]),
                            alternative["extra_cost"].get<double>() * 100));
  }
  if (const json& contender = recommended["contender"]; !contender.is_null()) {
    html += Row("Worth proving next", fmt::format("<code>{}</code>, expected to be {:.1f} % better",
                                                  EscapedText(contender["layout"]),
                                                  contender["expected_gain"].get<double>() * 100));
  }
  if (report["proof"]["partial"].get<bool>()) {
    html += Row("Incomplete", EscapedText(report["proof"]["partial_reason"]));
  }
  return html + "</table>\n";
}

/// Horizontal bars of everything measured: predicted above, measured below.
std::string Chart(const json& report) {
  std::vector<const json*> rows;
  double longest = 0;
  for (const json& row : report["ranking"]) {
    if (row["measured"].is_null()) continue;
    rows.push_back(&row);
    longest = std::max({longest, row["measured"]["tokens_per_s"].get<double>(),
                        row["predicted"]["tokens_per_s"].get<double>()});
  }
  if (rows.empty()) return "";
  constexpr int kRowHeight = 48;
  constexpr int kWidth = 900;
  std::string html = fmt::format(
      "<h2>Predicted and measured tokens/s</h2>\n"
      "<svg viewBox=\"0 0 {0} {1}\" width=\"100%\" role=\"img\" "
      "aria-label=\"Predicted and measured tokens per second\">\n",
      kWidth, static_cast<int>(rows.size()) * kRowHeight);
  int y = 0;
  for (const json* row : rows) {
    html +=
        fmt::format("<text x=\"0\" y=\"{}\">{}</text>\n", y + 12, EscapedText((*row)["layout"]));
    int bar_y = y + 17;
    for (const char* kind : {"predicted", "measured"}) {
      const double value = (*row)[kind]["tokens_per_s"].get<double>();
      const double width = value / longest * (kWidth - 170);
      html += fmt::format(
          "<rect class=\"{0}\" x=\"0\" y=\"{1}\" width=\"{2:.1f}\" height=\"11\"></rect>"
          "<text x=\"{3:.1f}\" y=\"{4}\">{5:.0f} {0}</text>\n",
          kind, bar_y, width, width + 6, bar_y + 10, value);
      bar_y += 12;
    }
    y += kRowHeight;
  }
  return html + "</svg>\n";
}

std::string Ranking(const json& report) {
  std::string html =
      "<h2>Ranking</h2>\n<table>\n<tr><th>Layout</th><th>Precision</th><th>Optimizer state</th>"
      "<th>Ranks &times; threads</th>"
      "<th>Predicted tokens/s</th><th>Measured tokens/s</th><th>Step time error</th>"
      "<th>Predicted peak memory</th><th>Measured peak memory</th><th>Memory error</th>"
      "<th class=\"text\">State</th></tr>\n";
  size_t count = 0;
  for (const json& row : report["ranking"]) {
    if (count++ == kMaxRows) break;
    const bool chosen = row["layout"] == report["recommended"]["layout"];
    html += fmt::format(
        "<tr{}><td><code>{}</code></td><td>{}</td><td>{}</td><td>{} &times; "
        "{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
        chosen ? " class=\"chosen\"" : "", EscapedText(row["layout"]),
        EscapedText(row["precision"]), EscapedText(row["optimizer_state"]),
        row["ranks"].get<int64_t>(), row["threads_per_rank"].get<int64_t>(),
        TokensPerS(row["predicted"]), TokensPerS(row["measured"]),
        Percent(row["error"]["step_time"]), PeakMemory(row["predicted"]),
        PeakMemory(row["measured"]), Percent(row["error"]["peak_mem"]), EscapedText(row["state"]));
  }
  html += "</table>\n";
  if (report["ranking"].size() > kMaxRows) {
    html += fmt::format("<p class=\"quiet\">The first {} of {}; report.json has all.</p>\n",
                        kMaxRows, report["ranking"].size());
  }
  return html;
}

/// The best of each precision and optimizer state, and what these mean.
std::string Numerics(const json& report) {
  std::string html =
      "<h2>Precision and optimizer state</h2>\n<p>Results differ slightly between these; only "
      "those "
      "that were allowed were considered.</p>\n<table>\n<tr><th>Precision</th><th "
      "class=\"text\">Optimizer state</th><th class=\"text\">What they are</th>"
      "<th class=\"text\">Best layout</th><th>Against the recommended</th></tr>\n";
  for (const json& row : report["numerics"]) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{};<br>{}</td>"
        "<td class=\"text\"><code>{}</code> ({})</td><td>{}</td></tr>\n",
        EscapedText(row["precision"]), EscapedText(row["optimizer_state"]),
        EscapedText(row["precision_means"]), EscapedText(row["optimizer_state_means"]),
        EscapedText(row["best"]["layout"]), EscapedText(row["best"]["state"]),
        row["extra_cost"] == 0 ? "" : Percent(row["extra_cost"]) + " cost");
  }
  return html + "</table>\n";
}

std::string Space(const json& report) {
  const json& space = report["space"];
  std::string html = fmt::format(
      "<h2>What was considered</h2>\n<p>{} candidates, {} feasible.</p>\n<table>\n"
      "<tr><th>Rule</th><th>Pruned</th><th class=\"text\">What it says</th></tr>\n",
      space["enumerated"].get<int64_t>(), space["feasible"].get<int64_t>());
  for (const json& row : space["pruned"]) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
                        EscapedText(row["rule"]), row["count"].get<int64_t>(),
                        EscapedText(row["description"]));
  }
  return html + "</table>\n";
}

std::string BreakdownTable(const std::string& title, const json& figures) {
  std::string html =
      fmt::format("<h2>{}</h2>\n<table>\n<tr><th>Part</th><th>Seconds</th></tr>\n", title);
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, seconds] : figures["breakdown_s"].items()) {
    parts.emplace_back(-seconds.get<double>(), Escape(name));
  }
  std::sort(parts.begin(), parts.end());
  for (const auto& [negated, name] : parts) {
    html += fmt::format("<tr><td>{}</td><td>{:.4f}</td></tr>\n", name, std::abs(negated));
  }
  return html + "</table>\n";
}

}  // namespace

std::string ReportHtml(const json& report) {
  const json& recommended = report["recommended"];
  std::string html(kHead);
  html += Summary(report);
  html += Chart(report);
  html += Ranking(report);
  html += Numerics(report);
  html += Space(report);
  html += BreakdownTable("Where the recommended step goes, as predicted", recommended["predicted"]);
  if (!recommended["measured"].is_null()) {
    html += BreakdownTable("Where it went on rank 0, as measured", recommended["measured"]);
  }
  html += fmt::format("<h2>The recommended run</h2>\n<pre>{}</pre>\n",
                      Escape(recommended["run"].dump(2)));
  html += fmt::format(
      "<p class=\"quiet\">Prices: profile {}{}{}. Errors are (predicted &minus; measured) / "
      "measured.</p>\n</body></html>\n",
      EscapedText(report["profile"]["name"]), report["profile"]["measured_on"] == "" ? "" : ", ",
      EscapedText(report["profile"]["measured_on"]));
  return html;
}

}  // namespace trimtab
