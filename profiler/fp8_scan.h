// Fp8 scan: how far fp8 products stray from bf16 ones, layer by layer, on real data; and which
// layers had better stay in bf16.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

struct Fp8ScanOptions {
  int64_t steps = 4;  // training steps, >= 1
  /// Layers whose products stray further stay in bf16. Rounding alone, of values in the formats'
  /// range, comes to about 0.04 forward and 0.06 backward.
  double threshold = 0.1;
  int64_t rows = 256;  // of each operand that errors are taken over, a multiple of 16
  /// Called before each step: steps done, steps in all.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

/// Errors of one linear layer, each ||fp8 - bf16|| / ||bf16|| (Frobenius), the worst of all steps.
struct Fp8LayerErrors {
  std::string name;           // as in fp8.bf16_layers
  double input = 0;           // x in e4m3
  double weight = 0;          // W in e4m3
  double gradient = 0;        // dy in e5m2
  double output = 0;          // y = x W^T
  double input_gradient = 0;  // dx = dy W

  /// What decides.
  double worst_product() const { return output > input_gradient ? output : input_gradient; }
};

struct Fp8Scan {
  std::vector<Fp8LayerErrors> layers;  // in the order of the model
  Fp8Config proposed;                  // the run's, with the layers past the threshold in bf16
  double threshold = 0;
  int64_t steps = 0;
};

/// Trains `run`'s model in bf16 on one rank for a few steps, on its data, and quantises what every
/// linear layer multiplies in the first micro batch of each, with the run's kind of scaling: the
/// scales of delayed scaling come from the steps before. Layers that the run keeps in bf16 are
/// scanned like all others.
/// Throws InfeasibleError (the model cannot run in fp8), and as Measure does.
Fp8Scan ScanFp8(const RunConfig& run, const Fp8ScanOptions& options);

/// {"layers": [...], "fp8": what RUN.json takes, ...}
nlohmann::json ToJson(const Fp8Scan& scan);

}  // namespace trimtab
