// A checkpoint's weights as a Hugging Face folder: config.json and safetensors files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/base/io/atomic_folder.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hugging_face_names.h"

namespace trimtab {

struct HuggingFaceOptions {
  DType dtype = DType::kF32;                // of the tensors: fp32, bf16 or fp16
  int64_t max_shard_bytes = 5'000'000'000;  // of the tensors in a file, where one alone is no more
};

/// What was written.
struct HuggingFaceSummary {
  std::string model_type{};
  std::vector<std::string> files{};  // with tensors
  int64_t tensors = 0;
  int64_t tensor_bytes = 0;
};

class HuggingFaceWriter {
 public:
  /// Makes room for `model` with all of its parameters and the buffers that belong to it, whole as
  /// `declared` has them, in `folder`. Its config.json gets the keys of `token_ids` too. Throws
  /// InputError when no Hugging Face model type describes the model, StorageError when there is no
  /// room.
  HuggingFaceWriter(const AtomicFolder& folder, const ModelConfig& model,
                    const ParameterStore& declared, const nlohmann::json& token_ids,
                    const HuggingFaceOptions& options);

  /// Copies all weights from the checkpoint, a bounded part at a time, and flushes the files.
  /// `progress` is told the bytes done now and then; it may throw.
  void Write(const CheckpointReader& from, const std::function<void(int64_t bytes)>& progress);

  const HuggingFaceSummary& summary() const { return summary_; }

 private:
  /// A piece of a parameter, or of a buffer, that is part of a tensor.
  struct Part {
    const ParameterSpec* parameter = nullptr;
    HuggingFacePiece piece;
  };
  struct Tensor {
    HuggingFaceTensor tensor;
    std::vector<Part> parts;
    size_t file = 0;
  };

  void AddParameter(const Family& family, const ModelConfig& model, const ParameterSpec& parameter);
  void MakeFiles(const std::string& directory, const HuggingFaceOptions& options);
  /// Reads what `part` has of the tensor's elements from `first` on into `values`.
  static void Read(const CheckpointReader& from, const Part& part, int64_t first,
                   std::span<float> values);

  std::vector<std::unique_ptr<ParameterSpec>> buffers_;  // as parameters
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t> by_name_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  HuggingFaceSummary summary_;
};

}  // namespace trimtab
