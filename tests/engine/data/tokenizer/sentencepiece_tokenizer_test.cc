#include "engine/data/tokenizer/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"

namespace trimtab {
namespace {

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

/// A model that SentencePiece itself trains on lines in many scripts.
std::string TrainModel(const std::string& type, const std::string& user_defined = "") {
  std::vector<std::string> lines;
  for (int i = 0; i < 20; ++i) {
    for (const std::string& line : ManyScripts()) lines.push_back(line);
  }
  std::string model;
  Lines iterator(std::move(lines));
  std::unordered_map<std::string, std::string> options = {{"model_type", type},
                                                          {"vocab_size", "600"},
                                                          {"byte_fallback", "true"},
                                                          {"character_coverage", "0.98"},
                                                          {"split_digits", "true"},
                                                          {"normalization_rule_name", "identity"},
                                                          {"remove_extra_whitespaces", "false"},
                                                          {"hard_vocab_limit", "false"},
                                                          {"minloglevel", "9"}};
  if (!user_defined.empty()) options["user_defined_symbols"] = user_defined;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, RoundTripsEveryScript) {
  const auto tokenizer = MakeSentencePieceTokenizer(TrainModel(GetParam()), "t.model", {});
  EXPECT_EQ(tokenizer->name(), "sentencepiece");
  EXPECT_EQ(tokenizer->eod_id(), 2);
  EXPECT_EQ(tokenizer->prompt_prefix(), std::vector<int32_t>{1});
  std::vector<std::string> lines = ManyScripts();
  lines.emplace_back("a rocket \U0001F680 that no piece has: bytes");
  for (const std::string& line : lines) {
    std::vector<int32_t> ids;
    tokenizer->Encode(line, ids);
    EXPECT_EQ(tokenizer->Decode(ids), line);
    // Token by token the space that begins every text is there too.
    std::string streamed;
    for (const int32_t id : ids) streamed += tokenizer->BytesOf(id);
    EXPECT_EQ(streamed, line.empty() ? "" : std::string(1, ' ').append(line));
  }
}

TEST_P(SentencePiece, ReadsControlTokensOnlyWhereTheyMeanTokens) {
  const auto tokenizer = MakeSentencePieceTokenizer(TrainModel(GetParam()), "t.model", {});
  std::vector<int32_t> ids;
  tokenizer->Encode("a</s>", SpecialNames::kTokens, ids);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(tokenizer->Decode(ids), "a");
  ids.clear();
  tokenizer->Encode("a</s>", ids);
  EXPECT_EQ(tokenizer->Decode(ids), "a</s>");
  EXPECT_EQ(tokenizer->SpecialId("<s>"), 1);
  EXPECT_EQ(tokenizer->SpecialId("a"), std::nullopt);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         SpecialNames names = SpecialNames::kText) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, names, ids);
  return ids;
}

// As Gemma's have them: names of turns, and tags that are text.
TEST_P(SentencePiece, TakesSpecialOnesOfUserDefinedPiecesForNames) {
  const std::string model = TrainModel(GetParam(), "<end_of_turn>,<b>,[x]");
  const TokenizerConfig says = {.added_tokens = {{3, "<end_of_turn>", false}, {5, "[x]", true}}};
  for (const TokenizerConfig& config : {TokenizerConfig{}, says}) {
    const auto tokenizer = MakeSentencePieceTokenizer(model, "t.model", config);
    const bool said = !config.added_tokens.empty();
    const std::string special = said ? "[x]" : "<end_of_turn>";
    const int32_t id = said ? 5 : 3;
    EXPECT_EQ(tokenizer->SpecialId(special), id);
    EXPECT_EQ(tokenizer->SpecialId(said ? "<end_of_turn>" : "[x]"), std::nullopt);
    EXPECT_EQ(tokenizer->SpecialId("<b>"), std::nullopt);
    EXPECT_EQ(tokenizer->BytesOf(id), "");
    EXPECT_EQ(tokenizer->BytesOf(4), "<b>");
    const std::string text = "a" + special + "<b>a";
    const std::vector<int32_t> ids = Ids(*tokenizer, text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 4), 1);
    EXPECT_EQ(tokenizer->Decode(ids), text);
    const std::vector<int32_t> tokens = Ids(*tokenizer, text, SpecialNames::kTokens);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), id), 1);
  }
}

TEST_P(SentencePiece, TakesTokensThatWereAdded) {
  const std::string model = TrainModel(GetParam());
  const auto size =
      static_cast<int32_t>(MakeSentencePieceTokenizer(model, "t.model", {})->vocab_size());
  const TokenizerConfig config = {.eos_token = "<|im_end|>",
                                  .bos_token = "<|im_start|>",
                                  .added_tokens = {{0, "<unk>", true},
                                                   {2, "</s>", false},
                                                   {size, "<|im_end|>", true},
                                                   {size + 2, "<|im_start|>", true},
                                                   {size + 3, "ordinary", false}}};
  const auto tokenizer = MakeSentencePieceTokenizer(model, "t.model", config);
  EXPECT_EQ(tokenizer->vocab_size(), size + 4);
  EXPECT_EQ(tokenizer->eod_id(), size);
  EXPECT_EQ(tokenizer->prompt_prefix(), std::vector<int32_t>{size + 2});
  EXPECT_EQ(tokenizer->SpecialId("</s>"), 2);
  EXPECT_EQ(tokenizer->SpecialId("ordinary"), std::nullopt);
  const std::string text = "a ordinary</s><|im_end|>";
  const std::vector<int32_t> as_text = Ids(*tokenizer, text);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), size + 3), 1);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), size), 0);
  const std::vector<int32_t> ids = Ids(*tokenizer, text, SpecialNames::kTokens);
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 3, ids.end()),
            (std::vector<int32_t>{size + 3, 2, size}));
  EXPECT_EQ(tokenizer->Decode(ids), "a ordinary");
  EXPECT_EQ(tokenizer->BytesOf(size + 1), "");
  EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{size + 1}), InputError);
  // All of it is in the files.
  const std::vector<TokenizerFile> files = tokenizer->files();
  const auto copy = MakeSentencePieceTokenizer(files.at(0).content, "t.model",
                                               ReadTokenizerConfig(files.at(1).content, "c.json"));
  EXPECT_EQ(Ids(*copy, text, SpecialNames::kTokens), ids);
}

INSTANTIATE_TEST_SUITE_P(Types, SentencePiece, testing::Values("bpe", "unigram"));

// "<pad>" of 32000 beside Llama 2's 32,000 rows.
TEST(SentencePieceTokenizer, LeavesOutAddedTokensThatTheModelHasNoRowFor) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/tokenizer.model", TrainModel("bpe"));
  const int64_t pieces = OpenTokenizer(folder)->vocab_size();
  WriteBytes(folder + "/added_tokens.json", fmt::format(R"({{"<pad>": {}}})", pieces));
  EXPECT_EQ(OpenTokenizer(folder)->vocab_size(), pieces + 1);
  const auto tokenizer = OpenTokenizer(folder, pieces);
  EXPECT_EQ(tokenizer->vocab_size(), pieces);
  EXPECT_EQ(tokenizer->SpecialId("<pad>"), std::nullopt);
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "a<pad>", SpecialNames::kTokens)), "a<pad>");
}

TEST(SentencePieceTokenizer, RefusesWhatIsNoModelOrNoId) {
  EXPECT_THROW(MakeSentencePieceTokenizer("not a model", "t.model", {}), InputError);
  EXPECT_THROW(MakeSentencePieceTokenizer("", "t.model", {}), InputError);
  const std::string model = TrainModel("bpe");
  EXPECT_EQ(MessageOf<InputError>(
                [&] { MakeSentencePieceTokenizer(model, "t.model", {.eos_token = "<eot>"}); }),
            "t.model: expected a control token '<eot>', which ends a document");
  const auto tokenizer = MakeSentencePieceTokenizer(model, "t.model", {.add_bos_token = false});
  EXPECT_TRUE(tokenizer->prompt_prefix().empty());
  const auto size = static_cast<int32_t>(tokenizer->vocab_size());
  for (const int32_t bad : {-1, size}) {
    EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{bad}), InputError);
    EXPECT_EQ(tokenizer->BytesOf(bad), "");
  }
}

}  // namespace
}  // namespace trimtab
