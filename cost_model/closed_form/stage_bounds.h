// What bounds make of the stages of a pipeline: how long the slowest one takes, and what the
// fullest one holds, each at least.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/closed_form/end_costs.h"
#include "engine/schedule/schedules.h"

namespace trimtab {

/// What the stages of a pipeline do for a step, and what they wait for, each at least.
class StageSums {
 public:
  /// `message_s`: of a message between stages.
  StageSums(const PipelineShape& shape, double message_s)
      : shape_(shape), message_s_(message_s), stages_(static_cast<size_t>(shape.pp)) {}

  /// A chunk of a stage.
  void Add(size_t stage, const WaySpans& ways);
  /// How the step of a stage ends whose chunks were added.
  void AddEnd(size_t stage, const ParallelConfig& layout, const EndCosts& end,
              const Pricer& pricer);

  /// The slowest stage, idle time left out.
  double Busiest() const;
  /// The same with idle time. With a pipeline. `longer_weights`: the weights' parts of backward
  /// passes, which fill idle time, may be longer than what was added.
  double Slowest(Schedule schedule, bool longer_weights) const;
  /// The same where stages share cores: these are never all idle, and the slowest stage has one for
  /// each thread at best. Nothing is said of how its step ends.
  double SlowestOfCrowded(double crowding) const;

 private:
  struct Stage {
    StageTimes first = {0, 0, 0};  // of the first micro batch
    StageTimes later = {0, 0, 0};  // of each other
    double end_s = 0;
  };

  /// Passes of a chunk, either way, beside which messages of the step's end may run, at most:
  /// interleaved chunks go in rounds.
  int64_t HidingPasses() const;
  double PassesSeconds(const Stage& stage) const;
  /// Idle time left out.
  double Seconds(const Stage& stage) const;
  /// What a stage waits because micro batches are under way for so long.
  double RoundTrips(Schedule schedule, const StageTimes& all, const Stage& stage) const;
  StageTimes All() const;

  PipelineShape shape_;
  double message_s_;
  std::vector<Stage> stages_;
};

/// Where gradients are sharded, no pass of a micro batch adds to what others left: its own are sent
/// away, and added up by shards.
void AddToNoGradients(WaySpans& ways);

/// Chunks of micro batches that a stage holds at once, at least: whole ones, before a backward pass
/// of one of them; and, where backward passes are in two parts, at that time or later, others of
/// which the weights' part is yet to come.
struct InFlight {
  int64_t whole = 0;
  int64_t weights_to_come = 0;
};
InFlight LeastInFlight(Schedule schedule, const PipelineShape& shape, int64_t stage);

/// What the part of a backward pass for inputs leaves for that of weights, at least.
int64_t LeftForWeights(const WaySpans& ways, bool several_micro_batches);

/// What passes of a stage take, each at least: the first forward pass of a chunk, and a later one;
/// a backward pass, or the first part of it; and what that leaves for the weights' part.
struct PassBytes {
  MemorySpan first = {INT64_MAX, INT64_MAX};
  MemorySpan later = {INT64_MAX, INT64_MAX};
  int64_t backward_peak = INT64_MAX;
  int64_t left_for_weights = INT64_MAX;

  /// Of a chunk, whose passes also take `received` bytes before and give `sent` bytes away after.
  /// Not `several`: of a step of one micro batch.
  void Consider(const WaySpans& ways, int64_t received, int64_t sent, bool several);
  /// The most that passes in flight hold, the first ones of all `chunks` among them: interleaved
  /// ones take turns before the first backward pass, which comes next.
  int64_t Peak(const InFlight& in_flight, int64_t chunks) const;
};

/// Chunks of a stage, each as the first that is like it.
using StageChunks = std::vector<ModelChunk>;
/// The stages of which one is the fullest, by the chunks that each has: of like ones the first
/// holds the most micro batches.
std::vector<int64_t> StagesToWeigh(const std::vector<StageChunks>& stages);
/// Of stages with like layers, those that also have the embedding or the head, and the first of
/// those with the most layers, which holds the most micro batches of as many.
std::vector<int64_t> FullestOfAlike(const std::vector<LayerRange>& chunks, int64_t pp);

}  // namespace trimtab
