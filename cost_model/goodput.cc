#include "cost_model/goodput.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/run/run_config.h"

namespace trimtab {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kHoursPerDay = 24;
constexpr double kJoulesPerKilowattHour = 3.6e6;
constexpr double kSavedBytes = 4;  // of an element of a weight or of a slot: fp32

}  // namespace

Goodput GoodputOf(double mtbf_s, double checkpoint_s, double restart_s) {
  TRIMTAB_ASSERT(mtbf_s > 0 && checkpoint_s > 0 && restart_s >= 0,
                 "failures every {} s, {} s to save, {} s to restart", mtbf_s, checkpoint_s,
                 restart_s);
  Goodput goodput = {.mtbf_s = mtbf_s, .checkpoint_s = checkpoint_s};
  if (checkpoint_s < 2 * mtbf_s) {
    const double half = checkpoint_s / (2 * mtbf_s);
    goodput.checkpoint_every_s =
        std::sqrt(2 * checkpoint_s * mtbf_s) * (1 + std::sqrt(half) / 3 + half / 9) - checkpoint_s;
  } else {
    goodput.checkpoint_every_s = mtbf_s;
  }
  // All of a segment, its save included, is done again until no failure falls into it.
  const double segment_s = mtbf_s * std::exp(restart_s / mtbf_s) *
                           std::expm1((goodput.checkpoint_every_s + checkpoint_s) / mtbf_s);
  goodput.share = goodput.checkpoint_every_s / segment_s;
  return goodput;
}

double CheckpointBytes(const ModelConfig& model, OptimizerKind optimizer) {
  const auto parameters = static_cast<double>(model.parameter_count());
  if (optimizer == OptimizerKind::kAdamW) return 3 * kSavedBytes * parameters;
  const int64_t tables = model.tied_embeddings ? 1 : 2;
  const int64_t of_tables = tables * model.vocab_size * model.embedding_size();
  const double second = optimizer == OptimizerKind::kMuon ? static_cast<double>(of_tables) : 0;
  return kSavedBytes * (2 * parameters + second);
}

TrainingSpeed SpeedOf(const RunConfig& run, const Estimate& estimate) {
  return {.ranks = estimate.ranks,
          .tokens_per_s = estimate.tokens_per_s(),
          .checkpoint_bytes = CheckpointBytes(run.model, run.optimizer.kind)};
}

double TrainingCost::days() const { return wall_s / kSecondsPerHour / kHoursPerDay; }
double TrainingCost::tokens_per_day() const { return tokens / days(); }
double TrainingCost::kilowatt_hours() const { return energy_j / kJoulesPerKilowattHour; }

TrainingCost CostOfTraining(const TrainingSpeed& speed, const Cluster& cluster, double tokens) {
  TRIMTAB_ASSERT(tokens > 0 && speed.tokens_per_s > 0, "{} tokens at {} a second", tokens,
                 speed.tokens_per_s);
  const Reliability& reliability = cluster.reliability;
  const auto nodes = static_cast<double>(CeilDiv(speed.ranks, cluster.ranks_per_node));
  TrainingCost cost;
  cost.tokens = tokens;
  cost.training_s = tokens / speed.tokens_per_s;
  // A GPU fails with its share of a machine; the ranks of a cpu fail with the whole of it.
  const double failing =
      cluster.device == DeviceKind::kCuda ? static_cast<double>(speed.ranks) : nodes;
  cost.goodput = GoodputOf(reliability.gpu_mtbf_hours * kSecondsPerHour / failing,
                           speed.checkpoint_bytes / (nodes * reliability.checkpoint_bytes_per_s),
                           reliability.restart_s);
  cost.wall_s = cost.training_s / cost.goodput.share;
  const double gpu_s = cost.wall_s * static_cast<double>(speed.ranks);
  cost.gpu_hours = gpu_s / kSecondsPerHour;
  cost.price = cost.gpu_hours * cluster.price_per_gpu_hour;
  cost.energy_j = gpu_s * PowerPerGpu(cluster);
  return cost;
}

nlohmann::json ToJson(const TrainingCost& cost) {
  const auto known = [](double value) {
    return value > 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  return {{"tokens", cost.tokens},
          {"days", cost.days()},
          {"days_without_failures", cost.days() * cost.goodput.share},
          {"tokens_per_day", cost.tokens_per_day()},
          {"gpu_hours", cost.gpu_hours},
          {"price", known(cost.price)},
          {"energy_kwh", known(cost.kilowatt_hours())},
          {"goodput", cost.goodput.share},
          {"mtbf_s", cost.goodput.mtbf_s},
          {"checkpoint_s", cost.goodput.checkpoint_s},
          {"checkpoint_every_s", cost.goodput.checkpoint_every_s}};
}

}  // namespace trimtab
