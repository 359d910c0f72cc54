// PricingRecorder: listens to one rank's step on the meta device and puts what it reports on
// streams, op by op, with prices for seconds.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/dry_run/timeline.h"
#include "cost_model/prices/price.h"
#include "cost_model/recordings/stream_clock.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {

class PricingRecorder final : public Recorder {
 public:
  /// `kinds`: of each action of the rank's pipeline program, from 0 on: what those of one kind do
  /// is added up. Both references must outlive this.
  PricingRecorder(const Pricer& pricer, const ParallelConfig& layout, std::vector<size_t> kinds,
                  bool with_timeline);

  void EnterAction(int64_t index) override;
  void EnterPiece(const PieceRecord& piece) override;
  void BeginOp(const OpRecord& op) override;
  void BeginComm(const CommRecord& message) override;
  void BeginWait(const CommRecord& message) override;
  void End() override {}
  /// Call at the end of the step.
  void Close();
  /// Forgets the step, but for what it has left under way.
  void BeginNextStep();

  /// FLOPs, ops, messages and the parts of the step that are this rank's own: by kind of action;
  /// what comes after the last action comes last.
  const std::vector<Estimate>& estimates() const { return estimates_; }
  const StageSeconds& seconds() const { return seconds_; }
  /// By action, from its start; what comes after the last one comes last. Empty unless asked for.
  const std::vector<std::vector<TimelineEvent>>& events() const { return events_; }

 private:
  /// Of what goes on.
  Estimate& estimate() {
    return action_ < kinds_.size() ? estimates_[kinds_[action_]] : estimates_.back();
  }
  bool recomputes() const { return piece_.pass == PassKind::kRecompute; }
  void ClosePiece();
  /// Waits until the host has launched the layers passed since it was last waited for.
  void WaitForHost();
  /// Adds what messages beside passes take all the same: what the stack does not hide of them, and
  /// what ops lose beside those that are early. That is at the end of the step: no pass becomes
  /// longer, and so no other stage waits for them.
  void WaitForLate();
  /// Ops take so much longer.
  void SlowOps(double seconds);
  /// Forward passes that launching a piece of a layer counts as.
  double LaunchesOf(const PieceRecord& layer);
  /// Of a data-parallel message beside passes, the share that is exposed all the same.
  double ShareExposed(const CommRecord& message) const;
  /// Seconds waited for a message of `group`.
  void AddWait(GroupKind group, const TimeSpan& span, const std::string& name);
  void AddEvent(const std::string& name, const std::string& stream, const TimeSpan& span);

  const Pricer& pricer_;
  const ParallelConfig& layout_;
  bool with_timeline_;
  StreamClock clock_;
  std::vector<size_t> kinds_;  // by action
  std::vector<Estimate> estimates_;
  StageSeconds seconds_;
  std::vector<std::vector<TimelineEvent>> events_;
  PieceRecord piece_;
  double piece_start_s_ = 0;
  Launches launches_;            // of the layers that the host has not been waited for
  double launched_s_ = 0;        // what they took the device
  int64_t backward_layer_ = -1;  // whose backward pass is counted among them
  double step_start_s_ = 0;
  std::unordered_set<int64_t> early_;   // messages that were under way then
  std::map<GroupKind, double> late_s_;  // still to be waited for at the end
  double late_ops_s_ = 0;               // likewise, of ops
  size_t action_ = 0;
  double action_start_s_ = 0;
  bool open_ = false;  // the piece at events_[action_][piece_event_] has no end yet
  size_t piece_event_ = 0;
};

}  // namespace trimtab
