// How ranks that are processes carry out steps together: the plan goes from the first one to all,
// the logits come back to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/infer/serving_model.h"
#include "engine/infer/step_plan.h"
#include "engine/train/ranks.h"

namespace trimtab {

/// A plan as numbers.
std::vector<int64_t> PackPlan(const StepPlan& plan);
/// The plan that PackPlan made them of.
StepPlan UnpackPlan(std::span<const int64_t> numbers);

/// What a step came to.
struct StepOutcome {
  std::vector<float> logits;   // on rank 0: those of the whole plan
  int64_t peak_mem_bytes = 0;  // allocator peak of the fullest rank so far
};

/// Carries out the plan that rank 0 has in `packed`; the others have as much room. Every rank calls
/// it together.
StepOutcome RunTogether(Rank& rank, ServingModel& model, std::vector<int64_t>& packed);

}  // namespace trimtab
