// How good predictions are: errors, and how well they rank.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace trimtab {

/// Of absolute relative errors.
struct ErrorSummary {
  int64_t rows = 0;
  double median = 0;
  double p90 = 0;
  double mean = 0;
  double max = 0;
};
/// `errors`: predicted / measured - 1.
ErrorSummary SummarizeErrors(std::vector<double> errors);
/// Errors are null where there are no rows.
nlohmann::json ToJson(const ErrorSummary& errors);

/// One run, predicted and measured. Seconds per token and GPU: less is better.
struct RankedRow {
  std::string group;  // runs that somebody would choose among
  double predicted = 0;
  double measured = 0;
};

struct RankSummary {
  int64_t pairs = 0;  // of rows of one group
  /// Kendall's tau over all of them: of pairs ranked rightly, less those ranked wrongly; equal
  /// measurements count as neither.
  double kendall = 0;
  int64_t distinct_pairs = 0;   // that were measured more than 3 % apart
  double kendall_distinct = 0;  // over those
  int64_t groups = 0;           // of at least three rows
  double spearman = 0;          // mean over those
  /// By how much the row predicted best is slower than the best one measured: mean and largest over
  /// groups of at least two rows.
  double top1_regret = 0;
  double worst_regret = 0;
};
RankSummary SummarizeRanking(std::span<const RankedRow> rows);

/// The value below which a share `quantile` of `values` lies, between neighbours by proportion; 0
/// without any.
double Quantile(std::vector<double> values, double quantile);

}  // namespace trimtab
