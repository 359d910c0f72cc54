#include "engine/runtime/weights/weight_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/runtime/weights/quantized_weights.h"
#include "engine/runtime/whole_model.h"

namespace trimtab {
namespace {

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const std::string& directory)
      : reader_(directory, CheckpointParts::kWeights) {}

  const ModelConfig& model() const override { return reader_.header().run.model; }
  void Read(const TensorSlice& slice) const override { reader_.Read(kWeightSlot, slice); }
  const std::map<std::string, std::vector<float>>& buffers() const override {
    return reader_.header().buffers;
  }
  std::string data() const override { return reader_.header().run.data; }

 private:
  CheckpointReader reader_;
};

class HuggingFaceWeights final : public WeightSource {
 public:
  HuggingFaceWeights(const std::string& directory, const ModelConfig& model)
      : HuggingFaceWeights(directory, model, DeclareWholeModel(model).parameters) {}

  const ModelConfig& model() const override { return model_; }
  void Read(const TensorSlice& slice) const override { reader_.Read(slice); }
  const std::map<std::string, std::vector<float>>& buffers() const override { return buffers_; }

 private:
  HuggingFaceWeights(const std::string& directory, const ModelConfig& model,
                     const ParameterStore& declared)
      : model_(model), reader_(directory, model, declared) {
    for (const auto& buffer : declared.buffers().all()) {
      if (buffer->kind != BufferKind::kState) continue;
      const ParameterSpec spec = SpecOf(*buffer);
      std::vector<float>& values = buffers_[buffer->name];
      values.resize(static_cast<size_t>(buffer->numel));
      reader_.Read({.spec = &spec, .begin = 0, .values = values});
    }
  }

  ModelConfig model_;
  HuggingFaceReader reader_;
  std::map<std::string, std::vector<float>> buffers_;
};

}  // namespace

void RequireFinite(const ParameterSpec& spec, std::span<const float> values) {
  const auto is_finite = [](float value) {
    return std::fabs(value) <= std::numeric_limits<float>::max();
  };
  int others = 0;  // added up without a branch, as vector code
  for (const float value : values) others |= is_finite(value) ? 0 : 1;
  if (others == 0) return;
  throw InputError(fmt::format("{}: a weight is {}; expected finite numbers, as rounding needs",
                               spec.name.view(), *std::ranges::find_if_not(values, is_finite)));
}

std::unique_ptr<WeightSource> OpenCheckpointWeights(const std::string& directory) {
  if (IsQuantized(directory)) return std::make_unique<QuantizedWeights>(directory);
  return std::make_unique<CheckpointWeights>(directory);
}

std::unique_ptr<WeightSource> OpenHuggingFaceWeights(const std::string& directory,
                                                     const ModelConfig& model) {
  return std::make_unique<HuggingFaceWeights>(directory, model);
}

}  // namespace trimtab
