#include "engine/layers/parameter.h"

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
  store.Allocate(*device, DType::kF32, DType::kF32, 1);
  store.Initialize(1234);
  std::vector<float> values(static_cast<size_t>(parameter.numel()));
  CopyToHost(parameter.weight, values);
  return values;
}

TEST(ParameterStoreTest, PutsTensorParallelParametersFirst) {
  const auto device = MakeCpuDevice(1);
  ParameterStore store;
  ParameterSpec replicated = {.name = "norm",
                              .rows = 5,
                              .is_matrix = false,
                              .tensor_parallel = false,
                              .init = InitKind::kOnes,
                              .partition = WholePartition(5, 1)};
  const Parameter& norm = store.Declare(replicated);
  const Parameter& linear = store.Declare(NormalSpec("linear", 2, 3, WholePartition(2, 3)));
  store.Allocate(*device, DType::kF32, DType::kBf16, 3);
  EXPECT_EQ(linear.offset, 0);
  EXPECT_EQ(norm.offset, kParameterAlignment);
  EXPECT_EQ(store.tensor_parallel_numel(), kParameterAlignment);
  EXPECT_EQ(store.numel(), 2 * kParameterAlignment);
  EXPECT_EQ(store.padded_numel(), 3 * kParameterAlignment) << "three aligned shards";
  EXPECT_EQ(norm.gradient.dtype(), DType::kBf16);
  store.Initialize(1);
  EXPECT_EQ(norm.weight.f32()[0], 1.0f);
  EXPECT_EQ(store.weights().f32()[6], 0.0f) << "the gap before the next parameter";
  EXPECT_EQ(store.weights().f32()[2 * kParameterAlignment], 0.0f) << "padding";
}

TEST(ParameterStoreTest, PutsDuplicatesBehindOtherTensorParallelParameters) {
  ParameterStore store;
  ParameterSpec table = NormalSpec("table", 2, 3, WholePartition(2, 3));
  table.duplicate = true;
  const Parameter& duplicate = store.Declare(table);
  const Parameter& linear = store.Declare(NormalSpec("linear", 2, 3, WholePartition(2, 3)));
  store.Place();
  EXPECT_EQ(linear.offset, 0);
  EXPECT_EQ(duplicate.offset, kParameterAlignment);
  EXPECT_EQ(store.own_tensor_parallel_numel(), kParameterAlignment);
  EXPECT_EQ(store.tensor_parallel_numel(), 2 * kParameterAlignment);
}

TEST(ParameterStoreTest, InitialValuesDoNotDependOnTheLayout) {
  const std::vector<int64_t> blocks = {8, 4, 4};
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
