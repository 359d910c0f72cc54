// Memory accounting: every byte a device hands out is counted under a tag, exactly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trimtab {

enum class MemoryTag : size_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,    // kept between Forward and Backward
  kWorkspace,      // everything that lives within one op or one layer
  kCommunication,  // buffers of collectives
  kKvCache,        // keys and values of sequences that are served
};
inline constexpr size_t kMemoryTagCount = 7;

/// "weights", "gradients", ...
std::string_view Name(MemoryTag tag);

/// Bytes per tag.
using BytesByTag = std::array<int64_t, kMemoryTagCount>;

/// Current and peak bytes of one device. Tags peak at different moments: `peak_by_tag` holds each
/// tag's own peak, `peak_total` the peak of the sum, `by_tag_at_peak` the split at that moment.
class MemoryTracker {
 public:
  /// Counts an allocation. Throws OutOfMemoryError if it would pass the limit (counts nothing
  /// then).
  void Add(int64_t bytes, MemoryTag tag);
  void Remove(int64_t bytes, MemoryTag tag);

  void set_limit_bytes(int64_t limit) { limit_bytes_ = limit; }  // 0 = none

  int64_t current_total() const { return current_total_; }
  int64_t peak_total() const { return peak_total_; }
  const BytesByTag& current_by_tag() const { return current_; }
  const BytesByTag& peak_by_tag() const { return peak_; }
  const BytesByTag& by_tag_at_peak() const { return at_peak_; }

  /// Forgets past peaks: peaks restart from what is allocated now.
  void ResetPeaks();

  /// While it lives, nothing is counted and no limit holds: for what measures a run and is not part
  /// of it. What is allocated under one must be freed under one.
  class Uncounted {
   public:
    explicit Uncounted(MemoryTracker& tracker) : tracker_(tracker) { ++tracker_.uncounted_; }
    ~Uncounted() { --tracker_.uncounted_; }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

   private:
    MemoryTracker& tracker_;
  };

 private:
  BytesByTag current_{};
  BytesByTag peak_{};
  BytesByTag at_peak_{};
  int64_t current_total_ = 0;
  int64_t peak_total_ = 0;
  int64_t limit_bytes_ = 0;
  int uncounted_ = 0;
};

}  // namespace trimtab
