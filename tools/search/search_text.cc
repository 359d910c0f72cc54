#include "tools/search/search_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/report.h"
#include "tools/cli/table.h"
#include "tools/search/serving_text.h"
#include "tools/text/common_part.h"

namespace trimtab {
namespace {

std::string Rate(double tokens_per_s) { return fmt::format("{:.0f}", tokens_per_s); }

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:+.1f} %", 100 * *share) : "-";
}

/// What will train, where that is not our own engine.
std::string StackText(const SoftwareStack& stack) {
  if (stack.name == kOwnStack) return "";
  return fmt::format("software: {}: {}\n", stack.name, stack.description);
}

std::string PrunedText(const SpaceSummary& space) {
  std::string text = fmt::format("{} candidates, {} looked at, {} of these fit\n", space.size,
                                 space.visited, space.feasible);
  for (const auto& [rule, count] : space.pruned) {
    text += fmt::format("  {:>5}  {}\n", count, rule);
  }
  text += fmt::format("  {:>5}  pruned: the lower bound is worse than every listed candidate\n",
                      space.cut_by_bound);
  if (space.unexplored > 0) {
    text += fmt::format("  {:>5}  not looked at: one could take up to {:.1f} % less\n",
                        space.unexplored, 100 * space.gap);
  }
  return text;
}

/// "3986 +-1.1 %" of a figure and its interval, "3986" of one without.
std::string WithInterval(const RankingRow::Figure& figure) {
  if (!figure.high) return Rate(figure.tokens_per_s);
  const double half_width = *figure.high / figure.tokens_per_s - 1;
  return fmt::format("{:.0f} +-{:.1f} %", figure.tokens_per_s, 100 * half_width);
}

/// The layouts of rows, and what all of them have in common.
CommonPart GroupsOf(const SearchResult& result, size_t rows) {
  std::vector<std::string> layouts;
  for (size_t i = 0; i < rows; ++i) layouts.push_back(result.ranking[i].groups);
  return SplitCommonPart(layouts);
}

std::string BehindText(const RankingRow& row) {
  return row.against_best ? fmt::format("{:.1f} %", 100 * row.against_best->by) : "-";
}

/// The ranking. What all rows share stands in a line above it.
std::string RankingText(const SearchResult& result, int64_t top, bool bold) {
  Table table({{"#", Align::kRight},
               {"layout"},
               {"precision"},
               {"state"},
               {"tokens/s", Align::kRight},
               {"source"},
               {"behind", Align::kRight},
               {"peak memory", Align::kRight},
               {"standing"}});
  const size_t rows = std::min(result.ranking.size(), static_cast<size_t>(top));
  const CommonPart layouts = GroupsOf(result, rows);
  for (size_t i = 0; i < rows; ++i) {
    const RankingRow& row = result.ranking[i];
    const bool failed = row.standing == Standing::kFailed;
    table.AddRow({fmt::format("{}", i + 1), layouts.rest[i], row.precision, row.optimizer_state,
                  failed ? "-" : WithInterval(row.figure),
                  failed ? "-" : std::string(Name(row.figure.trust)), i > 0 ? BehindText(row) : "-",
                  FormatBytes(row.peak_mem_bytes()),
                  StandingWords(Name(row.standing), row.StateName(), row.why_below)});
  }
  table.TakeUniform({"behind"});  // predictions alone say nothing of it
  std::vector<std::string> shared = table.TakeUniform({"precision", "state", "source", "standing"});
  if (!layouts.common.empty()) shared.insert(shared.begin(), "layout " + layouts.common);
  std::string text;
  if (!shared.empty()) text += fmt::format("all rows: {}\n", fmt::join(shared, ", "));
  text += table.ToText(bold);
  if (rows < result.ranking.size()) {
    text += fmt::format("... and {} more\n", result.ranking.size() - rows);
  }
  return text;
}

/// What was measured beside what was predicted; empty where nothing was measured.
std::string MeasuredText(const SearchResult& result, int64_t top, bool bold) {
  Table table({{"#", Align::kRight},
               {"visits", Align::kRight},
               {"tokens/s", Align::kRight},
               {"predicted", Align::kRight},
               {"time error", Align::kRight},
               {"peak memory", Align::kRight},
               {"memory error", Align::kRight}});
  bool measured = false;
  for (size_t i = 0; i < std::min(result.ranking.size(), static_cast<size_t>(top)); ++i) {
    const RankingRow& row = result.ranking[i];
    if (row.visits == 0 && !row.measured_tokens_per_s) continue;
    measured = true;
    table.AddRow({fmt::format("{}", i + 1), fmt::format("{}", row.visits),
                  row.measured_tokens_per_s ? Rate(*row.measured_tokens_per_s) : "-",
                  Rate(row.predicted_tokens_per_s), Percent(row.step_time_error),
                  row.measured_peak_mem_bytes ? FormatBytes(*row.measured_peak_mem_bytes) : "-",
                  Percent(row.peak_mem_error)});
  }
  return measured ? "measured beside predicted:\n" + table.ToText(bold) + "\n" : "";
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

/// What the choices of the recommended layout are worth.
std::string ExplanationText(const SearchResult& result) {
  if (result.explanations.empty()) return "";
  Table table({{"dimension"}, {"chosen"}, {"next best"}, {"costs", Align::kRight}});
  for (const Explanation& each : result.explanations) {
    table.AddRow(
        {each.dimension, each.chosen, each.value, fmt::format("{:+.1f} %", 100 * each.extra_cost)});
  }
  return "what its choices are worth, as predicted:\n" + table.ToText(/*bold=*/false) + "\n";
}

/// What frameworks publish for the model, beside what was found.
std::string RecipesText(const SearchResult& result) {
  if (result.recipes.empty()) return "";
  Table table({{"published"}, {"layout"}, {"tokens/s", Align::kRight}, {"behind", Align::kRight}});
  const bool several = !result.problem.global_batches.empty();
  for (const RecipePlace& each : result.recipes) {
    const std::string batch =
        several && each.global_batch > 0 ? fmt::format("gbs={},", each.global_batch) : "";
    table.AddRow(
        {each.source, batch + each.layout,
         each.prediction ? Rate(each.prediction->tokens_per_s) : "-",
         each.extra_cost ? fmt::format("{:+.1f} %", 100 * *each.extra_cost) : each.refused});
  }
  return "layouts that frameworks publish for this model, as predicted here:\n" +
         table.ToText(/*bold=*/false) + "\n";
}

/// Time against price, where there is more than one number of GPUs, or a price.
std::string FrontText(const SearchResult& result) {
  const bool priced = !result.front.empty() && result.front.front().price;
  if (result.front.empty() || (result.front.size() < 2 && !priced)) return "";
  Table table({{"GPUs", Align::kRight},
               {"tokens/s", Align::kRight},
               {"hours", Align::kRight},
               {"GPU hours", Align::kRight},
               {"price", Align::kRight},
               {"kWh", Align::kRight},
               {"on the front"},
               {"layout"}});
  for (const FrontRow& each : result.front) {
    const RankingRow& row = result.ranking[each.row];
    table.AddRow({fmt::format("{}", each.gpus), Rate(row.figure.tokens_per_s),
                  ShortCount(each.hours), ShortCount(each.gpu_hours),
                  each.price ? ShortCount(*each.price) : "-",
                  each.energy_kwh ? ShortCount(*each.energy_kwh) : "-",
                  each.on_front ? "yes" : "no", row.groups});
  }
  return fmt::format("time against price of {} tokens:\n", ShortCount(result.tokens)) +
         table.ToText(/*bold=*/false) + "\n";
}

// Layouts that a sentence names; the ranking shows more.
constexpr size_t kMostNamed = 3;

/// Returns the findings, a line each.
std::string LinesOf(const std::vector<Finding>& findings) {
  std::string text;
  for (Finding each : findings) {
    const size_t all = each.layouts.size();
    if (all > kMostNamed) {
      each.layouts.resize(kMostNamed);
      each.layouts.push_back(fmt::format("and {} more", all - kMostNamed));
    }
    text += InWords(each) + "\n";
  }
  return text;
}

const std::string& KeyOf(const SearchResult& result, size_t row) {
  return result.candidates[result.ranking[row].candidate].key;
}

std::string RecommendationText(const SearchResult& result) {
  const RankingRow& best = result.recommended();
  const Recommendation& recommendation = result.recommendation;
  std::string text = fmt::format(
      "{}: {} at {} tokens/s ({})\n",
      result.serving && !result.serving->relaxations.empty() ? "closest" : "recommended",
      KeyOf(result, recommendation.row), WithInterval(best.figure), Name(best.figure.trust));
  const Findings findings = MakeFindings(result);
  text += LinesOf(findings.limits) + LinesOf(findings.decided) + LinesOf(findings.takes);
  text += (result.serving ? result.serving->binds : recommendation.binds.text) + "\n";
  if (recommendation.alternative) {
    const RankingRow::Worse& cost = recommendation.alternative_cost;
    // Predictions alone say nothing about how sure their difference is.
    const std::string sure = cost.low && cost.high ? fmt::format(" ({:.1f} to {:.1f} %)",
                                                                 100 * *cost.low, 100 * *cost.high)
                                                   : "";
    text +=
        fmt::format("next best: {}, {:.1f} % {}{}\n", KeyOf(result, *recommendation.alternative),
                    100 * cost.by, findings.worse, sure);
  }
  if (recommendation.plain && *recommendation.plain != recommendation.row) {
    const RankingRow& plain = result.ranking[*recommendation.plain];
    text += fmt::format("against the plain default, {}: {:+.0f} % tokens/s (its speed is {})\n",
                        KeyOf(result, *recommendation.plain), 100 * recommendation.plain_gain,
                        Name(plain.figure.trust));
  }
  return text + LinesOf(findings.trust);
}

}  // namespace

std::string SearchText(const SearchResult& result, int64_t top, bool bold) {
  if (result.serving) {
    return PrunedText(result.space) + "\n" + ServingRankingText(result, top, bold) + "\n" +
           RecommendationText(result);
  }
  return StackText(result.problem.cluster.stack) + PrunedText(result.space) + "\n" +
         RankingText(result, top, bold) + "\n" + MeasuredText(result, top, bold) +
         NumericsText(result) + "\n" + FrontText(result) + ExplanationText(result) +
         RecipesText(result) + RecommendationText(result);
}

std::string VisitText(const CandidateRecord& candidate, const TrialOutcome& outcome,
                      const RaceProgress& progress) {
  std::string text =
      fmt::format("round {}, visit {}: {}", progress.round, progress.visits, candidate.key);
  if (outcome.state == TrialState::kDone && !candidate.visits.empty()) {
    const Measurement& measurement = candidate.visits.back().measurement;
    text += fmt::format(": {} tokens/s", Rate(measurement.tokens_per_s));
    if (!measurement.stragglers.empty()) {
      text += fmt::format(", down-weighted: {}", InWords(measurement.stragglers));
    }
  } else {
    text += ": " + FailureText(outcome.state, outcome.message);
  }
  return text + fmt::format(" in {}", FormatSeconds(outcome.seconds));
}

std::string RoundText(const RoundRecord& round, const RaceProgress& progress) {
  std::string text = fmt::format("round {} done", round.id);
  if (progress.speed > 0)
    text += fmt::format(", the machine at {:.2f} of its speed", progress.speed);
  text += fmt::format(": best {} at {} tokens/s", progress.best_layout,
                      Rate(progress.best_tokens_per_s));
  return text + fmt::format("; {} still racing", progress.racing);
}

}  // namespace trimtab
