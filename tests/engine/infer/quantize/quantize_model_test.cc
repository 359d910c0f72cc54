// Models that are rounded once: what is written is what is served, on any layout.
#include "engine/infer/quantize/quantize_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/checkpoint/xxh64.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/infer/quantize/calibration.h"
#include "engine/runtime/weights/quantized_weights.h"
#include "engine/runtime/whole_model.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/infer/golden_weights.h"

namespace trimtab {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF8, WeightFormat::kInt8, WeightFormat::kInt4};

std::string Quantize(const GoldenWeights& weights, WeightFormat format,
                     std::span<const int32_t> calibration = {}) {
  const std::string folder = ScratchFolder();
  QuantizeModel(weights, {.weights = format, .calibration = calibration}, folder);
  return folder;
}

std::vector<float> WholeValues(const WeightSource& source, const ParameterSpec& spec) {
  std::vector<float> values(
      static_cast<size_t>(spec.partition.full_rows * spec.partition.full_columns));
  source.Read({.spec = &spec, .begin = 0, .values = values});
  return values;
}

TEST(QuantizeModelTest, WhatIsReadIsWhatWasRounded) {
  // Its widths are multiples of 32, which int4 needs.
  const GoldenWeights weights("gpt2");
  const WholeModelDeclaration whole = DeclareWholeModel(weights.model());
  for (const WeightFormat format : kFormats) {
    const std::string folder = Quantize(weights, format);
    const QuantizedWeights read(folder);
    EXPECT_EQ(read.format(), format);
    EXPECT_EQ(read.model(), weights.model());
    for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) {
      std::vector<float> expected = WholeValues(weights, *spec);
      if (IsQuantized(*spec)) {
        const auto columns = static_cast<size_t>(spec->columns);
        std::vector<float> numbers(columns);
        std::vector<float> scales(static_cast<size_t>(ScalesOf(format, spec->columns)));
        for (size_t first = 0; first < expected.size(); first += columns) {
          RoundRow(format, std::span(expected).subspan(first, columns), numbers, scales);
          for (size_t i = 0; i < columns; ++i) {
            expected[first + i] = numbers[i] * scales[i * scales.size() / columns];
          }
        }
      }
      EXPECT_EQ(WholeValues(read, *spec), expected) << Name(format) << " " << spec->name.view();
    }
    EXPECT_TRUE(IsQuantized(folder));
  }
}

/// Logits of a golden text.
std::vector<float> LogitsOf(const WeightSource& source, const GoldenWeights& golden,
                            WeightFormat format, const std::string& layout) {
  ServingConfig config = GoldenServing(golden);
  config.weights = format;
  config.layout = ParseLayout(layout, 0);
  config = ResolveServing(config);
  DistributedExecutor runner(config, source);
  const auto length = golden.sequence_length();
  return runner.Run({{{.tokens = golden.Tokens(0),
                       .first_position = 0,
                       .blocks = {0, 1, 2, 3, 4, 5, 6, 7},
                       .logits = length}}});
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

class DamagedWeights final : public WeightSource {
 public:
  explicit DamagedWeights(const WeightSource& whole) : whole_(whole) {}
  const ModelConfig& model() const override { return whole_.model(); }
  const std::map<std::string, std::vector<float>>& buffers() const override {
    return whole_.buffers();
  }
  void Read(const TensorSlice& slice) const override {
    whole_.Read(slice);
    if (IsQuantized(*slice.spec)) slice.values[1] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const WeightSource& whole_;
};

// The largest number of a row is looked for with <, which is false of what is no number.
TEST(QuantizeModelTest, WeightsThatAreNoNumbersAreRefused) {
  const GoldenWeights whole("gpt2");
  const DamagedWeights weights(whole);
  for (const WeightFormat format : kFormats) {
    const auto message = [](const std::function<void()>& act) {
      return MessageOf<InputError>(act);
    };
    const std::string rounded =
        message([&] { QuantizeModel(weights, {.weights = format}, ScratchFolder()); });
    EXPECT_NE(rounded.find("a weight is nan; expected finite numbers"), std::string::npos);
    ServingConfig config;
    config.model = whole.model();
    config.weights = format;
    config.limits = {.sequences = 1, .tokens_per_step = 8, .sequence_length = 8};
    const std::string served =
        message([&] { DistributedExecutor(ResolveServing(config), weights); });
    EXPECT_NE(served.find("a weight is nan; expected finite numbers"), std::string::npos) << served;
  }
}

TEST(QuantizeModelTest, ServesTheSameOnAnyLayout) {
  const GoldenWeights weights("llama");
  const std::string folder = Quantize(weights, WeightFormat::kInt8);
  const std::unique_ptr<WeightSource> source = OpenCheckpointWeights(folder);
  const std::vector<float> plain = LogitsOf(*source, weights, WeightFormat::kF32, "");
  EXPECT_LT(LargestDifference(LogitsOf(*source, weights, WeightFormat::kF32, "tp=2"), plain), 2e-5);
  // Packed as they are stored, weights are the same numbers times the same scales.
  EXPECT_LT(LargestDifference(LogitsOf(*source, weights, WeightFormat::kInt8, ""), plain), 2e-5);
  // And not what they were.
  const std::vector<float> original = LogitsOf(weights, weights, WeightFormat::kF32, "");
  EXPECT_GT(LargestDifference(plain, original), 1e-4);
}

TEST(QuantizeModelTest, Int4ServesScaledInputsOnAnyLayout) {
  const GoldenWeights weights("gpt2");
  const std::string folder = ScratchFolder();
  const std::vector<int32_t> text = weights.Tokens(1);
  const QuantizeSummary summary =
      QuantizeModel(weights, {.weights = WeightFormat::kInt4, .calibration = text}, folder);
  EXPECT_EQ(summary.matrices, 4 * weights.model().num_layers + 1);
  EXPECT_GT(summary.scaled, 0);
  const std::unique_ptr<WeightSource> source = OpenCheckpointWeights(folder);
  const std::vector<float> plain = LogitsOf(*source, weights, WeightFormat::kF32, "");
  EXPECT_LT(LargestDifference(LogitsOf(*source, weights, WeightFormat::kF32, "tp=2"), plain), 2e-5);
  EXPECT_LT(LargestDifference(LogitsOf(*source, weights, WeightFormat::kF32, "pp=2"), plain), 2e-5);
  EXPECT_LT(LargestDifference(LogitsOf(*source, weights, WeightFormat::kInt4, ""), plain), 2e-5);
}

TEST(QuantizeModelTest, ExpertsAreRoundedAsTheyAreBesideScaledLayers) {
  for (const char* family : {"mixtral", "deepseek"}) {
    SCOPED_TRACE(family);
    const GoldenWeights weights(family);
    const std::string folder = Quantize(weights, WeightFormat::kInt8, weights.Tokens(1));
    const std::unique_ptr<WeightSource> source = OpenCheckpointWeights(folder);
    const WholeModelDeclaration whole = DeclareWholeModel(weights.model());
    int64_t scaled = 0;
    for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) {
      const bool has_scales = !source->InputScales(*spec).empty();
      scaled += has_scales ? 1 : 0;
      EXPECT_FALSE(has_scales && spec->grid == ParallelGrid::kExperts) << spec->name.view();
    }
    EXPECT_GT(scaled, 0);
    const std::vector<float> plain = LogitsOf(*source, weights, WeightFormat::kF32, "");
    const std::vector<float> packed = LogitsOf(*source, weights, WeightFormat::kInt8, "");
    // What latent attention absorbs is rounded where it is packed, and nowhere else: that changes
    // less than rounding all the others did.
    const bool rounds_again = weights.model().latent.used();
    const std::vector<float> original = LogitsOf(weights, weights, WeightFormat::kF32, "");
    EXPECT_LT(LargestDifference(packed, plain),
              rounds_again ? LargestDifference(plain, original) : 2e-5);
  }
}

// Inputs of which one column is a hundred times the others: its weights matter a hundred times.
TEST(CalibrationTest, ScalesWhatMattersSoThatItIsRoundedLess) {
  constexpr int64_t kRows = 24;
  constexpr int64_t kColumns = 64;
  constexpr int64_t kTexts = 40;
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const auto value = [](int64_t i) {
    return std::sin(static_cast<double>(i * i) + 0.3 * static_cast<double>(i));
  };
  std::vector<float> weights;
  for (int64_t i = 0; i < kRows * kColumns; ++i) weights.push_back(static_cast<float>(value(i)));
  Tensor x = Tensor::Empty(*device, {kTexts, kColumns}, DType::kF32, MemoryTag::kActivations);
  std::vector<float> inputs;
  for (int64_t i = 0; i < kTexts * kColumns; ++i) {
    const double size = i % kColumns == 5 ? 100.0 : 1.0;
    inputs.push_back(static_cast<float>(size * value(i + 7)));
  }
  CopyFromHost(x, inputs);
  Calibration calibration(kTexts);
  calibration.OnForward("layer", x, {});
  const LinearInputs* seen = calibration.Find("layer");
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(calibration.Find("other"), nullptr);
  EXPECT_EQ(seen->rows, kTexts);
  EXPECT_EQ(std::ssize(seen->samples), kTexts * kColumns);
  const std::vector<float> scales =
      ChooseColumnScales(WeightFormat::kInt4, weights, *seen, *device);
  ASSERT_EQ(std::ssize(scales), kColumns);
  const auto error = [&](const std::vector<float>& factors) {
    double sum = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> scaled(kColumns);
      std::vector<float> numbers(kColumns);
      std::vector<float> groups(kColumns / kInt4Group);
      for (size_t i = 0; i < scaled.size(); ++i) {
        scaled[i] = weights[static_cast<size_t>(row * kColumns) + i] * factors[i];
      }
      RoundRow(WeightFormat::kInt4, scaled, numbers, groups);
      for (int64_t text = 0; text < kTexts; ++text) {
        double difference = 0;
        for (size_t i = 0; i < scaled.size(); ++i) {
          const double served = static_cast<double>(numbers[i]) *
                                static_cast<double>(groups[i / kInt4Group]) /
                                static_cast<double>(factors[i]);
          difference +=
              static_cast<double>(inputs[static_cast<size_t>(text * kColumns) + i]) *
              (served - static_cast<double>(weights[static_cast<size_t>(row * kColumns) + i]));
        }
        sum += difference * difference;
      }
    }
    return sum;
  };
  EXPECT_LT(error(scales), 0.5 * error(std::vector<float>(kColumns, 1.0f)));
}

TEST(QuantizedWeightsTest, RefusesWhatIsDamaged) {
  const GoldenWeights weights("llama");
  const std::string folder = Quantize(weights, WeightFormat::kInt8);
  const std::string header = ReadBytes(folder + "/quantized.json");
  const auto refused = [&](const std::string& text, const std::string& says) {
    WriteBytes(folder + "/quantized.json", text);
    try {
      const QuantizedWeights read(folder);
      const WholeModelDeclaration whole = DeclareWholeModel(read.model());
      for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) WholeValues(read, *spec);
      ADD_FAILURE() << "not refused: " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = header;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  refused("{", "quantized.json");
  refused(with("\"int8\"", "\"int3\""), "$.weights");
  refused(with("\"schema_version\": 3", "\"schema_version\": 1"), "$.schema_version");
  refused(with("\"weights\"", "\"wieghts\""), "weights");
  refused(with("\"int8\"", "\"fp8\""), "expected fp8");
  for (const char* file : {"/weights.safetensors", "/weights.checksums"}) {
    const std::string bytes = ReadBytes(folder + file);
    for (const size_t at : {size_t{9}, bytes.size() / 2, bytes.size() - 100}) {
      std::string damaged = bytes;
      damaged[at] ^= 1;
      WriteBytes(folder + file, damaged);
      refused(header, std::string(file).substr(1));
    }
    WriteBytes(folder + file, bytes);
  }
}

// Folders of version 2 have one checksum, of the whole file.
TEST(QuantizedWeightsTest, AnOlderFolderIsCheckedWhole) {
  const GoldenWeights weights("llama");
  const std::string folder = Quantize(weights, WeightFormat::kInt8);
  const QuantizedWeights current(folder);
  std::string bytes = ReadBytes(folder + "/weights.safetensors");
  nlohmann::json header = nlohmann::json::parse(ReadBytes(folder + "/quantized.json"));
  header["schema_version"] = 2;
  header.erase("header_xxh64");
  header.erase("checksums_xxh64");
  header["weights_xxh64"] = Xxh64Hex(std::as_bytes(std::span(bytes)));
  WriteBytes(folder + "/quantized.json", header.dump());
  std::filesystem::remove(folder + "/weights.checksums");
  const QuantizedWeights older(folder);
  const WholeModelDeclaration whole = DeclareWholeModel(older.model());
  for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) {
    EXPECT_EQ(WholeValues(older, *spec), WholeValues(current, *spec)) << spec->name.view();
  }
  bytes[bytes.size() - 100] ^= 1;
  WriteBytes(folder + "/weights.safetensors", bytes);
  EXPECT_THROW(QuantizedWeights{folder}, InputError);
}

}  // namespace
}  // namespace trimtab
