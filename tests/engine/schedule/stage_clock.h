// Executes the programs of all stages against each other, as ranks would that send their messages
// one after the other on one stream each. For tests.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/pipeline.h"

namespace trimtab {

struct PipelineRun {
  std::string stuck;  // where every stage stands when none can go on; empty when all came through
  double end = 0;     // when the last stage was done
};

/// Every message takes no time, and blocks all later ones of its two stages until both have
/// submitted it and are done with those before it. Waits are where action.h says. `times` are those
/// of a micro batch through all chunks of a stage.
PipelineRun RunPipeline(const std::vector<StageProgram>& programs, const PipelineShape& shape,
                        const StageTimes& times);

}  // namespace trimtab
