// The tiny models of testdata/goldens, to be served: their weights, tokens, and the logits that
// PyTorch makes of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/infer/serving_config.h"
#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

class GoldenWeights final : public WeightSource {
 public:
  explicit GoldenWeights(const std::string& family);

  const ModelConfig& model() const override { return model_; }
  void Read(const TensorSlice& slice) const override;
  const std::map<std::string, std::vector<float>>& buffers() const override { return buffers_; }

  /// Sequence `index`, of sequence_length tokens.
  std::vector<int32_t> Tokens(int64_t index) const;
  /// Of its tokens [T, V].
  std::vector<float> Logits(int64_t index) const;
  int64_t sequences() const { return batch_; }
  int64_t sequence_length() const { return length_; }

 private:
  std::vector<float> Values(const std::string& name) const;

  SafetensorsReader file_;
  ModelConfig model_;
  int64_t batch_ = 0;
  int64_t length_ = 0;
  std::map<std::string, std::vector<float>> buffers_;
};

/// A resolved configuration for the golden model, on one cpu rank with one thread.
ServingConfig GoldenServing(const GoldenWeights& weights);

}  // namespace trimtab
