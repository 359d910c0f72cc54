#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "engine/base/error.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/vocabulary/byte_pair_merger.h"
#include "engine/data/vocabulary/normal_form.h"
#include "engine/data/vocabulary/pattern.h"
#include "engine/data/vocabulary/special_tokens.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using Parts = std::vector<std::string>;

Parts Matches(const std::string& expression, std::string_view text) {
  Parts parts;
  Pattern(expression, "here").Split(text, [&](std::string_view part, bool matches) {
    parts.emplace_back(matches ? "" : "!").append(part);
  });
  return parts;
}

TEST(ByteAlphabet, IsGpt2s) {
  EXPECT_EQ(ByteCharacter('a'), "a");
  EXPECT_EQ(ByteCharacter(' '), "\u0120");
  EXPECT_EQ(ByteCharacter('\n'), "\u010a");
  EXPECT_EQ(ByteCharacter(0), "\u0100");
  EXPECT_EQ(ByteCharacter(0x7F), "\u0121");
  EXPECT_EQ(ByteCharacter(0xAD), "\u0143");
  EXPECT_EQ(ByteCharacter(0xFF), "\u00ff");
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    std::string token = "x";
    token += ByteCharacter(value);
    std::string bytes = "x";
    bytes += static_cast<char>(byte);
    EXPECT_EQ(BytesOfToken(token), bytes);
  }
  for (const char* other : {" ", "a b", "\u0144", "\u4f60", "\xC4", "\xFF"}) {
    EXPECT_EQ(BytesOfToken(other), std::nullopt) << other;
  }
}

/// Joins the pair of the lowest rank, the first of several, by looking at all of them every time.
std::vector<int32_t> MergeSlowly(const std::vector<std::array<int32_t, 3>>& rules,
                                 std::vector<int32_t> tokens) {
  for (bool found = true; found;) {
    found = false;
    for (const auto& [left, right, merged] : rules) {
      for (size_t i = 0; i + 1 < tokens.size() && !found; ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] = merged;
        tokens.erase(tokens.begin() + static_cast<int64_t>(i) + 1);
        found = true;
      }
      if (found) break;
    }
  }
  return tokens;
}

TEST(BytePairMerger, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    BytePairMerger merger;
    std::vector<std::array<int32_t, 3>> rules;
    int32_t next = 3;
    for (int i = 0; i < 12; ++i) {
      const auto left = static_cast<int32_t>(random() % static_cast<uint32_t>(next));
      const auto right = static_cast<int32_t>(random() % static_cast<uint32_t>(next));
      if (!merger.Add(left, right, next)) continue;
      rules.push_back({left, right, next++});
    }
    std::vector<int32_t> tokens(random() % 40);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 3);
    const std::vector<int32_t> expected = MergeSlowly(rules, tokens);
    merger.Merge(tokens);
    ASSERT_EQ(tokens, expected);
  }
}

TEST(BytePairMerger, TakesLongWords) {
  BytePairMerger merger;
  for (int32_t i = 0; i < 17; ++i) merger.Add(i, i, i + 1);
  std::vector<int32_t> tokens((1 << 17) + 1);
  merger.Merge(tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{17, 0}));
}

TEST(SpecialTokens, AreFoundFromTheLeftTheLongestFirst) {
  SpecialTokens tokens;
  tokens.Add("<a>", 1);
  tokens.Add("<a><b>", 2);
  tokens.Add("<b>", 3);
  Parts parts;
  tokens.Split(
      "x<a><a><b>yy<b", [&](std::string_view text) { parts.emplace_back(text); },
      [&](int32_t id) { parts.push_back(std::to_string(id)); });
  EXPECT_EQ(parts, (Parts{"x", "1", "2", "yy<b"}));
  EXPECT_EQ(tokens.Find("<b>"), 3);
  EXPECT_EQ(tokens.Find("<c>"), std::nullopt);
  EXPECT_EQ(tokens.Find(""), std::nullopt);
}

TEST(SpecialTokens, TakeSpaceAndWholeWordsWhereTheyAreToldTo) {
  SpecialTokens tokens;
  tokens.Add("<l>", 1, {.takes_space_before = true});
  tokens.Add("<r>", 2, {.takes_space_behind = true});
  tokens.Add("w", 3, {.whole_word = true});
  const auto parts_of = [&](std::string_view text) {
    Parts parts;
    tokens.Split(
        text, [&](std::string_view part) { parts.emplace_back(part); },
        [&](int32_t id) { parts.push_back(std::to_string(id)); });
    return parts;
  };
  EXPECT_EQ(parts_of("a \u2003<l> b<r>\n c"), (Parts{"a", "1", " b", "2", "c"}));
  EXPECT_EQ(parts_of("<r>  <l>x"), (Parts{"2", "1", "x"}));
  EXPECT_EQ(parts_of("w ww w. \u00e9w w_"), (Parts{"3", " ww ", "3", ". \u00e9w w_"}));
}

TEST(Pattern, SplitsAndKeepsWhatLiesBetween) {
  EXPECT_EQ(Matches(R"(\p{L}+)", "ab 1\u4f60"), (Parts{"ab", "! 1", "\u4f60"}));
  EXPECT_EQ(Matches(R"(\s+(?!\S)|\s+)", "a   b"), (Parts{"!a", "  ", " ", "!b"}));
  EXPECT_EQ(Matches("(?i:'s)", "'S'\u017f"), (Parts{"'S", "'\u017f"}));
  EXPECT_EQ(Matches(R"([^\r\n\p{L}]?\P{N}+)", "\n1a"), (Parts{"\n", "1a"}));
  EXPECT_EQ(Matches("x*", "axb"), (Parts{"!a", "x", "!b"}));
  EXPECT_EQ(Matches("x", ""), Parts{});
}

TEST(Pattern, TakesTheUnionOfAClassWithinAClass) {
  // BLOOM's pattern: neither blanks nor those signs.
  const char* bloom = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+";
  EXPECT_EQ(Matches(bloom, "ab, c(d) |e\u3002f"),
            (Parts{"ab", "!,", " c", "!(", "d", "!) |", "e", "!\u3002", "f"}));
  EXPECT_EQ(Matches("[a[b[c]]d]+", "abcd[]"), (Parts{"abcd", "![]"}));
}

TEST(Pattern, TakesSpaceAsUnicodeDefinesIt) {
  for (const char* space : {" ", "\t", "\n", "\v", "\f", "\r", "\u0085", "\u00a0", "\u1680",
                            "\u2000", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_EQ(Matches(R"(\s)", space), Parts{space});
    EXPECT_EQ(Matches(R"([\s])", space), Parts{space});
    EXPECT_EQ(Matches(R"(\S|[^\s])", space), Parts{fmt::format("!{}", space)});
  }
  for (const char* other : {"\u180e", "\u200b", "\ufeff", "\x1c", "x"}) {
    EXPECT_EQ(Matches(R"(\s|[\s])", other), Parts{fmt::format("!{}", other)});
    EXPECT_EQ(Matches(R"(\S)", other), Parts{other});
  }
}

TEST(Pattern, TakesWordsAndLinesAsOnigurumaDoes) {
  EXPECT_EQ(Matches(R"(\w+)", "a_\u00b2\u0661\u2163\u0301 -\u2460b"),
            (Parts{"a_\u00b2\u0661\u2163\u0301", "! -\u2460", "b"}));
  EXPECT_EQ(Matches(R"([\w.]+|\W)", "a.b c"), (Parts{"a.b", " ", "c"}));
  EXPECT_EQ(Matches("^a", "aa\na"), (Parts{"a", "!a\n", "a"}));
  EXPECT_EQ(Matches("a$", "aa\na\n"), (Parts{"!a", "a", "!\n", "a", "!\n"}));
  EXPECT_EQ(Matches(R"(\s+$)", "a  \n"), (Parts{"!a", "  \n"}));
  EXPECT_EQ(Matches(R"([\u4e00-\x{4e01}])", "\u4e00\u4e02"), (Parts{"\u4e00", "!\u4e02"}));
  EXPECT_EQ(Matches(PatternOfText("a.$\u2581"), "a.$\u2581"), Parts{"a.$\u2581"});
}

TEST(Pattern, LeavesBytesThatAreNoText) {
  EXPECT_EQ(Matches(R"(\p{L}+|[^\p{L}])",
                    "ab\xFF\xFE"
                    "cd\xE2\x82"),
            (Parts{"ab", "!\xFF\xFE", "cd", "!\xE2\x82"}));
}

TEST(Pattern, RefusesWhatOthersReadDifferently) {
  for (const char* bad :
       {R"([\W])",    R"(a\b)",   R"([\S])",     "[a&&b]", "[a[^b]]", "[a-[b]]", "[[a]-b]",
        "[a[-z]]",    "[a[b-]c]", "[[:alpha:]]", "[a[b]",  R"(\u12)", R"(\h)",   R"(\d{1,3}+)",
        "(?<name>a)", "(?#x)",    "(?m)a",       "(",      "[a",      R"(\)"}) {
    const std::string message = MessageOf<InputError>([&] { Pattern(bad, "file: $.x"); });
    EXPECT_TRUE(message.starts_with("file: $.x: ") && message.find("expected") != std::string::npos)
        << bad << ": " << message;
  }
}

TEST(NormalForm, ComposesAndLeavesBytesThatAreNoText) {
  EXPECT_EQ(Normalize("e\u0301t", NormalForm::kNfc), "\u00e9t");
  EXPECT_EQ(Normalize("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalize("\u1112\u1161\u11ab", NormalForm::kNfc), "\ud55c");
  EXPECT_EQ(Normalize("\ufb01\u00bd", NormalForm::kNfc), "\ufb01\u00bd");
  EXPECT_EQ(Normalize("\ufb01", NormalForm::kNfkc), "fi");
  EXPECT_EQ(Normalize("e\u0301\xFF", NormalForm::kNfc), "e\u0301\xFF");
  EXPECT_EQ(NormalFormOf("NFC"), NormalForm::kNfc);
  EXPECT_EQ(NormalFormOf("Lowercase"), std::nullopt);
}

}  // namespace
}  // namespace trimtab
