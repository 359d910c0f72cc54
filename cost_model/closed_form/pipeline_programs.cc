#include "cost_model/closed_form/pipeline_programs.h"

namespace trimtab {
namespace {

/// Actions that are remembered: 4 MB.
constexpr size_t kMostActions = size_t{1} << 18;

}  // namespace

const std::vector<StageProgram>& PipelinePrograms::Of(Schedule schedule,
                                                      const PipelineShape& shape) {
  const PackedKey key =
      PackedKey().Put(schedule).Put(shape.pp, 20).Put(shape.vp, 20).Put(shape.micro_batches, 40);
  if (const auto known = programs_.find(key); known != programs_.end()) return known->second;
  if (actions_ > kMostActions) {
    programs_.clear();
    actions_ = 0;
  }
  const auto made = programs_.emplace(key, PlanPipeline(schedule, shape)).first;
  for (const StageProgram& program : made->second) actions_ += program.size();
  return made->second;
}

}  // namespace trimtab
