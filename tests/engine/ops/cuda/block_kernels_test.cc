// The kernels of attention over blocks, by tensor cores and without: at, below and past their
// tiles, plain and grouped heads. The reference is the cpu device with the same stored values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/ops/attention/attention_block.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/elementwise/elementwise.h"
#include "tests/engine/ops/op_inputs.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr float kLargest = 1.5f;  // of all operands

struct Case {
  AttentionShape shape;
  AttentionBlock own;    // over keys and values of one tensor
  AttentionBlock other;  // and then of another,
  int64_t ahead = 0;     // whose first key is so many tokens before its first query
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{.rows = {2, 1}, .heads = 1, .kv_heads = 1, .head_size = 64}, {.size = 1}, {.size = 1}, 4},
      {{.rows = {1, 128}, .heads = 2, .kv_heads = 1, .head_size = 64},
       {.size = 128},
       {.query = 64, .key = 0, .size = 64},
       64},
      {{.rows = {2, 150}, .heads = 4, .kv_heads = 2, .head_size = 64},
       {.size = 150},
       {.query = 17, .key = 3, .size = 131},
       150},
      {{.rows = {1, 220}, .heads = 2, .kv_heads = 1, .head_size = 128},
       {.query = 5, .key = 11, .size = 200},
       {.query = 110, .key = 110, .size = 110},
       70},
      {{.rows = {2, 37}, .heads = 2, .kv_heads = 1, .head_size = 5},
       {.size = 37},
       {.query = 0, .key = 4, .size = 33},
       33},
      {{.rows = {1, 9}, .heads = 1, .kv_heads = 1, .head_size = 300},
       {.size = 9},
       {.query = 4, .key = 1, .size = 5},
       6}};
  return cases;
}

struct Results {
  std::vector<float> out;
  std::vector<float> log_sum_exp;
  std::vector<float> dquery;
  std::vector<float> dkv[2];
};

/// Documents of which the first has begun 50 tokens before the first row.
void AddDocuments(Device& device, AttentionShape& s) {
  const int64_t length = s.rows.sequence;
  const Tensor positions =
      Tensor::Empty(device, {s.tokens()}, DType::kI32, MemoryTag::kActivations);
  std::vector<int32_t> list;
  for (int64_t row = 0; row < s.tokens(); ++row) {
    list.push_back(PackedPosition(row % length, {-50, length / 3, length / 3 + 1, 2 * length / 3}));
  }
  Tensor target = positions;
  CopyFromHost(target, list);
  s.rows.positions = positions;
}

Results RunBlocks(Device& device, DType dtype, const Case& c, int64_t offset, bool documents) {
  AttentionShape s = c.shape;
  if (documents) AddDocuments(device, s);
  uint32_t seed = 0;
  const auto values = [&](const Shape& shape, DType stored) {
    const Tensor whole =
        Tensor::Empty(device, {shape.numel() + offset}, stored, MemoryTag::kActivations);
    Tensor tensor = whole.Slice(offset, shape);
    Upload(tensor, RandomValues(shape.numel(), ++seed, kLargest));
    return tensor;
  };
  const Shape out_shape = {s.tokens(), s.heads * s.head_size};
  const Tensor qkv = values({s.tokens(), s.qkv_size()}, dtype);
  const Tensor kv[] = {values(KeyValueShape(s), dtype), values(KeyValueShape(s), dtype)};
  Tensor out = values(out_shape, DType::kF32);
  Tensor log_sum_exp = values({s.rows.batch, s.heads, s.rows.sequence}, DType::kF32);
  Fill(out, 0.0f);
  Fill(log_sum_exp, -std::numeric_limits<float>::infinity());
  AttentionBlockForward(s, KeysAhead(s.rows, c.own, 0), c.own, qkv, kv[0], out, log_sum_exp);
  AttentionBlockForward(s, KeysAhead(s.rows, c.other, c.ahead), c.other, qkv, kv[1], out,
                        log_sum_exp);

  Tensor dquery = values(out_shape, DType::kF32);
  Tensor dkv[] = {values(KeyValueShape(s), dtype), values(KeyValueShape(s), dtype)};
  Tensor rounded = values(out_shape, dtype);
  Copy(out, rounded);
  const Tensor dout = values(out_shape, dtype);
  AttentionBlockBackward(s, KeysAhead(s.rows, c.own, 0), c.own, qkv, kv[0], rounded, log_sum_exp,
                         dout, dquery, dkv[0]);
  AttentionBlockBackward(s, KeysAhead(s.rows, c.other, c.ahead), c.other, qkv, kv[1], rounded,
                         log_sum_exp, dout, dquery, dkv[1]);
  Results results = {
      Download(out), Download(log_sum_exp), Download(dquery), {Download(dkv[0]), Download(dkv[1])}};
  // Queries outside of both blocks see no key.
  for (float& sum : results.log_sum_exp) sum = std::isinf(sum) ? 0.0f : sum;
  return results;
}

class BlockKernelsTest : public testing::TestWithParam<DType> {};

TEST_P(BlockKernelsTest, GiveWhatTheCpuGives) {
  const DType dtype = GetParam();
  // Tensor cores multiply probabilities and gradients of scores that were rounded to 16 bits.
  const double rounding = dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 1e-5;
  for (const Case& c : Cases()) {
    for (const auto& [offset, documents] :
         {std::pair<int64_t, bool>(0, false), {1, false}, {0, true}, {1, true}}) {
      SCOPED_TRACE(fmt::format("T {} D {} offset {}{}", c.shape.rows.sequence, c.shape.head_size,
                               offset, documents ? " documents" : ""));
      const auto cpu = MakeCpuDevice(1);
      const auto emulated = MakeEmulatedDevice();
      const Results expected = RunBlocks(*cpu, dtype, c, offset, documents);
      const Results actual = RunBlocks(*emulated, dtype, c, offset, documents);
      // A mean of values whose weights are rounded: each may be off by half a unit in its last
      // place.
      for (size_t i = 0; i < expected.out.size(); ++i) {
        ASSERT_NEAR(actual.out[i], expected.out[i], rounding / 2 * kLargest + 1e-5) << "out " << i;
      }
      ExpectClose(actual.log_sum_exp, ToDouble(expected.log_sum_exp), 1e-5, "log_sum_exp");
      ExpectClose(actual.dquery, ToDouble(expected.dquery), 3 * rounding, "dquery");
      for (const int i : {0, 1}) {
        ExpectClose(actual.dkv[i], ToDouble(expected.dkv[i]), 3 * rounding, "dkv");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockKernelsTest,
                         testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& each) { return std::string(Name(each.param)); });

}  // namespace
}  // namespace trimtab
