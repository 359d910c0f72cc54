#include "cost_model/serving/serving_fit.h"

#include <gtest/gtest.h>

#include "engine/families/load_config.h"

namespace trimtab {
namespace {

/// A cpu that serves in fp32 and multiplies all numbers of rows equally well.
ServingRates EvenRates() {
  return {.weight_bytes = 4,
          .kv_bytes = 4,
          .weight_rate = 1e10,
          .low_rate = 4e10,
          .kv_rate = 2e10,
          .other_rate = 1e10,
          .rate_16 = 5e10,
          .rate_low = 1.5e11,
          .unpack_rate = 2e10,
          .by_rows = std::vector<double>(kRowKnots.size(), 1),
          .attention_flops = 1e11,
          .gap_s = 1e-6,
          .launches_each_op = true,
          .host_s = 2e-5,
          .sequence_s = 1e-5};
}

// Up to three rows are multiplied one by one, four by another kernel: what either takes is found,
// however much they differ.
TEST(ServingFit, TellsKernelsApartThatFollowEachOther) {
  const ModelConfig model = LoadModelConfig("gpt2-10m");
  const ServingLayout layout = {.weights = ServingPrecision::k32Bit, .kv_bytes = 4};
  ServingRecorder recorder(model, layout);
  const ServingSteps steps(model, layout, recorder);
  ServingRates truth = EvenRates();
  truth.by_rows[2] = 1.6;
  truth.by_rows[3] = 0.8;
  const ServingPricer pricer(truth);
  std::vector<MeasuredStep> measured;
  const auto add = [&](const StepRows& rows) {
    measured.push_back({rows, pricer.Price(steps.WorkOf(rows)).seconds()});
  };
  for (const int64_t decodes : {1, 2, 3, 4, 8, 16}) {
    StepRows rows;
    for (int64_t i = 0; i < decodes; ++i) rows += steps.RowsOf(1, 100, 1);
    add(rows);
  }
  for (const int64_t prompt : {32, 64, 128}) add(steps.RowsOf(prompt, 0, 0));
  const ServingRatesFit fit = FitServingRates(steps, measured, EvenRates());
  EXPECT_LT(fit.error, 0.02);
  const ServingPricer fitted(fit.rates);
  for (size_t i = 0; i < measured.size(); ++i) {
    const double seconds = fitted.Price(steps.WorkOf(measured[i].rows)).seconds();
    EXPECT_NEAR(seconds / measured[i].seconds, 1, 0.04) << measured[i].rows.rows() << " rows";
  }
}

}  // namespace
}  // namespace trimtab
