// Everything a run needs: RUN.json, and `recommended.run` of a search report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/base/device_kind.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/config/layout/precision.h"
#include "engine/config/model/model_config.h"
#include "engine/config/run/optimizer_config.h"
#include "engine/config/run/packing_config.h"

namespace trimtab {

/// Name of our own engine among the software stacks.
inline constexpr const char* kOwnStack = "trimtab";

struct RunConfig {
  ModelConfig model{};
  ParallelConfig layout{};
  OptimizerConfig optimizer{};
  std::vector<std::string> frozen{};  // patterns of names of parameters that are not trained
  Fp8Config fp8{};                    // with precision fp8
  LossScaleConfig loss_scale{};       // with precision fp16
  RoutingConfig routing{};            // with experts
  PackingConfig packing{};            // documents in sequences
  bool deterministic = false;  // cuda: the same bits in every run; the other devices always are
  DeviceKind device = DeviceKind::kCpu;  // cpu | cuda
  int64_t global_batch = 1;              // sequences per optimizer step
  int64_t sequence_length = 0;           // T
  int64_t steps = 0;                     // optimizer steps of the run
  uint64_t seed = 1234;
  int64_t threads_per_rank = 0;       // cpu worker threads of a rank; 0 = cores / ranks, at least 1
  int64_t memory_per_rank_bytes = 0;  // allocator limit of each rank; 0 = no limit
  std::string data{};                 // prefix of .bin/.idx; empty = synthetic tokens
  std::string stack = kOwnStack;      // software that the run was planned for

  /// Micro batches each data-parallel rank runs per step: gbs / (mbs * dp).
  int64_t num_micro_batches() const { return global_batch / (layout.micro_batch * layout.dp); }
  bool operator==(const RunConfig&) const = default;
};

/// Reads the model of a run.
using ModelReader = ModelConfig (*)(const nlohmann::json& json, const std::string& where);

/// Strict JSON (unknown keys, types and ranges name file and path). `where` prefixes messages. See
/// engine/families/load_config.h for runs that name a preset.
RunConfig RunConfigFromJson(const nlohmann::json& json, const std::string& where,
                            ModelReader read_model);
nlohmann::json ToJson(const RunConfig& run);

}  // namespace trimtab
