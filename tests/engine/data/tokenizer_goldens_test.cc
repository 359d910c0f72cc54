// Every rule of a tokenizer.json, against the ids and texts of Hugging Face's own library
// (testdata/tokenizers).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/error.h"
#include "engine/data/tokenizer/hugging_face_tokenizer.h"
#include "engine/infer/api/text_stream.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using nlohmann::json;

const json& Goldens() {
  static const json goldens = json::parse(ReadBytes("testdata/tokenizers/goldens.json"));
  return goldens;
}

/// A patch's parts replace the base's, but for `model`, which it changes.
std::unique_ptr<Tokenizer> Make(const json& golden) {
  json vocabulary = Goldens()["bases"][golden["base"].get<std::string>()];
  for (const auto& [key, part] : golden["patch"].items()) {
    if (key == "model") {
      vocabulary[key].merge_patch(part);
    } else {
      vocabulary[key] = part;
    }
  }
  return MakeHuggingFaceTokenizer(vocabulary.dump(), "t.json", {.eos_token = "</s>"});
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text, SpecialNames names) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, names, ids);
  return ids;
}

/// `text` as an answer shows it: what is not UTF-8 replaced.
std::string Shown(std::string_view text) {
  TextStream stream;
  std::string shown = stream.Add(text);
  return shown + stream.Finish();
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  TextStream stream;
  std::string text;
  for (const int32_t id : ids) text += stream.Add(tokenizer.BytesOf(id));
  return text + stream.Finish();
}

TEST(TokenizerGoldens, AreMetByIdsAndTexts) {
  const json& lines = Goldens()["lines"];
  ASSERT_GT(Goldens()["cases"].size(), 50u);
  for (const json& golden : Goldens()["cases"]) {
    const auto tokenizer = Make(golden);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string where = golden["name"].get<std::string>() + ": " + lines[i].dump();
      const auto ids = Ids(*tokenizer, lines[i].get<std::string>(), SpecialNames::kTokens);
      EXPECT_EQ(json(ids), golden["ids"][i]) << where;
      EXPECT_EQ(json(Shown(tokenizer->Decode(ids))), golden["texts"][i]) << where;
    }
  }
}

// Only what a whole text's beginning loses, the space that encoding put there, may be more.
TEST(TokenizerGoldens, StreamAsTheyDecodeAtOnce) {
  for (const json& golden : Goldens()["cases"]) {
    const auto tokenizer = Make(golden);
    for (const json& line : Goldens()["lines"]) {
      const auto ids = Ids(*tokenizer, line.get<std::string>(), SpecialNames::kTokens);
      const std::string whole = Shown(tokenizer->Decode(ids));
      const std::string streamed = Streamed(*tokenizer, ids);
      const size_t more = streamed.size() - std::min(whole.size(), streamed.size());
      EXPECT_EQ(streamed, std::string(more, ' ') + whole) << golden["name"] << ": " << line;
    }
  }
}

TEST(TokenizerGoldens, LetNoTextForgeASpecialToken) {
  for (const json& golden : Goldens()["cases"]) {
    const auto tokenizer = Make(golden);
    for (const char* text : {"</s>", "a</s>b <s>", "<s></s> </s>"}) {
      for (const int32_t id : Ids(*tokenizer, text, SpecialNames::kText)) {
        EXPECT_NE(id, tokenizer->eod_id()) << golden["name"] << ": " << text;
        EXPECT_NE(id, *tokenizer->SpecialId("<s>")) << golden["name"] << ": " << text;
      }
    }
  }
}

TEST(TokenizerGoldens, TakeAnyBytes) {
  std::mt19937 random(11);
  for (const json& golden : Goldens()["cases"]) {
    const auto tokenizer = Make(golden);
    const bool llama = golden["name"] == "llama 2";
    for (int round = 0; round < 20; ++round) {
      std::string bytes(random() % 64, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      const auto ids = Ids(*tokenizer, bytes, SpecialNames::kText);
      const std::string text = tokenizer->Decode(ids);
      if (llama) {
        EXPECT_EQ(text, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace trimtab
