// Everything a run needs: RUN.json, and `recommended.run` of a search report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/config/model_config.h"
#include "engine/config/packing_config.h"
#include "engine/config/parallel_config.h"
#include "engine/config/precision.h"

namespace trimtab {

/// AdamW with decoupled weight decay on matrices only, global-norm clipping, warm-up + cosine.
struct OptimizerConfig {
  double learning_rate = 6e-4;
  double min_learning_rate = 6e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_grad = 1.0;  // global norm; 0 turns clipping off
  int64_t warmup_steps = 10;
  int64_t decay_steps = 0;  // steps until min_learning_rate; 0 = the length of the run

  /// Sets the peak rate; the minimum keeps its share of it, if there was a peak.
  void ScaleTo(double rate);
  bool operator==(const OptimizerConfig&) const = default;
};

struct RunConfig {
  ModelConfig model{};
  ParallelConfig layout{};
  OptimizerConfig optimizer{};
  Fp8Config fp8{};               // with precision fp8
  LossScaleConfig loss_scale{};  // with precision fp16
  RoutingConfig routing{};       // with experts
  PackingConfig packing{};       // documents in sequences
  bool deterministic = false;    // cuda: the same bits in every run; the other devices always are
  std::string device = "cpu";    // cpu | cuda
  int64_t global_batch = 1;      // sequences per optimizer step
  int64_t sequence_length = 0;   // T
  int64_t steps = 0;             // optimizer steps of the run
  uint64_t seed = 1234;
  int64_t threads_per_rank = 0;       // cpu worker threads of a rank; 0 = cores / ranks, at least 1
  int64_t memory_per_rank_bytes = 0;  // allocator limit of each rank; 0 = no limit
  std::string data{};                 // prefix of .bin/.idx; empty = synthetic tokens

  /// Micro batches each data-parallel rank runs per step: gbs / (mbs * dp).
  int64_t num_micro_batches() const { return global_batch / (layout.micro_batch * layout.dp); }
  bool operator==(const RunConfig&) const = default;
};

/// Strict JSON (unknown keys, types and ranges name file and path). `where` prefixes messages.
RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const RunConfig& run);

/// Reads RUN.json, or a search REPORT.json (takes $.recommended.run). Throws InputError.
RunConfig LoadRunConfig(const std::string& path);

}  // namespace trimtab
