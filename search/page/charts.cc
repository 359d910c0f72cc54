// What each chart of the report draws.
#include <algorithm>
#include <map>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/chart.h"
#include "search/page/parts.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr size_t kMostBars = 12;  // more do not fit a screen; the ranking has them all

/// Those that were measured; where nothing was, the first of the ranking.
std::vector<const json*> Finalists(const json& report) {
  std::vector<const json*> measured;
  std::vector<const json*> first;
  for (const json& row : report["ranking"]) {
    if (!row["measured"].is_null() && measured.size() < kMostBars) measured.push_back(&row);
    if (row["state"] == "predicted" && first.size() < kMostBars) first.push_back(&row);
  }
  return measured.empty() ? first : measured;
}

bool AnyMeasured(const json& report) { return report["proof"]["measured"].get<int64_t>() > 0; }

Chart Throughput(const json& report) {
  ChartData data{.name = "rows",
                 .columns = {{"layout", "Layout", Shown::kLayout},
                             {"tokens_per_s", "Tokens/s", Shown::kFigure},
                             {"low", "Low", Shown::kFigure},
                             {"high", "High", Shown::kFigure},
                             {"trust", "Trust"},
                             {"standing", "Standing"}}};
  for (const json* row : Finalists(report)) {
    const json& figure = (*row)["figure"];
    const json& middle = figure["tokens_per_s"];
    data.rows.push_back({{"rank", (*row)["rank"]},
                         {"layout", (*row)["layout"]},
                         {"tokens_per_s", middle},
                         {"low", figure["low"]},
                         {"high", figure["high"]},
                         {"from", figure["low"].is_null() ? middle : figure["low"]},
                         {"to", figure["high"].is_null() ? middle : figure["high"]},
                         {"trust", figure["trust"]},
                         {"standing", (*row)["standing"]}});
  }
  return {.name = "throughput",
          .title = AnyMeasured(report) ? "Speed of the finalists" : "Speed of the best predicted",
          .caption = fmt::format("The dot is the figure that the order goes by, the bar {}. The "
                                 "axis does not start at zero.",
                                 AnyMeasured(report) ? "its interval" : "how far it may be off"),
          .data = {data}};
}

Chart Predicted(const json& report) {
  ChartData data{.name = "rows",
                 .columns = {{"layout", "Layout", Shown::kLayout},
                             {"predicted", "Predicted tokens/s", Shown::kFigure},
                             {"trust", "Trust in the prediction"},
                             {"measured", "Measured tokens/s", Shown::kFigure},
                             {"error", "Error of the step time", Shown::kSignedPercent}}};
  for (const json& row : report["ranking"]) {
    if (row["measured"].is_null()) continue;
    data.rows.push_back({{"layout", row["layout"]},
                         {"predicted", row["predicted"]["tokens_per_s"]},
                         {"trust", row["predicted"]["trust"]},
                         {"measured", row["measured"]["tokens_per_s"]},
                         {"error", row["error"]["step_time"]},
                         {"recommended", row["rank"] == 1}});
  }
  return {.name = "predicted",
          .title = "Predicted against measured",
          .caption =
              "On the dashed line the two agree; above it the prediction was too "
              "optimistic. The recommended one stands out by its colour.",
          .data = {data}};
}

Chart StepTime(const json& report) {
  const bool measured = AnyMeasured(report);
  ChartData data{.name = "rows",
                 .columns = {{"layout", "Layout", Shown::kLayout},
                             {"part", "Part"},
                             {"seconds", "A step", Shown::kSeconds},
                             {"trust", "Trust"}}};
  for (const json* row : Finalists(report)) {
    const json& figures = (*row)[measured ? "measured" : "predicted"];
    const std::string trust = measured ? "measured" : figures["trust"].get<std::string>();
    for (const Part& part : StepParts(figures["breakdown_s"])) {
      data.rows.push_back({{"rank", (*row)["rank"]},
                           {"layout", (*row)["layout"]},
                           {"part", part.name},
                           {"order", part.order},
                           {"seconds", part.amount},
                           {"trust", trust}});
    }
  }
  return {.name = "time",
          .title = "Where the time of a step goes",
          .caption = measured ? "Measured on rank 0. Waiting for other ranks counts as messages."
                              : "As predicted; nothing was measured.",
          .data = {data}};
}

Chart Memory(const json& report) {
  const bool measured = AnyMeasured(report);
  ChartData data{.name = "rows",
                 .columns = {{"layout", "Layout", Shown::kLayout},
                             {"part", "Held by"},
                             {"bytes", "At the peak", Shown::kBytes},
                             {"trust", "Trust"}}};
  double highest = 0;
  for (const json* row : Finalists(report)) {
    const json& figures = (*row)[measured ? "measured" : "predicted"];
    highest = std::max(highest, figures["peak_mem_bytes"].get<double>());
    const json whole = {{"all of it", figures["peak_mem_bytes"]}};
    for (const Part& part : MemoryParts(measured ? figures["memory_bytes"] : whole)) {
      data.rows.push_back({{"rank", (*row)["rank"]},
                           {"layout", (*row)["layout"]},
                           {"part", part.name},
                           {"order", part.order},
                           {"bytes", static_cast<int64_t>(part.amount)},
                           {"mib", part.amount / static_cast<double>(kMiB)},
                           {"trust", measured ? "measured" : "modelled"}});
    }
  }
  const json& limit = report["recommended"]["limit_bytes"];
  ChartData line{.name = "limit", .columns = {{"bytes", "Limit of a rank", Shown::kBytes}}};
  std::string caption = "Peak of the fullest rank. No limit was set.";
  if (!limit.is_null()) {
    // A limit far out would squeeze the bars into slivers.
    const bool near = limit.get<double>() < 5 * highest;
    caption = fmt::format("Peak of the fullest rank. The limit, {}, {}.",
                          FormatBytes(limit.get<int64_t>()),
                          near ? "is the upright line" : "lies far to the right of the chart");
    if (near) {
      line.rows.push_back(
          {{"bytes", limit}, {"mib", limit.get<double>() / static_cast<double>(kMiB)}});
    }
  }
  if (line.rows.empty()) line.columns.clear();
  return {.name = "memory", .title = "Memory", .caption = caption, .data = {data, line}};
}

Chart Machine(const json& report) {
  const json& machine = report["machine"];
  ChartData rounds{.name = "rounds",
                   .columns = {{"round", "Round", Shown::kCount},
                               {"at_s", "Began at", Shown::kSeconds},
                               {"seconds", "Took", Shown::kSeconds},
                               {"speed", "Machine speed", Shown::kFigure},
                               {"speed_low", "Low", Shown::kFigure},
                               {"speed_high", "High", Shown::kFigure}},
                   .rows = machine["rounds"]};
  for (json& row : rounds.rows) {
    row["end_s"] = row["at_s"].get<double>() + row["seconds"].get<double>();
  }
  ChartData visits{.name = "visits",
                   .columns = {{"round", "Round", Shown::kCount},
                               {"layout", "Layout", Shown::kLayout},
                               {"at_s", "At", Shown::kSeconds},
                               {"speed", "Machine speed", Shown::kFigure},
                               {"tokens_per_s", "Tokens/s as clocked", Shown::kFigure},
                               {"tokens_per_s_even", "At even speed", Shown::kFigure}},
                   .rows = machine["visits"]};
  const bool calibrated = machine["relative_to"] == "calibration";
  return {.name = "machine",
          .title = "Speed of the machine during the search",
          .caption = fmt::format("Measured with a probe beside every visit (dots); 1 is {}. "
                                 "Tokens/s in this report are at that speed.",
                                 calibrated ? "the speed at which the machine was calibrated"
                                            : "its median speed during the search"),
          .data = {rounds, visits}};
}

Chart Front(const json& report) {
  const json& front = report["front"];
  ChartData data{.name = "rows",
                 .columns = {{"gpus", "GPUs", Shown::kCount},
                             {"layout", "Layout", Shown::kLayout},
                             {"tokens_per_s", "Tokens/s", Shown::kFigure},
                             {"hours", "Hours", Shown::kFigure},
                             {"gpu_hours", "GPU hours", Shown::kFigure},
                             {"price", "Price", Shown::kFigure},
                             {"energy_kwh", "kWh", Shown::kFigure},
                             {"trust", "Trust"}},
                 .rows = json::array()};
  bool priced = false;
  for (json row : front["rows"]) {
    priced = !row["price"].is_null();
    row["cost"] = priced ? row["price"] : row["gpu_hours"];
    data.rows.push_back(std::move(row));
  }
  // One number of GPUs is no choice.
  if (data.rows.size() < 2) data.rows = json::array();
  return {.name = "front",
          .title = "Time against price",
          .caption = fmt::format(
              "The best of each number of GPUs, for {} tokens: hours, and {}. Hollow ones are "
              "slower and dearer than another.",
              Grouped(front["tokens"].get<double>()),
              priced ? "what they cost" : "GPU hours, for no price is known"),
          .data = {data}};
}

}  // namespace

Chart PrunedChart(const json& report) {
  const json& space = report["space"];
  return {
      .name = "pruned",
      .title = "What was left out, and by which rule",
      .caption = fmt::format(
          "Of {}, {} were looked at, and {} of these can run here. {} are certainly behind: what "
          "they could become at best was known. Each of the others is counted under a rule that "
          "it breaks.",
          Counted(space["size"].get<int64_t>(), "candidate"),
          Grouped(space["visited"].get<double>()), Grouped(space["feasible"].get<double>()),
          Grouped(space["cut_by_bound"].get<double>())),
      .data = {{.name = "rows",
                .columns = {{"rule", "Rule"},
                            {"count", "Left out", Shown::kCount},
                            {"description", "What it says"}},
                .rows = space["pruned"]}}};
}

std::vector<Chart> Charts(const json& report) {
  std::vector<Chart> charts = {Throughput(report)};
  if (AnyMeasured(report)) charts.push_back(Predicted(report));
  charts.push_back(StepTime(report));
  charts.push_back(Front(report));
  charts.push_back(Memory(report));
  if (!report["machine"].is_null()) charts.push_back(Machine(report));
  charts.push_back(PrunedChart(report));
  std::erase_if(charts, [](const Chart& chart) { return chart.data.front().rows.empty(); });
  return charts;
}

}  // namespace trimtab
