#include "engine/schedule/schedules.h"

#include <algorithm>

#include "engine/base/error.h"

namespace trimtab {
namespace {

Action Compute(ActionKind kind, int64_t micro_batch, int64_t chunk = 0) {
  return {.kind = kind,
          .chunk = static_cast<int32_t>(chunk),
          .micro_batch = static_cast<int32_t>(micro_batch)};
}

/// All forwards, then all backwards (Huang et al., GPipe, arXiv:1811.06965).
StageProgram Gpipe(const PipelineShape& shape, int64_t /*stage*/) {
  StageProgram program;
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    for (int64_t m = 0; m < shape.micro_batches; ++m) program.push_back(Compute(kind, m));
  }
  return program;
}

/// Forwards before the first backward: enough to reach the last stage and come back.
int64_t WarmUp(const PipelineShape& shape, int64_t stage) {
  return std::min(shape.pp - 1 - stage, shape.micro_batches);
}

/// PipeDream-flush (Narayanan et al., arXiv:2006.09503): after the warm-up one forward, one
/// backward.
StageProgram OneForwardOneBackward(const PipelineShape& shape, int64_t stage) {
  const int64_t warm_up = WarmUp(shape, stage);
  StageProgram program;
  for (int64_t i = 0; i < shape.micro_batches + warm_up; ++i) {
    if (i < shape.micro_batches) program.push_back(Compute(ActionKind::kForward, i));
    if (i >= warm_up) program.push_back(Compute(ActionKind::kBackward, i - warm_up));
  }
  return program;
}

/// Forwards of the interleaved schedule before the first backward.
int64_t InterleavedWarmUp(const PipelineShape& shape, int64_t stage) {
  return std::min((shape.pp - 1 - stage) * 2 + (shape.vp - 1) * shape.pp,
                  shape.micro_batches * shape.vp);
}

/// Narayanan et al., Megatron-LM, arXiv:2104.04473, section 2.2: as 1F1B over micro batches in
/// groups of pp, each group going through the chunks one after the other.
StageProgram Interleaved(const PipelineShape& shape, int64_t stage) {
  TRIMTAB_ASSERT(shape.micro_batches % shape.pp == 0, "{} micro batches in groups of {}",
                 shape.micro_batches, shape.pp);
  const auto pass = [&shape](ActionKind kind, int64_t index) {
    const int64_t group = index / (shape.pp * shape.vp);
    const int64_t within = index % (shape.pp * shape.vp);
    const int64_t chunk = within / shape.pp;
    return Compute(kind, group * shape.pp + within % shape.pp,
                   kind == ActionKind::kForward ? chunk : shape.vp - 1 - chunk);
  };
  const int64_t passes = shape.micro_batches * shape.vp;
  const int64_t warm_up = InterleavedWarmUp(shape, stage);
  StageProgram program;
  for (int64_t i = 0; i < passes + warm_up; ++i) {
    if (i < passes) program.push_back(pass(ActionKind::kForward, i));
    if (i >= warm_up) program.push_back(pass(ActionKind::kBackward, i - warm_up));
  }
  return program;
}

/// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.1): 1F1B whose
/// weight parts follow as many micro batches behind the input parts as there are stages before this
/// one; they fill the gaps of the end.
StageProgram ZeroBubbleH1(const PipelineShape& shape, int64_t stage) {
  const int64_t warm_up = WarmUp(shape, stage);
  const int64_t delay = warm_up + stage;
  StageProgram program;
  for (int64_t i = 0; i < shape.micro_batches + delay; ++i) {
    const int64_t input = i - warm_up;
    const int64_t weight = i - delay;
    if (i < shape.micro_batches) program.push_back(Compute(ActionKind::kForward, i));
    if (input >= 0 && input < shape.micro_batches) {
      program.push_back(Compute(ActionKind::kBackwardInput, input));
    }
    if (weight >= 0) program.push_back(Compute(ActionKind::kBackwardWeight, weight));
  }
  return program;
}

double StagesAhead(const PipelineShape& shape) { return static_cast<double>(shape.pp - 1); }

/// arXiv:2104.04473, section 2.2: the first micro batch passes the other stages, and so do the
/// gradients of the last.
double FillAndDrain(const PipelineShape& shape, const StageTimes& times) {
  return StagesAhead(shape) * times.total() / static_cast<double>(shape.vp);
}

/// arXiv:2401.10241, table 2, where weight parts are the shortest. No gap is filled by more than
/// the shortest of the three: the last stage begins after the forward passes of the others, and the
/// first one waits for their input parts with no weight part to do. With fewer micro batches than
/// stages, weight parts are missing that would fill the gaps.
double ZeroBubbleIdle(const PipelineShape& shape, const StageTimes& times) {
  const auto filled = static_cast<double>(std::min(shape.pp, shape.micro_batches) - 1);
  const double fills = std::min({times.forward, times.backward_input, times.backward_weight});
  return StagesAhead(shape) * (times.forward + times.backward_input) - filled * fills;
}

RoundTrip ThereAndBack(const StageTimes& all, const StageTimes& /*first_stage*/) {
  return {.passes = all.total()};
}

RoundTrip ThereAndBackWithoutWeights(const StageTimes& all, const StageTimes& first_stage) {
  const double beside = all.backward_weight - first_stage.backward_weight;
  return {.passes = all.total() - beside, .beside = beside};
}

constexpr ScheduleRow kSchedules[] = {
    {Schedule::k1F1B, OneForwardOneBackward,
     [](const PipelineShape& shape, int64_t stage) {
       return std::min(shape.pp - stage, shape.micro_batches);
     },
     FillAndDrain, ThereAndBack},
    {Schedule::kGpipe, Gpipe,
     [](const PipelineShape& shape, int64_t /*stage*/) { return shape.micro_batches; },
     FillAndDrain, nullptr},
    {Schedule::kInterleaved1F1B, Interleaved,
     [](const PipelineShape& shape, int64_t stage) {
       return std::min(InterleavedWarmUp(shape, stage) + 1, shape.micro_batches * shape.vp);
     },
     FillAndDrain, nullptr},
    {Schedule::kZeroBubble, ZeroBubbleH1,
     // On every stage what 1F1B has on the first.
     [](const PipelineShape& shape, int64_t /*stage*/) {
       return std::min(shape.pp, shape.micro_batches);
     },
     ZeroBubbleIdle, ThereAndBackWithoutWeights},
};

}  // namespace

StageTimes MeanOfOthers(const StageTimes& all, const StageTimes& own, int64_t pp) {
  TRIMTAB_ASSERT(pp > 1, "{} stage has no others", pp);
  const auto others = static_cast<double>(pp - 1);
  return {(all.forward - own.forward) / others, (all.backward_input - own.backward_input) / others,
          (all.backward_weight - own.backward_weight) / others};
}

std::span<const ScheduleRow> Schedules() { return kSchedules; }

const ScheduleRow& RowOf(Schedule schedule) {
  const auto* row =
      std::find_if(std::begin(kSchedules), std::end(kSchedules),
                   [schedule](const ScheduleRow& each) { return each.schedule == schedule; });
  TRIMTAB_ASSERT(row != std::end(kSchedules), "{} has no row", Name(schedule));
  return *row;
}

}  // namespace trimtab
