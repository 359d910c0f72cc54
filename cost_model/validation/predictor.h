// Predictions of many published runs, which can be made again with other prices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost_model/closed_form.h"
#include "cost_model/validation/published_case.h"

namespace trimtab {

/// A run that was taken.
struct ValidationRow {
  PublishedRun published;
  PublishedCase of;
  double tokens_per_s_per_gpu = 0;  // published; 0 = only its memory is

  /// Runs of the same model on the same kind of machine, which somebody would choose among.
  std::string Group() const;
  /// Published seconds of a step.
  double StepSeconds() const;
};

/// Not thread-safe.
class RunPredictor {
 public:
  RunPredictor();
  ~RunPredictor();

  /// Records what is new about the run, and predicts it with the prices of its own cluster.
  Estimate Predict(const ValidationRow& row);
  /// Predicts a run that was predicted before with those of `cluster`, which is otherwise its own.
  Estimate PredictWith(const ValidationRow& row, const Cluster& cluster);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Takes what can be predicted of `runs` and has an outcome; the others are `skipped`, as pairs of
/// id and reason.
struct TakenRuns {
  std::vector<ValidationRow> rows;
  std::vector<std::pair<std::string, std::string>> skipped;
};
TakenRuns TakeRuns(const std::vector<PublishedRun>& runs);

}  // namespace trimtab
