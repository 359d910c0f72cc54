// PipelinePrograms: what the stages of pipelines do, action by action, planned once for each shape.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "cost_model/closed_form/packed_key.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/schedule/pipeline.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// Not thread-safe: one per thread.
class PipelinePrograms {
 public:
  /// By stage. Holds until the next call.
  const std::vector<StageProgram>& Of(Schedule schedule, const PipelineShape& shape);

 private:
  std::unordered_map<PackedKey, std::vector<StageProgram>, PackedKey::Hash> programs_;
  size_t actions_ = 0;  // of all of them
};

}  // namespace trimtab
