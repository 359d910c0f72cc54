// Regular expressions and GBNF.
#include "engine/grammar/front_ends.h"

#include <gtest/gtest.h>

#include <regex>

#include "engine/base/error.h"
#include "tests/engine/grammar/grammar_walk.h"

namespace trimtab {
namespace {

using Kind = GrammarSource::Kind;

std::string FaultOf(Kind kind, const std::string& source) {
  try {
    TokenGrammar::Compile({kind, source}, ByteVocabulary());
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RegexTest, MatchesWholeTextsAsAnotherEngineDoes) {
  const std::vector<std::string> patterns = {
      "a*b+c?",    "(ab|a)(bc|c)", "[a-c]{2,4}",  "[^b]{0,3}", "a{2}",
      "(a|b)*abb", "(a?){3}",      "a{0,2}b{1,}", "\\w\\d?",   "(?:a|bc)+?",
      "^abc$",     "a|b|",         "[\\d\\-x]+",  "\\s?a\\.b", "x{"};
  std::mt19937 random(3);
  for (const std::string& pattern : patterns) {
    const auto grammar = TokenGrammar::Compile({Kind::kRegex, pattern}, ByteVocabulary());
    const bool brace = pattern == "x{";
    const std::regex other(brace ? "x\\{" : pattern);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (size_t length = random() % 6; length > 0; --length) text += "abcx1-. {"[random() % 9];
      EXPECT_EQ(Takes(grammar, text), std::regex_match(text, other)) << pattern << " " << text;
    }
  }
}

TEST(RegexTest, KnowsUnicode) {
  const auto takes = [](const std::string& pattern, std::string_view text) {
    return Takes(Kind::kRegex, pattern, text);
  };
  EXPECT_TRUE(takes("[à-ü]+", "éè"));
  EXPECT_FALSE(takes("[à-ü]+", "e"));
  EXPECT_TRUE(takes(".", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(takes(".", "\xF0\x9F\x98"));
  EXPECT_FALSE(takes(".", "\xED\xA0\x80"));  // a surrogate
  EXPECT_TRUE(takes("[^a]", "\xE2\x82\xAC"));
  EXPECT_TRUE(takes("\\u20ac\\x41\\u{1F600}",
                    "\xE2\x82\xAC"
                    "A\xF0\x9F\x98\x80"));
  EXPECT_TRUE(takes("\\ud83d\\ude00", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(takes(".", "\n"));
  EXPECT_TRUE(takes("[\\s\\S]", "\n"));
  EXPECT_TRUE(takes("[\\u0900-\\u{10FFFF}]", "\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(takes("[\\u0900-\\u{10FFFE}]", "\xF4\x8F\xBF\xBF"));
}

TEST(RegexTest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"a(?=b)", "character 2: lookahead"},
      {"(?<!b)a", "lookbehind"},
      {"(a)\\1", "character 4: back references"},
      {"\\bword", "word boundaries"},
      {"(?i)a", "flags"},
      {"a++", "possessive"},
      {"a**", "quantifier of a quantifier"},
      {"*a", "nothing before it"},
      {"(a", "'(' without"},
      {"a)", "')' without"},
      {"[a", "'[' without"},
      {"[b-a]", "range"},
      {"\\p{L}", "Unicode properties"},
      {"[[:alpha:]]", "POSIX"},
      {"a{3,2}", "is empty"},
      {"a{,3}", "{0,n}"},
      {"(^a)", "'^'"},
      {"a$b", "'$'"},
      {"\\q", "'\\q'"},
      {"a{60000}", "repetition of 60000"},
      {"((a{50000}){50000}b{50000}){50000}c{50000}", ""},
      {"\\", "nothing behind"},
      {"[]", "empty class"},
      {"\xFF", "UTF-8"},
      {"[^\\s\\S]", "no text fits"}};
  for (const auto& [pattern, expected] : kCases) {
    const std::string fault = FaultOf(Kind::kRegex, pattern);
    EXPECT_NE(fault.find(expected), std::string::npos) << pattern << ": " << fault;
    EXPECT_EQ(fault.find('\n'), std::string::npos);
  }
}

TEST(GbnfTest, KnowsTheLanguage) {
  const auto takes = [](const std::string& grammar, std::string_view text) {
    return Takes(Kind::kGrammar, grammar, text);
  };
  const std::string arithmetic = R"gbnf(
# llama.cpp's example of arithmetic
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws   # a name
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";
  EXPECT_TRUE(takes(arithmetic, "a+(b1 *2)=c\n"));
  EXPECT_TRUE(takes(arithmetic, "1=2\nx = 3\n"));
  EXPECT_FALSE(takes(arithmetic, "1+=2\n"));
  const std::string left =
      "root ::= sum\nsum ::= sum \"+\" product | product\n"
      "product ::= product \"*\" [0-9] | [0-9]";
  EXPECT_TRUE(takes(left, "1+2*3+4"));
  EXPECT_FALSE(takes(left, "1+*3"));
  EXPECT_TRUE(takes("root ::= \"a\"\n  | \"b\" (\n \"c\"\n | \"d\" )\n", "bd"));
  EXPECT_TRUE(takes("root ::= [^\"\\\\] \"\\x41\\u00e9\" .{2,3}", "xA\xC3\xA9yz"));
  EXPECT_FALSE(takes("root ::= [^\"\\\\]", "\\"));
  EXPECT_TRUE(takes("root ::= x_1-y?\r\nx_1-y ::= \"q\"{,2}", "qq"));
  EXPECT_TRUE(takes("root ::= a b\na ::= \"\" | \"x\" a\nb ::= a \"y\"", "xxxy"));
  EXPECT_TRUE(takes("root ::= \"unused\" | no\nno ::= \"n\" no", "unused"));  // no text begins so
}

TEST(GbnfTest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "no rule 'root'"},
      {"start: \"a\"", "Lark"},
      {"?start: \"a\"", "Lark"},
      {"root ::= a", "line 1: the rule 'a'"},
      {"root ::= \"a", "line 1"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined twice"},
      {"root ::= (\"a\"", "'(' without"},
      {"root ::= [a", "'[' without"},
      {"root ::= \"a\"{2,1}", "is empty"},
      {"root ::= <think>", "tokens"},
      {"root ::= /a/", "regular expressions"},
      {"root ::= root", "no text fits"},
      {"root ::= \"a\" root", "no text fits"},
      {"root = \"a\"", "expected '::='"},
      {"root ::= 'a'", "double quotes"},
      {"root ::= \"\\q\"", "escape"}};
  for (const auto& [grammar, expected] : kCases) {
    const std::string fault = FaultOf(Kind::kGrammar, grammar);
    EXPECT_NE(fault.find(expected), std::string::npos) << grammar << ": " << fault;
  }
}

TEST(FrontEndsTest, RandomTextsAreTakenOrRefused) {
  const std::string alphabets[] = {"ab()[]{}|*+?\\^$.,-0129:=!<>dwsup",
                                   "root:=\"ab[]()|*+?{},19\\\n #", "{}[]\":,$reftypanlOi0123"};
  const std::vector<std::string> seeds = {
      R"({"type":"object","properties":{"a":{"type":"integer",)"
      R"("minimum":3},"b":{"$ref":"#"}},"required":["a"]})",
      R"({"anyOf":[{"type":"string","pattern":"^a+$","maxLength":4},)"
      R"({"enum":[1,"x",null]}]})",
      "root ::= \"a\" b{2,3}\nb ::= [a-z] | root", "(a|b[^c]{2,4})+\\d?"};
  std::mt19937 random(11);
  int taken = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    if (i % 2 == 0) {
      const std::string& alphabet = alphabets[random() % 3];
      for (size_t length = random() % 24; length > 0; --length) {
        text += alphabet[random() % alphabet.size()];
      }
    } else {
      text = seeds[random() % seeds.size()];
      for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
        const size_t at = random() % text.size();
        if (random() % 2 == 0) text.erase(at, 1 + random() % 3);
        if (!text.empty())
          text.insert(random() % text.size(), text.substr(random() % text.size(), 3));
      }
    }
    for (const Kind kind : {Kind::kRegex, Kind::kGrammar, Kind::kJsonSchema, Kind::kChoice}) {
      try {
        const auto grammar = TokenGrammar::Compile({kind, text}, ByteVocabulary());
        ++taken;
        RandomText(grammar, 8, random);
      } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
    }
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace trimtab
