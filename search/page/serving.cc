#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/html.h"
#include "search/page/layout_words.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// Returns the report of a row's service: as measured, or else as predicted.
const json& ReportOf(const json& row) {
  return row["measured"].is_null() ? row["predicted"]["service"]["report"]
                                   : row["measured"]["service"];
}

/// Flattens a row to the figures that the tables show.
json FlatRow(const json& row) {
  const json& report = ReportOf(row);
  return {{"key", row["layout"]},
          {"gpus", row["ranks"]},
          {"tokens_per_s", row["figure"]["tokens_per_s"]},
          {"ttft_p99", report["ttft_ms"]["p99"]},
          {"tpot_mean", report["tpot_ms"]["mean"]},
          {"itl_p99", report["itl_ms"]["p99"]},
          {"per_gpu", row["service"]["tokens_per_s_per_gpu"]},
          {"per_user", row["service"]["tokens_per_s_per_user"]},
          {"memory", row["predicted"]["peak_mem_bytes"]},
          {"is", row["figure"]["trust"]},
          {"meets", row["service"]["meets_requirements"].get<bool>() ? "yes" : "no"},
          {"standing", row["standing"]}};
}

std::string RowsHtml(const json& ranking) {
  json rows = json::array();
  for (const json& each : ranking) rows.push_back(FlatRow(each));
  return Table({{"key", "configuration", Shown::kLayout},
                {"gpus", "ranks", Shown::kCount},
                {"tokens_per_s", "tokens/s", Shown::kFigure},
                {"is", "source", Shown::kText},
                {"ttft_p99", "TTFT p99, ms", Shown::kFigure},
                {"tpot_mean", "TPOT, ms", Shown::kFigure},
                {"itl_p99", "ITL p99, ms", Shown::kFigure},
                {"per_gpu", "tokens/s/GPU", Shown::kFigure},
                {"per_user", "tokens/s/user", Shown::kFigure},
                {"memory", "memory", Shown::kBytes},
                {"meets", "meets", Shown::kText},
                {"standing", "standing", Shown::kText}},
               rows);
}

/// Lists predicted beside measured figures of the services that were visited.
std::string MeasuredHtml(const json& ranking) {
  json rows = json::array();
  for (const json& each : ranking) {
    if (each["measured"].is_null()) continue;
    const json& predicted = each["predicted"]["service"]["report"];
    const json& measured = each["measured"]["service"];
    rows.push_back({{"key", each["layout"]},
                    {"rate", predicted["output_tokens_per_s"]},
                    {"rate_measured", each["figure"]["tokens_per_s"]},
                    {"ttft", predicted["ttft_ms"]["p99"]},
                    {"ttft_measured", measured["ttft_ms"]["p99"]},
                    {"tpot", predicted["tpot_ms"]["mean"]},
                    {"tpot_measured", measured["tpot_ms"]["mean"]},
                    {"visits", each["visits"]}});
  }
  if (rows.empty()) return "";
  return "<h2>Measured</h2>\n<p>Rates are at equal machine speed, latencies medians of the "
         "visits.</p>\n" +
         Table({{"key", "configuration", Shown::kLayout},
                {"rate", "tokens/s, predicted", Shown::kFigure},
                {"rate_measured", "measured", Shown::kFigure},
                {"ttft", "TTFT p99 ms, predicted", Shown::kFigure},
                {"ttft_measured", "measured", Shown::kFigure},
                {"tpot", "TPOT ms, predicted", Shown::kFigure},
                {"tpot_measured", "measured", Shown::kFigure},
                {"visits", "visits", Shown::kCount}},
               rows);
}

std::string SpaceHtml(const json& space) {
  std::vector<std::string> pruned;
  for (const json& each : space["pruned"]) {
    pruned.push_back(
        fmt::format("{} by {}", each["count"].get<int64_t>(), EscapedText(each["rule"])));
  }
  std::string html = fmt::format(
      "<p>{} candidates: {} fit, {} cannot be better than those listed (by a lower bound).</p>\n",
      space["size"].get<int64_t>(), space["feasible"].get<int64_t>(),
      space["cut_by_bound"].get<int64_t>());
  if (!pruned.empty()) html += fmt::format("<p>Pruned: {}.</p>\n", Listed(pruned));
  return html;
}

}  // namespace

std::string ServingHtml(const json& report) {
  const json& problem = report["problem"];
  const json& best = report["recommended"];
  std::string html = fmt::format(
      "<header>\n<p class=\"quiet\">Trimtab report: serving {} on {}, {}, best {}</p>\n"
      "<h1>{} on {}</h1>\n</header>\n",
      EscapedText(problem["model"]["name"]), EscapedText(problem["cluster"]["name"]),
      EscapedText(problem["workload"]), EscapedText(report["objective"]),
      LayoutHtml(best["layout"].get<std::string>()),
      Counted(best["ranks"].get<int64_t>(),
              DeviceOf(problem) == DeviceKind::kCpu ? "rank" : "GPU"));
  if (best["measured"].is_null()) {
    html += WarningHtml("Nothing here was measured: every figure is a prediction.");
  }
  std::vector<std::string> relaxed;
  for (const json& each : best["relaxations"]) relaxed.push_back(EscapedText(each));
  if (!relaxed.empty()) {
    html += WarningHtml(fmt::format(
        "Nothing meets the requirements. This comes closest; it would meet {}.", Listed(relaxed)));
  }
  if (report["proof"]["partial"].get<bool>()) {
    html += WarningHtml("Incomplete: " + EscapedText(report["proof"]["partial_reason"]));
  }
  html += fmt::format(
      "<p>{} tokens/s {}: {}.</p>\n", Grouped(best["figure"]["tokens_per_s"].get<double>()),
      TrustLabel(best["figure"]["trust"].get<std::string>()), EscapedText(best["binds"]["text"]));
  if (const json& price = best["service"]["price_per_million_tokens"]; !price.is_null()) {
    html += fmt::format("<p>A million output tokens cost {:.4g}.</p>\n", price.get<double>());
  }
  html += SpaceHtml(report["space"]) + RaceHtml(report) + MeasuredHtml(report["ranking"]);
  return html + "<h2>Frontier</h2>\n<p>Pareto frontier of tokens/s/GPU and tokens/s/user.</p>\n" +
         RowsHtml(report["frontier"]) + "<h2>Ranking</h2>\n" + RowsHtml(report["ranking"]);
}

}  // namespace trimtab
