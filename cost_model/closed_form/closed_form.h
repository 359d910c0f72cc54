// The first tier: a step's cost by counting, in microseconds per candidate, without running the
// engine. FLOPs, messages and memory agree exactly with the dry run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cost_model/closed_form/plan_range.h"
#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// How much of a layout is chosen. What is not has its default, and `dp` has all ranks left. The
/// bound of each part is derived in docs/bounds.md.
enum class LayoutPart : uint8_t {
  kNumerics,     // numerics, ranks, the global batch
  kParts,        // and tp, sp, cp and its messages, ep, etp, dispatch, overlap chunks
  kShape,        // and the micro batch
  kPlans,        // and a range of plans of recomputation
  kPipeline,     // and the pipeline; backward passes in two parts count as whole ones
  kSplitPasses,  // the same, with these in two parts
  kSharding,     // all, but waits for shards and the end of the step are left out
  kFirstWaits,   // all, with the waits of inner layers that the first micro batch tells
  kWaits,        // all, with the waits of inner layers and the end of the step
  kWhole,        // all, of one plan: every layer among its own neighbours
};

/// No layout that the chosen part belongs to takes less.
struct StepBound {
  double step_time_s = 0;
  int64_t peak_mem_bytes = 0;  // of the fullest rank
};

/// Estimates many layouts of one model at one sequence length. Remembers the cost of a layer per
/// (tp, sequence parallel, micro batch, mode, precision, fp8 linears, gradients), so that a further
/// layout costs a few sums. Not thread-safe: one per thread.
class ClosedFormEstimator {
 public:
  /// Keeps a reference to no argument. `keep`: recordings, for the sake of SetPrices; there are no
  /// bounds then.
  ClosedFormEstimator(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster,
                      bool keep = false);
  /// Another, for another thread: what either records, both know. Recordings are not kept.
  ClosedFormEstimator ForThread() const;
  ~ClosedFormEstimator();
  ClosedFormEstimator(ClosedFormEstimator&&) noexcept;

  /// `run` has this estimator's model and sequence length and breaks no legality rule; anything
  /// else is a programmer's fault. Throws UsageError where the profile cannot price the run's
  /// precision, InputError where `run.fp8` names a layer that is not there.
  Estimate Run(const RunConfig& run);
  /// What no layout is below that `run` can still become and that fits memory_per_rank_bytes, where
  /// there is such a limit, with any of `plans` at every stage. It breaks no rule that its chosen
  /// part settles. Throws as Run does.
  StepBound Bound(const RunConfig& run, LayoutPart chosen, const PlanRange& plans);
  /// Forgets recordings where they take much memory. Only while no other thread asks.
  void ForgetIfMany();
  /// From now on prices by the profile and the stack of `cluster`, which is the same otherwise,
  /// without recording anything again. Recordings were kept.
  void SetPrices(const Cluster& cluster);
  /// What the ranks of each pipeline stage do and hold, stage by stage; no times but the parts that
  /// are their own.
  std::vector<Estimate> Stages(const RunConfig& run);

 private:
  class Impl;
  explicit ClosedFormEstimator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One layout. Throws InfeasibleError if `run` breaks a legality rule, and as Run does.
Estimate ClosedForm(const RunConfig& run, const Cluster& cluster);

}  // namespace trimtab
