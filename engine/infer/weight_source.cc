#include "engine/infer/weight_source.h"

#include <utility>

#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/train/checkpointing.h"

namespace trimtab {
namespace {

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const std::string& directory) : reader_(directory) {}

  const ModelConfig& model() const override { return reader_.header().run.model; }
  void Read(const TensorSlice& slice) const override { reader_.Read(StateKind::kWeight, slice); }
  const std::map<std::string, std::vector<float>>& buffers() const override {
    return reader_.header().buffers;
  }
  std::string data() const override { return reader_.header().run.data; }

 private:
  CheckpointReader reader_;
};

class HuggingFaceWeights final : public WeightSource {
 public:
  explicit HuggingFaceWeights(const std::string& directory)
      : model_(LoadModelConfig(directory)), reader_(Open(directory, model_)) {}

  const ModelConfig& model() const override { return model_; }
  void Read(const TensorSlice& slice) const override { reader_.Read(slice); }
  const std::map<std::string, std::vector<float>>& buffers() const override { return none_; }

 private:
  static HuggingFaceReader Open(const std::string& directory, const ModelConfig& model) {
    const WholeModelDeclaration whole = DeclareWholeModel(model);
    return {directory, model, ParameterSpecs(whole.parameters)};
  }

  ModelConfig model_;
  HuggingFaceReader reader_;
  std::map<std::string, std::vector<float>> none_;
};

}  // namespace

std::unique_ptr<WeightSource> OpenCheckpointWeights(const std::string& directory) {
  return std::make_unique<CheckpointWeights>(directory);
}

std::unique_ptr<WeightSource> OpenHuggingFaceWeights(const std::string& directory) {
  return std::make_unique<HuggingFaceWeights>(directory);
}

}  // namespace trimtab
