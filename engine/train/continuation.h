// What a run that goes on from a checkpoint computes otherwise than the run that saved it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// A setting that changes results and has another value than in the run that saved a checkpoint.
struct ResultChange {
  std::string key;     // its path in RUN.json: "optimizer.learning_rate", "steps"
  std::string before;  // in the checkpoint, as text
  std::string now;

  bool operator==(const ResultChange&) const = default;
};

/// Finds the settings that make `run` compute other results than the run that saved `from` would
/// have, from the checkpoint's step on. `tokens` is IdentityOfTokens of `run`; the data are not
/// compared where the checkpoint's are unknown.
///
/// Every key of RUN.json counts but those that change results by rounding alone: the layout with
/// its micro batch, devices, threads, memory. Settings that nothing reads do not count (fp8's in
/// bf16), nor do rates, warm-up and length of a schedule that gives the same rate at every step
/// to come: of a constant rate, or past its end; nor does anything where no step is left. Shapes of
/// the model are no settings: a checkpoint of another shape cannot be read at all.
std::vector<ResultChange> ChangesSince(const CheckpointHeader& from, const RunConfig& run,
                                       const std::string& tokens);

/// Lets `run` go on from the checkpoint `from` at `path` only where every change is among
/// `overrides`: keys of RUN.json, whole paths or their last part; "decay_steps" and "steps" both
/// mean the length of the schedule. Returns the changes.
/// Throws UsageError that names --override and the keys, after one warning for each change; and for
/// a key that changes no result.
std::vector<ResultChange> RequireContinuation(const CheckpointHeader& from, const std::string& path,
                                              const RunConfig& run, const std::string& tokens,
                                              std::span<const std::string> overrides);

/// Logs one warning for each change from the run that saved `path`.
void Tell(std::span<const ResultChange> changes, const std::string& path);

}  // namespace trimtab
