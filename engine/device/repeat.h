// Work that is the same several times in a row: a listener that only counts need not hear each.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/device/device.h"

namespace trimtab {

/// A listener that has enough of hearing once what is done several times.
class RepeatRecorder : public Recorder {
 public:
  /// What follows, up to EndRepeated, is done `times` (>= 1) times in a row.
  virtual void BeginRepeated(int64_t times) = 0;
  virtual void EndRepeated() = 0;
};

/// Does `work(i)` for i from 0 to `times` - 1, which all report the same but for the ids of
/// messages and leave the same memory in use: on a meta device that a RepeatRecorder listens to,
/// the first only. Not nested.
void Repeat(Device& device, int64_t times, const std::function<void(int64_t)>& work);

}  // namespace trimtab
