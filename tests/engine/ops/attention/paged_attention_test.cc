#include "engine/ops/attention/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

struct Case {
  AttentionShape shape;  // of one token
  std::vector<PagedSegment> sequences;
  int64_t block_size;
  bool sinks = false;
};

// Prompts in one piece and in chunks, single tokens; grouped and plain heads, odd sizes.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{.heads = 1, .kv_heads = 1, .head_size = 1}, {{0, 1, 0}}, 1},
      {{.heads = 4, .kv_heads = 2, .head_size = 5}, {{0, 7, 0}, {7, 1, 12}, {8, 3, 2}}, 4},
      {{.heads = 3, .kv_heads = 1, .head_size = 16}, {{0, 1, 40}, {1, 1, 0}, {2, 33, 8}}, 16},
      {{.heads = 2, .kv_heads = 2, .head_size = 34, .scores = {.scale = 0.8, .soft_cap = 1.5}},
       {{0, 20, 3}},
       8},
      {{.heads = 2,
        .kv_heads = 1,
        .head_size = 4,
        .scores = {.window = 5, .alibi_heads = 4, .alibi_first = 1}},
       {{0, 9, 0}, {9, 1, 17}, {10, 70, 6}},
       3},
      {{.heads = 4, .kv_heads = 2, .head_size = 8, .scores = {.window = 7}},
       {{0, 12, 3}, {12, 1, 0}, {13, 1, 30}},
       4,
       /*sinks=*/true},
      {{.heads = 5, .kv_heads = 1, .head_size = 11, .value_head_size = 7, .values_in_keys = true},
       {{0, 7, 0}, {7, 1, 12}, {8, 20, 2}},
       4},
      {{.heads = 2, .kv_heads = 2, .head_size = 6, .value_head_size = 6, .values_in_keys = true},
       {{0, 3, 9}},
       3}};
  return cases;
}

int64_t RowsOf(const Case& c) { return c.sequences.back().first_row + c.sequences.back().rows; }

// Of 4 heads, from the paper.
double SlopeOf(const ScoreOptions& scores, int64_t head) {
  static const double of_four[] = {0.25, 0.0625, 0.015625, 0.00390625};
  return scores.alibi_heads == 0 ? 0.0 : of_four[scores.alibi_first + head];
}

// Of a head; where there are any.
double SinkOf(int64_t head) { return 0.7 * static_cast<double>(head) - 1.0; }

// The keys and values of one sequence, token by token [KV heads, D or Dv] each.
struct History {
  std::vector<std::vector<double>> keys;
  std::vector<std::vector<double>> values;
};

std::vector<double> Attend(const AttentionShape& s, std::span<const double> query, int64_t head,
                           const History& history, int64_t last, bool sinks) {
  const int64_t kv_head = head / (s.heads / s.kv_heads);
  const int64_t begin = s.scores.window > 0 ? std::max<int64_t>(0, last + 1 - s.scores.window) : 0;
  std::vector<double> out(static_cast<size_t>(s.value_size()));
  double sum = sinks ? std::exp(SinkOf(head)) : 0.0;
  for (int64_t t = begin; t <= last; ++t) {
    double score = 0;
    for (int64_t d = 0; d < s.head_size; ++d) {
      score += query[static_cast<size_t>(d)] *
               history.keys[static_cast<size_t>(t)][static_cast<size_t>(kv_head * s.head_size + d)];
    }
    score *= s.scores.scale > 0 ? s.scores.scale : 1 / std::sqrt(double(s.head_size));
    if (s.scores.soft_cap > 0) score = s.scores.soft_cap * std::tanh(score / s.scores.soft_cap);
    score -= SlopeOf(s.scores, head) * static_cast<double>(last - t);
    const double weight = std::exp(score);
    sum += weight;
    for (int64_t d = 0; d < s.value_size(); ++d) {
      out[static_cast<size_t>(d)] +=
          weight *
          history.values[static_cast<size_t>(t)][static_cast<size_t>(kv_head * s.value_size() + d)];
    }
  }
  for (double& value : out) value /= sum;
  return out;
}

class PagedAttentionTest : public OpTest {
 protected:
  /// Stores the history and then the step's rows into a cache of `entries`, attends, and compares
  /// with the formula over the values as they were given.
  void Check(const Case& c, DType entries, double tolerance_of_result) {
    AttentionShape shape = Of(c, RowsOf(c));
    std::vector<std::vector<int32_t>> blocks;
    int32_t next = 0;
    for (const PagedSegment& each : c.sequences) {
      auto& own = blocks.emplace_back();
      const int64_t count = CeilDiv(each.end_position(), c.block_size);
      for (int64_t i = 0; i < count; ++i) own.insert(own.begin(), next++);  // backwards
    }
    const auto make = shape.values_in_keys ? NewKeyCache : NewPagedCache;
    const PagedCache cache =
        make(device(), next, c.block_size, shape.kv_heads, shape.head_size, entries);
    std::vector<History> histories(c.sequences.size());
    StoreBefore(c, blocks, cache, histories);

    const auto values = Values(shape.tokens() * shape.qkv_size(), 99);
    const Tensor qkv = Input({shape.tokens(), shape.qkv_size()}, values);
    shape.rows = RowLayout::Paged(device(), c.sequences, blocks, MemoryTag::kActivations);
    StoreKv(shape, qkv, cache);
    Tensor sinks;
    if (c.sinks) {
      std::vector<float> logits;
      for (int64_t h = 0; h < shape.heads; ++h) logits.push_back(static_cast<float>(SinkOf(h)));
      sinks = Input({shape.heads}, logits);
    }
    Tensor out = Output({shape.tokens(), shape.out_size()});
    PagedAttention(shape, qkv, cache, sinks, out);

    std::vector<double> expected;
    const std::vector<double> given = ToDouble(values);
    for (size_t i = 0; i < c.sequences.size(); ++i) {
      const PagedSegment& each = c.sequences[i];
      Append(shape, given, each.first_row, each.rows, histories[i]);
      for (int64_t row = 0; row < each.rows; ++row) {
        for (int64_t head = 0; head < shape.heads; ++head) {
          const size_t at = static_cast<size_t>((each.first_row + row) * shape.qkv_size() +
                                                head * shape.head_size);
          const auto query = std::span(given).subspan(at, static_cast<size_t>(shape.head_size));
          const auto result =
              Attend(shape, query, head, histories[i], each.first_position + row, c.sinks);
          expected.insert(expected.end(), result.begin(), result.end());
        }
      }
    }
    ExpectClose(Read(out), expected, tolerance_of_result, std::string(Name(entries)));
  }

 private:
  static AttentionShape Of(const Case& c, int64_t rows) {
    AttentionShape shape = c.shape;
    shape.rows = {1, rows};
    return shape;
  }

  static void Append(const AttentionShape& s, const std::vector<double>& qkv, int64_t first,
                     int64_t count, History& history) {
    for (int64_t row = first; row < first + count; ++row) {
      const auto key = qkv.begin() + row * s.qkv_size() + s.heads * s.head_size;
      const int64_t size = s.kv_heads * s.head_size;
      history.keys.emplace_back(key, key + size);
      if (!s.values_in_keys) {
        history.values.emplace_back(key + size, key + 2 * size);
        continue;
      }
      auto& values = history.values.emplace_back();
      for (int64_t h = 1; h <= s.kv_heads; ++h) {
        values.insert(values.end(), key + h * s.head_size - s.value_size(), key + h * s.head_size);
      }
    }
  }

  void StoreBefore(const Case& c, const std::vector<std::vector<int32_t>>& blocks,
                   const PagedCache& cache, std::vector<History>& histories) {
    for (size_t i = 0; i < c.sequences.size(); ++i) {
      const int64_t before = c.sequences[i].first_position;
      if (before == 0) continue;
      AttentionShape shape = Of(c, before);
      const auto values = Values(shape.tokens() * shape.qkv_size(), static_cast<uint32_t>(i + 1));
      const Tensor qkv = Input({shape.tokens(), shape.qkv_size()}, values);
      shape.rows = RowLayout::Paged(device(), {{0, before, 0}}, std::span(&blocks[i], 1),
                                    MemoryTag::kActivations);
      StoreKv(shape, qkv, cache);
      Append(shape, ToDouble(values), 0, before, histories[i]);
    }
  }
};

TEST_P(PagedAttentionTest, IsTheFormulaOverTheSequence) {
  for (const Case& c : Cases()) {
    if (Skips(RowsOf(c) * 300)) continue;
    Check(c, dtype(), tolerance().product);
  }
}

// Entries round the values by half a step of their type: 2^-4 of a value in e4m3, 1 / 254 of the
// head's largest in int8.
TEST_P(PagedAttentionTest, RoundedEntriesStayClose) {
  const Case& c = Cases()[1];
  Check(c, DType::kBf16, 0.02);
  Check(c, DType::kF16, 0.02);
  Check(c, DType::kF8E4M3, 0.1);
  Check(c, DType::kI8, 0.02);
  Check(Cases()[6], DType::kF8E4M3, 0.1);
  Check(Cases()[6], DType::kI8, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Devices, PagedAttentionTest, testing::ValuesIn(AllTargets()), TargetName);

// A row's bits do not depend on the rows around it.
TEST(PagedAttentionRowsTest, AreIndependentOnTheCpu) {
  const std::unique_ptr<Device> device = MakeCpuDevice(2);
  constexpr int64_t kLength = 150;
  AttentionShape shape = {.rows = {1, kLength}, .heads = 6, .kv_heads = 2, .head_size = 24};
  shape.scores.window = 77;
  const std::vector<float> values = RandomValues(kLength * shape.qkv_size(), 5);
  const PagedCache cache = NewPagedCache(*device, 10, 16, 2, 24, DType::kF32);
  const std::vector<std::vector<int32_t>> blocks = {{3, 1, 4, 0, 5, 9, 2, 6, 8, 7}};
  const auto run = [&](int64_t begin, int64_t end) {
    const Tensor qkv = Tensor::Empty(*device, {end - begin, shape.qkv_size()}, DType::kF32,
                                     MemoryTag::kActivations);
    Upload(qkv, std::span(values).subspan(static_cast<size_t>(begin * shape.qkv_size()),
                                          static_cast<size_t>(qkv.numel())));
    shape.rows =
        RowLayout::Paged(*device, {{0, end - begin, begin}}, blocks, MemoryTag::kActivations);
    StoreKv(shape, qkv, cache);
    Tensor out =
        Tensor::Empty(*device, {end - begin, 6 * 24}, DType::kF32, MemoryTag::kActivations);
    PagedAttention(shape, qkv, cache, /*sinks=*/{}, out);
    return Download(out);
  };
  const std::vector<float> whole = run(0, kLength);
  std::vector<float> pieces;
  for (int64_t begin = 0; begin < kLength;) {
    const int64_t end = std::min(kLength, begin + 1 + begin % 31);
    const std::vector<float> part = run(begin, end);
    pieces.insert(pieces.end(), part.begin(), part.end());
    begin = end;
  }
  EXPECT_EQ(pieces, whole);
}

}  // namespace
}  // namespace trimtab
