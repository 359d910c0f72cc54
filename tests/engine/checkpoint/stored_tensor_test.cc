// Hand-worked blocks of each format, and folders that are refused.
#include "engine/checkpoint/stored_tensor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

struct Stored {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

std::vector<uint8_t> BytesOf(const std::vector<float>& values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return {first, first + values.size() * sizeof(float)};
}

class StoredTensorTest : public testing::Test {
 protected:
  SafetensorsFolder FolderOf(const std::vector<Stored>& tensors) const {
    std::vector<SafetensorsEntry> entries;
    std::string data;
    for (const Stored& each : tensors) {
      entries.push_back({.name = each.name, .dtype = each.dtype, .shape = each.shape});
      data.append(each.bytes.begin(), each.bytes.end());
    }
    std::ofstream(directory_ + "/model.safetensors", std::ios::binary)
        << LayOutSafetensors(entries, {}) << data;
    return SafetensorsFolder(directory_);
  }
  static std::vector<float> All(const StoredTensor& tensor, int64_t count, int64_t stride = 1) {
    std::vector<float> values(static_cast<size_t>(count));
    tensor.Read(0, values, stride);
    return values;
  }

  std::string directory_ = ScratchFolder();
  std::set<std::string> used_;
};

constexpr QuantisationConfig kBlocks = {Quantisation::kFp8Blocks, 2, 3};
constexpr QuantisationConfig kMx = {.kind = Quantisation::kMxfp4};

// e4m3: 0x38 is 1, 0x40 is 2, 0xB8 is -1, 0x3C is 1.5.
const Stored kCodes = {"w",
                       DType::kF8E4M3,
                       {3, 4},
                       {0x38, 0x40, 0xB8, 0x3C, 0x40, 0x38,  //
                        0x38, 0x38, 0x38, 0x38, 0x3C, 0xB8}};
const Stored kScale = {"w_scale_inv", DType::kF32, {2, 2}, BytesOf({10, 100, 0.5, 4})};

TEST_F(StoredTensorTest, EveryBlockOfFp8HasItsScale) {
  const SafetensorsFolder folder = FolderOf({kCodes, kScale});
  const StoredTensor tensor(folder, kBlocks, "w", {3, 4}, used_);
  EXPECT_EQ(tensor.quantisation(), Quantisation::kFp8Blocks);
  EXPECT_EQ(All(tensor, 12), (std::vector<float>{10, 20, -10, 150,  //
                                                 20, 10, 10, 100,   //
                                                 0.5, 0.5, 0.75, -4}));
  EXPECT_EQ(All(tensor, 3, 4), (std::vector<float>{10, 20, 0.5}));
  EXPECT_EQ(All(tensor, 6, 2), (std::vector<float>{10, -10, 20, 10, 0.5, 0.75}));
  EXPECT_EQ(used_, (std::set<std::string>{"w", "w_scale_inv"}));
}

TEST_F(StoredTensorTest, WhatIsNotFp8IsReadAsItIs) {
  const SafetensorsFolder folder =
      FolderOf({{"norm", DType::kF32, {2}, BytesOf({1.25, -3})}, kCodes, kScale});
  const StoredTensor tensor(folder, kBlocks, "norm", {2}, used_);
  EXPECT_EQ(tensor.quantisation(), Quantisation::kNone);
  EXPECT_EQ(All(tensor, 2), (std::vector<float>{1.25, -3}));
}

// Two experts of [in 32, out 2]. Of expert e the column of output o holds in byte i the codes
// 2i and 2i + 1, modulo 16, and has exponent 127 + 2e - o.
TEST_F(StoredTensorTest, Mxfp4IsTransposedAndScaled) {
  std::vector<uint8_t> blocks;
  for (int column = 0; column < 4; ++column) {
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(static_cast<uint8_t>(((2 * i + 1) % 16) << 4 | (2 * i) % 16));
    }
  }
  const SafetensorsFolder folder =
      FolderOf({{"w_blocks", DType::kU8, {2, 2, 1, 16}, blocks},
                {"w_scales", DType::kU8, {2, 2, 1}, {127, 126, 129, 128}}});
  ASSERT_TRUE(StoredTensor::Holds(folder, kMx, "w"));
  const StoredTensor tensor(folder, kMx, "w", {2, 32, 2}, used_);
  const float codes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::vector<float> expected;
  for (const float first : {1.0f, 4.0f}) {
    for (int in = 0; in < 32; ++in) {
      expected.push_back(codes[in % 16] * first);
      expected.push_back(codes[in % 16] * first / 2);
    }
  }
  EXPECT_EQ(All(tensor, 128), expected);
  std::vector<float> second_output(32);
  tensor.Read(64 + 1, second_output, 2);
  for (size_t in = 0; in < 32; ++in) EXPECT_EQ(second_output[in], codes[in % 16] * 2) << in;
  EXPECT_EQ(used_, (std::set<std::string>{"w_blocks", "w_scales"}));
}

TEST_F(StoredTensorTest, RefusesWhatDoesNotFit) {
  const auto refused = [&](const std::vector<Stored>& tensors, const QuantisationConfig& config,
                           const std::vector<int64_t>& shape) {
    return MessageOf<InputError>(
        [&] { StoredTensor(FolderOf(tensors), config, "w", shape, used_); });
  };
  const std::string file = directory_ + "/model.safetensors: tensor ";
  EXPECT_EQ(refused({kCodes}, kBlocks, {3, 4}), file + "'w' has no 'w_scale_inv' in any file");
  Stored scale = kScale;
  scale.shape = {4, 1};
  EXPECT_EQ(refused({kCodes, scale}, kBlocks, {3, 4}),
            file + "'w_scale_inv' is [4, 1]; expected [2, 2]");
  Stored blocks = {"w_blocks", DType::kU8, {1, 2, 1, 16}, std::vector<uint8_t>(32)};
  EXPECT_EQ(refused({blocks}, kMx, {1, 32, 2}), file + "'w_blocks' has no 'w_scales' in any file");
  const Stored scales = {"w_scales", DType::kU8, {1, 2, 1}, {127, 127}};
  EXPECT_EQ(refused({blocks, scales}, kMx, {1, 32, 3}),
            file + "'w_blocks' is [1, 2, 1, 16]; expected [1, 3, 1, 16]");
  blocks.dtype = DType::kF8E4M3;
  EXPECT_EQ(refused({blocks, scales}, kMx, {1, 32, 2}),
            file + "'w_blocks' holds no bytes; expected U8");
}

TEST(QuantisationOf, ReadsWhatItKnowsAndRefusesTheRest) {
  const auto of = [](const char* text) {
    return QuantisationOf(nlohmann::json::parse(text), "config.json: $");
  };
  EXPECT_EQ(of(R"({})").kind, Quantisation::kNone);
  EXPECT_EQ(of(R"({"quantization_config": null})").kind, Quantisation::kNone);
  EXPECT_EQ(of(R"({"quantization_config": {"quant_method": "mxfp4",
                   "modules_to_not_convert": ["lm_head"]}})")
                .kind,
            Quantisation::kMxfp4);
  const QuantisationConfig blocks = of(R"({"quantization_config": {"quant_method": "fp8",
      "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 64]}})");
  EXPECT_EQ(blocks.kind, Quantisation::kFp8Blocks);
  EXPECT_EQ(blocks.block_rows, 128);
  EXPECT_EQ(blocks.block_columns, 64);
  const auto refused = [&](const char* text) { return MessageOf<InputError>([&] { of(text); }); };
  const std::string at = "config.json: $.quantization_config";
  EXPECT_EQ(refused(R"({"quantization_config": {"quant_method": "gptq"}})"),
            at + ".quant_method: expected \"fp8\" or \"mxfp4\", got \"gptq\"");
  EXPECT_EQ(refused(R"({"quantization_config": {"quant_method": "fp8",
                        "weight_block_size": [128]}})"),
            at + ".weight_block_size: expected two sizes, of rows and columns, got an array of 1");
  EXPECT_EQ(refused(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2",
                        "weight_block_size": [128, 128]}})"),
            at + ".fmt: expected \"e4m3\", got \"e5m2\"");
}

}  // namespace
}  // namespace trimtab
