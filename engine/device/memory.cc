#include "engine/device/memory.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {

std::string_view Name(MemoryTag tag) {
  static constexpr std::array<std::string_view, kMemoryTagCount> kNames = {
      "weights", "gradients", "optimizer", "activations", "workspace", "communication", "kv cache"};
  return kNames[static_cast<size_t>(tag)];
}

void MemoryTracker::Add(int64_t bytes, MemoryTag tag) {
  if (uncounted_ > 0) return;
  if (limit_bytes_ > 0 && current_total_ + bytes > limit_bytes_) {
    throw OutOfMemoryError(fmt::format(
        "out of memory: {} for {} on top of {} in use passes the limit of {} per rank",
        FormatBytes(bytes), Name(tag), FormatBytes(current_total_), FormatBytes(limit_bytes_)));
  }
  const auto index = static_cast<size_t>(tag);
  current_[index] += bytes;
  current_total_ += bytes;
  peak_[index] = std::max(peak_[index], current_[index]);
  if (current_total_ > peak_total_) {
    peak_total_ = current_total_;
    at_peak_ = current_;
  }
}

void MemoryTracker::Remove(int64_t bytes, MemoryTag tag) {
  if (uncounted_ > 0) return;
  const auto index = static_cast<size_t>(tag);
  current_[index] -= bytes;
  current_total_ -= bytes;
  TRIMTAB_ASSERT(current_[index] >= 0, "{} bytes of {} returned twice", bytes, Name(tag));
}

void MemoryTracker::ResetPeaks() {
  peak_ = current_;
  at_peak_ = current_;
  peak_total_ = current_total_;
}

}  // namespace trimtab
