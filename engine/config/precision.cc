#include "engine/config/precision.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/parallel_config.h"

namespace trimtab {
namespace {

DType DTypeNamed(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    if (Name(dtype) == name) return dtype;
  }
  TRIMTAB_ASSERT(false, "no type is called '{}'", name);
}

}  // namespace

TrainingTypes TypesOf(const ParallelConfig& layout) {
  TrainingTypes types;
  types.fp8 = layout.precision == "fp8";
  types.tf32 = layout.precision == "tf32";
  types.loss_scaling = layout.precision == "fp16";
  const bool full = layout.precision == "fp32" || types.tf32;
  types.weights = full ? DType::kF32 : types.fp8 ? DType::kBf16 : DTypeNamed(layout.precision);
  types.activations = types.weights;
  types.has_master = !full;
  types.master = layout.master == "remainder" ? DType::kU16 : DType::kF32;
  types.moments = DTypeNamed(layout.moments);
  types.gradients = DTypeNamed(layout.gradients);
  return types;
}

bool ComputesInFp8(const Fp8Config& fp8, const std::string& name) {
  return std::none_of(fp8.bf16_layers.begin(), fp8.bf16_layers.end(), [&](const auto& kept) {
    return name == kept || name.starts_with(kept + ".");
  });
}

}  // namespace trimtab
