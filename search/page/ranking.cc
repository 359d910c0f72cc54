#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/html.h"
#include "search/page/layout_words.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr size_t kRowsInSight = 20;
constexpr size_t kMostRows = 5000;  // a browser takes no more in its stride; report.json has all

/// A column of the ranking: number columns sort by the number at the head of their cells.
struct RankingColumn {
  std::string heading;
  bool number = true;
  std::function<std::string(const json& row)> cell;
};

std::string Mib(const json& figures) {
  if (figures.is_null()) return "";
  const double mib = figures["peak_mem_bytes"].get<double>() / static_cast<double>(kMiB);
  return mib < 100 ? fmt::format("{:.1f}", mib) : Grouped(std::round(mib));
}

std::string Interval(const json& low, const json& high, std::string (*shown)(double)) {
  if (low.is_null() || high.is_null()) return "";
  return fmt::format(" <small>{} to {}</small>", shown(low.get<double>()),
                     shown(high.get<double>()));
}

std::string LayoutCell(const json& row) {
  std::string html = LayoutHtml(row["layout"].get<std::string>());
  if (row["message"] != "") html += fmt::format(" <small>{}</small>", EscapedText(row["message"]));
  return html;
}

std::string FigureCell(const json& row) {
  const json& figure = row["figure"];
  return Grouped(figure["tokens_per_s"].get<double>()) + " " +
         TrustLabel(figure["trust"].get<std::string>()) +
         Interval(figure["low"], figure["high"], Grouped);
}

/// How much longer the row takes than the best for as many tokens.
double Behind(double ratio) { return 1 / ratio - 1; }

std::string BehindCell(const json& row) {
  const json& against = row["against_best"];
  if (against.is_null()) return "";
  const auto shown = [](double ratio) { return Percent(Behind(ratio)); };
  return shown(against["ratio"].get<double>()) + Interval(against["high"], against["low"], shown);
}

std::string StandingCell(const json& row) {
  return Escape(StandingWords(row["standing"].get<std::string>(), row["state"].get<std::string>(),
                              row["why_below"].get<std::string>()));
}

std::string ErrorCell(const json& error) {
  return error.is_null() ? "" : SignedPercent(error.get<double>());
}

std::string PlaceCell(const json& row) {
  return fmt::format("{} \u00d7 {}", row["ranks"].get<int64_t>(),
                     row["threads_per_rank"].get<int64_t>());
}

RankingColumn PlaceColumn() {
  return {"#", true, [](const json& row) { return std::to_string(row["rank"].get<int64_t>()); }};
}

RankingColumn PredictedColumn() {
  return {"Predicted tokens/s", true, [](const json& row) {
            return Grouped(row["predicted"]["tokens_per_s"].get<double>()) + " " +
                   TrustLabel(row["predicted"]["trust"].get<std::string>());
          }};
}

/// Returns a column of latencies: as measured, with the prediction, or else as predicted.
RankingColumn Latency(const std::string& heading, const char* name, const char* statistic) {
  return {heading, true, [name, statistic](const json& row) {
            const auto in = [&](const json& service) {
              return Grouped(service[name][statistic].get<double>());
            };
            const std::string predicted = in(row["predicted"]["service"]["report"]);
            const json& measured = row["measured"];
            return measured.is_null() ? predicted
                                      : fmt::format("{} <small>predicted {}</small>",
                                                    in(measured["service"]), predicted);
          }};
}

/// Returns a column of rates of the row's service.
RankingColumn ServiceRate(const std::string& heading, const char* name) {
  return {heading, true,
          [name](const json& row) { return Grouped(row["service"][name].get<double>()); }};
}

std::vector<RankingColumn> ServiceColumns() {
  return {
      PlaceColumn(),
      {"Configuration", false, LayoutCell},
      {"Ranks", true, [](const json& row) { return std::to_string(row["ranks"].get<int64_t>()); }},
      {"Tokens/s", true, FigureCell},
      PredictedColumn(),
      Latency("TTFT p99, ms", "ttft_ms", "p99"),
      Latency("TPOT, ms", "tpot_ms", "mean"),
      Latency("ITL p99, ms", "itl_ms", "p99"),
      ServiceRate("Tokens/s/GPU", "tokens_per_s_per_gpu"),
      ServiceRate("Tokens/s/user", "tokens_per_s_per_user"),
      {"Memory, MiB", true, [](const json& row) { return Mib(row["predicted"]); }},
      {"Meets", false, [](const json& row) {
         return row["service"]["meets_requirements"].get<bool>() ? "yes" : "no";
       }}};
}

/// The order's own figure comes first: memory where the order is by memory.
std::vector<RankingColumn> TrainingColumns(const json& report) {
  const std::string objective = report["objective"].get<std::string>();
  const bool gpus = DeviceOf(report["problem"]) != DeviceKind::kCpu;
  const std::vector<RankingColumn> speed = {
      {"Tokens/s", true, FigureCell},
      {"Behind", true, BehindCell},
      {"As clocked", true,
       [](const json& row) {
         const json& measured = row["measured"];
         return measured.is_null() ? ""
                                   : Grouped(measured["tokens_per_s_as_clocked"].get<double>());
       }},
      PredictedColumn(),
      {"Error", true, [](const json& row) { return ErrorCell(row["error"]["step_time"]); }}};
  const std::vector<RankingColumn> memory = {
      {"Memory measured, MiB", true, [](const json& row) { return Mib(row["measured"]); }},
      {"Memory predicted, MiB", true, [](const json& row) { return Mib(row["predicted"]); }},
      {"Memory error", true, [](const json& row) { return ErrorCell(row["error"]["peak_mem"]); }}};
  const RankingColumn cost = {
      "Tokens/s a GPU", true, [](const json& row) {
        return Grouped(row["figure"]["tokens_per_s"].get<double>() / row["ranks"].get<double>());
      }};
  std::vector<RankingColumn> columns = {PlaceColumn(),
                                        {"Layout", false, LayoutCell},
                                        {"Numerics", false,
                                         [](const json& row) {
                                           return EscapedText(row["precision"]) + ", " +
                                                  EscapedText(row["optimizer_state"]);
                                         }},
                                        {gpus ? "GPUs" : "Ranks \u00d7 threads", true, PlaceCell}};
  if (report["problem"].contains("global_batches")) {
    columns.push_back({"Global batch", true, [](const json& row) {
                         return std::to_string(row["global_batch"].get<int64_t>());
                       }});
  }
  const bool by_memory = objective == "memory";
  const std::vector<RankingColumn>& first = by_memory ? memory : speed;
  const std::vector<RankingColumn>& second = by_memory ? speed : memory;
  if (objective == "cost" && gpus) columns.push_back(cost);
  columns.insert(columns.end(), first.begin(), first.end());
  columns.insert(columns.end(), second.begin(), second.end());
  return columns;
}

std::vector<RankingColumn> Columns(const json& report) {
  std::vector<RankingColumn> columns =
      report["for"] == "serving" ? ServiceColumns() : TrainingColumns(report);
  const std::vector<RankingColumn> last = {{"Standing", false, StandingCell},
                                           {"Visits", true, [](const json& row) {
                                              return std::to_string(row["visits"].get<int64_t>());
                                            }}};
  columns.insert(columns.end(), last.begin(), last.end());
  return columns;
}

std::string Head(const std::vector<RankingColumn>& columns) {
  std::string html = "<thead><tr>";
  for (const RankingColumn& column : columns) {
    html += fmt::format("<th class=\"{}\">{}</th>", column.number ? "number" : "text",
                        Escape(column.heading));
  }
  return html + "</tr></thead>\n";
}

std::string Body(const std::vector<RankingColumn>& columns, const json& ranking, size_t begin,
                 size_t end) {
  std::string html = "<tbody>\n";
  for (size_t i = begin; i < end; ++i) {
    html += fmt::format("<tr class=\"{}\">", EscapedText(ranking[i]["standing"]));
    for (const RankingColumn& column : columns) {
      html += column.number ? "<td class=\"number\">" : "<td>";
      html += column.cell(ranking[i]) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n";
}

std::string TableOf(const std::vector<RankingColumn>& columns, const json& rows, size_t begin,
                    size_t end) {
  return "<div class=\"scroll\" tabindex=\"0\"><table class=\"ranking\">\n" + Head(columns) +
         Body(columns, rows, begin, end) + "</table></div>";
}

/// On a narrow page a row is a card, and each figure carries the heading of its column.
std::string CardHeadings(const std::vector<RankingColumn>& columns) {
  std::string style = "<style>@media screen and (max-width: 700px) {\n";
  for (size_t i = 2; i < columns.size(); ++i) {
    style += fmt::format(".ranking td:nth-child({})::before {{ content: \"{}\"; }}\n", i + 1,
                         columns[i].heading);
  }
  return style + "}</style>\n";
}

}  // namespace

std::string RankingHtml(const json& report) {
  const json& ranking = report["ranking"];
  const std::vector<RankingColumn> columns = Columns(report);
  const size_t shown = std::min(ranking.size(), kMostRows);
  const size_t in_sight = std::min(shown, kRowsInSight);
  std::string html = CardHeadings(columns);
  html += fmt::format(
      "<section id=\"ranking\">\n<h2>Ranking</h2>\n<p class=\"quiet\">{} by {}.{}</p>\n{}\n",
      Counted(static_cast<int64_t>(ranking.size()), "candidate"), EscapedText(report["objective"]),
      report["for"] == "serving" ? ""
                                 : " Errors are (predicted &minus; measured) / measured, of the "
                                   "step time. Predicted memory is counted, allocation by "
                                   "allocation.",
      TableOf(columns, ranking, 0, in_sight));
  if (shown > in_sight) {
    html += fmt::format("<details class=\"rest\"><summary>The other {}</summary>\n{}</details>\n",
                        Grouped(static_cast<double>(shown - in_sight)),
                        TableOf(columns, ranking, in_sight, shown));
  }
  if (ranking.size() > shown) {
    html += fmt::format("<p class=\"quiet\">The first {} of {}; report.json has all.</p>\n", shown,
                        ranking.size());
  }
  return html + "</section>\n";
}

std::string FrontierHtml(const json& report) {
  const json& rows = report["frontier"];
  return "<section id=\"frontier\">\n<h2>Frontier</h2>\n<p>Pareto frontier of tokens/s/GPU and "
         "tokens/s/user.</p>\n" +
         TableOf(Columns(report), rows, 0, rows.size()) + "\n</section>\n";
}

}  // namespace trimtab
