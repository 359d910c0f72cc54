#include "tools/search_text.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tools/table.h"

namespace trimtab {
namespace {

std::string Rate(double tokens_per_s) { return fmt::format("{:.0f}", tokens_per_s); }

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:+.1f} %", 100 * *share) : "-";
}

/// Of the predicted rate: (predicted - measured) / measured.
std::optional<double> RateError(const RankingRow& row) {
  if (!row.measured_tokens_per_s) return std::nullopt;
  return row.predicted_tokens_per_s / *row.measured_tokens_per_s - 1;
}

std::string PrunedText(const SpaceSummary& space) {
  std::string text =
      fmt::format("{} candidates, {} left after pruning\n", space.enumerated, space.feasible);
  for (const auto& [rule, count] : space.pruned) {
    text += fmt::format("  {:>5}  {}\n", count, rule);
  }
  return text;
}

std::string RankingText(const SearchResult& result, int64_t top, bool bold) {
  Table table({{"#", Align::kRight},
               {"layout"},
               {"precision"},
               {"state"},
               {"tokens/s", Align::kRight},
               {"predicted", Align::kRight},
               {"error", Align::kRight},
               {"peak memory", Align::kRight},
               {"predicted", Align::kRight},
               {"error", Align::kRight},
               {"outcome"}});
  const size_t rows = std::min(result.ranking.size(), static_cast<size_t>(top));
  for (size_t i = 0; i < rows; ++i) {
    const RankingRow& row = result.ranking[i];
    table.AddRow({fmt::format("{}", i + 1), row.groups, row.precision, row.optimizer_state,
                  row.measured_tokens_per_s ? Rate(*row.measured_tokens_per_s) : "-",
                  Rate(row.predicted_tokens_per_s), Percent(RateError(row)),
                  row.measured_peak_mem_bytes ? FormatBytes(*row.measured_peak_mem_bytes) : "-",
                  FormatBytes(row.predicted_peak_mem_bytes), Percent(row.peak_mem_error),
                  row.state});
  }
  std::string text = table.ToText(bold);
  if (rows < result.ranking.size()) {
    text += fmt::format("... and {} more\n", result.ranking.size() - rows);
  }
  return text;
}

/// What the precisions and optimizer states of the table are, and the best of each.
std::string NumericsText(const SearchResult& result) {
  std::vector<std::pair<std::string, std::string>> meanings;
  size_t width = 8;
  const auto tell = [&](const std::string& name, const std::string& meaning) {
    const std::pair<std::string, std::string> line = {name, meaning};
    if (std::find(meanings.begin(), meanings.end(), line) != meanings.end()) return;
    meanings.push_back(line);
    width = std::max(width, name.size());
  };
  for (const NumericsRow& each : result.numerics) tell(each.precision, each.precision_means);
  for (const NumericsRow& each : result.numerics) {
    tell(each.optimizer_state, each.optimizer_state_means);
  }
  std::string text;
  for (const auto& [name, meaning] : meanings) {
    text += fmt::format("{:<{}}  {}\n", name, width, meaning);
  }
  for (const NumericsRow& each : result.numerics) {
    if (result.numerics.size() == 1) break;
    text += fmt::format("best of {} {}: {}", each.precision, each.optimizer_state,
                        result.ranking[each.row].groups);
    text += each.row == result.recommendation.row
                ? ", recommended\n"
                : fmt::format(", {:.1f} % worse\n", 100 * each.extra_cost);
  }
  return text;
}

std::string RecommendationText(const SearchResult& result) {
  const RankingRow& best = result.recommended();
  const Recommendation& recommendation = result.recommendation;
  const double rate = best.measured_tokens_per_s.value_or(best.predicted_tokens_per_s);
  std::string text = fmt::format("recommended: {} at {} tokens/s ({})\n", best.layout, Rate(rate),
                                 recommendation.measured ? "measured" : "predicted only");
  if (!recommendation.binds.empty()) {
    text += fmt::format("besides compute, most of its step goes to {} ({:.1f} %)\n",
                        recommendation.binds, 100 * recommendation.binds_share);
  }
  if (recommendation.alternative) {
    text += fmt::format("next best: {}, {:.1f} % worse\n",
                        result.ranking[*recommendation.alternative].layout,
                        100 * recommendation.alternative_cost);
  }
  if (recommendation.contender) {
    text += fmt::format("worth proving too: {}, expected {:.1f} % better\n",
                        result.ranking[*recommendation.contender].layout,
                        100 * recommendation.contender_gain);
  }
  if (result.accuracy.proved > 0) {
    text += fmt::format(
        "predictions of {} measured: step time off by {:.1f} % (median), {:.1f} % "
        "(most); peak memory by at most {:.1f} %\n",
        result.accuracy.proved, 100 * result.accuracy.median_step_time_error,
        100 * result.accuracy.max_step_time_error, 100 * result.accuracy.max_peak_mem_error);
  }
  return text;
}

}  // namespace

std::string SearchText(const SearchResult& result, int64_t top, bool bold) {
  return PrunedText(result.space) + "\n" + RankingText(result, top, bold) + "\n" +
         NumericsText(result) + "\n" + RecommendationText(result);
}

std::string TrialText(const CandidateRecord& candidate, const TrialOutcome& outcome,
                      const TrialProgress& progress) {
  std::string text = fmt::format("trial {}/{}: {}", progress.done + progress.failed, progress.total,
                                 candidate.key);
  if (outcome.state == TrialState::kDone && candidate.measured) {
    text += fmt::format(": {} tokens/s", Rate(candidate.measured->tokens_per_s));
  } else {
    text += ": " + Name(outcome.state);
    if (!outcome.message.empty() && outcome.message != Name(outcome.state)) {
      text += ": " + outcome.message;
    }
  }
  text += fmt::format(" in {}", FormatSeconds(outcome.seconds));
  if (progress.best_tokens_per_s > 0) {
    text += fmt::format("; best {} tokens/s", Rate(progress.best_tokens_per_s));
  }
  if (progress.eta_s >= 0 && progress.done + progress.failed < progress.total) {
    text += fmt::format("; ETA {}", FormatSeconds(progress.eta_s));
  }
  return text;
}

}  // namespace trimtab
