#include "cost_model/validation/accuracy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace trimtab {
namespace {

constexpr double kDistinct = 0.03;  // closer measurements are no ranking: runs differ by as much

/// Places of `values` from the smallest, equal ones at the mean of theirs.
std::vector<double> Places(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> places(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      places[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return places;
}

/// Pearson's correlation; 0 when one does not vary.
double Correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / count;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

int SignOf(double value) { return (value > 0) - (value < 0); }

}  // namespace

double Quantile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = quantile * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorSummary SummarizeErrors(std::vector<double> errors) {
  ErrorSummary summary;
  summary.rows = static_cast<int64_t>(errors.size());
  if (errors.empty()) return summary;
  for (double& error : errors) {
    error = std::abs(error);
    summary.mean += error / static_cast<double>(errors.size());
    summary.max = std::max(summary.max, error);
  }
  summary.median = Quantile(errors, 0.5);
  summary.p90 = Quantile(errors, 0.9);
  return summary;
}

nlohmann::json ToJson(const ErrorSummary& errors) {
  const auto known = [&](double error) {
    return errors.rows > 0 ? nlohmann::json(error) : nlohmann::json(nullptr);
  };
  return {{"rows", errors.rows},
          {"median", known(errors.median)},
          {"p90", known(errors.p90)},
          {"mean", known(errors.mean)},
          {"max", known(errors.max)}};
}

RankSummary SummarizeRanking(std::span<const RankedRow> rows) {
  std::map<std::string, std::vector<const RankedRow*>> groups;
  for (const RankedRow& row : rows) groups[row.group].push_back(&row);
  RankSummary summary;
  int64_t chosen_groups = 0;
  for (const auto& [name, members] : groups) {
    if (members.size() < 2) continue;
    std::vector<double> predicted;
    std::vector<double> measured;
    for (const RankedRow* row : members) {
      predicted.push_back(row->predicted);
      measured.push_back(row->measured);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t j = i + 1; j < members.size(); ++j) {
        const int right = SignOf(predicted[i] - predicted[j]) * SignOf(measured[i] - measured[j]);
        ++summary.pairs;
        summary.kendall += right;
        const double ratio = measured[i] / measured[j];
        if (std::max(ratio, 1 / ratio) <= 1 + kDistinct) continue;
        ++summary.distinct_pairs;
        summary.kendall_distinct += right;
      }
    }
    const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
    const double regret = 1 - *std::min_element(measured.begin(), measured.end()) /
                                  measured[static_cast<size_t>(chosen)];
    summary.top1_regret += regret;
    summary.worst_regret = std::max(summary.worst_regret, regret);
    ++chosen_groups;
    if (members.size() < 3) continue;
    summary.spearman += Correlation(Places(predicted), Places(measured));
    ++summary.groups;
  }
  const auto mean = [](double& sum, int64_t count) {
    if (count > 0) sum /= static_cast<double>(count);
  };
  mean(summary.kendall, summary.pairs);
  mean(summary.kendall_distinct, summary.distinct_pairs);
  mean(summary.spearman, summary.groups);
  mean(summary.top1_regret, chosen_groups);
  return summary;
}

}  // namespace trimtab
