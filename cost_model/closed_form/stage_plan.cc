#include "cost_model/closed_form/stage_plan.h"

#include <algorithm>
#include <utility>

namespace trimtab {
namespace {

/// Memory in use on the way through a program.
struct MemoryWalk {
  int64_t now = 0;
  int64_t peak = 0;

  void Pass(const MemorySpan& span) {
    peak = std::max(peak, now + span.peak);
    now += span.change;
  }
  void Take(int64_t bytes) { Pass({bytes, bytes}); }
  void Give(int64_t bytes) { now -= bytes; }
};

/// Which way an action of a program goes through its chunk.
Way WayOf(const Action& action) {
  const bool first = action.micro_batch == 0;
  switch (action.kind) {
    case ActionKind::kForward:
      return first ? kForwardFirst : kForwardLater;
    case ActionKind::kBackwardInput:
      return first ? kInputSetting : kInputAdding;
    case ActionKind::kBackwardWeight:
      return first ? kWeightSetting : kWeightAdding;
    default:
      return first ? kBackwardSetting : kBackwardAdding;
  }
}

/// Follows the memory of a stage: what its passes take and keep, received messages from when they
/// are asked for, and sent ones until they have been waited for (see Action).
void FollowMemory(const StageProgram& program, const std::vector<const WayCosts*>& chunks,
                  const MessageRecording& messages, MemoryWalk& total, MemoryWalk& activations) {
  int64_t sent_total = 0;
  int64_t sent_activations = 0;
  for (const Action& action : program) {
    switch (action.kind) {
      case ActionKind::kRecvActivation:
        total.Take(messages.activation.bytes);
        activations.Take(messages.activation.bytes);
        break;
      case ActionKind::kRecvGradient:
        total.Take(messages.gradient.bytes);
        break;
      case ActionKind::kSendActivation:
        sent_total += messages.activation.bytes;
        sent_activations += messages.activation.bytes;
        break;
      case ActionKind::kSendGradient:
        sent_total += messages.gradient.bytes;
        break;
      default: {
        const PieceCost& pass = (*chunks[static_cast<size_t>(action.chunk)])[WayOf(action)];
        total.Pass(pass.total);
        activations.Pass(pass.activations);
        total.Give(std::exchange(sent_total, 0));
        activations.Give(std::exchange(sent_activations, 0));
      }
    }
  }
}

/// Counts the passes at both ends of a step of `micro_batches`.
void CountEnds(const StageProgram& program, size_t chunks, int64_t micro_batches, StagePlan& plan) {
  PassCounts all(chunks);
  plan.last_passes.resize(chunks);
  bool completes = false;
  for (Action action : program) {
    if (!IsCompute(action.kind)) continue;
    const bool first = action.micro_batch == 0;
    completes |=
        action.micro_batch + 1 == micro_batches &&
        (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight);
    action.micro_batch = std::min<int64_t>(1, micro_batches - 1);
    const auto chunk = static_cast<size_t>(action.chunk);
    ++all[chunk][WayOf(action)];
    if (first && action.kind == ActionKind::kForward) plan.first_passes = all;
    if (completes) ++plan.last_passes[chunk][WayOf(action)];
  }
}

std::vector<MessageCount> CountMessages(const StageProgram& program,
                                        const MessageRecording& messages) {
  std::vector<MessageCount> counts = {{CollectiveKind::kSend, GroupKind::kPipeline},
                                      {CollectiveKind::kRecv, GroupKind::kPipeline}};
  for (const Action& action : program) {
    if (IsCompute(action.kind)) continue;
    const bool activation =
        action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvActivation;
    MessageCount& count = counts[IsSend(action.kind) ? 0 : 1];
    ++count.count;
    count.bytes += (activation ? messages.activation : messages.gradient).bytes;
  }
  return counts;
}

}  // namespace

int64_t ShownMicroBatches(Schedule schedule, const PipelineShape& shape) {
  const int64_t all = shape.micro_batches;
  // Without a pipeline all micro batches but the first hold the same memory.
  if (shape.pp == 1) return std::min<int64_t>(all, 2);
  // As many again drain the pipeline as fill it.
  return std::min(all, 2 * MicroBatchesThatFill(schedule, shape));
}

int64_t MicroBatchesThatFill(Schedule schedule, const PipelineShape& shape) {
  if (schedule == Schedule::kGpipe) return shape.micro_batches;
  // Interleaved, chunks take turns: each a round of as many as there are stages.
  const int64_t rounds = shape.vp > 1 ? 2 : 1;
  return std::min(shape.micro_batches, rounds * shape.pp);
}

StagePlan PlanStage(const StageProgram& program, const std::vector<const WayCosts*>& chunks,
                    const MessageRecording& messages, int64_t micro_batches, int64_t held) {
  StagePlan plan;
  plan.messages = CountMessages(program, messages);
  CountEnds(program, chunks.size(), micro_batches, plan);
  MemoryWalk total;
  MemoryWalk activations;
  total.Take(held);
  activations.Take(held);
  FollowMemory(program, chunks, messages, total, activations);
  plan.held = held;
  plan.total_peak = total.peak;
  plan.activations_peak = activations.peak;
  return plan;
}

double SecondsOf(const PassCounts& passes, const std::vector<const WayCosts*>& chunks) {
  double sum = 0;
  for (size_t chunk = 0; chunk < passes.size(); ++chunk) {
    for (size_t way = 0; way < kWayCount; ++way) {
      if (passes[chunk][way] == 0) continue;
      sum += static_cast<double>(passes[chunk][way]) * (*chunks[chunk])[way].seconds();
    }
  }
  return sum;
}

}  // namespace trimtab
