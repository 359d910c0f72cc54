#include "engine/infer/load/load_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(LoadReport, IsTheOneWorkedOutByHand) {
  const LatencySummary summary = Summarise({4, 1, 3, 2, 5});
  EXPECT_EQ(summary.mean, 3);
  EXPECT_EQ(summary.p50, 3);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);
  EXPECT_DOUBLE_EQ(summary.p99, 4.96);

  const std::vector<LoadOutcome> outcomes = {
      {.sent_s = 0, .arrivals_s = {0.1, 0.11, 0.13}, .prompt_tokens = 5, .tokens = 3},
      {.sent_s = 0.05, .arrivals_s = {0.25}, .prompt_tokens = 7, .tokens = 1},
      {.sent_s = 0.06, .failure = "status 503"},
      {.sent_s = 0.1, .arrivals_s = {0.15, 1.1}, .prompt_tokens = 1, .tokens = 2}};
  const LoadReport report = MakeLoadReport(outcomes, ParseLimits("ttft<150ms,tpot<0.5s"));
  EXPECT_EQ(report.requests, 4);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.first_failure, "status 503");
  EXPECT_DOUBLE_EQ(report.duration_s, 1.1);
  EXPECT_EQ(report.output_tokens, 6);
  EXPECT_EQ(report.prompt_tokens, 13);
  EXPECT_DOUBLE_EQ(report.ttft.p50, 100);
  EXPECT_DOUBLE_EQ(report.tpot.mean, (15 + 950) / 2.0);
  EXPECT_DOUBLE_EQ(report.itl.mean, (10 + 20 + 950) / 3.0);
  EXPECT_DOUBLE_EQ(report.e2e.p50, 200);
  EXPECT_EQ(report.good, 1);  // the second is late with its first token, the fourth with the rest
  EXPECT_DOUBLE_EQ(report.goodput(), 1 / 1.1);
  EXPECT_EQ(MakeLoadReport(outcomes, {}).good, 3);
  const LoadReport none = MakeLoadReport({}, {});
  EXPECT_EQ(none.output_tokens_per_s(), 0);
  for (const char* bad :
       {"ttft", "ttft<", "ttft<5", "ttft<-5ms", "x<5ms", "ttft<5ms,", "ttft<5 ms"}) {
    EXPECT_THROW(ParseLimits(bad), UsageError) << bad;
  }
}

TEST(LoadReport, MedianIsOfEachFigure) {
  std::vector<LoadReport> reports(3);
  for (const auto& [report, good, duration_s] :
       {std::tuple(0, 9, 3.0), std::tuple(1, 2, 1.0), std::tuple(2, 5, 2.0)}) {
    LoadReport& each = reports[static_cast<size_t>(report)];
    each.requests = 10;
    each.good = good;
    each.failed = 10 - good;
    each.output_tokens = 100 * good;
    each.duration_s = duration_s;
    each.ttft.p99 = 10 * duration_s;
  }
  const LoadReport median = MedianOf(reports);
  EXPECT_EQ(median.requests, 10);
  EXPECT_EQ(median.good, 5);
  EXPECT_EQ(median.failed, 5);
  EXPECT_EQ(median.output_tokens, 500);
  EXPECT_EQ(median.duration_s, 2);
  EXPECT_EQ(median.ttft.p99, 20);
  EXPECT_EQ(MedianOf({reports[1]}), reports[1]);
}

TEST(LoadReport, AnOpenLoopGivesNoMoreTokensThanItAsksFor) {
  ServiceLoad load = {.concurrency = 4};
  for (const double at_s : {0.0, 1.0, 2.0}) load.requests.push_back({at_s, 8, 100});
  LoadReport report;
  report.duration_s = 1;
  report.output_tokens = 300;
  EXPECT_DOUBLE_EQ(SecondsPerToken(report, load), 1 / 300.0);
  load.concurrency = 0;  // a request a second asks for 100 tokens, of which 0.8 keep up
  EXPECT_DOUBLE_EQ(SecondsPerToken(report, load), 1 / 80.0);
  report.output_tokens = 50;
  EXPECT_DOUBLE_EQ(SecondsPerToken(report, load), 1 / 50.0);
  report.output_tokens = 0;
  EXPECT_TRUE(std::isinf(SecondsPerToken(report, load)));
}

}  // namespace
}  // namespace trimtab
