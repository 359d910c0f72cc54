// What the tensors of a training step are stored in, as a layout's precision decides.
//
//   precision  weights  activations  matrix products                 master weights
//   fp32       fp32     fp32         fp32                            the weights themselves
//   tf32       fp32     fp32         fp32 operands rounded to TF32   the weights themselves (cuda)
//   bf16       bf16     bf16         bf16                            fp32, or a 16-bit remainder
//   fp16       fp16     fp16         fp16, loss scaled               fp32
//   fp8        bf16     bf16         fp8 in the layers' linears      fp32, or a 16-bit remainder
//
// Sums are fp32 everywhere. Moments and gradients have types of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace trimtab {

struct Numerics;

/// How fp8 runs. Which scales: "delayed" takes the largest value of the last `history` steps,
/// "current" that of the tensor itself, at the cost of one more pass over it.
struct Fp8Config {
  std::string scaling = "delayed";
  int64_t history = 16;  // steps; 1 to 1024
  /// Linear layers that stay in bf16: full names ("decoder.layers.3.mlp.linear_fc2"), or the name
  /// of something that contains them ("decoder.layers.0").
  std::vector<std::string> bf16_layers{};
  /// Input gradients, like forward products, add up in the tensor cores' own precision, which is
  /// faster on Hopper GPUs; else in fp32. A cpu then adds up both as Hopper does, slowly, and in
  /// fp32 otherwise: it shows what becomes of the loss.
  bool fast_gradients = false;

  bool operator==(const Fp8Config&) const = default;
};

/// Dynamic loss scaling of fp16: halved when gradients overflow (that step is skipped), doubled
/// after `growth_interval` steps without.
struct LossScaleConfig {
  double initial = 65536;
  double minimum = 1;
  int64_t growth_interval = 1000;

  bool operator==(const LossScaleConfig&) const = default;
};

/// Types of the tensors of one run.
struct TrainingTypes {
  DType weights = DType::kF32;
  DType activations = DType::kF32;
  bool has_master = false;      // beside the weights
  DType master = DType::kF32;   // fp32, or uint16: the remainder below a bf16 weight
  DType moments = DType::kF32;  // fp16 and int8 ones have fp32 scales, one per kMomentBlock
  DType gradients = DType::kF32;
  bool fp8 = false;
  bool tf32 = false;
  bool loss_scaling = false;

  bool operator==(const TrainingTypes&) const = default;
};
TrainingTypes TypesOf(const Numerics& numerics);

/// Whether the linear layer `name` computes in fp8 under a run with fp8 precision.
bool ComputesInFp8(const Fp8Config& fp8, const std::string& name);

}  // namespace trimtab
