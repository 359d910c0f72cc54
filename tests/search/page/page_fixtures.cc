#include "tests/search/page/page_fixtures.h"

#include <fstream>
#include <string>

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kHostile[] =
    "</script><script>console.error(1)</script><img src=x onerror=alert(1)>\"'`{{vega}}]]>";

void MakePredicted(json& row) {
  row["state"] = "predicted";
  row["standing"] = "predicted";
  row["message"] = "";
  row["measured"] = nullptr;
  row["against_best"] = nullptr;
  row["why_below"] = "";
  row["visits"] = 0;
  row["error"] = {{"step_time", nullptr}, {"peak_mem", nullptr}};
  row["figure"] = {{"tokens_per_s", row["predicted"]["tokens_per_s"]},
                   {"low", nullptr},
                   {"high", nullptr},
                   {"trust", row["predicted"]["trust"]}};
}

}  // namespace

json MeasuredReport() {
  std::ifstream file("testdata/report/report.json");
  return json::parse(file);
}

Findings SomeFindings() {
  return {.decided = {{"it is ahead of every other (95 % sure)"},
                      {"not told apart from it yet", {"tp=2,dp=1,mbs=4", "tp=4,dp=1,mbs=1"}}},
          .trust = {{"predictions off by 1.5 % in the median"}},
          .worse = "slower"};
}

json PredictedReport() {
  json report = MeasuredReport();
  for (json& row : report["ranking"]) MakePredicted(row);
  MakePredicted(report["recommended"]);
  report["machine"] = nullptr;
  report["race"]["ended"] = "not_run";
  report["race"]["rounds"] = 0;
  report["race"]["visits"] = 0;
  report["race"]["throttled_modes"] = json::array();
  report["race"]["stragglers"] = {{"visits", json::array()}, {"note", ""}};
  report["proof"] = {{"planned", 0},
                     {"measured", 0},
                     {"failed", 0},
                     {"partial", true},
                     {"partial_reason", "the time budget was over"}};
  report["accuracy"]["proved"] = 0;
  // As of a search over numbers of GPUs.
  const auto row = [](int64_t gpus, double tokens_per_s, bool on_front) {
    const double hours = 1e9 / tokens_per_s / 3600;
    const double gpu_hours = hours * static_cast<double>(gpus);
    return json{{"gpus", gpus},           {"layout", "tp=2,dp=1,mbs=1"},
                {"global_batch", 16},     {"tokens_per_s", tokens_per_s},
                {"trust", "modelled"},    {"hours", hours},
                {"gpu_hours", gpu_hours}, {"price", 2 * gpu_hours},
                {"energy_kwh", nullptr},  {"on_front", on_front}};
  };
  report["front"]["rows"] = {row(8, 4e5, true), row(16, 7e5, true), row(32, 6.5e5, false)};
  return report;
}

json LonelyReport() {
  json report = PredictedReport();
  const json row = report["ranking"][0];
  report["ranking"] = json::array({row});
  report["space"] = {{"size", 1},        {"visited", 1},       {"feasible", 1},
                     {"cut_by_rule", 0}, {"cut_by_memory", 0}, {"cut_by_bound", 0},
                     {"unexplored", 0},  {"gap", 0},           {"pruned", json::array()}};
  report["explanation"] = json::array();
  report["front"]["rows"] = json::array();
  for (const char* field : {"limit_bytes", "headroom_bytes", "default", "alternative"}) {
    report["recommended"][field] = nullptr;
  }
  report["profile"] = {{"name", "generic"}, {"measured_on", ""}};
  return report;
}

json LargeReport(int64_t rows) {
  json report = MeasuredReport();
  const json last = report["ranking"].back();
  for (int64_t rank = static_cast<int64_t>(report["ranking"].size()) + 1; rank <= rows; ++rank) {
    json row = last;
    row["rank"] = rank;
    row["layout"] =
        "tp=8,sp=1,cp=4,pp=16,vp=2,ep=8,etp=2,dp=64,zero=1,mbs=" + std::to_string(rank) +
        ",recompute=full,precision=bf16,master=remainder";
    report["ranking"].push_back(row);
  }
  return report;
}

json HostileReport() {
  json report = MeasuredReport();
  const std::string hostile = kHostile;
  report["problem"]["model"]["name"] = hostile;
  report["problem"]["cluster"]["name"] = hostile;
  report["ranking"][0]["layout"] = hostile;
  report["ranking"][1]["message"] = hostile;
  report["recommended"]["layout"] = hostile;
  report["explanation"][0]["value"] = hostile;
  report["recommended"]["binds"]["text"] = hostile;
  report["space"]["pruned"][0]["rule"] = hostile;
  report["study"] = hostile;
  return report;
}

Findings HostileFindings() {
  const Finding hostile = {kHostile + std::string("\xff"), {kHostile}};
  return {.limits = {hostile},
          .takes = {hostile},
          .decided = {hostile},
          .trust = {hostile},
          .worse = "slower"};
}

}  // namespace trimtab
