#include "tests/engine/infer/golden_weights.h"

#include "engine/runtime/weights/random_weights.h"
#include "tests/engine/train/families.h"

namespace trimtab {

GoldenWeights::GoldenWeights(const std::string& family)
    : file_("testdata/goldens/" + family + ".safetensors") {
  const RunConfig run = GoldenRun(family);
  model_ = run.model;
  batch_ = run.layout.micro_batch;
  length_ = run.sequence_length;
  buffers_ = FirstBuffers(model_);
}

std::vector<float> GoldenWeights::Values(const std::string& name) const {
  const SafetensorsEntry& entry = file_.Find(name);
  std::vector<float> values(static_cast<size_t>(entry.numel()));
  file_.Read(entry, 0, values);
  return values;
}

void GoldenWeights::Read(const TensorSlice& slice) const {
  const ParameterSpec& spec = *slice.spec;
  const std::vector<float> whole = Values("weights." + std::string(spec.name));
  for (const RowSegment& segment : spec.partition.segments) {
    for (int64_t row = 0; row < segment.rows; ++row) {
      for (int64_t column = 0; column < spec.columns; ++column) {
        const int64_t local = (segment.local_begin + row) * spec.columns + column - slice.begin;
        if (local < 0 || local >= std::ssize(slice.values)) continue;
        const int64_t full = (segment.global_begin + row) * spec.partition.full_columns +
                             spec.partition.column_begin + column;
        slice.values[static_cast<size_t>(local)] = whole.at(static_cast<size_t>(full));
      }
    }
  }
}

std::vector<int32_t> GoldenWeights::Tokens(int64_t index) const {
  // Each sample has one token more: the last one's target.
  const std::vector<float> all = Values("tokens");
  const auto first = all.begin() + index * (length_ + 1);
  return {first, first + length_};
}

std::vector<float> GoldenWeights::Logits(int64_t index) const {
  const std::vector<float> all = Values("logits");
  const int64_t size = length_ * model_.vocab_size;
  const auto first = all.begin() + index * size;
  return {first, first + size};
}

ServingConfig GoldenServing(const GoldenWeights& weights) {
  ServingConfig config;
  config.model = weights.model();
  config.threads_per_rank = 1;
  config.block_size = 4;
  config.limits = {.sequences = 4, .tokens_per_step = 64};
  return config;
}

}  // namespace trimtab
