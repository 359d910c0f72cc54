#include "search/serving/requirement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"

namespace trimtab {
namespace {

LoadReport Report() {
  LoadReport report;
  report.requests = 10;
  report.duration_s = 2;
  report.output_tokens = 400;
  report.ttft.p99 = 250;
  report.tpot.mean = 30;
  return report;
}

TEST(Requirement, ReadsItsFigure) {
  const Requirement first("ttft.p99<0.5s");
  EXPECT_EQ(first.ValueIn({Report()}), 250);
  EXPECT_DOUBLE_EQ(first.Strain({Report()}), 0.5);
  EXPECT_DOUBLE_EQ(Requirement("tpot.mean<20ms").Strain({Report()}), 1.5);
  EXPECT_DOUBLE_EQ(Requirement("throughput>100").Strain({Report()}), 0.5);
  EXPECT_EQ(Requirement("tpot.mean<20ms").Relaxed(30), "tpot.mean<30.01ms");
  EXPECT_EQ(Requirement("throughput>300").Relaxed(200), "throughput>199.9");
}

TEST(Requirement, MayBeMetAtTheLimit) {
  EXPECT_LT(Requirement("ttft.p99<=250ms").Strain({Report()}), 1);
  EXPECT_LT(Requirement("ttft.p99<=0.25s").Strain({Report()}), 1);
  EXPECT_GE(Requirement("ttft.p99<250ms").Strain({Report()}), 1);
  EXPECT_GT(Requirement("ttft.p99<=249.9999ms").Strain({Report()}), 1);
  EXPECT_LT(Requirement("throughput>=200").Strain({Report()}), 1);
  EXPECT_GE(Requirement("throughput>200").Strain({Report()}), 1);
  EXPECT_LT(Requirement("perplexity<=1.02x").Strain({Report(), 1.02}), 1);
}

TEST(Requirement, ARelaxedOneIsMet) {
  LoadReport report = Report();
  for (const double value :
       {61.2349, 61.23, 61.2351, 9.9996, 99999.0, 1e-3, 123456.789, 1.0, 0.1}) {
    report.ttft.p99 = value;
    const Requirement latency(Requirement("ttft.p99<1ms").Relaxed(value));
    EXPECT_LT(latency.Strain({report}), 1) << latency.text() << " of " << value;
    EXPECT_GT(latency.Strain({report}), 0.998) << latency.text() << " of " << value;
    report.duration_s = 1000;
    report.output_tokens = static_cast<int64_t>(value * 1000);
    const double rate = report.output_tokens_per_s();
    const Requirement throughput(Requirement("throughput>1").Relaxed(rate));
    EXPECT_LT(throughput.Strain({report}), 1) << throughput.text() << " of " << rate;
    EXPECT_GT(throughput.Strain({report}), 0.998) << throughput.text() << " of " << rate;
  }
}

// Of a rise of perplexity only the part above 1 counts, or every limit would be nearly met.
TEST(Requirement, LimitsTheLossOfQuality) {
  const Requirement limit("perplexity<1.02x");
  EXPECT_TRUE(limit.of_quality());
  EXPECT_FALSE(Requirement("tpot.mean<20ms").of_quality());
  EXPECT_EQ(limit.ValueIn({Report(), 1.03}), 1.03);
  EXPECT_NEAR(limit.Strain({Report(), 1.03}), 1.5, 1e-9);
  EXPECT_NEAR(limit.Strain({Report(), 1.005}), 0.25, 1e-9);
  EXPECT_EQ(limit.Strain({Report(), 0.99}), 0);
  for (const double rise : {1.02, 1.003, 1.0341, 1.5, 2.75, 1.000412, 1.0000000003}) {
    const Requirement relaxed(limit.Relaxed(rise));
    const double strain = relaxed.Strain({Report(), rise});
    EXPECT_LT(strain, 1) << rise << " " << relaxed.text();
    // Three digits, as far as they go.
    EXPECT_GT(strain, rise > 1.0001 ? 0.98 : 0) << rise << " " << relaxed.text();
  }
  EXPECT_EQ(limit.Relaxed(1.0341), "perplexity<1.0342x");
}

TEST(Requirement, TheWorstOneCounts) {
  const auto requirements = ParseRequirements("ttft.p99<500ms,tpot.mean<20ms,throughput>100");
  ASSERT_EQ(requirements.size(), 3u);
  EXPECT_DOUBLE_EQ(Strain(requirements, {Report()}), 1.5);
  EXPECT_EQ(Strain({}, {Report()}), 0);
  LoadReport failed = Report();
  failed.failed = 1;
  EXPECT_TRUE(std::isinf(Strain({}, {failed})));
  EXPECT_TRUE(ParseRequirements("").empty());
}

TEST(Requirement, RefusesWhatItDoesNotUnderstand) {
  for (const char* bad :
       {"ttft", "ttft<5ms", "ttft.p98<5ms", "ttft.p99<5", "ttft.p99<-5ms", "ttft.p99>5ms",
        "throughput<5", "throughput>5ms", "x.p99<5ms", "perplexity<1x", "perplexity<1.02",
        "perplexity>1.02x", "perplexity.mean<1.02x", "ttft.p99<1.02x", "ttft.p99<5ms,",
        "ttft.p99<nanms"}) {
    EXPECT_THROW(ParseRequirements(bad), UsageError) << bad;
  }
}

}  // namespace
}  // namespace trimtab
