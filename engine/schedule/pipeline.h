// The whole program of a pipeline: what each stage computes, and the messages between them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/action.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// The program of every stage, by stage. Chunk c of stage s is number c * pp + s of the model's
/// pp * vp chunks; activations go from each chunk to the next, gradients the other way.
///
/// All messages of the pipeline have one order, that of the moments at which they would be ready if
/// a backward pass took twice as long as a forward pass, and, where stages have several chunks, a
/// message an eighth of it; every stage submits its own in that order.
/// So it makes no difference whether a stage's messages go each on their own or one after the
/// other, as on one stream: no stage ever waits for a message behind one that waits for it. Within
/// that order a receive is submitted one compute action before the one that takes its data.
std::vector<StageProgram> PlanPipeline(Schedule schedule, const PipelineShape& shape);

/// The most micro batches that one chunk of a stage holds at once: forward done, and not yet all of
/// the backward pass.
int64_t MicroBatchesInFlight(const StageProgram& program, int64_t chunk);

}  // namespace trimtab
