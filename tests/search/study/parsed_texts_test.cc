#include "search/study/parsed_texts.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(ParsedTexts, ReadsEachTextOnce) {
  ParsedTexts<int> numbers;
  int reads = 0;
  const auto read = [&](const nlohmann::json& json) {
    ++reads;
    return json.at("n").get<int>();
  };
  EXPECT_EQ(numbers.Of(R"({"n": 1})", read), 1);
  EXPECT_EQ(numbers.Of(R"({"n": 2})", read), 2);
  EXPECT_EQ(numbers.Of(R"({"n": 1})", read), 1);
  EXPECT_EQ(reads, 2);
}

TEST(ParsedTexts, RefusesADamagedTextEachTime) {
  ParsedTexts<int> numbers;
  const auto read = [](const nlohmann::json& json) { return json.at("n").get<int>(); };
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(numbers.Of("{", read), nlohmann::json::exception);
    EXPECT_THROW(numbers.Of("{}", read), nlohmann::json::exception);
  }
}

}  // namespace
}  // namespace trimtab
