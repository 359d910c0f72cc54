#include "engine/infer/load_report.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace trimtab
