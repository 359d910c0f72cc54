// Lower bounds of what a step takes, for layouts that are only partly chosen yet: a search leaves
// out at once all that cannot be among the best.
//
// A bound is what recordings of the engine cost, with everything left out that is not chosen yet.
// Nothing here says what a step does; tests hold every bound against the closed form of what the
// layout can become.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "cost_model/chunk_costs.h"
#include "cost_model/closed_form.h"
#include "cost_model/cluster.h"
#include "engine/config/run_config.h"

namespace trimtab {

/// Not thread-safe: one per thread.
class StepBounds {
 public:
  /// `chunks`, which must outlive it, are the costs of the model at its sequence length.
  StepBounds(const ModelConfig& model, const Cluster& cluster, ChunkCosts& chunks)
      : model_(model), cluster_(cluster), chunks_(&chunks) {}

  /// `run` breaks no rule that its chosen part settles. Throws as ClosedFormEstimator::Run does.
  StepBound Of(const RunConfig& run, LayoutPart chosen);

 private:
  struct Passes {
    double seconds = 0;  // of the slowest stage, idle time included
    double messages_s = 0;
    int64_t first_stage_bytes = 0;  // what passes take above what is held between steps
    int64_t last_stage_bytes = 0;
  };

  /// A run, and the costs of runs of its sequence length.
  struct Priced {
    RunConfig run;
    ChunkCosts& chunks;
    const PriceSetting& setting;
  };

  StepBound OfMicroBatch(const RunConfig& run);
  StepBound OfPasses(const RunConfig& run, LayoutPart chosen);
  Priced PartOfSequence(const RunConfig& run);
  Passes PassesOf(const RunConfig& run, LayoutPart chosen);
  Passes PassesOf(const Priced& priced);
  /// What a rank of `stage` holds between steps; not `sharded`: if all that can be were.
  int64_t HeldBytes(const PriceSetting& setting, const RunConfig& run, bool sharded, int64_t stage);
  StepBound Finished(const RunConfig& run, const PriceSetting& setting, double seconds,
                     double messages_s, int64_t bytes) const;

  ModelConfig model_;
  Cluster cluster_;
  ChunkCosts* chunks_;
  std::map<int64_t, ChunkCosts> shorter_;  // by sequence length
  std::unordered_map<PackedKey, int64_t, PackedKey::Hash> held_;
};

}  // namespace trimtab
