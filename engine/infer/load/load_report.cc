#include "engine/infer/load/load_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

double Milliseconds(double from_s, double to_s) { return 1e3 * (to_s - from_s); }

/// Quantiles of values that are sorted as far as need be, asked for in rising order.
class Quantiles {
 public:
  explicit Quantiles(std::vector<double>& values) : values_(values), begin_(values.begin()) {}

  double At(double q) {
    const double place = q * static_cast<double>(values_.size() - 1);
    const auto low = values_.begin() + static_cast<int64_t>(place);
    std::nth_element(begin_, low, values_.end());
    begin_ = low;
    const auto high = low + 1 == values_.end() ? low : std::min_element(low + 1, values_.end());
    return std::lerp(*low, *high, place - static_cast<double>(low - values_.begin()));
  }

 private:
  std::vector<double>& values_;
  std::vector<double>::iterator begin_;  // all before it are in their places
};

nlohmann::json ToJson(const LatencySummary& summary) {
  return {{"mean", summary.mean},
          {"p50", summary.p50},
          {"p90", summary.p90},
          {"p95", summary.p95},
          {"p99", summary.p99}};
}

LatencySummary SummaryFromJson(StrictObject& report, const std::string& key) {
  constexpr double kMost = 1e15;
  LatencySummary summary;
  StrictObject object(*report.Find(key, Need::kRequired), report.Where(key));
  object.Number("mean", summary.mean, 0, kMost, Need::kRequired);
  object.Number("p50", summary.p50, 0, kMost, Need::kRequired);
  object.Number("p90", summary.p90, 0, kMost, Need::kRequired);
  object.Number("p95", summary.p95, 0, kMost, Need::kRequired);
  object.Number("p99", summary.p99, 0, kMost, Need::kRequired);
  object.Finish();
  return summary;
}

bool Keeps(double value, double limit) { return limit == 0 || value < limit; }

}  // namespace

LatencySummary Summarise(std::vector<double> milliseconds) {
  if (milliseconds.empty()) return {};
  const double sum = std::accumulate(milliseconds.begin(), milliseconds.end(), 0.0);
  Quantiles quantiles(milliseconds);
  LatencySummary summary = {.mean = sum / static_cast<double>(milliseconds.size())};
  summary.p50 = quantiles.At(0.5);
  summary.p90 = quantiles.At(0.9);
  summary.p95 = quantiles.At(0.95);
  summary.p99 = quantiles.At(0.99);
  return summary;
}

LatencyLimits ParseLimits(const std::string& text) {
  LatencyLimits limits;
  if (text.empty()) return limits;
  for (const std::string& each : Split(text, ',')) {
    const std::string_view item = each;
    const size_t less = item.find('<');
    const std::string_view name = item.substr(0, less);
    std::string_view value = less == std::string_view::npos ? "" : item.substr(less + 1);
    double number = 0;
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    value.remove_prefix(static_cast<size_t>(rest - value.data()));
    const double unit = value == "ms" ? 1 : value == "s" ? 1000 : 0;
    double* limit = name == "ttft"   ? &limits.ttft_ms
                    : name == "tpot" ? &limits.tpot_ms
                    : name == "e2e"  ? &limits.e2e_ms
                                     : nullptr;
    if (limit == nullptr || error != std::errc() || unit == 0 || !(number > 0)) {
      throw UsageError(fmt::format(
          "--limits: '{}'; expected ttft<TIME, tpot<TIME or e2e<TIME, as ttft<500ms", item));
    }
    *limit = number * unit;
  }
  return limits;
}

LoadReport MedianOf(const std::vector<LoadReport>& reports) {
  TRIMTAB_ASSERT(!reports.empty(), "the median of no reports");
  LoadReport median = reports.front();
  const auto of = [&reports](auto figure) {
    std::vector<double> values;
    for (const LoadReport& each : reports) values.push_back(figure(each));
    return Quantiles(values).At(0.5);
  };
  median.duration_s = of([](const LoadReport& each) { return each.duration_s; });
  for (const auto count : {&LoadReport::failed, &LoadReport::prompt_tokens,
                           &LoadReport::output_tokens, &LoadReport::good}) {
    median.*count =
        std::llround(of([&](const LoadReport& each) { return static_cast<double>(each.*count); }));
  }
  for (const auto latency :
       {&LoadReport::ttft, &LoadReport::tpot, &LoadReport::itl, &LoadReport::e2e}) {
    for (const auto figure : {&LatencySummary::mean, &LatencySummary::p50, &LatencySummary::p90,
                              &LatencySummary::p95, &LatencySummary::p99}) {
      median.*latency.*figure = of([&](const LoadReport& each) { return each.*latency.*figure; });
    }
  }
  return median;
}

double SecondsPerToken(const LoadReport& report, const ServiceLoad& load) {
  // An open loop's throughput is what comes, but for the time that the last answers take; below
  // this share of it requests pile up.
  constexpr double kSustained = 0.8;
  const double rate = report.output_tokens_per_s();
  const double per_token = rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity();
  const double offered = kSustained * load.offered_tokens_per_s();
  return offered > 0 ? std::max(per_token, 1 / offered) : per_token;
}

LoadReport MakeLoadReport(const std::vector<LoadOutcome>& outcomes, const LatencyLimits& limits) {
  LoadReport report;
  report.requests = std::ssize(outcomes);
  std::vector<double> ttft, tpot, itl, e2e;
  double first = std::numeric_limits<double>::infinity();
  double last = -first;
  for (const LoadOutcome& outcome : outcomes) {
    first = std::min(first, outcome.sent_s);
    if (!outcome.failure.empty() || outcome.arrivals_s.empty()) {
      ++report.failed;
      if (report.first_failure.empty()) {
        report.first_failure = outcome.failure.empty() ? "an answer without text" : outcome.failure;
      }
      continue;
    }
    last = std::max(last, outcome.arrivals_s.back());
    report.prompt_tokens += outcome.prompt_tokens;
    report.output_tokens += outcome.tokens;
    const double to_first = Milliseconds(outcome.sent_s, outcome.arrivals_s.front());
    const double to_last = Milliseconds(outcome.sent_s, outcome.arrivals_s.back());
    ttft.push_back(to_first);
    e2e.push_back(to_last);
    double per_token = 0;
    if (outcome.tokens > 1) {
      per_token = (to_last - to_first) / static_cast<double>(outcome.tokens - 1);
      tpot.push_back(per_token);
    }
    for (size_t i = 1; i < outcome.arrivals_s.size(); ++i) {
      itl.push_back(Milliseconds(outcome.arrivals_s[i - 1], outcome.arrivals_s[i]));
    }
    report.good += Keeps(to_first, limits.ttft_ms) && Keeps(per_token, limits.tpot_ms) &&
                   Keeps(to_last, limits.e2e_ms);
  }
  if (report.failed < report.requests) report.duration_s = Milliseconds(first, last) / 1000;
  report.ttft = Summarise(std::move(ttft));
  report.tpot = Summarise(std::move(tpot));
  report.itl = Summarise(std::move(itl));
  report.e2e = Summarise(std::move(e2e));
  return report;
}

nlohmann::json ToJson(const LoadReport& report) {
  return {{"schema_version", 1},
          {"requests", report.requests},
          {"failed", report.failed},
          {"first_failure", report.first_failure},
          {"duration_s", report.duration_s},
          {"prompt_tokens", report.prompt_tokens},
          {"output_tokens", report.output_tokens},
          {"output_tokens_per_s", report.output_tokens_per_s()},
          {"requests_per_s", report.requests_per_s()},
          {"goodput", report.goodput()},
          {"ttft_ms", ToJson(report.ttft)},
          {"tpot_ms", ToJson(report.tpot)},
          {"itl_ms", ToJson(report.itl)},
          {"e2e_ms", ToJson(report.e2e)}};
}

LoadReport LoadReportFromJson(const nlohmann::json& json, const std::string& where) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  LoadReport report;
  StrictObject object(json, where);
  int64_t version = 0;
  object.Integer("schema_version", version, 1, 1, Need::kRequired);
  object.Integer("requests", report.requests, 0, kMost, Need::kRequired);
  object.Integer("failed", report.failed, 0, kMost, Need::kRequired);
  object.Text("first_failure", report.first_failure, Need::kRequired);
  object.Number("duration_s", report.duration_s, 0, 1e15, Need::kRequired);
  object.Integer("prompt_tokens", report.prompt_tokens, 0, kMost, Need::kRequired);
  object.Integer("output_tokens", report.output_tokens, 0, kMost, Need::kRequired);
  for (const char* derived : {"output_tokens_per_s", "requests_per_s"}) object.Find(derived);
  double goodput = 0;
  object.Number("goodput", goodput, 0, 1e15, Need::kRequired);
  report.good = std::llround(goodput * report.duration_s);
  report.ttft = SummaryFromJson(object, "ttft_ms");
  report.tpot = SummaryFromJson(object, "tpot_ms");
  report.itl = SummaryFromJson(object, "itl_ms");
  report.e2e = SummaryFromJson(object, "e2e_ms");
  object.Finish();
  return report;
}

}  // namespace trimtab
