// The chunks of a run's model on a pipeline rank, and their order in a step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/model/gpt_model.h"
#include "engine/schedule/pipeline.h"

namespace trimtab {

/// The chunks of the run's model on pipeline rank `pp_rank`, in order.
std::vector<ModelChunk> ChunksOf(const RunConfig& run, int64_t pp_rank);

/// What a rank of pipeline rank `pp_rank` does in a step.
StageProgram ProgramOf(const RunConfig& run, int64_t pp_rank);

}  // namespace trimtab
