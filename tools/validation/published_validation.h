// `trimtab validate` on published runs: predictions beside what others measured.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include "cost_model/validation/predictor.h"

namespace trimtab {

/// A published run with its prediction.
struct PredictedRun {
  const ValidationRow* row = nullptr;
  Estimate estimate;

  /// predicted / published - 1; only where that is published.
  double StepTimeError() const { return estimate.step_time_s / row->StepSeconds() - 1; }
  double MemoryError() const { return PeakBytes() / row->published.measured.peak_mem_bytes - 1; }
  double PeakBytes() const { return PeakBytesAsMeasured(*row, row->of.cluster, estimate); }
  bool WithinInterval() const {
    return row->StepSeconds() >= estimate.step_time_low_s &&
           row->StepSeconds() <= estimate.step_time_high_s;
  }
  bool ran_out() const { return row->published.measured.out_of_memory; }
  bool has_time() const { return row->tokens_per_s_per_gpu > 0; }
  bool has_memory() const { return row->published.measured.peak_mem_bytes > 0; }
};

/// `summary`, `sources`, `rows` and `skipped_rows` of the command's JSON.
nlohmann::json ValidationJson(std::span<const PredictedRun> runs, const TakenRuns& taken);

/// The same as tables for people: by source, and the rows that are furthest off.
std::string ValidationText(std::span<const PredictedRun> runs, const TakenRuns& taken, bool bold);

}  // namespace trimtab
