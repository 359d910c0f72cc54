#include "engine/schedule/pipeline.h"

#include <algorithm>
#include <tuple>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// Of the clock that orders messages: a forward pass, and the way of a message in an interleaved
// schedule. Its stages have time to spare: once messages take some, each stage is soon ahead of
// what its neighbours wait for, and asks for its inputs before it needs them. Other schedules have
// none to spare; there, messages that are ready at once are to stay so.
constexpr int64_t kForwardTime = 8;
constexpr int64_t kMessageTime = 1;

int64_t TimeOf(ActionKind kind) {
  return kind == ActionKind::kBackward ? 2 * kForwardTime : kForwardTime;
}

/// One pass of a micro batch through a chunk: when it ends, and where in its stage's program it is.
struct Pass {
  int64_t end = -1;  // -1: not yet
  int64_t index = 0;
};

/// Runs the compute actions of all stages against each other.
class Clock {
 public:
  Clock(const PipelineShape& shape, const std::vector<StageProgram>& compute)
      : shape_(shape),
        compute_(compute),
        forward_(static_cast<size_t>(shape.pp * shape.vp * shape.micro_batches)),
        backward_(forward_.size()),
        next_(compute.size()),
        free_at_(compute.size()) {
    size_t left = 0;
    for (const StageProgram& program : compute) left += program.size();
    const auto stages = static_cast<int64_t>(compute.size());
    while (left > 0) {
      const size_t before = left;
      // Forwards travel up the stages and backwards down: sweeping both ways follows both.
      for (int64_t stage = 0; stage < stages; ++stage) left -= RunReady(stage);
      for (int64_t stage = stages; stage-- > 0;) left -= RunReady(stage);
      TRIMTAB_ASSERT(left < before, "the stages of the schedule wait for each other");
    }
  }

  /// The forward or backward pass (its input part, where it has two) of `micro_batch` through
  /// number `chunk` of all chunks.
  const Pass& forward(int64_t chunk, int64_t micro_batch) const {
    return forward_[Index(chunk, micro_batch)];
  }
  const Pass& backward(int64_t chunk, int64_t micro_batch) const {
    return backward_[Index(chunk, micro_batch)];
  }

 private:
  size_t Index(int64_t chunk, int64_t micro_batch) const {
    return static_cast<size_t>(chunk * shape_.micro_batches + micro_batch);
  }

  /// When what `action` needs is there; -1 when it is not yet known.
  int64_t ReadyAt(const Action& action, int64_t chunk) const {
    const int64_t m = action.micro_batch;
    if (action.kind == ActionKind::kForward) return chunk == 0 ? 0 : Arrival(forward(chunk - 1, m));
    const bool last = chunk + 1 == shape_.pp * shape_.vp;
    const bool weight = action.kind == ActionKind::kBackwardWeight;
    const int64_t own = weight ? backward(chunk, m).end : forward(chunk, m).end;
    if (last || weight || own < 0) return own;
    const int64_t gradient = Arrival(backward(chunk + 1, m));
    return gradient < 0 ? gradient : std::max(own, gradient);
  }

  /// Of the message with what `pass` made; -1 when that is not yet known.
  int64_t Arrival(const Pass& pass) const {
    return pass.end < 0 || shape_.vp == 1 ? pass.end : pass.end + kMessageTime;
  }

  /// Runs `stage` as far as it can; how many actions that was.
  size_t RunReady(int64_t stage) {
    const StageProgram& program = compute_[static_cast<size_t>(stage)];
    size_t& next = next_[static_cast<size_t>(stage)];
    int64_t& free_at = free_at_[static_cast<size_t>(stage)];
    const size_t first = next;
    for (; next < program.size(); ++next) {
      const Action& action = program[next];
      const int64_t chunk = action.chunk * shape_.pp + stage;
      const int64_t ready = ReadyAt(action, chunk);
      if (ready < 0) break;
      free_at = std::max(free_at, ready) + TimeOf(action.kind);
      if (action.kind == ActionKind::kBackwardWeight) continue;
      std::vector<Pass>& passes = action.kind == ActionKind::kForward ? forward_ : backward_;
      passes[Index(chunk, action.micro_batch)] = {free_at, static_cast<int64_t>(next)};
    }
    return next - first;
  }

  const PipelineShape& shape_;
  const std::vector<StageProgram>& compute_;
  std::vector<Pass> forward_;
  std::vector<Pass> backward_;
  std::vector<size_t> next_;      // by stage: its next action
  std::vector<int64_t> free_at_;  // by stage
};

struct Message {
  int64_t ready = 0;
  bool gradient = false;
  int64_t micro_batch = 0;
  int64_t from = 0;      // number of the chunk, of all chunks
  int64_t to = 0;        //
  int64_t producer = 0;  // index in the program of the sender's stage
  int64_t consumer = 0;  // index in the program of the receiver's stage
};

/// Every message of the pipeline, in the order of all stages.
std::vector<Message> OrderMessages(const PipelineShape& shape, const Clock& clock) {
  std::vector<Message> messages;
  for (int64_t chunk = 0; chunk + 1 < shape.pp * shape.vp; ++chunk) {
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      const Pass& forward = clock.forward(chunk, m);
      messages.push_back({forward.end, false, m, chunk, chunk + 1, forward.index,
                          clock.forward(chunk + 1, m).index});
      const Pass& backward = clock.backward(chunk + 1, m);
      messages.push_back({backward.end, true, m, chunk + 1, chunk, backward.index,
                          clock.backward(chunk, m).index});
    }
  }
  // Where several are ready at once, those that start nearer to where data come from: a stage can
  // then ask for its next input before it passes on its last result.
  const auto distance = [&shape](const Message& message) {
    const int64_t stage = message.from % shape.pp;
    return message.gradient ? shape.pp - stage : stage;
  };
  std::sort(messages.begin(), messages.end(), [&distance](const Message& a, const Message& b) {
    return std::tuple(a.ready, a.gradient, distance(a), a.from) <
           std::tuple(b.ready, b.gradient, distance(b), b.from);
  });
  return messages;
}

/// A message of one stage, to be submitted before the compute action of index `before`.
struct Placed {
  Action action;
  int64_t before = 0;
};

/// Moves receives so that the messages are submitted in the order in which they stand. Sends stay
/// right behind what makes their data.
void KeepOrder(std::vector<Placed>& messages) {
  for (size_t i = messages.size(); i-- > 1;) {
    if (IsSend(messages[i - 1].action.kind)) continue;
    messages[i - 1].before = std::min(messages[i - 1].before, messages[i].before);
  }
  for (size_t i = 1; i < messages.size(); ++i) {
    messages[i].before = std::max(messages[i].before, messages[i - 1].before);
  }
}

StageProgram Merge(const StageProgram& compute, const std::vector<Placed>& messages) {
  StageProgram program;
  program.reserve(compute.size() + messages.size());
  size_t message = 0;
  for (size_t i = 0; i <= compute.size(); ++i) {
    while (message < messages.size() && messages[message].before == static_cast<int64_t>(i)) {
      program.push_back(messages[message++].action);
    }
    if (i < compute.size()) program.push_back(compute[i]);
  }
  return program;
}

}  // namespace

std::vector<StageProgram> PlanPipeline(Schedule schedule, const PipelineShape& shape) {
  const ScheduleRow& row = RowOf(schedule);
  std::vector<StageProgram> programs;
  for (int64_t stage = 0; stage < shape.pp; ++stage) {
    programs.push_back(row.compute(shape, stage));
  }
  if (shape.pp == 1) return programs;
  const Clock clock(shape, programs);
  std::vector<std::vector<Placed>> messages(programs.size());
  for (const Message& message : OrderMessages(shape, clock)) {
    const auto half = [&](ActionKind activation, ActionKind gradient, int64_t at, int64_t peer) {
      return Action{.kind = message.gradient ? gradient : activation,
                    .chunk = static_cast<int32_t>(at / shape.pp),
                    .micro_batch = static_cast<int32_t>(message.micro_batch),
                    .peer = static_cast<int32_t>(peer % shape.pp)};
    };
    messages[static_cast<size_t>(message.from % shape.pp)].push_back(
        {half(ActionKind::kSendActivation, ActionKind::kSendGradient, message.from, message.to),
         message.producer + 1});
    messages[static_cast<size_t>(message.to % shape.pp)].push_back(
        {half(ActionKind::kRecvActivation, ActionKind::kRecvGradient, message.to, message.from),
         std::max<int64_t>(message.consumer - 1, 0)});
  }
  for (size_t stage = 0; stage < programs.size(); ++stage) {
    KeepOrder(messages[stage]);
    programs[stage] = Merge(programs[stage], messages[stage]);
  }
  return programs;
}

int64_t MicroBatchesInFlight(const StageProgram& program, int64_t chunk) {
  const bool split = std::any_of(program.begin(), program.end(), [](const Action& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
  const ActionKind last = split ? ActionKind::kBackwardWeight : ActionKind::kBackward;
  int64_t now = 0;
  int64_t most = 0;
  for (const Action& action : program) {
    if (action.chunk != chunk) continue;
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == last) --now;
  }
  return most;
}

}  // namespace trimtab
