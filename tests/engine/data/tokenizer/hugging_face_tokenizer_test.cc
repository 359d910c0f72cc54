#include "engine/data/tokenizer/hugging_face_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/error.h"
#include "engine/data/vocabulary/normal_form.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"

namespace trimtab {
namespace {

using nlohmann::json;
using Parts = std::vector<std::string>;

std::unique_ptr<Tokenizer> Make(const std::string& content, const std::string& end = "<|end|>") {
  return MakeHuggingFaceTokenizer(content, "t.json", {.eos_token = end});
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         SpecialNames names = SpecialNames::kText) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, names, ids);
  return ids;
}

/// The text of each token.
Parts Tokens(const Tokenizer& tokenizer, std::string_view text) {
  Parts parts;
  for (const int32_t id : Ids(tokenizer, text)) parts.push_back(tokenizer.Decode({{id}}));
  return parts;
}

std::string AllScripts() {
  std::string all;
  for (const std::string& line : ManyScripts()) all += line + "\n";
  return all;
}

struct WordsCase {
  const char* rules;
  const char* text;
  Parts words;
};

class Words : public testing::TestWithParam<WordsCase> {};

// Merges that make one token of each expected word, and so none across two of them.
TEST_P(Words, AreThoseWorkedOutByHand) {
  const WordsCase& test = GetParam();
  const auto tokenizer = Make(VocabularyJson(TrainMerges(test.words, 10000), test.rules));
  EXPECT_EQ(Tokens(*tokenizer, test.text), test.words);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Words,
    testing::Values(
        WordsCase{"gpt2", "It's 12345  a", {"It", "'s", " 12345", " ", " a"}},
        WordsCase{"llama3", "It's 12345  a", {"It", "'s", " ", "123", "45", " ", " a"}},
        WordsCase{"qwen2", "It's 123  a", {"It", "'s", " ", "1", "2", "3", " ", " a"}},
        WordsCase{"gpt2", "DON'T we'Re", {"DON", "'", "T", " we", "'", "Re"}},
        WordsCase{"llama3", "DON'T we'Re", {"DON", "'T", " we", "'Re"}},
        WordsCase{"gpt2", "a!!\n\n (b)", {"a", "!!", "\n\n", " (", "b", ")"}},
        WordsCase{"llama3", "a!!\n\n (b)", {"a", "!!\n\n", " (", "b", ")"}},
        WordsCase{"qwen2", "(b \n \n  c", {"(b", " \n \n", " ", " c"}},
        WordsCase{"gpt2", "x\u00a0\u3000y  ", {"x", "\u00a0", "\u3000", "y", "  "}},
        WordsCase{"llama3", "x\u00a0\u3000y  ", {"x", "\u00a0", "\u3000y", "  "}},
        WordsCase{"llama3", "\u4f60\u597d\uff0c\u4e16", {"\u4f60\u597d", "\uff0c\u4e16"}},
        WordsCase{"gpt2", "\u4f60\u597d\uff0c\u4e16", {"\u4f60\u597d", "\uff0c", "\u4e16"}},
        WordsCase{"gpt2", "\u0661\u00bd\u2163 \u0967", {"\u0661\u00bd\u2163", " \u0967"}},
        // A mark is neither letter nor number.
        WordsCase{"gpt2", "\u0928\u094d\u0928", {"\u0928", "\u094d", "\u0928"}}));

class EveryRule : public testing::TestWithParam<const char*> {};

TEST_P(EveryRule, RoundTripsEveryScriptAndAnyBytes) {
  const std::string rules = GetParam();
  const auto tokenizer = Make(VocabularyJson(TrainMerges(ManyScripts(), 400), rules));
  for (const std::string& line : ManyScripts()) {
    const std::string expected = rules == "qwen2" ? Normalize(line, NormalForm::kNfc) : line;
    EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, line)), expected);
    std::string streamed;
    for (const int32_t id : Ids(*tokenizer, line)) streamed += tokenizer->BytesOf(id);
    EXPECT_EQ(streamed, expected);
  }
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string expected = rules == "qwen2" ? Normalize(bytes, NormalForm::kNfc) : bytes;
    ASSERT_EQ(tokenizer->Decode(Ids(*tokenizer, bytes)), expected);
  }
  EXPECT_LT(Ids(*tokenizer, AllScripts()).size(), AllScripts().size() * 3 / 4);
}

TEST_P(EveryRule, ReadsSpecialNamesOnlyWhereTheyMeanTokens) {
  const auto tokenizer = Make(VocabularyJson({}, GetParam()));
  const int32_t end = tokenizer->eod_id();
  EXPECT_EQ(end, 256);
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->SpecialId("<|start|>"), 257);
  EXPECT_EQ(tokenizer->SpecialId("a"), std::nullopt);
  const std::string text = "a<|end|>b";
  EXPECT_EQ(Ids(*tokenizer, text, SpecialNames::kTokens), (std::vector<int32_t>{'a', end, 'b'}));
  EXPECT_EQ(Ids(*tokenizer, text).size(), text.size());
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, text)), text);
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, text, SpecialNames::kTokens)), "ab");
  EXPECT_EQ(tokenizer->prompt_prefix(), GetParam() == std::string("llama3")
                                            ? std::vector<int32_t>{257}
                                            : std::vector<int32_t>{});
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, testing::Values("gpt2", "llama3", "qwen2"));

TEST(HuggingFaceTokenizer, TakesWholeWordsFirstOnlyWhenToldTo) {
  // "abc" is a token that no order of merges reaches: "bc" comes first and "a" + "bc" is none.
  json vocabulary = json::parse(VocabularyJson({{"b", "c"}}, "gpt2"));
  vocabulary["model"]["vocab"]["abc"] = 300;
  EXPECT_EQ(Tokens(*Make(vocabulary.dump()), "abc"), (Parts{"a", "bc"}));
  vocabulary["model"]["ignore_merges"] = true;
  EXPECT_EQ(Tokens(*Make(vocabulary.dump()), "abc"), Parts{"abc"});
}

TEST(HuggingFaceTokenizer, PutsASpaceFirstWhereTheFileSaysSo) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  vocabulary["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = Make(vocabulary.dump());
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "ab")), " ab");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, " ab")), " ab");
}

// Falcon's: what stands behind `ByteLevel` sees a character for each byte.
TEST(HuggingFaceTokenizer, CutsCharactersOfBytesBehindByteLevel) {
  const Parts words = {"It", "'", "s", "...", " a", "123", "45", " $+", "x\u00b2", "\u4f60"};
  json vocabulary = json::parse(VocabularyJson(TrainMerges(words, 10000), "gpt2"));
  vocabulary["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Punctuation", "behavior": "Contiguous"},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      {"type": "Digits", "individual_digits": false},
      {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
       "invert": false}]})");
  const auto tokenizer = Make(vocabulary.dump());
  EXPECT_EQ(Tokens(*tokenizer, "It's... a12345"),
            (Parts{"It", "'", "s", "...", " a", "123", "45"}));
  // U+00B2 is 0xC2 0xB2, and the character for 0xB2 is a digit: U+00B2.
  EXPECT_EQ(Tokens(*tokenizer, "x"), Parts{"x"});
  EXPECT_EQ(Tokens(*tokenizer, "\u00b2"), (Parts{"\xC2", "\xB2"}));
  for (const std::string& line : ManyScripts()) {
    EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, line)), line);
  }
}

TEST(HuggingFaceTokenizer, RefusesIdsThatNameNoToken) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  vocabulary["model"]["vocab"]["zz"] = 300;
  const auto tokenizer = Make(vocabulary.dump());
  for (const int32_t bad : {-1, 258, 299, 301, 1 << 30}) {
    EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{bad}), InputError) << bad;
    EXPECT_EQ(tokenizer->BytesOf(bad), "") << bad;
  }
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{300}), "zz");
}

TEST(HuggingFaceTokenizer, BeginsPromptsAsTheConfigurationSays) {
  const auto prefix = [](const char* rules, std::optional<bool> add, const char* begin) {
    const TokenizerConfig config = {
        .eos_token = "<|end|>", .bos_token = begin, .add_bos_token = add};
    return MakeHuggingFaceTokenizer(VocabularyJson({}, rules), "t.json", config)->prompt_prefix();
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prefix("gpt2", true, "<|start|>"), Ids{257});
  EXPECT_EQ(prefix("gpt2", std::nullopt, "<|start|>"), Ids{});
  EXPECT_EQ(prefix("gpt2", true, ""), Ids{});
  EXPECT_EQ(prefix("llama3", true, "<|end|>"), Ids{257});  // what the vocabulary says itself
  EXPECT_EQ(prefix("llama3", false, "<|start|>"), Ids{});
  EXPECT_EQ(MessageOf<InputError>([&] { prefix("gpt2", true, "<s>"); }),
            "t.json: $.added_tokens: expected a special token '<s>', which begins a text");
}

TEST(HuggingFaceTokenizer, AsksWhichOfSeveralTokensEndsADocument) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  EXPECT_EQ(MessageOf<InputError>([&] { Make(vocabulary.dump(), ""); }),
            "t.json: $.added_tokens: 2 special tokens; which of them ends a document must stand as "
            "'eos_token' in a tokenizer_config.json beside it");
  vocabulary["added_tokens"].erase(1);
  EXPECT_EQ(Make(vocabulary.dump(), "")->eod_id(), 256);
  EXPECT_THROW(Make(vocabulary.dump(), "<|start|>"), InputError);
}

struct BadCase {
  const char* pointer;
  const char* value;
  const char* message;  // a part of it
};

class Refused : public testing::TestWithParam<BadCase> {};

TEST_P(Refused, WithItsPath) {
  json vocabulary = json::parse(VocabularyJson({{"a", "b"}}, "gpt2"));
  vocabulary[json::json_pointer(GetParam().pointer)] = json::parse(GetParam().value);
  const std::string message = MessageOf<InputError>([&] { Make(vocabulary.dump()); });
  EXPECT_TRUE(message.find(GetParam().message) != std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("t.json: $")) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Refused,
    testing::Values(
        BadCase{"/version", "\"2.0\"", "$.version"}, BadCase{"/more", "1", "$.more"},
        BadCase{"/model/type", "\"WordPiece\"", "$.model.type: expected BPE or Unigram"},
        BadCase{"/model/dropout", "0.1", "$.model.dropout: expected null"},
        BadCase{"/model/unk_token", "7", "$.model.unk_token"},
        BadCase{"/model/fuse_unk", "7", "$.model.fuse_unk"},
        BadCase{"/model/end_of_word_suffix", "\"</w>\"", "$.model.end_of_word_suffix"},
        BadCase{"/model/vocab", "{}", "'\u0100' (0x00) is missing"},
        BadCase{"/model/vocab", "[]", "$.model.vocab: expected an object"},
        BadCase{"/model/vocab/a", "98", "$.model.vocab[\"b\"]: expected an id that no other"},
        BadCase{"/model/vocab/a", "-1", "$.model.vocab[\"a\"]: expected an id from 0"},
        BadCase{"/model/vocab/a", "5e9", "$.model.vocab[\"a\"]"},
        BadCase{"/model/merges/0", "\"a zz\"", "$.model.merges[0]: 'azz' is not in"},
        BadCase{"/model/merges/0", "\"ab\"", "$.model.merges[0]: expected two tokens"},
        BadCase{"/model/merges/0", "[\"a\"]", "$.model.merges[0]: expected two tokens"},
        BadCase{"/model/merges/1", "\"a b\"", "$.model.merges[1]: expected a pair that was not"},
        BadCase{"/added_tokens/0/lstrip", "1", "$.added_tokens[0].lstrip"},
        BadCase{"/added_tokens/0/id", "97", "$.added_tokens[0].id: expected an id that no other"},
        BadCase{"/added_tokens/0/content", "\"a\"", "$.added_tokens[0].id: expected 97"},
        BadCase{"/added_tokens/0/content", "\"\"", "$.added_tokens[0].content"},
        BadCase{"/normalizer", R"({"type": "Nmt"})", "$.normalizer.type"},
        BadCase{"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Precompiled"}]})",
                "$.normalizer.normalizers[0].type"},
        BadCase{"/pre_tokenizer", "null", "$.decoder: expected one without 'ByteLevel'"},
        BadCase{"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "$.pre_tokenizer.type"},
        BadCase{"/pre_tokenizer", R"({"type": "Digits", "individual_digits": true})",
                "$.decoder: expected one without 'ByteLevel'"},
        BadCase{"/pre_tokenizer",
                R"({"type": "Metaspace", "add_prefix_space": false, "prepend_scheme": "first"})",
                "$.pre_tokenizer.prepend_scheme: expected \"never\""},
        BadCase{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
                    {"type": "ByteLevel"}]})",
                "$.pre_tokenizer.pretokenizers[1]: expected one 'ByteLevel'"},
        BadCase{"/pre_tokenizer", R"({"type": "Punctuation", "behavior": "Merged"})",
                "$.pre_tokenizer.behavior"},
        BadCase{"/pre_tokenizer",
                R"({"type": "Split", "pattern": {"Regex": "\\R"}, "behavior": "Isolated"})",
                "$.pre_tokenizer.pattern.Regex: '\\R'"},
        BadCase{"/pre_tokenizer",
                R"({"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Kept"})",
                "$.pre_tokenizer.behavior"},
        BadCase{"/post_processor", R"({"type": "RobertaProcessing"})", "$.post_processor.type"},
        BadCase{"/post_processor",
                R"({"type": "TemplateProcessing", "single": [{"Sequence": {}},
                    {"SpecialToken": {"id": "<|end|>"}}]})",
                "$.post_processor.single[0]: expected a special token before the text"},
        BadCase{"/decoder", "null", "$.decoder"},
        BadCase{"/decoder", R"({"type": "Fuse"})", "$.decoder: expected one with a 'ByteLevel'"},
        BadCase{"/decoder", R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})",
                "$.decoder: expected a 'Fuse' before it"},
        BadCase{"/decoder",
                R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace",
                    "pattern": {"String": "ab"}, "content": "c"}]})",
                "$.decoder.decoders[1].pattern.String: expected one character"},
        BadCase{"/decoder", R"({"type": "WordPiece"})", "$.decoder.type"}));

TEST(HuggingFaceTokenizer, TakesWhatChangesNothingWhereEveryByteHasAToken) {
  json vocabulary = json::parse(VocabularyJson(TrainMerges(ManyScripts(), 50), "qwen2"));
  const auto plain = Make(vocabulary.dump());
  json& model = vocabulary["model"];
  model["byte_fallback"] = true;
  model["unk_token"] = "<|end|>";
  model["fuse_unk"] = true;
  model["dropout"] = 0.0;
  const auto other = Make(vocabulary.dump());
  EXPECT_EQ(Ids(*other, AllScripts()), Ids(*plain, AllScripts()));
}

TEST(HuggingFaceTokenizer, AsksForATokenOfUnknownCharacters) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  vocabulary["pre_tokenizer"] = nullptr;
  vocabulary["decoder"] = {{"type", "Fuse"}};
  vocabulary["model"]["byte_fallback"] = true;
  EXPECT_EQ(MessageOf<InputError>([&] { Make(vocabulary.dump()); }),
            "t.json: $.model.unk_token: expected a token of $.model.vocab for characters that are "
            "none, or byte_fallback with tokens from <0x00> to <0xFF>");
}

TEST(HuggingFaceTokenizer, TakesTokensOfTheConfigurationBesideIt) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  const TokenizerConfig config = {
      .eos_token = "<|end|>",
      .bos_token = "b",  // in the vocabulary, and nowhere said to be special
      .added_tokens = {{.id = 256, .name = "<|end|>", .special = true},
                       {.id = 258, .name = "<|more|>", .special = true, .rules = {false, true}}}};
  const auto tokenizer = MakeHuggingFaceTokenizer(vocabulary.dump(), "t.json", config);
  EXPECT_EQ(tokenizer->SpecialId("<|more|>"), 258);
  EXPECT_EQ(tokenizer->SpecialId("b"), 'b');
  EXPECT_EQ(Ids(*tokenizer, "a<|more|>  c", SpecialNames::kTokens),
            (std::vector<int32_t>{'a', 258, 'c'}));
}

TEST(HuggingFaceTokenizer, ReadsAModelOfAnOlderFileWithoutAType) {
  json vocabulary = json::parse(VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2"));
  const auto plain = Make(vocabulary.dump());
  vocabulary["model"].erase("type");
  EXPECT_EQ(Ids(*Make(vocabulary.dump()), AllScripts()), Ids(*plain, AllScripts()));
}

TEST(HuggingFaceTokenizer, LetsNoTextForgeAnEndThatItsFileDoesNotCallSpecial) {
  json vocabulary = json::parse(VocabularyJson({}, "gpt2"));
  vocabulary["added_tokens"][0]["special"] = false;
  const auto tokenizer = Make(vocabulary.dump());
  EXPECT_EQ(tokenizer->eod_id(), 256);
  EXPECT_EQ(Ids(*tokenizer, "<|end|>").size(), 7u);
  EXPECT_EQ(Ids(*tokenizer, "<|end|>", SpecialNames::kTokens), std::vector<int32_t>{256});
}

TEST(HuggingFaceTokenizer, LeavesOutWhatContradictsItsFile) {
  const TokenizerConfig config = {
      .eos_token = "<|end|>",
      .added_tokens = {{.id = 257, .name = "<|other|>"}, {.id = 300, .name = "a"}}};
  const auto tokenizer = MakeHuggingFaceTokenizer(VocabularyJson({}, "gpt2"), "t.json", config);
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->SpecialId("<|start|>"), 257);
}

TEST(HuggingFaceTokenizer, SurvivesDamagedFiles) {
  const std::string good = VocabularyJson(TrainMerges(ManyScripts(), 20), "llama3");
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 4; ++i) {
      const size_t place = random() % bad.size();
      if (round % 2 == 0) {
        bad[place] = static_cast<char>(random());
      } else {
        bad.erase(place, random() % 32);
      }
    }
    try {
      const auto tokenizer = Make(bad);
      Ids(*tokenizer, AllScripts());
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace trimtab
