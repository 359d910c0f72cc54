#include "engine/data/dataset/dataset.h"

#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

/// A dataset of the tokens 0, 1, 2, ... in documents of uneven length, so that a token tells where
/// it stood.
std::string CountingDataset(int64_t tokens) {
  const std::string prefix = ScratchFolder() + "/data";
  IndexedDatasetBuilder builder(prefix, {"byte", 60000, 0});
  for (int64_t at = 0; at < tokens;) {
    const int64_t length = std::min<int64_t>(1 + at % 7, tokens - at);
    std::vector<int32_t> document(static_cast<size_t>(length));
    std::iota(document.begin(), document.end(), static_cast<int32_t>(at));
    builder.AddDocument(document);
    at += length;
  }
  builder.Finish();
  return prefix;
}

std::vector<int32_t> SampleOf(const TokenSource& source, int64_t index, int64_t sequence_length) {
  std::vector<int32_t> tokens(static_cast<size_t>(sequence_length + 1));
  source.Sample(index, tokens);
  return tokens;
}

TEST(Dataset, EveryEpochVisitsEveryWindowOnce) {
  const int64_t sequence_length = 8;
  const auto source = OpenDataset(CountingDataset(1000), sequence_length, 3);
  const int64_t windows = 999 / sequence_length;
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int32_t, int> starts;
    std::vector<int32_t> order;
    for (int64_t i = 0; i < windows; ++i) {
      const auto tokens = SampleOf(*source, epoch * windows + i, sequence_length);
      for (size_t t = 1; t < tokens.size(); ++t) ASSERT_EQ(tokens[t], tokens[0] + int32_t(t));
      EXPECT_EQ(tokens[0] % sequence_length, 0);
      ++starts[tokens[0]];
      order.push_back(tokens[0]);
    }
    EXPECT_EQ(static_cast<int64_t>(starts.size()), windows);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(Dataset, DocumentsOfASampleBeginWhereTheIndexSays) {
  const int64_t sequence_length = 16;
  const auto source = OpenDataset(CountingDataset(500), sequence_length, 3);
  std::map<int64_t, bool> begins_document;
  for (int64_t at = 0; at < 500; at += 1 + at % 7) begins_document[at] = true;
  for (int64_t i = 0; i < 40; ++i) {
    const auto tokens = SampleOf(*source, i, sequence_length);
    std::vector<int64_t> expected;
    for (int64_t t = 1; t <= sequence_length; ++t) {
      if (begins_document[tokens[static_cast<size_t>(t)]]) expected.push_back(t);
    }
    std::vector<int64_t> begins;
    source->DocumentBegins(i, sequence_length, begins);
    EXPECT_EQ(begins, expected) << "sample " << i;
    EXPECT_FALSE(begins.empty());
  }
}

// As often as their lengths say: half of the documents have 3 tokens, so that they begin every 8.
TEST(Synthetic, DocumentsHaveTheLengthsThatAreStated) {
  const auto source =
      MakeSyntheticSource(61, 5, {{.tokens = 3, .weight = 2}, {.tokens = 13, .weight = 2}});
  std::vector<int64_t> begins;
  std::map<int64_t, int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) {
    const size_t before = begins.size();
    source->DocumentBegins(i, 100, begins);
    for (size_t j = before + 1; j < begins.size(); ++j) ++lengths[begins[j] - begins[j - 1]];
  }
  EXPECT_NEAR(static_cast<double>(begins.size()), 200 * 100 / 8.0, 100);
  EXPECT_EQ(lengths.size(), 2u);
  EXPECT_GT(lengths[3], 900);
  EXPECT_GT(lengths[13], 900);
  std::vector<int64_t> none;
  MakeSyntheticSource(61, 5)->DocumentBegins(0, 100, none);
  EXPECT_TRUE(none.empty());
}

TEST(Dataset, APositionIsOnlyTheNumberOfSamples) {
  const std::string prefix = CountingDataset(500);
  const auto first = OpenDataset(prefix, 16, 11);
  std::vector<std::vector<int32_t>> straight;
  for (int64_t i = 0; i < 100; ++i) straight.push_back(SampleOf(*first, i, 16));
  const auto resumed = OpenDataset(prefix, 16, 11);
  for (int64_t i = 60; i < 100; ++i) {
    EXPECT_EQ(SampleOf(*resumed, i, 16), straight[static_cast<size_t>(i)]);
  }
  const auto other_seed = OpenDataset(prefix, 16, 12);
  int same = 0;
  for (int64_t i = 0; i < 31; ++i) {
    same += SampleOf(*other_seed, i, 16) == straight[static_cast<size_t>(i)] ? 1 : 0;
  }
  EXPECT_LT(same, 10);
}

TEST(Dataset, TakesTheShortestOneThatHoldsASample) {
  const auto source = OpenDataset(CountingDataset(9), 8, 1);
  EXPECT_EQ(SampleOf(*source, 0, 8).back(), 8);
  EXPECT_EQ(SampleOf(*source, 12345, 8).front(), 0);
}

TEST(Dataset, RefusesOneShorterThanASample) {
  const std::string prefix = CountingDataset(8);
  const std::string message = MessageOf<InputError>([&] { OpenDataset(prefix, 8, 1); });
  EXPECT_NE(message.find("8 tokens; expected at least 9"), std::string::npos) << message;
  EXPECT_NE(message.find(prefix + ".bin"), std::string::npos) << message;
}

TEST(Dataset, RefusesAnIdOutsideTheVocabulary) {
  const std::string prefix = CountingDataset(100);
  WriteBytes(prefix + ".json",
             R"({"schema_version": 1, "tokenizer": "byte", "vocab_size": 50, "eod_id": 0})");
  const auto source = OpenDataset(prefix, 99, 1);
  EXPECT_EQ(source->vocab_size(), 50);
  const std::string message = MessageOf<InputError>([&] { SampleOf(*source, 0, 99); });
  EXPECT_NE(message.find("token 50 has id 50; expected 0 to 49"), std::string::npos) << message;
}

TEST(Dataset, FindsTheVocabularyOfMegatronsOwn) {
  const std::string prefix = CountingDataset(100);
  std::filesystem::remove(prefix + ".json");
  EXPECT_EQ(OpenDataset(prefix, 8, 1)->vocab_size(), 100);
}

TEST(SyntheticSource, IsDeterministicAndSpreadsOverTheVocabulary) {
  const auto source = MakeSyntheticSource(10, 5);
  EXPECT_EQ(source->vocab_size(), 10);
  EXPECT_EQ(SampleOf(*source, 7, 64), SampleOf(*MakeSyntheticSource(10, 5), 7, 64));
  EXPECT_NE(SampleOf(*source, 7, 64), SampleOf(*source, 8, 64));
  EXPECT_NE(SampleOf(*source, 7, 64), SampleOf(*MakeSyntheticSource(10, 6), 7, 64));
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < 100; ++i) {
    for (const int32_t token : SampleOf(*source, i, 99)) ++counts[token];
  }
  ASSERT_EQ(counts.size(), 10u);
  EXPECT_EQ(counts.begin()->first, 0);
  EXPECT_EQ(counts.rbegin()->first, 9);
  // 1000 of each expected, with a standard deviation of 30.
  for (const auto& [token, count] : counts) EXPECT_NEAR(count, 1000, 150) << token;
}

TEST(SyntheticSource, ReachesBothEndsOfALargeVocabulary) {
  const auto source = MakeSyntheticSource(50257, 1);
  for (const int32_t token : SampleOf(*source, 0, 10000)) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 50257);
  }
}

}  // namespace
}  // namespace trimtab
