// Predictions of many published runs, which can be made again with other prices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/validation/published_case.h"

namespace trimtab {

/// A run that was taken.
struct ValidationRow {
  PublishedRun published;
  PublishedCase of;
  double tokens_per_s_per_gpu = 0;  // published; 0 = only its memory is
  std::string recordings{};         // names those that it shares with other rows

  /// Runs of the same model on the same kind of machine, which somebody would choose among.
  std::string Group() const;
  /// Published seconds of a step.
  double StepSeconds() const;
};

/// Bytes of the fullest rank that the source of `row` would have seen, of an estimate on `cluster`:
/// of tensors alone, where it says that it asked the allocator for what is allocated.
double PeakBytesAsMeasured(const ValidationRow& row, const Cluster& cluster,
                           const Estimate& estimate);

/// Whether a run that needs so much is said to fit a GPU: with what the allocator sets aside and
/// does not use.
bool SaidToFit(const ValidationRow& row, const Estimate& estimate);

/// How a run is predicted; fits take the closed form.
enum class Tier { kClosedForm, kDryRun };

class RunPredictor {
 public:
  RunPredictor();
  ~RunPredictor();

  /// Records what is new about the run, and predicts it with the prices of its own cluster. Only
  /// while no other thread asks.
  Estimate Predict(const ValidationRow& row, Tier tier = Tier::kClosedForm);
  /// Predicts a run that was predicted before with those of `cluster`, which is otherwise its own.
  /// Not thread-safe for rows that share recordings.
  Estimate PredictWith(const ValidationRow& row, Cluster cluster);

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
