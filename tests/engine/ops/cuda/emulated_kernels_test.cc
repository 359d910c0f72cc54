// What the cases of the op suite do not reach in the CUDA kernels: operands that do not start where
// packs may, many blocks, tokens of all frequencies. The reference is the cpu device with the same
// stored values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>

#include "engine/base/float16.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"

namespace trimtab {
namespace {

// Results differ by roundings of the storage type where fp32 sums are added in another order.
double RelativeTolerance(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return 1.0 / 256;
    case DType::kF16:
      return 1.0 / 2048;
    default:
      return 2e-6;
  }
}

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

/// One device with operands whose first element stands `offset` elements into an allocation.
class Bench {
 public:
  Bench(std::unique_ptr<Device> device, int64_t offset)
      : device_(std::move(device)), offset_(offset) {}

  Device& device() { return *device_; }

  Tensor Empty(const Shape& shape, DType dtype) {
    const Tensor whole =
        Tensor::Empty(*device_, {shape.numel() + offset_ + 1}, dtype, MemoryTag::kActivations);
    return whole.Slice(offset_, shape);
  }

  Tensor Upload(const Shape& shape, DType dtype, const std::vector<float>& values) {
    const Tensor tensor = Empty(shape, dtype);
    if (dtype == DType::kF32) {
      device_->CopyFromHost(tensor.raw(), values.data(), tensor.bytes());
      return tensor;
    }
    std::vector<uint16_t> bits(values.size());
    std::transform(values.begin(), values.end(), bits.begin(), [dtype](float value) {
      return dtype == DType::kBf16 ? FloatToBf16(value) : FloatToF16(value);
    });
    device_->CopyFromHost(tensor.raw(), bits.data(), tensor.bytes());
    return tensor;
  }

  Tensor Ids(const std::vector<int32_t>& values) {
    const Tensor tensor = Empty({static_cast<int64_t>(values.size())}, DType::kI32);
    device_->CopyFromHost(tensor.raw(), values.data(), tensor.bytes());
    return tensor;
  }

  std::vector<float> Download(const Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    if (tensor.dtype() == DType::kF32) {
      device_->CopyToHost(values.data(), tensor.raw(), tensor.bytes());
      return values;
    }
    std::vector<uint16_t> bits(values.size());
    device_->CopyToHost(bits.data(), tensor.raw(), tensor.bytes());
    std::transform(bits.begin(), bits.end(), values.begin(), [&](uint16_t value) {
      return tensor.dtype() == DType::kBf16 ? Bf16ToFloat(value) : F16ToFloat(value);
    });
    return values;
  }

 private:
  std::unique_ptr<Device> device_;
  int64_t offset_;
};

void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected,
                double tolerance, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = tolerance * (std::abs(double{expected[i]}) + 0.1 * largest);
    // Written so that NaN fails.
    ASSERT_TRUE(std::abs(double{actual[i]} - double{expected[i]}) <= allowed)
        << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i];
  }
}

using Case = std::tuple<DType, int64_t>;  // storage type, offset

class EmulatedKernelsTest : public testing::TestWithParam<Case> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }

  /// Runs `op` on both devices; it returns what to compare.
  template <typename Op>
  void Compare(Op op, const char* what, double tolerance) {
    Bench cpu(MakeCpuDevice(1), std::get<1>(GetParam()));
    Bench emulated(MakeEmulatedDevice(), std::get<1>(GetParam()));
    const std::vector<float> expected = op(cpu);
    ExpectSame(op(emulated), expected, tolerance, what);
  }
  template <typename Op>
  void Compare(Op op, const char* what) {
    Compare(op, what, RelativeTolerance(dtype()));
  }
};

TEST_P(EmulatedKernelsTest, ElementwiseOverManySizes) {
  for (const int64_t n : {1, 7, 8, 1000, 65539}) {
    Compare(
        [&](Bench& bench) {
          const Tensor x = bench.Upload({n}, dtype(), Normal(n, 1));
          Tensor y = bench.Upload({n}, dtype(), Normal(n, 2));
          Add(x, y);
          return bench.Download(y);
        },
        "add", 0);
    for (const DType to : {DType::kF32, DType::kBf16, DType::kF16}) {
      Compare(
          [&](Bench& bench) {
            const Tensor x = bench.Upload({n}, dtype(), Normal(n, 3));
            Tensor y = bench.Empty({n}, to);
            Copy(x, y);
            return bench.Download(y);
          },
          "copy", 0);
    }
    for (const float value : {0.0f, 2.5f}) {
      Compare(
          [&](Bench& bench) {
            Tensor x = bench.Empty({n}, dtype());
            Fill(x, value);
            return bench.Download(x);
          },
          "fill", 0);
    }
  }
}

TEST_P(EmulatedKernelsTest, AddBiasOverManyShapes) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 7}, {100, 8}, {257, 264}, {9, 2056}}) {
    Compare(
        [&, rows = rows, columns = columns](Bench& bench) {
          const Tensor bias = bench.Upload({columns}, dtype(), Normal(columns, 1));
          Tensor x = bench.Upload({rows, columns}, dtype(), Normal(rows * columns, 2));
          AddBias(bias, x);
          const Tensor addend = bench.Upload({rows, columns}, dtype(), Normal(rows * columns, 3));
          AddBias(bias, x, addend);
          return bench.Download(x);
        },
        "add_bias", 0);
  }
}

TEST_P(EmulatedKernelsTest, SumsOfOneAndOfManyChunks) {
  for (const int64_t n : {1, 31, 16384, 16385, 300007}) {
    Compare(
        [&](Bench& bench) {
          const Tensor x = bench.Upload({n}, dtype(), Normal(n, 4));
          Tensor sum = bench.Empty({1}, DType::kF32);
          SumSquares(x, sum);
          return bench.Download(sum);
        },
        "sum_squares", 1e-7);
  }
}

TEST_P(EmulatedKernelsTest, SumsDoNotDependOnTheAlignment) {
  const int64_t n = 50001;
  std::vector<float> results;
  for (const int64_t offset : {0, 1, 3}) {
    Bench bench(MakeEmulatedDevice(), offset);
    const Tensor x = bench.Upload({n}, DType::kF32, Normal(n, 5));
    Tensor sum = bench.Empty({1}, DType::kF32);
    Sum(x, sum, false);
    Sum(x, sum, true);
    results.push_back(bench.Download(sum)[0]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(EmulatedKernelsTest, CrossEntropyWithPaddingAndTargetsElsewhere) {
  struct Sizes {
    int64_t columns;
    VocabShard shard;
  };
  const std::vector<Sizes> all = {
      {5, {0, 5}}, {24, {0, 17}}, {2048, {2048, 4000}}, {9000, {0, 8999}}, {16, {16, 12}}};
  for (const Sizes& sizes : all) {
    constexpr int64_t kRows = 6;
    std::vector<int32_t> targets;
    for (int32_t row = 0; row < kRows; ++row) {
      targets.push_back(static_cast<int32_t>(sizes.shard.start) - 1 +
                        row * static_cast<int32_t>(sizes.columns) / 4);
    }
    Compare(
        [&](Bench& bench) {
          const Tensor ids = bench.Ids(targets);
          Tensor logits =
              bench.Upload({kRows, sizes.columns}, dtype(), Normal(kRows * sizes.columns, 6));
          Tensor parts = bench.Empty({3, kRows}, DType::kF32);
          CrossEntropyParts(logits, ids, sizes.shard, parts);
          std::vector<float> results = bench.Download(parts);
          // A shard all padding: nothing to compare the other values with.
          for (float& value : results) value = std::max(value, -1e3f);
          return results;
        },
        "cross_entropy parts", 2e-6);
    Compare(
        [&](Bench& bench) {
          const Tensor ids = bench.Ids(targets);
          Tensor logits =
              bench.Upload({kRows, sizes.columns}, dtype(), Normal(kRows * sizes.columns, 6));
          // As if other shards had larger logits.
          std::vector<float> values(kRows, 4.5f);
          values.resize(3 * kRows, 3.25f);
          values.resize(6 * kRows, 2.5f);
          const Tensor parts = bench.Upload({2, 3, kRows}, DType::kF32, values);
          const Tensor scale = bench.Upload({1}, DType::kF32, {0.125f});
          Tensor losses = bench.Empty({kRows}, DType::kF32);
          CrossEntropyGrad(ids, sizes.shard, parts, scale, logits, losses);
          std::vector<float> results = bench.Download(logits);
          const std::vector<float> loss = bench.Download(losses);
          results.insert(results.end(), loss.begin(), loss.end());
          return results;
        },
        "cross_entropy gradients");
  }
}

TEST_P(EmulatedKernelsTest, CrossEntropyOfRowsThatAreKeptOrReadAgain) {
  for (const int64_t columns : {5, 24, 2048, 9000, 60001, 60008}) {
    constexpr int64_t kRows = 3;
    Compare(
        [&](Bench& bench) {
          const Tensor ids = bench.Ids({0, static_cast<int32_t>(columns) - 3, 2});
          Tensor logits = bench.Upload({kRows, columns}, dtype(), Normal(kRows * columns, 6));
          const Tensor scale = bench.Upload({1}, DType::kF32, {0.125f});
          Tensor losses = bench.Empty({kRows}, DType::kF32);
          CrossEntropy(ids, columns - 2, scale, logits, losses);
          std::vector<float> results = bench.Download(logits);
          const std::vector<float> loss = bench.Download(losses);
          results.insert(results.end(), loss.begin(), loss.end());
          return results;
        },
        "cross_entropy");
  }
}

TEST_P(EmulatedKernelsTest, EmbeddingsOfTokensOfAllFrequencies) {
  constexpr int64_t kVocab = 50;
  constexpr int64_t kStart = 10;
  constexpr int64_t kRows = 1500;  // more than the block that lists rows takes at once
  std::vector<int32_t> tokens(kRows);
  std::mt19937 generator(7);
  for (size_t i = 0; i < tokens.size(); ++i) {
    // One token has a third of the rows, two about 40, one 32, one 33, the others a few; some
    // belong to other shards.
    tokens[i] = i % 3 == 0 ? 20 : static_cast<int32_t>(generator() % 70);
  }
  for (size_t i = 0; i < 65; ++i) tokens[3 * i + 1] = i < 32 ? 9 + 100 : 9 + 101;
  for (const int64_t columns : {1, 8, 72, 300}) {
    Compare(
        [&](Bench& bench) {
          const Tensor ids = bench.Ids(tokens);
          const Tensor table =
              bench.Upload({kVocab, columns}, dtype(), Normal(kVocab * columns, 8));
          Tensor out = bench.Empty({kRows, columns}, dtype());
          EmbeddingForward(ids, table, kStart, out);
          return bench.Download(out);
        },
        "embedding_forward", 0);
    for (const DType gradient : {DType::kF32, DType::kBf16}) {
      Compare(
          [&](Bench& bench) {
            const Tensor ids = bench.Ids(tokens);
            const Tensor dout = bench.Upload({kRows, columns}, dtype(), Normal(kRows * columns, 9));
            Tensor dtable = bench.Upload({120, columns}, gradient, Normal(120 * columns, 10));
            EmbeddingBackward(ids, dout, kStart, dtable);
            return bench.Download(dtable);
          },
          "embedding_backward", RelativeTolerance(gradient));
    }
  }
}

TEST_P(EmulatedKernelsTest, PositionsOfARunOfRows) {
  constexpr int64_t kSequence = 12;
  for (const auto& [rows, start] :
       std::vector<std::pair<int64_t, int64_t>>{{60, 0}, {30, 18}, {5, 23}}) {
    for (const int64_t columns : {3, 40, 264}) {
      Compare(
          [&, rows = rows, start = start](Bench& bench) {
            const Tensor table = bench.Upload({16, columns}, dtype(), Normal(16 * columns, 11));
            Tensor x = bench.Upload({rows, columns}, dtype(), Normal(rows * columns, 12));
            PositionForward(table, start, RowLayout(5, kSequence), x);
            return bench.Download(x);
          },
          "position_forward", 0);
      for (const DType gradient : {DType::kF32, DType::kBf16}) {
        Compare(
            [&, rows = rows, start = start](Bench& bench) {
              const Tensor dx = bench.Upload({rows, columns}, dtype(), Normal(rows * columns, 13));
              Tensor dtable = bench.Upload({16, columns}, gradient, Normal(16 * columns, 14));
              PositionBackward(dx, start, RowLayout(5, kSequence), dtable);
              return bench.Download(dtable);
            },
            "position_backward", RelativeTolerance(gradient));
      }
    }
  }
}

TEST_P(EmulatedKernelsTest, CapturedWorkReadsNewValues) {
  Bench bench(MakeEmulatedDevice(), std::get<1>(GetParam()));
  Tensor x = bench.Upload({100}, dtype(), std::vector<float>(100, 1.0f));
  Tensor y = bench.Upload({100}, dtype(), std::vector<float>(100, 2.0f));
  Tensor sum = bench.Empty({1}, DType::kF32);
  const auto work = bench.device().Capture([&] {
    Add(x, y);
    SumSquares(y, sum);
  });
  EXPECT_EQ(bench.Download(y)[99], 2.0f);
  work->Replay();
  EXPECT_EQ(bench.Download(y)[99], 3.0f);
  EXPECT_EQ(bench.Download(sum)[0], 900.0f);
  Fill(x, 2.0f);
  work->Replay();
  EXPECT_EQ(bench.Download(sum)[0], 2500.0f);
}

TEST(EmulatedClip, DoesAsTheCpuForEveryKindOfNorm) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float largest : {0.0f, 3.0f, 1e30f, infinity, std::nanf("")}) {
    for (const float max_norm : {0.0f, 1.0f}) {
      std::vector<std::vector<float>> results;
      for (const bool emulated : {false, true}) {
        Bench bench(emulated ? MakeEmulatedDevice() : MakeCpuDevice(1), 0);
        std::vector<float> sums = Normal(1000, 15);
        for (float& value : sums) value *= value;
        sums[500] = largest;
        const Tensor parts = bench.Upload({1000}, DType::kF32, sums);
        Tensor scalars =
            bench.Upload({kUpdateScalarCount}, DType::kF32, {1e-3f, 1.5f, 1.25f, 1024.0f, 7, 7, 7});
        Clip(parts, max_norm, scalars);
        results.push_back(bench.Download(scalars));
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        if (std::isnan(results[0][i])) {
          EXPECT_TRUE(std::isnan(results[1][i]));
        } else if (std::isinf(results[0][i])) {
          EXPECT_EQ(results[1][i], results[0][i]);
        } else {
          EXPECT_NEAR(results[1][i], results[0][i], 1e-6f * std::abs(results[0][i]));
        }
      }
    }
  }
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [dtype, offset] = info.param;
  return std::string(Name(dtype)) + (offset == 0 ? "" : "_offset");
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedKernelsTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                                          testing::Values<int64_t>(0, 1)),
                         CaseName);

}  // namespace
}  // namespace trimtab
