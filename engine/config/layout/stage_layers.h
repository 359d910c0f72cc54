// How many layers each model chunk of a pipeline holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace trimtab {

/// The layers of each model chunk, in the order of the model: of chunk c on pipeline rank p at
/// index c * pp + p. Empty: the engine balances them itself. A value of fixed size, so that layouts
/// stay trivially copyable.
class StageLayers {
 public:
  static constexpr int64_t kMaxChunks = 128;
  static constexpr int64_t kMaxLayersPerChunk = 255;

  StageLayers() = default;
  /// `layers`: at most kMaxChunks counts from 0 to kMaxLayersPerChunk.
  explicit StageLayers(std::span<const int64_t> layers);

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  int64_t operator[](int64_t chunk) const { return layers_[static_cast<size_t>(chunk)]; }
  /// Layers of all chunks.
  int64_t sum() const;

  bool operator==(const StageLayers&) const = default;

 private:
  uint8_t size_ = 0;
  std::array<uint8_t, kMaxChunks> layers_{};  // zero behind size_
};

/// "auto" when empty, else "7+8+8+7".
std::string ToString(const StageLayers& stages);
/// Inverse of ToString. Throws UsageError naming `what`.
StageLayers ParseStageLayers(const std::string& text, const std::string& what);

}  // namespace trimtab
