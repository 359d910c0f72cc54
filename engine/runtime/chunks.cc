#include "engine/runtime/chunks.h"

#include "engine/schedule/chunks.h"

namespace trimtab {

std::vector<ModelChunk> ChunksOf(const RunConfig& run, int64_t pp_rank) {
  const ParallelConfig& layout = run.layout;
  const int64_t count = layout.pp * layout.vp;
  const std::vector<LayerRange> cut = CutLayers(run.model.num_layers, count, layout.stages);
  std::vector<ModelChunk> chunks;
  for (int64_t i = pp_rank; i < count; i += layout.pp) {
    const LayerRange& layers = cut[static_cast<size_t>(i)];
    chunks.push_back({layers.first, layers.count, i == 0, i + 1 == count});
  }
  return chunks;
}

StageProgram ProgramOf(const RunConfig& run, int64_t pp_rank) {
  const ParallelConfig& layout = run.layout;
  const PipelineShape shape = {layout.pp, layout.vp, run.num_micro_batches()};
  return PlanPipeline(layout.schedule, shape)[static_cast<size_t>(pp_rank)];
}

}  // namespace trimtab
