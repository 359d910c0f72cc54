// What a whole training run costs: days, GPU hours, price and energy, on machines that fail.
//
// Machines fail at random, at a constant rate: a run saves its state every so often, and begins
// again from there. How often is best, and what is lost then, follows from three times: between
// failures, to save, and to begin again.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"

namespace trimtab {

/// How a run goes on machines that fail. Seconds.
struct Goodput {
  double mtbf_s = 0;              // mean time between failures of any machine of the run
  double checkpoint_s = 0;        // to save the state once, while nothing is trained
  double checkpoint_every_s = 0;  // of training from one such save to the next: what loses least
  double share = 1;               // of all time that goes into training; 0 = the run never ends
};
/// Of a run that takes `restart_s` to begin again after a failure. The interval is the higher-order
/// estimate of J. T. Daly (Future Generation Computer Systems 22, 2006, equation 37; its first term
/// is J. W. Young's, CACM 17, 1974), and what is lost with it his equation 20, which counts
/// failures while saving and while beginning again as well.
Goodput GoodputOf(double mtbf_s, double checkpoint_s, double restart_s);

/// How fast a configuration trains, and what it saves.
struct TrainingSpeed {
  int64_t ranks = 1;
  double tokens_per_s = 0;
  double checkpoint_bytes = 0;  // of all ranks together
};
/// What the engine saves of a model: fp32 weights, and as much for each slot of the optimizer: two
/// of AdamW, else one (Muon: two of what stands for tokens).
double CheckpointBytes(const ModelConfig& model, OptimizerKind optimizer = OptimizerKind::kAdamW);
/// Of `run` at the speed that `estimate` says.
TrainingSpeed SpeedOf(const RunConfig& run, const Estimate& estimate);

/// Of a whole run. Days are of 24 hours of the clock, failures included.
struct TrainingCost {
  double tokens = 0;
  double training_s = 0;  // without failures and checkpoints
  Goodput goodput;
  double wall_s = 0;  // with them
  double gpu_hours = 0;
  double price = 0;     // in the currency that the cluster's price is in; 0 = it has none
  double energy_j = 0;  // of the GPUs, or what else the cluster's power is of; 0 = unknown

  double days() const;
  double tokens_per_day() const;
  double kilowatt_hours() const;
};
/// Training on `tokens` tokens (> 0) at `speed` on `cluster`.
TrainingCost CostOfTraining(const TrainingSpeed& speed, const Cluster& cluster, double tokens);

/// {"tokens", "days", "tokens_per_day", "gpu_hours", "price", "energy_kwh", "goodput", ...}; what
/// is not known is null.
nlohmann::json ToJson(const TrainingCost& cost);

}  // namespace trimtab
