// RunTraining: a training run from first step to last, on ranks of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/train/routing_report.h"

namespace trimtab {

/// What a user asked of a run in progress.
enum class StopSignal {
  kNone,
  kDrain,   // end after this step, with a checkpoint
  kCancel,  // end as soon as possible, without one
};

/// One finished step, as rank 0 saw it.
struct TrainingStep {
  int64_t step = 0;  // from 1: the number of steps done
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double loss_scale = 1;    // with fp16
  bool skipped = false;     // with fp16: gradients overflowed, so nothing was updated
  RoutingReport routing{};  // with experts
  double step_time_s = 0;   // until rank 0 was done; with what it waited for others after the last
  double tokens_per_s = 0;
};

struct TrainingOptions {
  std::string load = {};        // checkpoint to go on from; empty = from the first step
  std::string load_hf = {};     // Hugging Face folder whose weights to begin with; empty = random
  std::string checkpoint = {};  // where to save; empty = nowhere
  std::vector<std::string> overrides = {};  // settings that may differ from those of `load`
  int64_t save_every = 0;  // steps between saves before the last one; 0 = only at the end
  /// All are called on rank 0's thread, between steps; any may be empty, any may throw.
  std::function<void(const TrainingStep& step)> on_step = {};
  std::function<void(int64_t step, double seconds)> on_save = {};
  std::function<StopSignal()> stop_requested = {};
};

struct TrainingSummary {
  int64_t first_step = 0;  // steps already done by the checkpoint it went on from
  int64_t steps_done = 0;  // in all
  double last_loss = 0;    // of the last step; 0 when none was run
  StopSignal stopped_by = StopSignal::kNone;
  int64_t peak_mem_bytes = 0;  // allocator peak of the fullest rank
};

/// Trains until run.steps steps are done in all. Going on from a checkpoint gives the same bits as
/// never having stopped, as long as layout, threads and data stay the same; with another layout it
/// gives the same up to rounding.
/// Keeps other runs from saving to the same folder.
/// Throws InfeasibleError, OutOfMemoryError, UsageError (a setting that changes results is another
/// one than the checkpoint's, and not among the overrides: RequireContinuation), InputError (data;
/// weights; checkpoint of another model), StorageError (checkpoint, also one that another run saves
/// to), NumericError, EnvironmentError (device).
TrainingSummary RunTraining(const RunConfig& run, const TrainingOptions& options);

}  // namespace trimtab
