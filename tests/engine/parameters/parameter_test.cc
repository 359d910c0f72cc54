#include "engine/parameters/parameter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trimtab {
namespace {

ParameterSpec NormalSpec(const std::string& name, int64_t rows, int64_t columns,
                         Partition partition) {
  return {.name = name,
          .rows = rows,
          .columns = columns,
          .init = InitKind::kNormal,
          .init_std = 0.02,
          .partition = std::move(partition)};
}

std::vector<float> InitialValues(const ParameterSpec& spec) {
  const auto device = MakeCpuDevice(1);
  ParameterStore store;
  const Parameter& parameter = store.Declare(spec);
  store.Allocate(*device, DType::kF32, DType::kF32);
  store.Initialize(1234);
  std::vector<float> values(static_cast<size_t>(parameter.numel()));
  CopyToHost(parameter.weight, values);
  return values;
}

ParameterSpec VectorSpec(const std::string& name, int64_t rows, bool tensor_parallel) {
  return {.name = name,
          .rows = rows,
          .is_matrix = false,
          .tensor_parallel = tensor_parallel,
          .init = InitKind::kOnes,
          .partition = WholePartition(rows, 1)};
}

// Of a unit: matrices, then vectors, split over tp; then replicated vectors; then padding.
TEST(ParameterStoreTest, PlacesUnitAfterUnit) {
  constexpr int64_t kBlock = kParameterAlignment;
  ParameterStore store;
  const Parameter& norm = store.Declare(VectorSpec("norm", 5, /*tensor_parallel=*/false));
  const Parameter& bias = store.Declare(VectorSpec("bias", kBlock, /*tensor_parallel=*/true));
  const Parameter& linear = store.Declare(NormalSpec("linear", 2, 3, WholePartition(2, 3)));
  store.BeginUnit();
  const Parameter& other = store.Declare(NormalSpec("other", 2, kBlock, WholePartition(2, kBlock)));
  store.AlsoUse(linear);
  store.Place({.dense = 2});

  EXPECT_EQ(linear.offset, 0);
  EXPECT_EQ(bias.offset, kBlock);
  EXPECT_EQ(norm.offset, 2 * kBlock);
  EXPECT_EQ(other.offset, 4 * kBlock);
  EXPECT_EQ(store.numel(), 6 * kBlock);
  ASSERT_EQ(store.units().size(), 2u);
  const ParameterUnit& first = store.units()[0];
  EXPECT_EQ(first.range, (FlatRange{0, 4 * kBlock})) << "two aligned shards";
  EXPECT_EQ(first.tensor_parallel, (FlatRange{0, 2 * kBlock}));
  EXPECT_EQ(first.replicated, (FlatRange{2 * kBlock, 3 * kBlock}));
  EXPECT_EQ(first.vectors, (FlatRange{kBlock, 3 * kBlock}));
  EXPECT_EQ(first.gaps, (std::vector<FlatRange>{{6, kBlock}, {2 * kBlock + 5, 4 * kBlock}}));
  EXPECT_EQ(first.users, 1);
  EXPECT_EQ(store.units()[1].also_uses, (std::vector<size_t>{0}));
  EXPECT_TRUE(store.units()[1].gaps.empty());
}

TEST(ParameterStoreTest, BindsAndUnbindsAUnit) {
  const auto device = MakeCpuDevice(1);
  ParameterStore store;
  const Parameter& linear = store.Declare(NormalSpec("linear", 2, 3, WholePartition(2, 3)));
  const Parameter& norm = store.Declare(VectorSpec("norm", 5, /*tensor_parallel=*/false));
  store.Place({});
  EXPECT_FALSE(linear.weight.defined());
  Tensor values =
      Tensor::Empty(*device, {store.units()[0].range.numel()}, DType::kF32, MemoryTag::kWeights);
  values.f32()[kParameterAlignment] = 4;
  store.BindWeights(0, values);
  EXPECT_EQ(linear.weight.shape(), (Shape{2, 3}));
  EXPECT_EQ(norm.weight.f32()[0], 4);
  EXPECT_FALSE(norm.gradient.defined());
  store.BindWeights(0, {});
  EXPECT_FALSE(norm.weight.defined());
}

TEST(ParameterStoreTest, AllocatesZeroedMemory) {
  const auto device = MakeCpuDevice(1);
  ParameterStore store;
  const Parameter& norm = store.Declare(VectorSpec("norm", 5, /*tensor_parallel=*/false));
  store.Allocate(*device, DType::kF32, DType::kBf16);
  EXPECT_EQ(norm.gradient.dtype(), DType::kBf16);
  EXPECT_EQ(norm.weight.f32()[4], 0.0f);
  EXPECT_EQ(norm.weight.f32()[5], 0.0f) << "padding";
  store.Initialize(1);
  EXPECT_EQ(norm.weight.f32()[4], 1.0f);
  EXPECT_EQ(norm.weight.f32()[5], 0.0f);
}

TEST(ParameterStoreTest, InitialValuesDoNotDependOnTheLayout) {
  const RowBlocks blocks = {8, 4, 4};
  const std::vector<float> whole =
      InitialValues(NormalSpec("qkv", 16, 6, RowBlocksPartition(blocks, 6, 1, 0)));
  for (int64_t rank = 0; rank < 2; ++rank) {
    const Partition rows = RowBlocksPartition(blocks, 6, 2, rank);
    const std::vector<float> shard = InitialValues(NormalSpec("qkv", 8, 6, rows));
    for (const RowSegment& segment : rows.segments) {
      for (int64_t i = 0; i < segment.rows * 6; ++i) {
        EXPECT_EQ(shard[static_cast<size_t>(segment.local_begin * 6 + i)],
                  whole[static_cast<size_t>(segment.global_begin * 6 + i)]);
      }
    }
    const std::vector<float> columns =
        InitialValues(NormalSpec("qkv", 16, 3, ColumnPartition(16, 6, 2, rank)));
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        EXPECT_EQ(columns[static_cast<size_t>(i * 3 + j)],
                  whole[static_cast<size_t>(i * 6 + rank * 3 + j)]);
      }
    }
  }
}

TEST(ParameterStoreTest, InitialValuesFollowABellCurve) {
  const std::vector<float> values =
      InitialValues(NormalSpec("w", 300, 200, WholePartition(300, 200)));
  double sum = 0;
  double squares = 0;
  int64_t within_one = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
    if (std::abs(value) < 0.02) ++within_one;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 3 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 2e-4);
  EXPECT_NEAR(static_cast<double>(within_one) / count, 0.68, 0.02);
}

TEST(ParameterStoreTest, NamesGiveDifferentValues) {
  EXPECT_NE(InitialValues(NormalSpec("a", 4, 4, WholePartition(4, 4))),
            InitialValues(NormalSpec("b", 4, 4, WholePartition(4, 4))));
}

}  // namespace
}  // namespace trimtab
