// What the end of a step costs on rank 0: gradient reduction, scales of fp8, clipping, AdamW,
// weight gathering, fp8 copies of the weights; and the size of what stays in memory between steps.
//
// This is the closed form's description of engine/parallel, engine/optim and the end of
// Trainer::Step, over the flat buffers that engine/layers/parameter.h lays out.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost_model/block_cost.h"
#include "cost_model/estimate.h"
#include "cost_model/price.h"
#include "engine/config/model_config.h"
#include "engine/config/precision.h"

namespace trimtab {

/// A run of neighbouring parameters in the flat buffer that take the same weight decay.
struct DecayRun {
  int64_t end = 0;  // one past the last element; the run begins where the one before ends
  bool decay = false;
};

/// The flat buffers of one tensor-parallel rank. Every parameter begins at a multiple of
/// kParameterAlignment elements, and runs include the gaps.
struct FlatLayout {
  int64_t numel = 0;                  // without the padding that dp asks for
  int64_t tensor_parallel_numel = 0;  // the first part; the rest is replicated over tp
  std::vector<DecayRun> runs;
  std::vector<int64_t> bucket_cuts;  // where a data-parallel bucket may begin, ascending
};
FlatLayout PlanFlatLayout(const ModelConfig& model, int64_t tp);

/// The [rows, columns] of the linear layers of a transformer layer on one tensor-parallel rank.
struct LinearShape {
  int64_t rows = 0;
  int64_t columns = 0;
};
std::array<LinearShape, kLinearKindCount> LinearShapes(const ModelConfig& model, int64_t tp);

/// The linear layers of a rank that compute in fp8.
struct Fp8Weights {
  std::array<int64_t, kLinearKindCount> layers{};  // how many of each kind
  std::array<LinearShape, kLinearKindCount> shapes{};
  bool delayed = true;  // scaling
  int64_t history = 1;  // steps

  int64_t count() const { return layers[kQkv] + layers[kProj] + layers[kFc1] + layers[kFc2]; }
};

/// The parts of a layout that the end of a step depends on.
struct UpdateShape {
  int64_t tp = 1;
  int64_t dp = 1;
  bool sequence_parallel = false;  // only with tp > 1
  bool sharded = false;            // optimizer state sharded over dp: zero >= 1 and dp > 1
  TrainingTypes types{};
  Fp8Weights fp8{};  // with types.fp8
};

struct UpdateCost {
  double optimizer_s = 0;
  double tp_s = 0;
  double dp_s = 0;
  int64_t ops = 0;
  CommTotals comm;
  int64_t weight_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
};
UpdateCost PriceUpdate(const FlatLayout& flat, const UpdateShape& shape, const Pricer& pricer);

}  // namespace trimtab
