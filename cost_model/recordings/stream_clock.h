// StreamClock: when the ops and messages of one rank begin and end. Ops run one after the other;
// messages run on a stream of their group, beside them where the device does that, until they are
// waited for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost_model/recordings/time_span.h"
#include "engine/device/record.h"

namespace trimtab {

class StreamClock {
 public:
  /// `overlaps`: asynchronous messages run beside ops. On a cpu the rank's own thread carries them.
  explicit StreamClock(bool overlaps) : overlaps_(overlaps) {}

  /// Where the stream of ops stands.
  double now_s() const { return now_s_; }
  TimeSpan Compute(double seconds);
  /// Of an op that begins now and takes so long, the seconds in which any message is on its way.
  double Beside(double seconds) const;
  /// Those, beyond, in which only messages of an earlier step are.
  double BesideEarlier(double seconds) const;
  /// What was submitted until now is of an earlier step.
  void BeginStep();
  /// When a message that takes so long is on its way: behind the earlier ones of its group (sends
  /// and receives pass each other). Waits for it unless it is asynchronous.
  TimeSpan Submit(const CommRecord& message, double seconds);
  /// What was waited for an asynchronous message that was submitted here and not waited for yet.
  TimeSpan Wait(const CommRecord& message);
  /// Numbers of the messages that were not waited for yet.
  std::vector<int64_t> under_way() const;
  /// When a message that is under way comes.
  double EndOf(const CommRecord& message) const;
  /// What has happened since the clock stood as `before` happens `times` more times, and takes as
  /// long each time: messages that it leaves under way are those of the last time.
  void RepeatSince(const StreamClock& before, int64_t times);

 private:
  struct UnderWay {
    int64_t id = 0;
    double end_s = 0;
  };

  std::vector<UnderWay>::const_iterator Find(const CommRecord& message) const;

  bool overlaps_;
  double now_s_ = 0;
  std::array<std::array<double, 2>, kGroupKindCount> free_s_{};  // by group; receives apart
  // When nothing of this step, and of earlier ones, is on its way any more. Until then something
  // is: no stream has a gap between now and the end of what was submitted.
  double last_s_ = 0;
  double earlier_s_ = 0;
  std::vector<UnderWay> under_way_;
};

}  // namespace trimtab
