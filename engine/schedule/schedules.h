// Pipeline schedules: the order in which a stage computes its micro batches. One row each.
#pragma once

#include <cstdint>
#include <span>

#include "engine/config/layout/parallel_config.h"
#include "engine/schedule/action.h"

namespace trimtab {

/// The pipeline that a schedule is made for.
struct PipelineShape {
  int64_t pp = 1;  // stages
  int64_t vp = 1;  // model chunks of a stage; above 1 for interleaved schedules only
  int64_t micro_batches = 1;
};

/// Time that one micro batch spends in one stage, in all its chunks together; in any unit.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  double total() const { return forward + backward_input + backward_weight; }
  StageTimes& operator+=(const StageTimes& other) {
    forward += other.forward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    return *this;
  }
};

/// What a micro batch takes on the other stages of `pp` > 1, on average: `all` on all of them
/// together, `own` on this one.
StageTimes MeanOfOthers(const StageTimes& all, const StageTimes& own, int64_t pp);

/// A micro batch's way from its first pass on the first stage through all others and back, until it
/// is done there.
struct RoundTrip {
  double passes = 0;  // on its way; messages take none
  double beside = 0;  // other stages' passes of it that keep nobody waiting
};

struct ScheduleRow {
  Schedule schedule{};
  /// The compute actions of `stage`. In each chunk, every pass takes the micro batches in order.
  StageProgram (*compute)(const PipelineShape& shape, int64_t stage){};
  /// The most chunks of micro batches that `stage` holds at once: forward done, and not yet all of
  /// the backward pass.
  int64_t (*max_in_flight)(const PipelineShape& shape, int64_t stage){};
  /// Time that each stage is idle in a step when all take the same and messages take none.
  double (*idle_time)(const PipelineShape& shape, const StageTimes& times){};
  /// Where the first stage begins a micro batch only when the one is back that began as many before
  /// it as there are stages. `all`: what one takes on all stages together. Null where so many are
  /// under way that messages keep none waiting.
  RoundTrip (*round_trip)(const StageTimes& all, const StageTimes& first_stage){};
};

std::span<const ScheduleRow> Schedules();
const ScheduleRow& RowOf(Schedule schedule);

}  // namespace trimtab
