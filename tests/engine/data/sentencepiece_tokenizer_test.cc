#include "engine/data/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include "engine/base/error.h"
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
std::string TrainModel(const std::string& type) {
  std::vector<std::string> lines;
  for (int i = 0; i < 20; ++i) {
    for (const std::string& line : ManyScripts()) lines.push_back(line);
  }
  std::string model;
  Lines iterator(std::move(lines));
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"model_type", type},
                                                  {"vocab_size", "600"},
                                                  {"byte_fallback", "true"},
                                                  {"character_coverage", "0.98"},
                                                  {"split_digits", "true"},
                                                  {"normalization_rule_name", "identity"},
                                                  {"remove_extra_whitespaces", "false"},
                                                  {"hard_vocab_limit", "false"},
                                                  {"minloglevel", "9"}},
                                                 &iterator, &model);
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

INSTANTIATE_TEST_SUITE_P(Types, SentencePiece, testing::Values("bpe", "unigram"));

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
