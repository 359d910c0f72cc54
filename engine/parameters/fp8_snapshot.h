// What fp8 training must remember to go on with the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trimtab {

/// The scales of delayed scaling: of the whole model, or of the layers of one rank. Empty: there is
/// no history.
struct Fp8Snapshot {
  std::vector<std::string> layers{};  // S = 2 per layer: its input, the gradient of its output
  int64_t history = 0;                // steps
  std::vector<float> amax{};          // [history, S]
  std::vector<float> scale{};         // [S]
  std::vector<float> inverse{};       // [S]
};

}  // namespace trimtab
