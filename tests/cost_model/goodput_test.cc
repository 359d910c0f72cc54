#include "cost_model/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/run/run_config.h"

namespace trimtab {
namespace {

constexpr double kHour = 3600;

Cluster H100s(int64_t nodes) { return LoadCluster(std::to_string(nodes) + "x8xh100"); }

TEST(Goodput, OfLlama3IsWhatItsPaperSays) {
  // arXiv:2407.21783, section 3.3.4: 419 unexpected interruptions of 16,384 GPUs in 54 days, and
  // more than 90 % of the time was spent training.
  const double mtbf_s = 54 * 24 * kHour / 419;
  const Goodput goodput = GoodputOf(mtbf_s, 405e9 * 12 / (2048 * 2e9), 900);
  EXPECT_GT(goodput.share, 0.90);
  EXPECT_LT(goodput.share, 0.95);
  // The cluster's default is that rate: 3.1 hours.
  const TrainingSpeed speed = {
      .ranks = 16'384, .tokens_per_s = 1e6, .checkpoint_bytes = 405e9 * 12};
  const TrainingCost cost = CostOfTraining(speed, H100s(2048), 1e12);
  EXPECT_NEAR(cost.goodput.mtbf_s, mtbf_s, 0.02 * mtbf_s);
  EXPECT_NEAR(cost.goodput.share, goodput.share, 0.002);
}

TEST(Goodput, IntervalIsYoungsWhereSavingIsShort) {
  // Young: sqrt(2 x 1 s x 20,000 s) = 200 s; Daly takes the save itself off it.
  const Goodput goodput = GoodputOf(20'000, 1, 0);
  EXPECT_NEAR(goodput.checkpoint_every_s, 200 * (1 + 0.005 / 3 + 25e-6 / 9) - 1, 1e-9);
  // To first order a 1 s save each 200 s and half of a segment lost in 20,000 s: 0.5 % each.
  EXPECT_NEAR(goodput.share, 0.99, 2e-4);
}

TEST(Goodput, NoOtherIntervalLosesMuchLess) {
  for (const double checkpoint_s : {0.5, 20.0, 300.0, 1500.0}) {
    constexpr double kMtbf = 3 * kHour;
    constexpr double kRestart = 600;
    const Goodput best = GoodputOf(kMtbf, checkpoint_s, kRestart);
    for (const double factor : {0.25, 0.5, 0.8, 1.25, 2.0, 4.0}) {
      const double every_s = factor * best.checkpoint_every_s;
      const double share = every_s / (kMtbf * std::exp(kRestart / kMtbf) *
                                      std::expm1((every_s + checkpoint_s) / kMtbf));
      EXPECT_LT(share, best.share + 1e-4) << checkpoint_s << " " << factor;
    }
  }
}

TEST(Goodput, FallsWithFailuresSavesAndRestarts) {
  const double share = GoodputOf(5 * kHour, 10, 600).share;
  EXPECT_LT(GoodputOf(4 * kHour, 10, 600).share, share);
  EXPECT_LT(GoodputOf(5 * kHour, 12, 600).share, share);
  EXPECT_LT(GoodputOf(5 * kHour, 10, 700).share, share);
  EXPECT_NEAR(GoodputOf(1e12, 1e-3, 600).share, 1, 1e-6);
  EXPECT_GT(GoodputOf(60, 600, 600).share, 0);  // hopeless, and still a number
}

TEST(TrainingCost, OfLlama31IsWhatItsModelCardSays) {
  // 405B took 30.84 million hours of H100 at 700 W. 21.6 GWh.
  Cluster cluster = H100s(2048);
  cluster.price_per_gpu_hour = 2;
  const double train_s = 30.84e6 * kHour / 16'384;
  const TrainingSpeed speed = {
      .ranks = 16'384, .tokens_per_s = 15.6e12 / train_s, .checkpoint_bytes = 405e9 * 12};
  const TrainingCost cost = CostOfTraining(speed, cluster, 15.6e12);
  EXPECT_NEAR(cost.gpu_hours * cost.goodput.share, 30.84e6, 1);
  EXPECT_NEAR(cost.kilowatt_hours() * cost.goodput.share, 21.588e6, 1);
  EXPECT_NEAR(cost.price, 2 * cost.gpu_hours, 1e-3);
  EXPECT_NEAR(cost.days() * cost.goodput.share, 78.43, 0.01);
  EXPECT_NEAR(cost.tokens_per_day() * cost.days(), 15.6e12, 1);
}

TEST(TrainingCost, ScalesWithTokensAndTheClustersOwnPower) {
  Cluster cluster = H100s(4);
  const TrainingSpeed speed = {.ranks = 32, .tokens_per_s = 1e5, .checkpoint_bytes = 1e11};
  const TrainingCost once = CostOfTraining(speed, cluster, 1e11);
  const TrainingCost twice = CostOfTraining(speed, cluster, 2e11);
  EXPECT_DOUBLE_EQ(twice.gpu_hours, 2 * once.gpu_hours);
  EXPECT_DOUBLE_EQ(twice.energy_j, 2 * once.energy_j);
  EXPECT_EQ(once.price, 0);
  cluster.power_per_gpu_w = 1400;
  EXPECT_DOUBLE_EQ(CostOfTraining(speed, cluster, 1e11).energy_j, 2 * once.energy_j);
  const nlohmann::json json = ToJson(once);
  EXPECT_TRUE(json["price"].is_null());
  EXPECT_GT(json["energy_kwh"].get<double>(), 0);
}

TEST(TrainingCost, ASavedStateIsThreeFp32NumbersOfAParameter) {
  RunConfig run;
  run.model.hidden_size = 64;
  run.model.num_heads = 4;
  run.model.num_kv_heads = 4;
  run.model.num_layers = 2;
  run.model.vocab_size = 100;
  Estimate estimate;
  estimate.tokens = 1000;
  estimate.step_time_s = 2;
  estimate.ranks = 4;
  const TrainingSpeed speed = SpeedOf(run, estimate);
  EXPECT_DOUBLE_EQ(speed.checkpoint_bytes, 12.0 * static_cast<double>(run.model.parameter_count()));
  EXPECT_DOUBLE_EQ(speed.tokens_per_s, 500);
  EXPECT_EQ(speed.ranks, 4);
}

}  // namespace
}  // namespace trimtab
