#include "engine/config/layout/stage_layers.h"

#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"

namespace trimtab {

StageLayers::StageLayers(std::span<const int64_t> layers)
    : size_(static_cast<uint8_t>(layers.size())) {
  TRIMTAB_ASSERT(static_cast<int64_t>(layers.size()) <= kMaxChunks, "{} chunks", layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    TRIMTAB_ASSERT(layers[i] >= 0 && layers[i] <= kMaxLayersPerChunk, "{} layers", layers[i]);
    layers_[i] = static_cast<uint8_t>(layers[i]);
  }
}

int64_t StageLayers::sum() const {
  return std::accumulate(layers_.begin(), layers_.end(), int64_t{0});
}

std::string ToString(const StageLayers& stages) {
  if (stages.empty()) return "auto";
  std::string text = std::to_string(stages[0]);
  for (int64_t i = 1; i < stages.size(); ++i) text += fmt::format("+{}", stages[i]);
  return text;
}

StageLayers ParseStageLayers(const std::string& text, const std::string& what) {
  if (text == "auto") return {};
  std::vector<int64_t> layers;
  bool counts = true;
  for (const std::string& part : Split(text, '+')) {
    int64_t& count = layers.emplace_back(-1);
    counts = counts && ParseInteger(part, count) && count >= 0 &&
             count <= StageLayers::kMaxLayersPerChunk;
  }
  if (!counts || static_cast<int64_t>(layers.size()) > StageLayers::kMaxChunks) {
    throw UsageError(
        fmt::format("{}: expected auto, or the layers of at most {} chunks, each 0 to {}, as "
                    "7+8+8+7, got '{}'",
                    what, StageLayers::kMaxChunks, StageLayers::kMaxLayersPerChunk, text));
  }
  return StageLayers(layers);
}

}  // namespace trimtab
