// How ranks that are processes carry out work together: what it is goes from the first one to all,
// the logits, or what blocks of the cache hold, come back to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/infer/executor/serving_model.h"
#include "engine/infer/scheduler/step_plan.h"
#include "engine/runtime/ranks.h"

namespace trimtab {

/// What all ranks do next: a step; or what the runner's call of that name does, with `blocks`.
struct RankWork {
  enum class Kind : int64_t { kStep = 1, kReadBlocks, kWriteBlocks };
  Kind kind = Kind::kStep;
  StepPlan plan{};
  std::vector<int32_t> blocks{};
};

/// Work as numbers, of which there are some.
std::vector<int64_t> PackWork(const RankWork& work);
/// The work that PackWork made them of.
RankWork UnpackWork(std::span<const int64_t> numbers);

/// What it came to.
struct WorkOutcome {
  std::vector<float> logits;   // on rank 0: those of the whole plan
  BlockContents contents;      // on rank 0: those that were read, of all ranks
  int64_t peak_mem_bytes = 0;  // allocator peak of the fullest rank so far
};

/// Carries out the work that rank 0 has in `packed`; the others have as much room. Rank 0 also has
/// the `contents` that are to be written. Every rank calls it together.
WorkOutcome RunTogether(Rank& rank, ServingModel& model, std::vector<int64_t>& packed,
                        const BlockContents* contents);

}  // namespace trimtab
