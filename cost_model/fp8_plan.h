// Which linear layers of a model compute in fp8, and so which of its layers cost alike.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/block_cost.h"
#include "engine/config/run_config.h"

namespace trimtab {

/// Neighbouring layers that cost alike.
struct LayerRun {
  Fp8Linears fp8{};
  int64_t layers = 0;

  bool operator==(const LayerRun&) const = default;
};

/// The layers of `model` from first to last under `fp8`; without fp8 precision, one run.
/// Throws InputError when the configuration keeps a layer in bf16 that is not there.
std::vector<LayerRun> PlanFp8(const ModelConfig& model, const Fp8Config& fp8);

/// How many linear layers of each kind compute in fp8.
std::array<int64_t, kLinearKindCount> CountFp8(const std::vector<LayerRun>& runs);

}  // namespace trimtab
