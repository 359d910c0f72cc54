// What an update rule keeps of parameters from step to step.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/config/layout/precision.h"
#include "engine/device/tensor.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {

/// One value of each element. A checkpoint has it in fp32, as "NAME.PARAMETER".
struct StateSlot {
  const char* name = "";
  DType dtype = DType::kF32;
  int64_t block = 0;  // elements that share an fp32 scale: stored * scale = value; 0: none do
  MomentSign sign = MomentSign::kEither;  // where the type is int8
};

/// Returns a slot called `name` stored in the run's type of moments.
StateSlot MomentSlot(const char* name, const TrainingTypes& types,
                     MomentSign sign = MomentSign::kEither);

}  // namespace trimtab
