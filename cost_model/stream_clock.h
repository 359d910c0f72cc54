// StreamClock: when the ops and messages of one rank begin and end. Ops run one after the other;
// messages run on a stream of their group, beside them where the device does that, until they are
// waited for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost_model/time_span.h"
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
  double Beside(double seconds) const { return BesideStreams(seconds, /*earlier=*/false); }
  /// The same of messages of an earlier step.
  double BesideEarlier(double seconds) const { return BesideStreams(seconds, /*earlier=*/true); }
  /// What was submitted until now is of an earlier step.
  void BeginStep() { earlier_s_ = free_s_; }
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

  /// When each stream has nothing on its way any more: by group, receives apart.
  using Streams = std::array<std::array<double, 2>, kGroupKindCount>;

  double BesideStreams(double seconds, bool earlier) const;
  std::vector<UnderWay>::const_iterator Find(const CommRecord& message) const;

  bool overlaps_;
  double now_s_ = 0;
  Streams free_s_{};
  Streams earlier_s_{};  // by messages of an earlier step
  std::vector<UnderWay> under_way_;
};

}  // namespace trimtab
