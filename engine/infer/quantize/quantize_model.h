// Rounding a model to fewer bits, once and for all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

struct QuantizeOptions {
  WeightFormat weights = WeightFormat::kInt4;  // fp8, int8 or int4
  /// A text by which columns of int4 are scaled before they are rounded; empty = they are not.
  std::span<const int32_t> calibration{};
  int threads = 1;
  /// Told of every parameter that is written; may throw.
  std::function<void(int64_t done, int64_t all)> progress{};
};

struct QuantizeSummary {
  int64_t matrices = 0;  // parameters that were rounded
  int64_t scaled = 0;    // of these, whose columns were scaled
  int64_t tensor_bytes = 0;
};

/// Writes the model of `source` into `directory`, which is there (quantized_weights.h). Experts are
/// rounded as they are; the projections that serving absorbs into latent attention stay fp32.
/// Throws InfeasibleError, StorageError.
QuantizeSummary QuantizeModel(const WeightSource& source, const QuantizeOptions& options,
                              const std::string& directory);

}  // namespace trimtab
