#include "engine/config/run/packing_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(PackingConfig, RoundTripsThroughJson) {
  const PackingConfig packing = {.mask = AttentionMask::kDocuments,
                                 .lengths = {{.tokens = 512, .weight = 3}, {.tokens = 9}}};
  EXPECT_EQ(PackingConfigFromJson(ToJson(packing), "run: $.packing"), packing);
  EXPECT_EQ(PackingConfigFromJson(nlohmann::json::object(), "run"), PackingConfig());
}

TEST(PackingConfig, RefusesWhatIsNoLength) {
  const auto message = [](const char* text) -> std::string {
    try {
      PackingConfigFromJson(nlohmann::json::parse(text), "run: $.packing");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      message(R"({"mask": "document"})"),
      "run: $.packing.mask: expected one of causal, documents, got \"document\"; did you mean "
      "'documents'?");
  EXPECT_EQ(message(R"({"lengths": 5})"),
            "run: $.packing.lengths: expected an array of lengths of documents, got 5");
  EXPECT_EQ(message(R"({"lengths": [{"weight": 1}]})").substr(0, 34),
            "run: $.packing.lengths[0].tokens: ");
  EXPECT_NE(message(R"({"lengths": [{"tokens": 0}]})"), "");
}

/// Averages over every way to cut a sequence out of documents in a row.
double CountedShare(const std::vector<int64_t>& documents, int64_t sequence, int64_t window) {
  std::vector<int64_t> positions;
  // Long enough for every cut: the documents repeat.
  int64_t period = 0;
  for (const int64_t length : documents) period += length;
  while (std::ssize(positions) < period + sequence) {
    for (const int64_t length : documents) {
      for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    }
  }
  double visible = 0;
  double causal = 0;
  for (int64_t cut = 0; cut < period; ++cut) {
    for (int64_t t = 0; t < sequence; ++t) {
      const int64_t most = window > 0 ? std::min(window, t + 1) : t + 1;
      causal += static_cast<double>(most);
      visible += static_cast<double>(std::min(most, positions[static_cast<size_t>(cut + t)] + 1));
    }
  }
  return visible / causal;
}

// A query's own document alone counts, so the order of documents does not matter.
TEST(PackingConfig, VisibleShareIsTheMeanOverAllCuts) {
  const PackingConfig packing = {
      .mask = AttentionMask::kDocuments,
      .lengths = {{.tokens = 3, .weight = 2}, {.tokens = 7, .weight = 1}, {.tokens = 40}}};
  const std::vector<int64_t> documents = {3, 7, 3, 40};
  for (const int64_t sequence : {1, 5, 24, 60}) {
    for (const int64_t window : {0, 1, 4, 30, 100}) {
      EXPECT_NEAR(packing.VisibleShare(sequence, window), CountedShare(documents, sequence, window),
                  1e-12)
          << sequence << ", window " << window;
    }
  }
}

TEST(PackingConfig, WithoutLengthsOrMaskAllIsVisible) {
  PackingConfig packing = {.mask = AttentionMask::kDocuments, .lengths = {}};
  EXPECT_EQ(packing.VisibleShare(100, 0), 1);
  packing = {.mask = AttentionMask::kCausal, .lengths = {{.tokens = 5}}};
  EXPECT_EQ(packing.VisibleShare(100, 0), 1);
}

}  // namespace
}  // namespace trimtab
