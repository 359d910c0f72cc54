#include "cost_model/dry_run/timeline.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr double kNever = -1;

constexpr size_t kSender = 0;
constexpr size_t kReceiver = 1;

/// One message between two stages.
struct Message {
  size_t stage[2] = {0, 0};
  size_t action[2] = {0, 0};  // in the program of its stage
  double submitted_s[2] = {kNever, kNever};
  double start_s = kNever;
  double end_s = kNever;
};

class Simulation {
 public:
  Simulation(std::span<const StageProgram> programs, std::span<const StageSeconds> seconds)
      : programs_(programs),
        seconds_(seconds),
        states_(programs.size()),
        free_s_(programs.size() * programs.size()) {
    result_.stages.resize(programs.size());
    result_.waits.resize(programs.size());
    result_.weight_waits.resize(programs.size());
    for (size_t stage = 0; stage < programs.size(); ++stage) {
      TRIMTAB_ASSERT(seconds[stage].actions.size() == programs[stage].size(),
                     "stage {}: the seconds of {} actions, where its program has {}", stage,
                     seconds[stage].actions.size(), programs[stage].size());
      result_.slices.emplace_back(programs[stage].size());
      for (const Action& action : programs[stage]) {
        chunks_ = std::max(chunks_, static_cast<size_t>(action.chunk) + 1);
        micro_batches_ = std::max(micro_batches_, static_cast<size_t>(action.micro_batch) + 1);
      }
    }
    messages_.resize(2 * programs.size() * chunks_ * micro_batches_);
  }

  PipelineTimeline Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < programs_.size(); ++stage) {
        while (Advance(stage)) moved = true;
      }
    }
    for (size_t stage = 0; stage < programs_.size(); ++stage) {
      State& state = states_[stage];
      TRIMTAB_ASSERT(state.next == programs_[stage].size() && state.sends.empty(),
                     "the stages of the pipeline wait for each other");
      result_.stages[stage].end_s = state.now_s + seconds_[stage].end;
    }
    return std::move(result_);
  }

 private:
  /// Where a stage stands.
  struct State {
    size_t next = 0;  // in its program
    double now_s = 0;
    bool computed = false;              // the pass at `next` has run, its sends are to be awaited
    std::vector<bool> begun;            // by chunk: a backward pass has overwritten its gradients
    std::vector<const Message*> sends;  // submitted and not waited for
  };

  /// Activations are known by the chunk that receives them, gradients by the one that sends them:
  /// either way the later of the two.
  Message& MessageOf(size_t stage, const Action& action) {
    const bool gradient =
        action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kRecvGradient;
    const bool later_is_own =
        action.kind == ActionKind::kRecvActivation || action.kind == ActionKind::kSendGradient;
    auto later = static_cast<size_t>(action.chunk) * programs_.size() + stage;
    if (!later_is_own) ++later;
    const size_t kind = gradient ? 1 : 0;
    return messages_[(kind * programs_.size() * chunks_ + later) * micro_batches_ +
                     static_cast<size_t>(action.micro_batch)];
  }

  /// Whether stage `stage` got any further.
  bool Advance(size_t stage) {
    State& state = states_[stage];
    const StageProgram& program = programs_[stage];
    if (state.next == program.size()) return AwaitSends(stage);
    const Action& action = program[state.next];
    if (!IsCompute(action.kind)) {
      Submit(stage, action);
      ++state.next;
      return true;
    }
    if (!state.computed) return Compute(stage, action);
    if (!state.sends.empty() && !AwaitSends(stage)) return false;
    state.computed = false;
    ++state.next;
    return true;
  }

  void Submit(size_t stage, const Action& action) {
    State& state = states_[stage];
    Message& message = MessageOf(stage, action);
    const size_t end = IsSend(action.kind) ? kSender : kReceiver;
    message.stage[end] = stage;
    message.action[end] = state.next;
    message.submitted_s[end] = state.now_s;
    if (end == kSender) state.sends.push_back(&message);
    if (message.submitted_s[1 - end] != kNever) Start(message);
  }

  void Start(Message& message) {
    double& free_s = free_s_[message.stage[kSender] * programs_.size() + message.stage[kReceiver]];
    message.start_s =
        std::max({message.submitted_s[kSender], message.submitted_s[kReceiver], free_s});
    const auto way_s = [&](size_t end) {
      return seconds_[message.stage[end]].actions[message.action[end]];
    };
    message.end_s = free_s = message.start_s + std::max(way_s(kSender), way_s(kReceiver));
    for (const size_t end : {kSender, kReceiver}) {
      result_.slices[message.stage[end]][message.action[end]] = {message.start_s, message.end_s};
    }
  }

  /// Lets `stage` wait for `message`, which has an end.
  void Wait(size_t stage, const Message& message) {
    State& state = states_[stage];
    StageTimeline& times = result_.stages[stage];
    const double begun_s = std::max(state.now_s, message.start_s);
    const double done_s = std::max(state.now_s, message.end_s);
    times.bubble_s += begun_s - state.now_s;
    times.exposed_s += done_s - begun_s;
    if (done_s > state.now_s) result_.waits[stage].push_back({state.now_s, done_s});
    state.now_s = done_s;
  }

  void WaitForWeights(size_t stage, double until_s) {
    State& state = states_[stage];
    if (until_s <= state.now_s) return;
    result_.stages[stage].weights_s += until_s - state.now_s;
    result_.weight_waits[stage].push_back({state.now_s, until_s});
    state.now_s = until_s;
  }

  /// Waits for every send; false when the end of one is not known yet.
  bool AwaitSends(size_t stage) {
    State& state = states_[stage];
    if (state.sends.empty()) return false;
    for (const Message* message : state.sends) {
      if (message->end_s == kNever) return false;
    }
    for (const Message* message : state.sends) Wait(stage, *message);
    state.sends.clear();
    return true;
  }

  bool Compute(size_t stage, const Action& action) {
    State& state = states_[stage];
    const Message* input = InputOf(stage, action);
    if (input != nullptr) {
      if (input->end_s == kNever) return false;
      Wait(stage, *input);
    }
    if (!seconds_[stage].not_before.empty()) {
      WaitForWeights(stage, seconds_[stage].not_before[state.next]);
    }
    const double start_s = state.now_s;
    state.now_s += seconds_[stage].actions[state.next];
    result_.stages[stage].compute_s += state.now_s - start_s;
    result_.slices[stage][state.next] = {start_s, state.now_s};
    state.computed = true;
    return true;
  }

  /// The message that a pass takes its data from; nullptr at the ends of the model.
  const Message* InputOf(size_t stage, const Action& action) {
    const size_t number = static_cast<size_t>(action.chunk) * programs_.size() + stage;
    Action receive = action;
    if (action.kind == ActionKind::kForward) {
      receive.kind = ActionKind::kRecvActivation;
      return number == 0 ? nullptr : &MessageOf(stage, receive);
    }
    if (action.kind == ActionKind::kBackwardWeight) return nullptr;
    receive.kind = ActionKind::kRecvGradient;
    const bool last = number + 1 == programs_.size() * chunks_;
    return last ? nullptr : &MessageOf(stage, receive);
  }

  std::span<const StageProgram> programs_;
  std::span<const StageSeconds> seconds_;
  std::vector<State> states_;
  std::vector<double> free_s_;  // the ways from each stage to each
  std::vector<Message> messages_;
  size_t chunks_ = 1;
  size_t micro_batches_ = 1;
  PipelineTimeline result_;
};

}  // namespace

size_t PipelineTimeline::slowest() const {
  const auto later = [](const StageTimeline& a, const StageTimeline& b) {
    return a.end_s < b.end_s;
  };
  return static_cast<size_t>(std::max_element(stages.begin(), stages.end(), later) -
                             stages.begin());
}

PipelineTimeline RunPipeline(std::span<const StageProgram> programs,
                             std::span<const StageSeconds> seconds) {
  TRIMTAB_ASSERT(programs.size() == seconds.size() && !programs.empty(),
                 "{} programs and the seconds of {} stages", programs.size(), seconds.size());
  return Simulation(programs, seconds).Run();
}

}  // namespace trimtab
