#include "tools/validation/fit_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cost_model/validation/accuracy.h"
#include "engine/base/error.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

struct NamedErrors {
  const char* key;
  const char* words;
  const std::vector<double>& errors;
  const std::vector<double>* half_widths;  // of their intervals; none = the fit saw the rows
};

std::vector<NamedErrors> ErrorsOf(const FitResult& fit) {
  return {{"fitted", "fitted to all rows", fit.errors, nullptr},
          {"by_family", "5 folds, by family", fit.held_out.by_family, &fit.known_half_widths},
          {"by_source", "one source left out", fit.held_out.by_source, &fit.other_half_widths},
          {"by_gpu", "one GPU left out", fit.held_out.by_gpu, &fit.other_half_widths}};
}

/// Share of errors that intervals of such half-widths cover.
double Coverage(const NamedErrors& each) {
  double within = 0;
  for (size_t i = 0; i < each.errors.size(); ++i) {
    const double half_width = (*each.half_widths)[i];
    within += std::abs(std::log1p(each.errors[i])) <= std::log1p(half_width) ? 1 : 0;
  }
  return within / static_cast<double>(std::max<size_t>(each.errors.size(), 1));
}

RankSummary RankingOf(const std::vector<double>& errors, const std::vector<ValidationRow>& rows) {
  std::vector<RankedRow> ranked;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double measured = 1 / rows[i].tokens_per_s_per_gpu;
    ranked.push_back({rows[i].Group(), measured * (1 + errors[i]), measured});
  }
  return SummarizeRanking(ranked);
}

std::string ErrorText(const std::vector<double>& errors) {
  const ErrorSummary summary = SummarizeErrors(errors);
  return fmt::format("{:.1f} / {:.1f}", 100 * summary.median, 100 * summary.p90);
}

std::map<std::string, std::vector<size_t>> BySource(const std::vector<ValidationRow>& rows) {
  std::map<std::string, std::vector<size_t>> by_source;
  for (size_t i = 0; i < rows.size(); ++i) by_source[rows[i].published.source].push_back(i);
  return by_source;
}

std::vector<double> Of(const std::vector<double>& errors, const std::vector<size_t>& rows) {
  std::vector<double> picked;
  for (const size_t row : rows) picked.push_back(errors[row]);
  return picked;
}

}  // namespace

nlohmann::json FitJson(const FitResult& fit, const std::vector<ValidationRow>& rows,
                       Outcome outcome) {
  nlohmann::json constants = nlohmann::json::array();
  for (size_t i = 0; i < fit.constants.size(); ++i) {
    const FitConstant& constant = fit.constants[i];
    constants.push_back({{"of", constant.owner},
                         {"name", constant.kind->name},
                         {"factor", std::exp(fit.logs[i])},
                         {"value", constant.shipped * std::exp(fit.logs[i])},
                         {"prior", constant.shipped * std::exp(constant.prior)},
                         {"sd_of_log", fit.sds[i]}});
  }
  nlohmann::json json = {{"constants", std::move(constants)}};
  for (const NamedErrors& each : ErrorsOf(fit)) {
    json[each.key] = ToJson(SummarizeErrors(each.errors));
    if (outcome != Outcome::kStepTime) continue;
    if (each.half_widths != nullptr) json[each.key]["interval_coverage"] = Coverage(each);
    const RankSummary ranking = RankingOf(each.errors, rows);
    json[each.key]["kendall"] = ranking.kendall;
    json[each.key]["kendall_distinct"] = ranking.kendall_distinct;
    json[each.key]["spearman"] = ranking.spearman;
    json[each.key]["top1_regret"] = ranking.top1_regret;
  }
  for (const auto& [source, of_source] : BySource(rows)) {
    for (const NamedErrors& each : ErrorsOf(fit)) {
      json["sources"][source][each.key] = ToJson(SummarizeErrors(Of(each.errors, of_source)));
    }
  }
  for (const auto& [kind, errors] : fit.without)
    json["without"][kind] = ToJson(SummarizeErrors(errors));
  nlohmann::json held_out = nlohmann::json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    held_out.push_back({{"id", rows[i].published.id},
                        {"fitted", fit.errors[i]},
                        {"by_family", fit.held_out.by_family[i]},
                        {"by_source", fit.held_out.by_source[i]},
                        {"by_gpu", fit.held_out.by_gpu[i]}});
  }
  json["rows"] = std::move(held_out);
  return json;
}

std::string FitText(const FitResult& fit, const std::vector<ValidationRow>& rows, Outcome outcome,
                    bool bold) {
  const bool time = outcome == Outcome::kStepTime;
  Table summary({{time ? "step time error" : "memory error"},
                 {"% median / p90", Align::kRight},
                 {"mean", Align::kRight},
                 {"Kendall", Align::kRight},
                 {"beyond 3 %", Align::kRight},
                 {"Spearman", Align::kRight},
                 {"top-1 regret %", Align::kRight},
                 {"within the 80 % interval", Align::kRight}});
  for (const NamedErrors& each : ErrorsOf(fit)) {
    std::vector<std::string> cells = {
        each.words, ErrorText(each.errors),
        fmt::format("{:.1f}", 100 * SummarizeErrors(each.errors).mean)};
    if (time) {
      const RankSummary ranking = RankingOf(each.errors, rows);
      for (const double value : {ranking.kendall, ranking.kendall_distinct, ranking.spearman}) {
        cells.push_back(fmt::format("{:.2f}", value));
      }
      cells.push_back(fmt::format("{:.1f}", 100 * ranking.top1_regret));
      cells.push_back(each.half_widths != nullptr ? fmt::format("{:.0f} %", 100 * Coverage(each))
                                                  : "-");
    }
    cells.resize(8, "-");
    summary.AddRow(std::move(cells));
  }
  Table sources({{"source"},
                 {"rows", Align::kRight},
                 {"fitted", Align::kRight},
                 {"by family", Align::kRight},
                 {"source left out", Align::kRight},
                 {"GPU left out", Align::kRight}});
  for (const auto& [source, of_source] : BySource(rows)) {
    std::vector<std::string> cells = {source, std::to_string(of_source.size())};
    for (const NamedErrors& each : ErrorsOf(fit)) {
      cells.push_back(ErrorText(Of(each.errors, of_source)));
    }
    sources.AddRow(std::move(cells));
  }
  Table without(
      {{"5 folds by family without"}, {"% median / p90", Align::kRight}, {"mean", Align::kRight}});
  for (const auto& [kind, errors] : fit.without) {
    without.AddRow(
        {kind, ErrorText(errors), fmt::format("{:.2f}", 100 * SummarizeErrors(errors).mean)});
  }
  Table constants({{"constant"},
                   {"prior", Align::kRight},
                   {"fitted", Align::kRight},
                   {"sd of log", Align::kRight}});
  for (size_t i = 0; i < fit.constants.size(); ++i) {
    const FitConstant& constant = fit.constants[i];
    constants.AddRow({constant.Name(),
                      fmt::format("{:.3g}", constant.shipped * std::exp(constant.prior)),
                      fmt::format("{:.3g}", constant.shipped * std::exp(fit.logs[i])),
                      fmt::format("{:.2f}", fit.sds[i])});
  }
  std::string text = summary.ToText(bold) + "\n" + sources.ToText(bold) + "\n";
  if (!fit.without.empty()) text += without.ToText(bold) + "\n";
  return text + constants.ToText(bold);
}

}  // namespace trimtab
