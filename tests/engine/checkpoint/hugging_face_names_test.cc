#include "engine/checkpoint/hugging_face_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/checkpoint/hugging_face_families.h"

namespace trimtab {
namespace {

/// 6 heads of 2 in 3 groups, C 12.
ModelConfig SomeModel() {
  ModelConfig model;
  model.hidden_size = 12;
  model.num_heads = 6;
  model.num_kv_heads = 3;
  return model;
}

ParameterSpec Matrix(const std::string& name, int64_t rows, int64_t columns) {
  return {
      .name = name, .rows = rows, .columns = columns, .partition = WholePartition(rows, columns)};
}

ParameterSpec Vector(const std::string& name, int64_t rows) {
  return {.name = name, .rows = rows, .is_matrix = false, .partition = WholePartition(rows, 1)};
}

const HuggingFaceFamily& Family(const std::string& name) {
  return FindHuggingFaceFamily(name, "config.json");
}

/// Where element (row, column) of ours is: "TENSOR[ELEMENT]".
std::string Place(const HuggingFaceSource& source, int64_t row, int64_t column) {
  for (const HuggingFacePiece& piece : source.pieces) {
    if (row < piece.begin || row >= piece.begin + piece.rows) continue;
    return fmt::format(
        "{}[{}]", source.tensors[piece.tensor].name,
        piece.first + (row - piece.begin) * piece.row_stride + column * piece.column_stride);
  }
  return "";
}

TEST(HuggingFaceNames, TransposesMatricesAlone) {
  const std::string layer = "decoder.layers.11.mlp.linear_fc1";
  const HuggingFaceSource weight =
      SourceOf(Family("gpt2"), SomeModel(), Matrix(layer + ".weight", 48, 12));
  ASSERT_EQ(weight.tensors.size(), 1u);
  EXPECT_EQ(weight.tensors[0].shape, (std::vector<int64_t>{12, 48}));
  EXPECT_EQ(Place(weight, 5, 3), "transformer.h.11.mlp.c_fc.weight[149]");  // 3 * 48 + 5
  const HuggingFaceSource bias = SourceOf(Family("gpt2"), SomeModel(), Vector(layer + ".bias", 48));
  EXPECT_EQ(bias.tensors[0].shape, (std::vector<int64_t>{48}));
  EXPECT_EQ(Place(bias, 5, 0), "transformer.h.11.mlp.c_fc.bias[5]");
}

TEST(HuggingFaceNames, StacksQueryKeyAndValue) {
  const HuggingFaceSource source =
      SourceOf(Family("llama"), SomeModel(),
               Matrix("decoder.layers.0.self_attention.linear_qkv.weight", 24, 12));
  ASSERT_EQ(source.tensors.size(), 3u);
  EXPECT_EQ(source.tensors[1].shape, (std::vector<int64_t>{6, 12}));
  EXPECT_EQ(Place(source, 11, 1), "model.layers.0.self_attn.q_proj.weight[133]");
  EXPECT_EQ(Place(source, 12, 1), "model.layers.0.self_attn.k_proj.weight[1]");
  EXPECT_EQ(Place(source, 23, 11), "model.layers.0.self_attn.v_proj.weight[71]");
}

TEST(HuggingFaceNames, StacksGateAndUp) {
  const HuggingFaceSource source = SourceOf(
      Family("llama"), SomeModel(), Matrix("decoder.layers.3.mlp.linear_fc1.weight", 20, 12));
  EXPECT_EQ(Place(source, 9, 0), "model.layers.3.mlp.gate_proj.weight[108]");
  EXPECT_EQ(Place(source, 10, 0), "model.layers.3.mlp.up_proj.weight[0]");
}

TEST(HuggingFaceNames, RefusesWhatHasNoName) {
  EXPECT_THROW(SourceOf(Family("llama"), SomeModel(), Vector("decoder.layers.x.mlp.weight", 3)),
               InputError);
  EXPECT_THROW(Family("llama3000"), InputError);
}

TEST(HuggingFaceNames, PassesOverBuffersAndCopies) {
  ModelConfig model = SomeModel();
  const auto passed = [&](const char* family, const char* name) {
    return IsPassedOver(Family(family), model, name);
  };
  EXPECT_TRUE(passed("gpt2", "transformer.h.3.attn.bias"));
  EXPECT_TRUE(passed("gpt2", "h.3.attn.masked_bias"));
  EXPECT_FALSE(passed("gpt2", "h.attn.bias"));
  EXPECT_FALSE(passed("gpt2", "h.3.attn.c_attn.bias"));
  EXPECT_TRUE(passed("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_TRUE(passed("llama", "lm_head.weight"));
  model.tied_embeddings = false;
  EXPECT_FALSE(passed("llama", "lm_head.weight"));
}

// Every layer has one row, and no two rows of a family name one tensor.
TEST(HuggingFaceNames, TablesNameEachTensorOnce) {
  for (const HuggingFaceFamily& family : HuggingFaceFamilies()) {
    SCOPED_TRACE(std::string(family.model_type));
    std::vector<std::string_view> ours;
    std::vector<std::string_view> theirs;
    for (const HuggingFaceRow& row : family.rows) {
      ours.push_back(row.ours);
      for (const std::string_view name : row.theirs) {
        if (!name.empty()) theirs.push_back(name);
      }
      EXPECT_FALSE(row.theirs.front().empty()) << row.ours;
    }
    for (auto* names : {&ours, &theirs}) {
      std::sort(names->begin(), names->end());
      EXPECT_EQ(std::adjacent_find(names->begin(), names->end()), names->end());
    }
  }
}

}  // namespace
}  // namespace trimtab
