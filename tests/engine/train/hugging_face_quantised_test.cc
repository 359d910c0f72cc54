// Folders of quantised weights hold the model whose weights are what they stand for, to the bit.
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/float8.h"
#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/config/json/strict_json.h"
#include "engine/families/load_config.h"
#include "engine/families/registry.h"
#include "engine/runtime/whole_model.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

/// Tensors of one folder.
struct Files {
  std::vector<SafetensorsEntry> entries;
  std::string data;

  void Add(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
           const void* bytes) {
    entries.push_back({.name = name, .dtype = dtype, .shape = shape});
    data.append(static_cast<const char*>(bytes),
                static_cast<size_t>(entries.back().numel() * SizeOf(dtype)));
  }
  void Write(const std::string& folder, const nlohmann::json& config) {
    std::filesystem::create_directories(folder);
    WriteBytes(folder + "/config.json", config.dump());
    const std::string header = LayOutSafetensors(entries, {});
    WriteBytes(folder + "/model.safetensors", header + data);
  }
};

/// The same model twice: with weights as they are, and quantised.
class QuantisedFolderTest : public testing::Test {
 protected:
  std::vector<uint8_t> RandomBytes(int64_t count, uint8_t least, uint8_t most) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    std::uniform_int_distribution<int> values(least, most);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(values(random_));
    return bytes;
  }

  void AddPlain(const HuggingFaceTensor& tensor, int64_t numel) {
    std::vector<float> values(static_cast<size_t>(numel));
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    plain_.Add(tensor.name, DType::kF32, tensor.shape, values.data());
    quantised_.Add(tensor.name, DType::kF32, tensor.shape, values.data());
  }

  /// Blocks of 8 x 16.
  void AddFp8(const HuggingFaceTensor& tensor) {
    const int64_t rows = tensor.shape[0];
    const int64_t columns = tensor.shape[1];
    const std::vector<int64_t> blocks = {(rows + 7) / 8, (columns + 15) / 16};
    const auto codes = RandomBytes(rows * columns, 0, 0x7E);
    std::vector<float> scales;
    for (int64_t i = 0; i < blocks[0] * blocks[1]; ++i) {
      scales.push_back(0.01f * static_cast<float>(i + 1));
    }
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        values.push_back(E4M3ToFloat(codes[static_cast<size_t>(row * columns + column)]) *
                         scales[static_cast<size_t>(row / 8 * blocks[1] + column / 16)]);
      }
    }
    plain_.Add(tensor.name, DType::kF32, tensor.shape, values.data());
    quantised_.Add(tensor.name, DType::kF8E4M3, tensor.shape, codes.data());
    quantised_.Add(tensor.name + "_scale_inv", DType::kF32, blocks, scales.data());
  }

  void AddMxfp4(const HuggingFaceTensor& tensor) {
    const int64_t experts = tensor.shape[0];
    const int64_t in = tensor.shape[1];
    const int64_t out = tensor.shape[2];
    const auto codes = RandomBytes(experts * out * in / 2, 0, 255);
    const auto exponents = RandomBytes(experts * out * in / 32, 118, 130);
    const float magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    std::vector<float> values(static_cast<size_t>(experts * in * out));
    for (int64_t i = 0; i < experts * out * in; ++i) {  // [E, out, in]
      const int both = codes[static_cast<size_t>(i / 2)];
      const int code = i % 2 == 0 ? both % 16 : both / 16;
      const double value = magnitudes[code % 8] * (code < 8 ? 1 : -1) *
                           std::pow(2.0, exponents[static_cast<size_t>(i / 32)] - 127);
      const int64_t expert = i / (out * in);
      const int64_t at = (expert * in + i % in) * out + i / in % out;
      values[static_cast<size_t>(at)] = static_cast<float>(value);
    }
    plain_.Add(tensor.name, DType::kF32, tensor.shape, values.data());
    quantised_.Add(tensor.name + "_blocks", DType::kU8, {experts, out, in / 32, 16}, codes.data());
    quantised_.Add(tensor.name + "_scales", DType::kU8, {experts, out, in / 32}, exponents.data());
  }

  void ExpectTheSameModel(const nlohmann::json& config, const nlohmann::json& quantisation) {
    const std::string folder = ScratchFolder();
    WriteBytes(folder + "/config.json", config.dump());
    const ModelConfig model = LoadModelConfig(folder);
    const WholeModelDeclaration whole = DeclareWholeModel(model);
    const bool mxfp4 = quantisation["quant_method"] == "mxfp4";
    const auto& family = RequireFamily(config["model_type"].get<std::string>(), folder);
    int quantised = 0;
    const auto add = [&](const ParameterSpec& spec) {
      for (const HuggingFaceTensor& tensor : SourceOf(family, model, spec).tensors) {
        int64_t numel = 1;
        for (const int64_t dim : tensor.shape) numel *= dim;
        if (mxfp4 && tensor.shape.size() == 3) {
          AddMxfp4(tensor);
        } else if (!mxfp4 && tensor.name.ends_with("proj.weight")) {
          AddFp8(tensor);
        } else {
          AddPlain(tensor, numel);
          continue;
        }
        ++quantised;
      }
    };
    for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) add(*spec);
    for (const auto& buffer : whole.parameters.buffers().all()) {
      if (buffer->kind == BufferKind::kState) add(SpecOf(*buffer));
    }
    EXPECT_GE(quantised, 4);
    plain_.Write(folder + "/plain", config);
    nlohmann::json with = config;
    with["quantization_config"] = quantisation;
    quantised_.Write(folder + "/quantised", with);
    const HuggingFaceReader expected(folder + "/plain", model, whole.parameters);
    const HuggingFaceReader actual(folder + "/quantised", model, whole.parameters);
    for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) {
      const auto count = static_cast<size_t>(spec->rows * spec->columns);
      std::vector<float> want(count);
      std::vector<float> got(count);
      expected.Read({.spec = spec, .begin = 0, .values = want});
      actual.Read({.spec = spec, .begin = 0, .values = got});
      EXPECT_EQ(got, want) << std::string(spec->name);
    }
  }

  std::mt19937 random_{11};
  Files plain_;
  Files quantised_;
};

TEST_F(QuantisedFolderTest, DeepSeekInBlocksOfFp8) {
  ExpectTheSameModel(ReadJsonFile("testdata/goldens/hugging_face/deepseek_v3/config.json"),
                     {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {8, 16}}});
}

TEST_F(QuantisedFolderTest, GptOssInMxfp4) {
  nlohmann::json config = ReadJsonFile("testdata/goldens/hugging_face/gpt_oss/config.json");
  config["intermediate_size"] = 64;
  ExpectTheSameModel(config, {{"quant_method", "mxfp4"}});
}

}  // namespace
}  // namespace trimtab
