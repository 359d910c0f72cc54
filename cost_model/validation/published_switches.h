// What a published run switches on or off of its software stack.
#pragma once

#include "cost_model/hardware/software_stack.h"
#include "cost_model/validation/published_run.h"

namespace trimtab {

/// Whether `run` recomputes op by op, as torchtitan does with dense models: every layer runs again
/// but for every other product. Which that are, the stack says.
bool RecomputesByOp(const PublishedRun& run);

/// Changes `stack` to what the fields and the notes of `run` say about the software: CUDA graphs,
/// dispatchers of tokens, overlapped messages, a compiler, the recipe of fp8, recomputation op by
/// op. By how much each changes a number is assumed, not fitted.
void ApplySwitches(const PublishedRun& run, SoftwareStack& stack);

}  // namespace trimtab
