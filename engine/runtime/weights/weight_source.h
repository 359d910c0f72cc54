// Where the weights of a model come from, for training and for serving.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace trimtab {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual const ModelConfig& model() const = 0;
  /// Fills the slice's weights; what is padding there stays. Safe from several threads.
  virtual void Read(const TensorSlice& slice) const = 0;
  /// What the model keeps beside its parameters, by name.
  virtual const std::map<std::string, std::vector<float>>& buffers() const = 0;
  /// What the source stores what is multiplied in.
  virtual WeightFormat format() const { return WeightFormat::kF32; }
  /// What the inputs of a parameter's matrix are multiplied by first [full columns], where `Read`
  /// gives its columns divided by the same; empty where it gives them as they are.
  virtual std::vector<float> InputScales(const ParameterSpec& /*spec*/) const { return {}; }
  /// Prefix of the dataset that the model was trained on; empty where that is not known.
  virtual std::string data() const { return {}; }
};

/// Throws InputError unless all `values` of the parameter are finite: of others no scale can be
/// chosen, and rounding would hide them.
void RequireFinite(const ParameterSpec& spec, std::span<const float> values);

/// A checkpoint of a training run, or what `trimtab quantize` wrote. Throws StorageError (a damaged
/// checkpoint), InputError.
std::unique_ptr<WeightSource> OpenCheckpointWeights(const std::string& directory);

/// The safetensors of a Hugging Face folder, which hold `model`. Throws InputError.
std::unique_ptr<WeightSource> OpenHuggingFaceWeights(const std::string& directory,
                                                     const ModelConfig& model);

}  // namespace trimtab
