#include "engine/runtime/weights/random_weights.h"

#include "engine/base/mix.h"
#include "engine/runtime/whole_model.h"

namespace trimtab {

std::map<std::string, std::vector<float>> FirstBuffers(const ModelConfig& model) {
  std::map<std::string, std::vector<float>> buffers;
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  for (const auto& buffer : whole.parameters.buffers().all()) {
    if (buffer->kind != BufferKind::kState) continue;
    buffers[buffer->name].resize(static_cast<size_t>(buffer->numel));
  }
  return buffers;
}

void RandomWeights::Read(const TensorSlice& slice) const {
  for (size_t i = 0; i < slice.values.size(); ++i) {
    const auto bits = MixBits(static_cast<uint64_t>(slice.begin) + i) >> 40;
    slice.values[i] = 0.04f * (static_cast<float>(bits) * 0x1.0p-24f - 0.5f);
  }
}

}  // namespace trimtab
