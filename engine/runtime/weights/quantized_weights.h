// Weights in few bits, in a folder that any layout serves from:
//
//   quantized.json        {"schema_version": 3, "weights": "int4", "model": {...},
//                         "header_xxh64": "...", "checksums_xxh64": "...", "buffers": {...}}
//                         XXH64 of the header of weights.safetensors, and of weights.checksums;
//                         version 2 has "weights_xxh64", of all of weights.safetensors, instead
//   weights.checksums     of each tile of weights.safetensors (engine/checkpoint/tile_sums.h)
//   weights.safetensors   of each parameter NAME, whole and without padding, either NAME in fp32
//                         or, where tokens are multiplied by it, its numbers NAME, of int8, fp8
//                         (e4m3)
//                         or int4 (two columns to a byte, the first one in the lower half), their
//                         scales NAME.scales [rows, groups] in fp32, and, where columns were
//                         scaled too, NAME.input_scales [columns]
//   and the tokenizer's files
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

/// Whether the folder is one of these.
bool IsQuantized(const std::string& directory);

/// Whether a parameter's numbers are rounded: what tokens are multiplied by, but for routers and
/// gates, and for what serving transposes and rounds itself.
bool IsQuantized(const ParameterSpec& spec);

class QuantizedWeights final : public WeightSource {
 public:
  /// Throws InputError, also for headers and checksums that are not those that were written.
  explicit QuantizedWeights(const std::string& directory);

  const ModelConfig& model() const override { return model_; }
  /// Throws StorageError for weights that are not those that were written.
  void Read(const TensorSlice& slice) const override;
  const std::map<std::string, std::vector<float>>& buffers() const override { return buffers_; }
  WeightFormat format() const override { return format_; }
  std::vector<float> InputScales(const ParameterSpec& spec) const override;

 private:
  /// Throws InputError when the tensor is another.
  void RequireShape(const SafetensorsEntry& entry, DType dtype,
                    const std::vector<int64_t>& shape) const;
  /// Compares the headers, and readies the checks of what is read; `whole` is the checksum of the
  /// whole file in folders of version 2, where all of it is compared at once.
  void RequireUndamaged(const std::string& whole, const std::string& header,
                        const std::string& checksums);
  /// Elements [full, full + values.size()) of the whole parameter.
  void ReadRun(const ParameterSpec& spec, int64_t full, std::span<float> values) const;

  SafetensorsReader file_;
  WeightFormat format_ = WeightFormat::kInt8;
  ModelConfig model_;
  std::map<std::string, std::vector<float>> buffers_;
};

/// Writes such a folder, parameter by parameter.
class QuantizedWriter {
 public:
  /// Room for `specs`, whole parameters, in `directory`, which is there. `scaled` are the names of
  /// those that will have input scales. Throws StorageError.
  QuantizedWriter(const std::string& directory, WeightFormat format, const WeightSource& source,
                  std::span<const ParameterSpec* const> specs,
                  const std::vector<std::string>& scaled);

  /// Every parameter once; `values` are whole, their columns divided by `input_scales`.
  void Write(const ParameterSpec& spec, std::span<const float> values,
             std::span<const float> input_scales);
  /// Flushes to the disk. Returns the bytes of all tensors.
  int64_t Finish();

 private:
  std::string directory_;
  WeightFormat format_;
  nlohmann::json header_;
  std::unique_ptr<SafetensorsWriter> file_;
  int64_t bytes_ = 0;
};

}  // namespace trimtab
