// Requests for engines that serve golden weights.
#pragma once

#include "engine/infer/api/request.h"
#include "tests/engine/infer/golden_weights.h"

namespace trimtab {

/// Request `index` of as many as one likes: sampled, and of lengths that differ.
inline GenerationRequest RequestOf(const GoldenWeights& weights, int64_t index) {
  const std::vector<int32_t> text = weights.Tokens(index % weights.sequences());
  GenerationRequest request;
  request.prompt = {text.begin(), text.begin() + 2 + index % 7};
  request.max_tokens = 3 + index % 9;
  request.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(index)};
  return request;
}

}  // namespace trimtab
