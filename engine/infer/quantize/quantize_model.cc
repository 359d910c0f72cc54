#include "engine/infer/quantize/quantize_model.h"

#include <algorithm>
#include <numeric>

#include "engine/base/units.h"
#include "engine/infer/executor/serving_model.h"
#include "engine/infer/quantize/calibration.h"
#include "engine/runtime/weights/quantized_weights.h"
#include "engine/runtime/whole_model.h"

namespace trimtab {
namespace {

/// Tokens of calibration text that the model sees at once.
constexpr int64_t kMostTokens = 512;

/// One rank of `model` with fp32 weights, for texts of `length`.
ServingConfig PlainConfig(const ModelConfig& model, int64_t length) {
  ServingConfig config;
  config.model = model;
  config.limits = {.sequences = 1, .tokens_per_step = length, .sequence_length = length};
  return ResolveServing(config);
}

void ReadText(const ServingConfig& config, std::span<const int32_t> tokens, ServingModel& model) {
  const auto length = static_cast<size_t>(config.limits.sequence_length);
  std::vector<int32_t> blocks(static_cast<size_t>(config.cache_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (size_t begin = 0; begin < tokens.size(); begin += length) {
    const auto run = tokens.subspan(begin, std::min(length, tokens.size() - begin));
    // All rows reach the head: it is rounded too.
    model.Run({{{.tokens = {run.begin(), run.end()},
                 .first_position = 0,
                 .blocks = blocks,
                 .logits = std::ssize(run)}}});
  }
}

/// The layer that multiplies by the parameter NAME.weight.
std::string LayerOf(const ParameterSpec& spec) {
  const std::string name(spec.name);
  return name.substr(0, name.rfind('.'));
}

std::vector<float> WholeParameter(const WeightSource& source, const ParameterSpec& spec) {
  std::vector<float> values(
      static_cast<size_t>(spec.partition.full_rows * spec.partition.full_columns));
  // One rank's shard is the whole, but for padding behind it.
  source.Read({.spec = &spec, .begin = 0, .values = values});
  if (IsQuantized(spec)) RequireFinite(spec, values);
  return values;
}

void MultiplyColumns(std::span<const float> factors, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i % factors.size()];
}

}  // namespace

QuantizeSummary QuantizeModel(const WeightSource& source, const QuantizeOptions& options,
                              const std::string& directory) {
  const WholeModelDeclaration whole = DeclareWholeModel(source.model());
  const std::vector<const ParameterSpec*> specs = ParameterSpecs(whole.parameters);
  const std::unique_ptr<Device> device = MakeCpuDevice(options.threads);
  const auto text_length = std::ssize(options.calibration);
  Calibration calibration(std::max<int64_t>(1, text_length));
  if (text_length > 0) {
    const ServingConfig config = PlainConfig(
        source.model(), std::min({kMostTokens, source.model().max_sequence_length, text_length}));
    const ParallelContext parallel = MakeMetaContext(config.layout, /*rank=*/0);
    ServingModel model(config, parallel, *device, &source);
    model.Observe(&calibration);
    ReadText(config, options.calibration, model);
  }
  std::map<std::string, std::vector<float>> scales;
  std::vector<std::string> scaled;
  const auto steps = 2 * std::ssize(specs);
  int64_t done = 0;
  const auto advance = [&] {
    if (options.progress) options.progress(++done, steps);
  };
  for (const ParameterSpec* spec : specs) {
    advance();
    // Each expert sees inputs of its own, and all of them are multiplied in one product: their
    // columns stay as they are.
    if (spec->grid == ParallelGrid::kExperts || !IsQuantized(*spec)) continue;
    const LinearInputs* inputs = calibration.Find(LayerOf(*spec));
    if (inputs == nullptr) continue;
    std::vector<float> chosen =
        ChooseColumnScales(options.weights, WholeParameter(source, *spec), *inputs, *device);
    if (chosen.empty()) continue;
    scaled.emplace_back(spec->name);
    scales[scaled.back()] = std::move(chosen);
  }
  QuantizedWriter writer(directory, options.weights, source, specs, scaled);
  QuantizeSummary summary;
  for (const ParameterSpec* spec : specs) {
    std::vector<float> values = WholeParameter(source, *spec);
    std::vector<float> input_scales;
    if (const auto found = scales.find(std::string(spec->name)); found != scales.end()) {
      MultiplyColumns(found->second, values);
      for (const float scale : found->second) input_scales.push_back(1.0f / scale);
      ++summary.scaled;
    }
    if (IsQuantized(*spec)) ++summary.matrices;
    writer.Write(*spec, values, input_scales);
    advance();
  }
  summary.tensor_bytes = writer.Finish();
  return summary;
}

}  // namespace trimtab
