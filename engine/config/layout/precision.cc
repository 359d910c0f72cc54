#include "engine/config/layout/precision.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {
namespace {

DType WeightsIn(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
    case Precision::kTf32:
      return DType::kF32;
    case Precision::kBf16:
    case Precision::kFp8:
      return DType::kBf16;
    case Precision::kFp16:
      return DType::kF16;
  }
  TRIMTAB_ASSERT(false, "precision {}", static_cast<int>(precision));
}

}  // namespace

TrainingTypes TypesOf(const Numerics& numerics) {
  TrainingTypes types;
  types.fp8 = numerics.precision == Precision::kFp8;
  types.tf32 = numerics.precision == Precision::kTf32;
  types.loss_scaling = numerics.precision == Precision::kFp16;
  types.weights = WeightsIn(numerics.precision);
  types.activations = types.weights;
  types.has_master = types.weights != DType::kF32;
  types.master = numerics.master == MasterWeights::kRemainder ? DType::kU16 : DType::kF32;
  types.moments = numerics.moments;
  types.gradients = numerics.gradients;
  return types;
}

bool ComputesInFp8(const Fp8Config& fp8, const std::string& name) {
  return std::none_of(fp8.bf16_layers.begin(), fp8.bf16_layers.end(), [&](const auto& kept) {
    return name == kept || name.starts_with(kept + ".");
  });
}

}  // namespace trimtab
