#include "cost_model/shared_cores.h"

#include <algorithm>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

class Simulation {
 public:
  Simulation(Schedule schedule, const PipelineShape& shape, std::span<const StageWork> stages)
      : shape_(shape), stages_(stages), states_(stages.size()) {
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      states_[stage].program = RowOf(schedule).compute(shape, static_cast<int64_t>(stage));
    }
    const auto passes = static_cast<size_t>(shape.pp * shape.vp * shape.micro_batches);
    forward_done_.resize(passes);
    backward_done_.resize(passes);
  }

  double Run(double crowding) {
    double now_s = 0;
    while (true) {
      std::vector<size_t> busy;
      for (size_t stage = 0; stage < states_.size(); ++stage) {
        if (Begin(stage)) busy.push_back(stage);
      }
      if (busy.empty()) break;
      const double speed = std::min(
          crowding, static_cast<double>(states_.size()) / static_cast<double>(busy.size()));
      double left_s = states_[busy.front()].left_s;
      for (const size_t stage : busy) left_s = std::min(left_s, states_[stage].left_s);
      now_s += left_s / speed;
      for (const size_t stage : busy) Progress(stage, left_s);
    }
    for (const State& state : states_) {
      TRIMTAB_ASSERT(state.next > state.program.size(), "the stages wait for each other");
    }
    return now_s;
  }

 private:
  struct State {
    StageProgram program;
    size_t next = 0;  // in the program; at its end what comes after it
    bool begun = false;
    double left_s = 0;
  };

  /// Whether `stage` has something to do now.
  bool Begin(size_t stage) {
    State& state = states_[stage];
    if (state.begun) return true;
    if (state.next > state.program.size()) return false;
    if (state.next == state.program.size()) {
      state.left_s = stages_[stage].end_s;
    } else {
      const Action& action = state.program[state.next];
      if (!HasData(stage, action)) return false;
      state.left_s = Seconds(stages_[stage].times, action.kind) / static_cast<double>(shape_.vp);
    }
    state.begun = true;
    return true;
  }

  void Progress(size_t stage, double seconds) {
    State& state = states_[stage];
    state.left_s -= seconds;
    // Equal ones end together, whatever their last digits.
    if (state.left_s > 1e-12 * seconds) return;
    if (state.next < state.program.size()) {
      const Action& action = state.program[state.next];
      if (action.kind == ActionKind::kForward) forward_done_[PassOf(stage, action, 0)] = true;
      if (GivesGradient(action.kind)) backward_done_[PassOf(stage, action, 0)] = true;
    }
    state.begun = false;
    ++state.next;
  }

  bool HasData(size_t stage, const Action& action) const {
    const int64_t chunk = ChunkOf(stage, action);
    if (action.kind == ActionKind::kForward) {
      return chunk == 0 || forward_done_[PassOf(stage, action, -1)];
    }
    const bool last = chunk + 1 == shape_.pp * shape_.vp;
    return !GivesGradient(action.kind) || last || backward_done_[PassOf(stage, action, 1)];
  }

  static bool GivesGradient(ActionKind kind) {
    return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
  }

  static double Seconds(const StageTimes& times, ActionKind kind) {
    if (kind == ActionKind::kForward) return times.forward;
    if (kind == ActionKind::kBackwardInput) return times.backward_input;
    if (kind == ActionKind::kBackwardWeight) return times.backward_weight;
    return times.backward_input + times.backward_weight;
  }

  /// The chunk of the model.
  int64_t ChunkOf(size_t stage, const Action& action) const {
    return action.chunk * shape_.pp + static_cast<int64_t>(stage);
  }
  /// The micro batch of `action` in the chunk that is so many further on.
  size_t PassOf(size_t stage, const Action& action, int64_t further) const {
    const int64_t chunk = ChunkOf(stage, action) + further;
    return static_cast<size_t>(chunk * shape_.micro_batches + action.micro_batch);
  }

  PipelineShape shape_;
  std::span<const StageWork> stages_;
  std::vector<State> states_;
  std::vector<bool> forward_done_;  // by chunk, then micro batch
  std::vector<bool> backward_done_;
};

}  // namespace

double Crowding(const RunConfig& run, const Cluster& cluster) {
  if (cluster.device != DeviceKind::kCpu) return 1;
  const Mode mode = ModeOf(run, cluster);
  return std::max(
      1.0, static_cast<double>(mode.ranks) * mode.threads / static_cast<double>(cluster.cores));
}

double SecondsOnSharedCores(Schedule schedule, const PipelineShape& shape,
                            std::span<const StageWork> stages, double crowding) {
  return Simulation(schedule, shape, stages).Run(crowding);
}

void FillTo(double seconds, Breakdown& parts) {
  const double busy_s = parts.total();
  if (seconds < busy_s) {
    Scale(parts, seconds / busy_s);
  } else {
    parts.bubble += seconds - busy_s;
  }
}

}  // namespace trimtab
