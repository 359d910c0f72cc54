#include "tests/engine/schedule/stage_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace trimtab {
namespace {

constexpr double kUnknown = -1;

struct Sent {
  Action action;
  double submitted = 0;
  double done = kUnknown;
  bool awaited = false;
};

struct Stage {
  const StageProgram* program = nullptr;
  size_t next = 0;
  double now = 0;
  std::vector<Sent> stream{};  // in the order of submission
  size_t on_the_way = 0;       // index of the first in `stream` that is not done
  double stream_free = 0;

  bool finished() const { return next == program->size(); }
};

/// The receive whose data a compute action takes; false when it takes none.
bool Takes(const Action& compute, const Action& message) {
  const ActionKind kind = compute.kind == ActionKind::kForward ? ActionKind::kRecvActivation
                                                               : ActionKind::kRecvGradient;
  return compute.kind != ActionKind::kBackwardWeight && message.kind == kind &&
         message.chunk == compute.chunk && message.micro_batch == compute.micro_batch;
}

bool Match(const Action& send, const Action& recv) {
  const ActionKind kind = send.kind == ActionKind::kSendActivation ? ActionKind::kRecvActivation
                                                                   : ActionKind::kRecvGradient;
  return IsSend(send.kind) && recv.kind == kind && send.micro_batch == recv.micro_batch;
}

class Execution {
 public:
  Execution(const std::vector<StageProgram>& programs, const PipelineShape& shape,
            const StageTimes& times)
      : times_(times), chunks_(static_cast<double>(shape.vp)) {
    for (const StageProgram& program : programs) stages_.push_back({.program = &program});
  }

  PipelineRun Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (Stage& stage : stages_) progress |= Advance(stage);
      for (size_t i = 0; i < stages_.size(); ++i) progress |= Transfer(i);
    }
    PipelineRun run;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const Stage& stage = stages_[i];
      run.end = std::max(run.end, stage.now);
      if (stage.finished() && stage.on_the_way == stage.stream.size()) continue;
      const Action at = stage.finished() ? Action{} : (*stage.program)[stage.next];
      run.stuck += fmt::format("stage {} at {} {} of chunk {}; ", i, Name(at.kind), at.micro_batch,
                               at.chunk);
    }
    return run;
  }

 private:
  double TimeOf(ActionKind kind) const {
    switch (kind) {
      case ActionKind::kForward:
        return times_.forward / chunks_;
      case ActionKind::kBackwardInput:
        return times_.backward_input / chunks_;
      case ActionKind::kBackwardWeight:
        return times_.backward_weight / chunks_;
      default:
        return (times_.backward_input + times_.backward_weight) / chunks_;
    }
  }

  bool Advance(Stage& stage) {
    const size_t first = stage.next;
    for (; !stage.finished(); ++stage.next) {
      const Action& action = (*stage.program)[stage.next];
      if (!IsCompute(action.kind)) {
        stage.stream.push_back({.action = action, .submitted = stage.now});
      } else if (!Compute(stage, action)) {
        break;
      }
    }
    return stage.next > first;
  }

  /// False while a message that the action waits for is on the way.
  bool Compute(Stage& stage, const Action& action) {
    double start = stage.now;
    double sent = 0;
    for (Sent& message : stage.stream) {
      const bool takes = Takes(action, message.action);
      const bool send = IsSend(message.action.kind) && !message.awaited;
      if ((takes || send) && message.done == kUnknown) return false;
      if (takes) start = std::max(start, message.done);
      if (send) sent = std::max(sent, message.done);
    }
    for (Sent& message : stage.stream) message.awaited |= IsSend(message.action.kind);
    stage.now = std::max(start + TimeOf(action.kind), sent);
    return true;
  }

  /// Completes the first message of stage `index` when it is the first of its peer too.
  bool Transfer(size_t index) {
    Stage& stage = stages_[index];
    if (stage.on_the_way == stage.stream.size()) return false;
    Sent& send = stage.stream[stage.on_the_way];
    if (!IsSend(send.action.kind)) return false;
    Stage& peer = stages_[static_cast<size_t>(send.action.peer)];
    if (peer.on_the_way == peer.stream.size()) return false;
    Sent& recv = peer.stream[peer.on_the_way];
    if (recv.action.peer != static_cast<int>(index) || !Match(send.action, recv.action)) {
      return false;
    }
    const double done =
        std::max({send.submitted, recv.submitted, stage.stream_free, peer.stream_free});
    send.done = recv.done = stage.stream_free = peer.stream_free = done;
    ++stage.on_the_way;
    ++peer.on_the_way;
    return true;
  }

  StageTimes times_;
  double chunks_;
  std::vector<Stage> stages_;
};

}  // namespace

PipelineRun RunPipeline(const std::vector<StageProgram>& programs, const PipelineShape& shape,
                        const StageTimes& times) {
  return Execution(programs, shape, times).Run();
}

}  // namespace trimtab
