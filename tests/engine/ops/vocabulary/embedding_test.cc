#include "engine/ops/vocabulary/embedding.h"

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr int64_t kVocab = 11;

// Tokens with repeats, over the whole vocabulary.
std::vector<int32_t> Tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i * 7 % kVocab));
  return tokens;
}

using EmbeddingTest = OpTest;

TEST_P(EmbeddingTest, LooksUpTheShardsRowsAndZeroesTheOthers) {
  for (const int64_t rows : {1, 17, 200}) {
    for (const int64_t columns : {1, 3, 65, 130}) {
      for (const int64_t start : {0, 4}) {
        const int64_t shard_rows = start == 0 ? kVocab : 5;
        const auto tokens = Tokens(rows);
        const auto table = Values(shard_rows * columns, 1);
        std::vector<float> expected;
        for (const int32_t token : tokens) {
          for (int64_t j = 0; j < columns; ++j) {
            const int64_t row = token - start;
            const bool here = row >= 0 && row < shard_rows;
            expected.push_back(here ? table[static_cast<size_t>(row * columns + j)] : 0.0f);
          }
        }
        Tensor out = Output({rows, columns});
        EmbeddingForward(Ids(tokens), Input({shard_rows, columns}, table), start, out);
        EXPECT_EQ(Read(out), expected);
      }
    }
  }
}

TEST_P(EmbeddingTest, AddsGradientsOfRepeatedTokens) {
  for (const int64_t rows : {1, 17, 200}) {
    for (const int64_t columns : {1, 3, 65, 130}) {
      for (const int64_t start : {0, 4}) {
        const int64_t shard_rows = start == 0 ? kVocab : 5;
        const auto tokens = Tokens(rows);
        const auto dout = Values(rows * columns, 2);
        const auto before = GradientValues(shard_rows * columns, 3);
        auto expected = ToDouble(before);
        for (size_t i = 0; i < dout.size(); ++i) {
          const auto token = tokens[i / static_cast<size_t>(columns)];
          const int64_t row = token - start;
          if (row < 0 || row >= shard_rows) continue;
          expected[static_cast<size_t>(row * columns) + i % static_cast<size_t>(columns)] +=
              dout[i];
        }
        Tensor dtable = Input({shard_rows, columns}, before, gradient_dtype());
        EmbeddingBackward(Ids(tokens), Input({rows, columns}, dout), start, dtable);
        ExpectClose(Read(dtable), expected, tolerance(gradient_dtype()).reduction, "dtable");
      }
    }
  }
}

TEST_P(EmbeddingTest, PositionsFollowTheFlattenedRows) {
  constexpr int64_t kSequence = 7;
  constexpr int64_t kPositions = 9;  // a longer table than the sequence
  for (const int64_t rows : {1, 7, 20, 301}) {
    for (const int64_t columns : {1, 17, 130}) {
      for (const int64_t start : {0, 5, 12}) {
        const auto table = Values(kPositions * columns, 4);
        const auto x = Values(rows * columns, 5);
        auto expected_x = ToDouble(x);
        const auto before = GradientValues(kPositions * columns, 6);
        auto expected_table = ToDouble(before);
        for (size_t i = 0; i < x.size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) / columns;
          const auto at = static_cast<size_t>((start + row) % kSequence * columns +
                                              static_cast<int64_t>(i) % columns);
          expected_x[i] += table[at];
          expected_table[at] += x[i];
        }
        Tensor table_device = Input({kPositions, columns}, table);
        Tensor x_device = Input({rows, columns}, x);
        Tensor dtable = Input({kPositions, columns}, before, gradient_dtype());
        PositionBackward(x_device, start, RowLayout(8, kSequence), dtable);
        PositionForward(table_device, start, RowLayout(8, kSequence), x_device);
        ExpectClose(Read(x_device), expected_x, tolerance().elementwise, "x");
        ExpectClose(Read(dtable), expected_table, tolerance(gradient_dtype()).reduction, "dtable");
      }
    }
  }
}

// Several rows of a sequence may be at one position: the table's gradient adds them up.
TEST_P(EmbeddingTest, PositionsOfPackedDocumentsBeginAnew) {
  constexpr int64_t kColumns = 17;
  constexpr int64_t kRows = 9;
  constexpr int64_t kStart = 3;
  const std::vector<int32_t> positions = {0, 1, 0, 1, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  RowLayout layout(2, 7);
  layout.positions = Ids(positions);
  const auto table = Values(7 * kColumns, 4);
  const auto x = Values(kRows * kColumns, 5);
  auto expected_x = ToDouble(x);
  const auto before = GradientValues(7 * kColumns, 6);
  auto expected_table = ToDouble(before);
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / kColumns;
    const auto at = static_cast<size_t>(positions[static_cast<size_t>(kStart + row)] * kColumns +
                                        static_cast<int64_t>(i) % kColumns);
    expected_x[i] += table[at];
    expected_table[at] += x[i];
  }
  Tensor x_device = Input({kRows, kColumns}, x);
  Tensor dtable = Input({7, kColumns}, before, gradient_dtype());
  PositionBackward(x_device, kStart, layout, dtable);
  PositionForward(Input({7, kColumns}, table), kStart, layout, x_device);
  ExpectClose(Read(x_device), expected_x, tolerance().elementwise, "x");
  ExpectClose(Read(dtable), expected_table, tolerance(gradient_dtype()).reduction, "dtable");
}

TEST_P(EmbeddingTest, PositionsOfASharedSequenceAreThoseOfTheRank) {
  constexpr int64_t kLength = 12;  // over two ranks: runs of three
  constexpr int64_t kColumns = 17;
  for (const int64_t rank : {0, 1}) {
    const RowLayout layout = RowLayout::ZigZag(4, kLength, 2, rank);
    for (const int64_t start : {0, 4}) {
      constexpr int64_t kRows = 15;
      const auto table = Values(kLength * kColumns, 4);
      const auto x = Values(kRows * kColumns, 5);
      auto expected_x = ToDouble(x);
      const auto before = GradientValues(kLength * kColumns, 6);
      auto expected_table = ToDouble(before);
      const int64_t held[] = {3 * rank,     3 * rank + 1,  3 * rank + 2,
                              9 - 3 * rank, 10 - 3 * rank, 11 - 3 * rank};
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / kColumns;
        const auto at = static_cast<size_t>(held[(start + row) % 6] * kColumns +
                                            static_cast<int64_t>(i) % kColumns);
        expected_x[i] += table[at];
        expected_table[at] += x[i];
      }
      Tensor x_device = Input({kRows, kColumns}, x);
      Tensor dtable = Input({kLength, kColumns}, before, gradient_dtype());
      PositionBackward(x_device, start, layout, dtable);
      PositionForward(Input({kLength, kColumns}, table), start, layout, x_device);
      ExpectClose(Read(x_device), expected_x, tolerance().elementwise, "x");
      ExpectClose(Read(dtable), expected_table, tolerance(gradient_dtype()).reduction, "dtable");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
