// The kernels of attention over blocks, by tensor cores and without: at, below and past their
// tiles, plain and grouped heads. The reference is the cpu device with the same stored values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/ops/attention_block.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/elementwise.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr float kLargest = 1.5f;  // of all operands

struct Case {
  AttentionShape shape;
  AttentionBlock own;    // over keys and values of one tensor
  AttentionBlock other;  // and then of another
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{.batch = 2, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 64},
       {.size = 1},
       {.size = 1, .ahead = 4}},
      {{.batch = 1, .sequence = 128, .heads = 2, .kv_heads = 1, .head_size = 64},
       {.size = 128},
       {.query = 64, .key = 0, .size = 64, .ahead = 64}},
      {{.batch = 2, .sequence = 150, .heads = 4, .kv_heads = 2, .head_size = 64},
       {.size = 150},
       {.query = 17, .key = 3, .size = 131, .ahead = 150}},
      {{.batch = 1, .sequence = 220, .heads = 2, .kv_heads = 1, .head_size = 128},
       {.query = 5, .key = 11, .size = 200},
       {.query = 110, .key = 110, .size = 110, .ahead = 70}},
      {{.batch = 2, .sequence = 37, .heads = 2, .kv_heads = 1, .head_size = 5},
       {.size = 37},
       {.query = 0, .key = 4, .size = 33, .ahead = 33}},
      {{.batch = 1, .sequence = 9, .heads = 1, .kv_heads = 1, .head_size = 300},
       {.size = 9},
       {.query = 4, .key = 1, .size = 5, .ahead = 6}}};
  return cases;
}

struct Results {
  std::vector<float> out;
  std::vector<float> log_sum_exp;
  std::vector<float> dquery;
  std::vector<float> dkv[2];
};

Results RunBlocks(Device& device, DType dtype, const Case& c, int64_t offset) {
  const AttentionShape& s = c.shape;
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
  Tensor log_sum_exp = values({s.batch, s.heads, s.sequence}, DType::kF32);
  Fill(out, 0.0f);
  Fill(log_sum_exp, -std::numeric_limits<float>::infinity());
  AttentionBlockForward(s, c.own, qkv, kv[0], out, log_sum_exp);
  AttentionBlockForward(s, c.other, qkv, kv[1], out, log_sum_exp);

  Tensor dquery = values(out_shape, DType::kF32);
  Tensor dkv[] = {values(KeyValueShape(s), dtype), values(KeyValueShape(s), dtype)};
  Tensor rounded = values(out_shape, dtype);
  Copy(out, rounded);
  const Tensor dout = values(out_shape, dtype);
  AttentionBlockBackward(s, c.own, qkv, kv[0], rounded, log_sum_exp, dout, dquery, dkv[0]);
  AttentionBlockBackward(s, c.other, qkv, kv[1], rounded, log_sum_exp, dout, dquery, dkv[1]);
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
    for (const int64_t offset : {0, 1}) {
      SCOPED_TRACE(fmt::format("T {} D {} offset {}", c.shape.sequence, c.shape.head_size, offset));
      const auto cpu = MakeCpuDevice(1);
      const auto emulated = MakeEmulatedDevice();
      const Results expected = RunBlocks(*cpu, dtype, c, offset);
      const Results actual = RunBlocks(*emulated, dtype, c, offset);
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
