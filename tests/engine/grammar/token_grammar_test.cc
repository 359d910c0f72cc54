#include "engine/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "engine/grammar/regex.h"
#include "tests/engine/grammar/grammar_walk.h"
#include "tests/engine/grammar/naive_recogniser.h"

namespace trimtab {
namespace {

using Expr = Grammar::Expr;

/// Every text of up to three of "abc".
std::vector<std::string> SmallTokens() {
  std::vector<std::string> tokens = {""};
  for (size_t begin = 0, length = 0; length < 3; ++length) {
    const size_t end = tokens.size();
    for (; begin < end; ++begin) {
      for (const char c : {'a', 'b', 'c'}) tokens.push_back(tokens[begin] + c);
    }
  }
  tokens.push_back("ab");  // twice
  return tokens;
}

Expr RandomExpr(Grammar& grammar, const std::vector<Grammar::Rule>& rules, int depth,
                std::mt19937& random) {
  const auto inner = [&] { return RandomExpr(grammar, rules, depth - 1, random); };
  switch (random() % (depth == 0 ? 3 : 7)) {
    case 0: {
      std::string bytes;
      for (size_t i = random() % 3; i > 0; --i) bytes += static_cast<char>('a' + random() % 3);
      return grammar.Bytes(bytes);
    }
    case 1: {
      ByteSet set;
      for (int c = 'a'; c <= 'c'; ++c) set.set(static_cast<size_t>(c), random() % 2 == 0);
      return grammar.Set(set);
    }
    case 2:
      return grammar.Call(rules[random() % rules.size()]);
    case 3:
    case 4: {
      std::vector<Expr> parts;
      for (size_t i = random() % 4; i > 0; --i) parts.push_back(inner());
      return grammar.Sequence(parts);
    }
    case 5: {
      std::vector<Expr> parts;
      for (size_t i = 1 + random() % 3; i > 0; --i) parts.push_back(inner());
      return grammar.Choice(parts);
    }
    default: {
      const auto min = static_cast<int64_t>(random() % 3);
      const bool bounded = random() % 2 == 0;
      return grammar.Repeat(
          inner(), min, bounded ? min + static_cast<int64_t>(random() % 3) : Grammar::kUnbounded);
    }
  }
}

/// Walks through random texts; in each place every token must be judged as the naive one judges.
void ExpectMasksOf(const Grammar& grammar, Grammar::Rule root, std::mt19937& random) {
  const auto vocabulary = std::make_shared<const TokenVocabulary>(SmallTokens());
  std::shared_ptr<const TokenGrammar> compiled;
  try {
    compiled = std::make_shared<const TokenGrammar>(grammar, root, vocabulary);
  } catch (const InputError&) {
    EXPECT_FALSE(NaiveRecogniser(grammar, root, "").IsBeginning());
    return;
  }
  for (int walk = 0; walk < 2; ++walk) {
    GrammarState state(compiled);
    std::string text;
    while (text.size() < 5) {
      ASSERT_EQ(state.CanEnd(), NaiveRecogniser(grammar, root, text).IsText()) << text;
      const auto mask = state.Allowed();
      std::vector<int32_t> allowed;
      for (int32_t token = 0; token < vocabulary->size(); ++token) {
        const std::string& bytes = vocabulary->bytes(token);
        const bool right =
            !bytes.empty() && NaiveRecogniser(grammar, root, text + bytes).IsBeginning();
        ASSERT_EQ(mask->Has(token), right) << "'" << text << "' + '" << bytes << "'";
        GrammarState copy = state;
        ASSERT_EQ(copy.Accept(token), right);
        if (right) allowed.push_back(token);
      }
      ASSERT_EQ(state.Finished(), allowed.empty());
      if (allowed.empty()) break;
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(state.Accept(token));
      text += vocabulary->bytes(token);
    }
  }
}

TEST(TokenGrammarTest, MasksOfRandomGrammarsAreThoseOfANaiveRecogniser) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Grammar grammar;
    std::vector<Grammar::Rule> rules;
    for (int i = 0; i < 3; ++i) rules.push_back(grammar.AddRule());
    for (const Grammar::Rule rule : rules) {
      grammar.SetBody(rule, RandomExpr(grammar, rules, 3, random));
    }
    ExpectMasksOf(grammar, rules[0], random);
    if (HasFatalFailure()) return;
  }
}

std::string RandomRegex(int depth, std::mt19937& random) {
  const auto inner = [&] { return RandomRegex(depth - 1, random); };
  switch (random() % (depth == 0 ? 3 : 8)) {
    case 0:
      return std::string(1, static_cast<char>('a' + random() % 3));
    case 1:
      return random() % 2 == 0 ? "[ab]" : "[^a]";
    case 2:
      return random() % 4 == 0 ? "." : "c";
    case 3:
      return "(" + inner() + "|" + inner() + ")";
    case 4:
      return "(?:" + inner() + ")*";
    case 5:
      return "(" + inner() + "){1,2}";
    case 6:
      return "(" + inner() + ")?" + inner();
    default:
      return inner() + inner();
  }
}

TEST(TokenGrammarTest, MasksOfRandomRegexesAreThoseOfANaiveRecogniser) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const std::string pattern = RandomRegex(3, random);
    SCOPED_TRACE(pattern);
    Grammar grammar;
    const Grammar::Rule root = grammar.AddRule();
    const RegexOptions options = {
        .encode = [&](const CodePoints& points) { return Utf8Expr(points, grammar); }};
    grammar.SetBody(root, RegexExpr(pattern, options, grammar));
    ExpectMasksOf(grammar, root, random);
    if (HasFatalFailure()) return;
  }
}

TEST(TokenGrammarTest, EqualStatesShareTheirMask) {
  const auto grammar = TokenGrammar::Compile({GrammarSource::Kind::kJsonObject}, ByteVocabulary());
  GrammarState state(grammar);
  const auto write = [&state](std::string_view text) {
    for (const char c : text) EXPECT_TRUE(state.Accept(static_cast<unsigned char>(c))) << text;
  };
  write(R"({"a": [1, "x)");
  const auto first = state.Allowed();
  write(R"(yz", "x)");
  EXPECT_EQ(first, state.Allowed());
  write(R"("], "b": [[], {}, "x)");
  EXPECT_EQ(first, state.Allowed());
}

TEST(TokenGrammarTest, RecursionAtTheEndOfARuleRepeatsItsState) {
  const auto grammar = TokenGrammar::Compile(
      {GrammarSource::Kind::kGrammar, "root ::= item | item \",\" root\nitem ::= [0-9]+"},
      ByteVocabulary());
  GrammarState state(grammar);
  EXPECT_TRUE(state.Accept('1'));
  const auto first = state.Allowed();
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(state.Accept(','));
    ASSERT_TRUE(state.Accept('7'));
  }
  EXPECT_EQ(first, state.Allowed());
}

TEST(TokenGrammarTest, AStateOutlivesTheCacheThatItIsIn) {
  // Every depth is a state of its own, with a mask of 64 KiB.
  std::vector<std::string> more(500'000, "-");
  const auto grammar = TokenGrammar::Compile(
      {GrammarSource::Kind::kGrammar, "root ::= \"(\" root \")\" | \"x\""}, ByteVocabulary(more));
  GrammarState state(grammar);
  GrammarState old = state;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(old.Accept('('));
  for (int i = 0; i < 1200; ++i) {
    ASSERT_TRUE(state.Accept('('));
    ASSERT_TRUE(state.Allowed()->Has('x'));
  }
  for (GrammarState* each : {&old, &state}) {
    ASSERT_TRUE(each->Accept('x'));
    for (int i = 0; i < (each == &old ? 3 : 1200); ++i) {
      ASSERT_FALSE(each->CanEnd());
      ASSERT_TRUE(each->Accept(')'));
    }
    EXPECT_TRUE(each->Finished());
    EXPECT_TRUE(each->CanEnd());
    EXPECT_TRUE(each->Allowed()->none());
  }
}

TEST(TokenGrammarTest, SpecialAndForeignTokensAreNeverTaken) {
  const auto grammar = TokenGrammar::Compile({GrammarSource::Kind::kRegex, ".*"}, ByteVocabulary());
  GrammarState state(grammar);
  for (const int32_t token : {-1, 256, 257, 1'000'000}) {
    EXPECT_FALSE(state.Accept(token));
    EXPECT_FALSE(state.Allowed()->Has(token));
  }
}

TEST(TokenGrammarTest, ChoicesAreTheirStrings) {
  const auto takes = [](std::string_view text) {
    return Takes(GrammarSource::Kind::kChoice, R"(["yes", "yesterday", "no", "ja \"so\" é"])",
                 text);
  };
  for (const char* text : {"yes", "yesterday", "no", "ja \"so\" é"}) EXPECT_TRUE(takes(text));
  for (const char* text : {"", "y", "yester", "noo", "ja"}) EXPECT_FALSE(takes(text)) << text;
  for (const char* bad : {"[]", "{}", "[1]", "[\"a\"", "\"a\""}) {
    EXPECT_THROW(Takes(GrammarSource::Kind::kChoice, bad, ""), InputError) << bad;
  }
}

TEST(TokenGrammarTest, TheCompilerKeepsWhatItMade) {
  GrammarCompiler compiler(ByteVocabulary());
  const GrammarSource source = {GrammarSource::Kind::kRegex, "a+"};
  const auto first = compiler.Compile(source);
  EXPECT_EQ(first, compiler.Compile(source));
  for (int i = 0; i < 100; ++i) {
    compiler.Compile({GrammarSource::Kind::kRegex, std::to_string(i)});
  }
  EXPECT_NE(first, compiler.Compile(source));
}

}  // namespace
}  // namespace trimtab
