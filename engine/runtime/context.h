// The context that the layers of a run's model get on one rank.
#pragma once

#include "engine/comm/parallel_context.h"
#include "engine/config/run/run_config.h"
#include "engine/device/device.h"
#include "engine/layers/fp8_state.h"
#include "engine/layers/layer_context.h"

namespace trimtab {

/// What the layers of the run's model need to know on this rank. `run`, `parallel` and `device`
/// must outlive it; `fp8` is nullptr unless the precision is fp8.
LayerContext ContextOf(const RunConfig& run, const ParallelContext& parallel, Device& device,
                       Fp8State* fp8);

/// Worker threads of one rank: run.threads_per_rank, or if that is 0 an equal share of this
/// machine's cores, at least 1.
int ThreadsPerRank(const RunConfig& run);

}  // namespace trimtab
