#include "tools/validation/published_validation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cost_model/validation/accuracy.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "tools/cli/table.h"
#include "tools/validation/skipped_rows.h"

namespace trimtab {
namespace {

constexpr size_t kWorstRows = 10;

/// Whether runs are said to fit that did, and not to that did not.
struct FitVerdicts {
  int64_t ran = 0;
  int64_t ran_said_to = 0;
  int64_t ran_out = 0;
  int64_t ran_out_said_to = 0;
};

FitVerdicts VerdictsOf(std::span<const PredictedRun> runs) {
  FitVerdicts verdicts;
  for (const PredictedRun& run : runs) {
    const int64_t fits = SaidToFit(*run.row, run.estimate) ? 1 : 0;
    ++(run.ran_out() ? verdicts.ran_out : verdicts.ran);
    (run.ran_out() ? verdicts.ran_out_said_to : verdicts.ran_said_to) += fits;
  }
  return verdicts;
}

struct Figures {
  ErrorSummary step_time;
  ErrorSummary memory;
  RankSummary ranking;
  double coverage = 0;  // share of rows within their interval
};

template <typename Runs>
Figures FiguresOf(const Runs& runs) {
  std::vector<double> step_time;
  std::vector<double> memory;
  std::vector<RankedRow> ranked;
  double within = 0;
  for (const PredictedRun& run : runs) {
    if (run.has_memory()) memory.push_back(run.MemoryError());
    if (!run.has_time()) continue;
    step_time.push_back(run.StepTimeError());
    within += run.WithinInterval() ? 1 : 0;
    ranked.push_back({run.row->Group(), 1 / run.estimate.tokens_per_s_per_gpu(),
                      1 / run.row->tokens_per_s_per_gpu});
  }
  const double rows = static_cast<double>(std::max<size_t>(ranked.size(), 1));
  return {SummarizeErrors(step_time), SummarizeErrors(memory), SummarizeRanking(ranked),
          within / rows};
}

nlohmann::json ToJson(const Figures& figures) {
  const RankSummary& ranking = figures.ranking;
  const auto known = [](int64_t of, double value) {
    return of > 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  return {{"step_time_error", ToJson(figures.step_time)},
          {"memory_error", ToJson(figures.memory)},
          {"kendall", known(ranking.pairs, ranking.kendall)},
          {"kendall_pairs", ranking.pairs},
          {"kendall_distinct", known(ranking.distinct_pairs, ranking.kendall_distinct)},
          {"spearman", known(ranking.groups, ranking.spearman)},
          {"top1_regret", known(ranking.pairs, ranking.top1_regret)},
          {"worst_regret", known(ranking.pairs, ranking.worst_regret)},
          {"interval_coverage", known(figures.step_time.rows, figures.coverage)}};
}

std::map<std::string, std::vector<PredictedRun>> BySource(std::span<const PredictedRun> runs) {
  std::map<std::string, std::vector<PredictedRun>> by_source;
  for (const PredictedRun& run : runs) by_source[run.row->published.source].push_back(run);
  return by_source;
}

nlohmann::json RowJson(const PredictedRun& run) {
  const ValidationRow& row = *run.row;
  nlohmann::json json = {
      {"id", row.published.id},
      {"family", row.published.family},
      {"source", row.published.source},
      {"group", row.Group()},
      {"stack", row.of.cluster.stack.name},
      {"layout", ToString(row.of.run.layout)},
      {"assumptions", row.of.assumptions},
      {"predicted_tokens_per_s_per_gpu", run.estimate.tokens_per_s_per_gpu()},
      {"predicted_step_time_s", run.estimate.step_time_s},
      {"step_time_interval_s", {run.estimate.step_time_low_s, run.estimate.step_time_high_s}},
      {"predicted_peak_mem_bytes", run.PeakBytes()}};
  nlohmann::json parts = nlohmann::json::object();
  for (const BreakdownPart& part : kBreakdownParts) {
    parts[part.key] = run.estimate.breakdown_s.*part.seconds;
  }
  json["breakdown_s"] = std::move(parts);
  if (run.has_time()) {
    json["tokens_per_s_per_gpu"] = row.tokens_per_s_per_gpu;
    json["step_time_s"] = row.StepSeconds();
    json["step_time_error"] = run.StepTimeError();
  }
  if (run.has_memory()) {
    json["peak_mem_bytes"] = row.published.measured.peak_mem_bytes;
    json["mem_kind"] = row.published.measured.mem_kind;
    json["memory_error"] = run.MemoryError();
  }
  json["said_to_fit"] = SaidToFit(row, run.estimate);
  if (run.ran_out()) json["outcome"] = "OOM";
  return json;
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::vector<std::string> FigureCells(const std::string& name, const Figures& figures) {
  const auto errors = [](const ErrorSummary& each) {
    return each.rows == 0 ? std::string("-")
                          : fmt::format("{:.1f} / {:.1f} / {:.1f}", 100 * each.median,
                                        100 * each.p90, 100 * each.max);
  };
  const bool ranks = figures.ranking.pairs > 0;
  return {name,
          fmt::format("{}", figures.step_time.rows),
          errors(figures.step_time),
          figures.step_time.rows == 0 ? "-" : fmt::format("{:.1f}", 100 * figures.step_time.mean),
          ranks ? fmt::format("{:.2f}", figures.ranking.kendall) : "-",
          ranks ? fmt::format("{:.2f}", figures.ranking.spearman) : "-",
          ranks ? Percent(figures.ranking.top1_regret) : "-",
          errors(figures.memory)};
}

}  // namespace

nlohmann::json ValidationJson(std::span<const PredictedRun> runs, const TakenRuns& taken) {
  nlohmann::json summary = ToJson(FiguresOf(runs));
  summary["taken"] = runs.size();
  summary["skipped"] = taken.skipped.size();
  const FitVerdicts verdicts = VerdictsOf(runs);
  summary["fits"] = {{"ran", verdicts.ran},
                     {"ran_said_to_fit", verdicts.ran_said_to},
                     {"out_of_memory", verdicts.ran_out},
                     {"out_of_memory_said_to_fit", verdicts.ran_out_said_to}};
  nlohmann::json sources = nlohmann::json::object();
  for (const auto& [source, of_source] : BySource(runs)) {
    sources[source] = ToJson(FiguresOf(of_source));
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const PredictedRun& run : runs) rows.push_back(RowJson(run));
  nlohmann::json skipped = nlohmann::json::array();
  for (const auto& [id, reason] : taken.skipped) {
    skipped.push_back({{"id", id}, {"reason", reason}});
  }
  return {{"summary", std::move(summary)},
          {"sources", std::move(sources)},
          {"rows", std::move(rows)},
          {"skipped_rows", std::move(skipped)}};
}

std::string ValidationText(std::span<const PredictedRun> runs, const TakenRuns& taken, bool bold) {
  Table sources({{"source"},
                 {"rows", Align::kRight},
                 {"step time error %, median / p90 / max", Align::kRight},
                 {"mean", Align::kRight},
                 {"Kendall", Align::kRight},
                 {"Spearman", Align::kRight},
                 {"top-1 regret", Align::kRight},
                 {"memory error %, median / p90 / max", Align::kRight}});
  for (const auto& [source, of_source] : BySource(runs)) {
    sources.AddRow(FigureCells(source, FiguresOf(of_source)));
  }
  sources.AddRow(FigureCells("all", FiguresOf(runs)));

  std::vector<PredictedRun> worst;
  for (const PredictedRun& run : runs) {
    if (run.has_time()) worst.push_back(run);
  }
  std::sort(worst.begin(), worst.end(), [](const PredictedRun& a, const PredictedRun& b) {
    return std::abs(std::log1p(a.StepTimeError())) > std::abs(std::log1p(b.StepTimeError()));
  });
  worst.resize(std::min(worst.size(), kWorstRows));
  Table rows({{"furthest off"},
              {"stack"},
              {"tokens/s/GPU", Align::kRight},
              {"predicted", Align::kRight},
              {"step time error", Align::kRight}});
  for (const PredictedRun& run : worst) {
    rows.AddRow({run.row->published.id, run.row->of.cluster.stack.name,
                 fmt::format("{:.0f}", run.row->tokens_per_s_per_gpu),
                 fmt::format("{:.0f}", run.estimate.tokens_per_s_per_gpu()),
                 fmt::format("{:+.1f} %", 100 * run.StepTimeError())});
  }
  const FitVerdicts verdicts = VerdictsOf(runs);
  const std::string fits =
      fmt::format("{} of {} that ran are said to fit in memory, and {} of {} that ran out of it\n",
                  verdicts.ran_said_to, Counted(verdicts.ran, "run"), verdicts.ran_out_said_to,
                  verdicts.ran_out);
  return sources.ToText(bold) + fits + "\n" + rows.ToText(bold) +
         SkippedRowsText(taken.skipped, bold);
}

}  // namespace trimtab
