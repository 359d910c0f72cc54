#include "tools/search/serving_text.h"

#include <algorithm>

#include "engine/base/units.h"
#include "tools/cli/table.h"
#include "tools/text/common_part.h"

namespace trimtab {
namespace {

std::string Milliseconds(double value) { return fmt::format("{:.1f} ms", value); }

/// Lists measured figures beside predicted ones.
std::string MeasuredText(const SearchResult& result, size_t rows, bool bold) {
  Table table({{"#", Align::kRight},
               {"tokens/s", Align::kRight},
               {"predicted", Align::kRight},
               {"TTFT p99", Align::kRight},
               {"predicted", Align::kRight},
               {"TPOT mean", Align::kRight},
               {"predicted", Align::kRight},
               {"visits", Align::kRight},
               {"standing"}});
  bool any = false;
  for (size_t i = 0; i < rows; ++i) {
    const RankingRow& row = result.ranking[i];
    const CandidateRecord& candidate = result.candidates[row.candidate];
    const LoadReport& predicted = candidate.prediction()->service->report;
    const std::string place = fmt::format("{}", i + 1);
    if (row.standing == Standing::kFailed) {
      any = true;
      table.AddRow(
          {place, "", "", "", "", "", "", "",
           FailureText(row.failure.value_or(TrialState::kFailed), candidate.last_message)});
    }
    if (!candidate.measured) continue;
    any = true;
    const LoadReport& measured = *candidate.measured->service;
    table.AddRow({place, fmt::format("{:.1f}", row.figure.tokens_per_s),
                  fmt::format("{:.1f}", predicted.output_tokens_per_s()),
                  Milliseconds(measured.ttft.p99), Milliseconds(predicted.ttft.p99),
                  Milliseconds(measured.tpot.mean), Milliseconds(predicted.tpot.mean),
                  fmt::format("{}", row.visits), Name(row.standing)});
  }
  return any ? "\nmeasured:\n" + table.ToText(bold) : "";
}

}  // namespace

std::string ServingRankingText(const SearchResult& result, int64_t top, bool bold) {
  Table table({{"#", Align::kRight},
               {"configuration"},
               {"tokens/s", Align::kRight},
               {"TTFT p99", Align::kRight},
               {"TPOT mean", Align::kRight},
               {"ITL p99", Align::kRight},
               {"memory", Align::kRight},
               {"meets"}});
  const size_t rows = std::min(result.ranking.size(), static_cast<size_t>(top));
  std::vector<std::string> keys;
  for (size_t i = 0; i < rows; ++i) {
    keys.push_back(result.candidates[result.ranking[i].candidate].key);
  }
  const CommonPart configurations = SplitCommonPart(keys);
  for (size_t i = 0; i < rows; ++i) {
    const CandidateRecord& candidate = result.candidates[result.ranking[i].candidate];
    const LoadReport& report = ReportOf(candidate);
    table.AddRow({fmt::format("{}", i + 1), configurations.rest[i],
                  fmt::format("{:.0f}", result.ranking[i].figure.tokens_per_s),
                  Milliseconds(report.ttft.p99), Milliseconds(report.tpot.mean),
                  Milliseconds(report.itl.p99), FormatBytes(candidate.prediction()->peak_mem_bytes),
                  candidate.strain == 0 ? "yes" : "no"});
  }
  std::string text;
  if (!configurations.common.empty()) {
    text += fmt::format("all rows: {}\n", configurations.common);
  }
  text += table.ToText(bold);
  if (rows < result.ranking.size()) {
    text += fmt::format("... and {} more\n", result.ranking.size() - rows);
  }
  return text + MeasuredText(result, rows, bold);
}

}  // namespace trimtab
