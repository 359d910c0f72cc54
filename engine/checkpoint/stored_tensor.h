// A tensor of a Hugging Face folder, read as floating point whatever it is stored in: as it is, or
// quantised in blocks that have a scale each, which are undone exactly as their formats say.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors_folder.h"

namespace trimtab {

enum class Quantisation {
  kNone,
  /// A matrix NAME [out, in] in e4m3 with NAME_scale_inv [out / rows, in / columns], rounded up:
  /// each block's values are those stored times its scale (DeepSeek-V3, arXiv:2412.19437, section
  /// 3.3; README_WEIGHTS.md of its repository).
  kFp8Blocks,
  /// NAME [E, in, out] as NAME_blocks [E, out, in / 32, 16], two values of e2m1 in a byte, the
  /// first in its lower half, with NAME_scales [E, out, in / 32], e8m0: 2^(scale - 127) times the
  /// value (OCP Microscaling Formats 1.0, sections 5.3.3 and 5.4.1; transformers'
  /// integrations/mxfp4.py).
  kMxfp4,
};

/// How the weights of a folder are quantised.
struct QuantisationConfig {
  Quantisation kind = Quantisation::kNone;
  int64_t block_rows = 0;  // of kFp8Blocks
  int64_t block_columns = 0;
};

/// What `quantization_config` of a config.json says; nothing without one. `where` prefixes
/// messages. Throws InputError: a format that we cannot read.
QuantisationConfig QuantisationOf(const nlohmann::json& config, const std::string& where);

class StoredTensor {
 public:
  /// The tensor of `shape` that the folder has under `name`, quantised as `config` says or not at
  /// all. The names of what it is made of go to `used`. Throws InputError naming file and tensor:
  /// another shape or type. It must be there: see Holds.
  StoredTensor(const SafetensorsFolder& folder, const QuantisationConfig& config,
               const std::string& name, const std::vector<int64_t>& shape,
               std::set<std::string>& used);

  /// Whether the folder has a tensor of the name, or what it is made of.
  static bool Holds(const SafetensorsFolder& folder, const QuantisationConfig& config,
                    const std::string& name);

  Quantisation quantisation() const { return kind_; }
  /// Reads element, element + stride, ... Safe from several threads.
  void Read(int64_t element, std::span<float> values, int64_t stride) const;

 private:
  void ReadMxfp4(int64_t element, std::span<float> values, int64_t stride) const;

  Quantisation kind_ = Quantisation::kNone;
  SafetensorsFolder::Tensor values_;
  SafetensorsFolder::Tensor scales_;
  // Of the matrix; of kMxfp4 of each expert's in NAME_blocks: out and in.
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t block_rows_ = 0;
  int64_t block_columns_ = 0;
};

}  // namespace trimtab
