#include "engine/checkpoint/hugging_face_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/families/registry.h"

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

const Family& FamilyOf(const std::string& name) { return RequireFamily(name, "config.json"); }

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
      SourceOf(FamilyOf("gpt2"), SomeModel(), Matrix(layer + ".weight", 48, 12));
  ASSERT_EQ(weight.tensors.size(), 1u);
  EXPECT_EQ(weight.tensors[0].shape, (std::vector<int64_t>{12, 48}));
  EXPECT_EQ(Place(weight, 5, 3), "transformer.h.11.mlp.c_fc.weight[149]");  // 3 * 48 + 5
  const HuggingFaceSource bias =
      SourceOf(FamilyOf("gpt2"), SomeModel(), Vector(layer + ".bias", 48));
  EXPECT_EQ(bias.tensors[0].shape, (std::vector<int64_t>{48}));
  EXPECT_EQ(Place(bias, 5, 0), "transformer.h.11.mlp.c_fc.bias[5]");
}

TEST(HuggingFaceNames, StacksQueryKeyAndValue) {
  const HuggingFaceSource source =
      SourceOf(FamilyOf("llama"), SomeModel(),
               Matrix("decoder.layers.0.self_attention.linear_qkv.weight", 24, 12));
  ASSERT_EQ(source.tensors.size(), 3u);
  EXPECT_EQ(source.tensors[1].shape, (std::vector<int64_t>{6, 12}));
  EXPECT_EQ(Place(source, 11, 1), "model.layers.0.self_attn.q_proj.weight[133]");
  EXPECT_EQ(Place(source, 12, 1), "model.layers.0.self_attn.k_proj.weight[1]");
  EXPECT_EQ(Place(source, 23, 11), "model.layers.0.self_attn.v_proj.weight[71]");
}

TEST(HuggingFaceNames, StacksGateAndUp) {
  const HuggingFaceSource source = SourceOf(
      FamilyOf("llama"), SomeModel(), Matrix("decoder.layers.3.mlp.linear_fc1.weight", 20, 12));
  EXPECT_EQ(Place(source, 9, 0), "model.layers.3.mlp.gate_proj.weight[108]");
  EXPECT_EQ(Place(source, 10, 0), "model.layers.3.mlp.up_proj.weight[0]");
}

TEST(HuggingFaceNames, RefusesWhatHasNoName) {
  EXPECT_THROW(SourceOf(FamilyOf("llama"), SomeModel(), Vector("decoder.layers.x.mlp.weight", 3)),
               InputError);
  EXPECT_THROW(FamilyOf("llama3000"), InputError);
}

TEST(HuggingFaceNames, PassesOverBuffersAndCopies) {
  ModelConfig model = SomeModel();
  const auto passed = [&](const char* family, const char* name) {
    return IsPassedOver(FamilyOf(family), model, name);
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

TEST(HuggingFaceNames, UngroupsTheHeadsOfOneTensor) {
  // Groups of two queries, a key and a value of 2 rows each: 8 rows a group.
  const HuggingFaceSource source =
      SourceOf(FamilyOf("bloom"), SomeModel(),
               Matrix("decoder.layers.0.self_attention.linear_qkv.weight", 24, 12));
  const auto row = [&](int64_t ours) { return Place(source, ours, 0); };
  const std::string name = "transformer.h.0.self_attention.query_key_value.weight";
  EXPECT_EQ(row(3), name + "[36]");    // group 0, query 1
  EXPECT_EQ(row(4), name + "[96]");    // group 1, query 0: row 8
  EXPECT_EQ(row(12), name + "[48]");   // group 0, key: row 4
  EXPECT_EQ(row(17), name + "[252]");  // group 2, key, second: row 21
  EXPECT_EQ(row(20), name + "[168]");  // group 1, value: row 14
}

TEST(HuggingFaceNames, StacksExperts) {
  ModelConfig model = SomeModel();
  model.moe.num_experts = 3;
  const std::string ours = "decoder.layers.2.mlp.experts.linear_";
  const HuggingFaceSource fc1 =
      SourceOf(FamilyOf("mixtral"), model, Matrix(ours + "fc1.weight", 3 * 10, 12));
  ASSERT_EQ(fc1.tensors.size(), 6u);
  EXPECT_EQ(Place(fc1, 10, 0), "model.layers.2.block_sparse_moe.experts.1.w1.weight[0]");
  EXPECT_EQ(Place(fc1, 19, 2), "model.layers.2.block_sparse_moe.experts.1.w3.weight[50]");
  // As many as there are of queries, keys and values.
  const HuggingFaceSource fc2 =
      SourceOf(FamilyOf("mixtral"), model, Matrix(ours + "fc2.weight", 3 * 12, 5));
  EXPECT_EQ(Place(fc2, 35, 4), "model.layers.2.block_sparse_moe.experts.2.w2.weight[59]");
}

TEST(HuggingFaceNames, NamesFalconsNormsByItsBlocks) {
  ModelConfig model = SomeModel();
  const auto name = [&](const char* norm) {
    return SourceOf(FamilyOf("falcon"), model, Vector(std::string("decoder.layers.1.") + norm, 12))
        .tensors[0]
        .name;
  };
  EXPECT_EQ(name("input_layernorm.bias"), "transformer.h.1.input_layernorm.bias");
  EXPECT_EQ(name("pre_mlp_layernorm.bias"), "transformer.h.1.post_attention_layernorm.bias");
  model.block = BlockKind::kParallel;
  EXPECT_EQ(name("input_layernorm.bias"), "transformer.h.1.ln_attn.bias");
  EXPECT_EQ(name("pre_mlp_layernorm.bias"), "transformer.h.1.ln_mlp.bias");
}

}  // namespace
}  // namespace trimtab
