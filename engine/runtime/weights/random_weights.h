// Weights that nobody trained, for whom only the time and memory of serving matter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

/// What a model keeps beside its parameters, as before its first step: zeros, by name.
std::map<std::string, std::vector<float>> FirstBuffers(const ModelConfig& model);

class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(ModelConfig model)
      : model_(std::move(model)), buffers_(FirstBuffers(model_)) {}

  const ModelConfig& model() const override { return model_; }
  /// Numbers of the size that initial weights have, the same for the same place in a tensor.
  void Read(const TensorSlice& slice) const override;
  const std::map<std::string, std::vector<float>>& buffers() const override { return buffers_; }

 private:
  ModelConfig model_;
  std::map<std::string, std::vector<float>> buffers_;
};

}  // namespace trimtab
