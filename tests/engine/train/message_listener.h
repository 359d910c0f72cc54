// Watches the messages of a rank, and lets something happen in the middle of them. For tests.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "engine/config/run/run_config.h"
#include "engine/device/device.h"

namespace trimtab {

/// Calls `act` when the rank submits or waits for messages of `group` for the `nth` time, from 1.
/// Of the world group these are the barriers between steps, of which the rank tells by
/// BeforeBarrier.
class MessageListener final : public Recorder {
 public:
  MessageListener(GroupKind group, int64_t nth, std::function<void()> act)
      : group_(group), left_(nth), act_(std::move(act)) {}

  void BeginOp(const OpRecord&) override {}
  void BeginComm(const CommRecord& message) override { Note(message); }
  void BeginWait(const CommRecord& message) override { Note(message); }
  void End() override {}
  void BeforeBarrier() { Note({.kind = CollectiveKind::kBarrier, .group = GroupKind::kWorld}); }

 private:
  void Note(const CommRecord& message) {
    if (message.group == group_ && --left_ == 0) act_();
  }

  GroupKind group_;
  int64_t left_;
  std::function<void()> act_;
};

/// How often rank `rank` submits or waits for messages of each group in a step, the barrier behind
/// it included.
std::array<int64_t, kGroupKindCount> CountMessages(const RunConfig& run, int rank);

}  // namespace trimtab
