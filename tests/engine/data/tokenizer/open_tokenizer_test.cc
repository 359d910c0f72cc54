#include "engine/data/tokenizer/open_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/dataset/corpus.h"
#include "engine/data/tokenizer/hugging_face_tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"

namespace trimtab {
namespace {

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         SpecialNames names = SpecialNames::kText) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, names, ids);
  return ids;
}

TEST(OpenTokenizer, FindsTheFilesThatATokenizerWrites) {
  const std::string folder = ScratchFolder();
  const auto bytes = MakeByteTokenizer();
  WriteTokenizer(*bytes, folder + "/bytes");
  const auto again = OpenTokenizer(folder + "/bytes");
  EXPECT_EQ(again->vocab_size(), 257);
  EXPECT_EQ(again->eod_id(), 256);
  std::string text = "\xFF some <|endoftext|> text \n\n";
  text.push_back('\0');
  for (const SpecialNames names : {SpecialNames::kText, SpecialNames::kTokens}) {
    EXPECT_EQ(Ids(*again, text, names), Ids(*bytes, text, names));
  }

  WriteBytes(folder + "/tokenizer.json", VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2"));
  WriteBytes(folder + "/tokenizer_config.json",
             R"({"eos_token": {"content": "<|end|>", "lstrip": false}, "model_max_length": 8,
                 "bos_token": {"content": "<|start|>"}, "add_bos_token": true,
                 "unk_token": "<unk>", "pad_token": null,
                 "extra_special_tokens": {"image_token": "<i>"},
                 "chat_template": [{"name": "tools", "template": "x"},
                                   {"name": "default", "template": "{{ y }}"}]})");
  const auto first = OpenTokenizer(folder);
  const ChatFormat format = {{{"tools", "x"}, {"default", "{{ y }}"}},
                             {{"unk_token", "<unk>"},
                              {"image_token", "<i>"},
                              {"bos_token", "<|start|>"},
                              {"eos_token", "<|end|>"}}};
  EXPECT_EQ(first->chat_format(), format);
  WriteTokenizer(*first, folder + "/copy");
  EXPECT_TRUE(HasTokenizer(folder + "/copy"));
  const auto copy = OpenTokenizer(folder + "/copy");
  for (const std::string& line : ManyScripts()) EXPECT_EQ(Ids(*copy, line), Ids(*first, line));
  EXPECT_EQ(copy->eod_id(), first->eod_id());
  EXPECT_EQ(copy->chat_format().templates, format.templates);
  EXPECT_EQ(first->prompt_prefix(), std::vector<int32_t>{*first->SpecialId("<|start|>")});
  EXPECT_EQ(copy->prompt_prefix(), first->prompt_prefix());
  const auto templates = [&folder] {
    return OpenTokenizer(folder + "/tokenizer.json")->chat_format().templates;
  };
  using Templates = std::vector<std::pair<std::string, std::string>>;
  WriteBytes(folder + "/chat_template.json", R"({"chat_template": "{{ p }}"})");
  EXPECT_EQ(templates(), (Templates{{"tools", "x"}, {"default", "{{ p }}"}}));
  WriteBytes(folder + "/chat_template.jinja", "{{ z }}");
  std::filesystem::create_directories(folder + "/additional_chat_templates");
  WriteBytes(folder + "/additional_chat_templates/tool_use.jinja", "{{ t }}");
  EXPECT_EQ(templates(),
            (Templates{{"tools", "x"}, {"default", "{{ z }}"}, {"tool_use", "{{ t }}"}}));
}

TEST(OpenTokenizer, FindsTheTokenizerOfADataset) {
  const std::string folder = ScratchFolder();
  std::filesystem::create_directories(folder + "/vocabulary");
  WriteBytes(folder + "/vocabulary/tokenizer.json",
             VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2"));
  WriteBytes(folder + "/vocabulary/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  WriteBytes(folder + "/in.txt", ManyScripts()[0]);
  CorpusOptions options;
  options.inputs = {folder + "/in.txt"};
  options.prefix = folder + "/data";
  const auto tokenizer = OpenTokenizer(folder + "/vocabulary");
  const CorpusSummary summary = BuildCorpus(options, *tokenizer);
  EXPECT_EQ(summary.tokens, std::ssize(Ids(*tokenizer, ManyScripts()[0])) + 1);
  std::filesystem::remove_all(folder + "/vocabulary");
  const auto again = OpenDatasetTokenizer(folder + "/data");
  EXPECT_EQ(again->name(), "hugging-face");
  EXPECT_EQ(Ids(*again, ManyScripts()[0]), Ids(*tokenizer, ManyScripts()[0]));

  BuildCorpus(options, *MakeByteTokenizer());
  EXPECT_EQ(OpenDatasetTokenizer(folder + "/data")->name(), "byte");
  EXPECT_THROW(OpenDatasetTokenizer(folder + "/none"), InputError);
}

TEST(OpenTokenizer, HandsOnWhatIsBesideAVocabularyAndNoOther) {
  const std::string folder = ScratchFolder();
  const std::string vocabulary = VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2");
  WriteBytes(folder + "/tokenizer.json", vocabulary);
  WriteBytes(folder + "/mine.json", vocabulary);
  WriteBytes(folder + "/tokenizer.model", "damaged");
  WriteBytes(folder + "/special_tokens_map.json", R"({"eos_token": {"content": "<|end|>"}})");
  WriteBytes(folder + "/chat_template.jinja", "{{ x }}");
  for (const char* name : {"/tokenizer.json", "/mine.json"}) {
    const auto tokenizer = OpenTokenizer(folder + name);
    EXPECT_EQ(tokenizer->eod_id(), *tokenizer->SpecialId("<|end|>"));
    std::map<std::string, std::string> files;
    for (const TokenizerFile& file : tokenizer->files()) files[file.name] = file.content;
    EXPECT_EQ(files, (std::map<std::string, std::string>{
                         {"tokenizer.json", vocabulary},
                         {"special_tokens_map.json", R"({"eos_token": {"content": "<|end|>"}})"},
                         {"chat_template.jinja", "{{ x }}"}}))
        << name;
  }
}

TEST(OpenTokenizer, ReadsTheFilesOfGpt2) {
  const std::string folder = ScratchFolder();
  const nlohmann::json whole =
      nlohmann::json::parse(VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2"));
  nlohmann::json vocab = whole["model"]["vocab"];
  for (const auto& added : whole["added_tokens"]) vocab[added["content"]] = added["id"];
  std::string merges = "#version: 0.2\n";
  for (const auto& each : whole["model"]["merges"]) {
    merges += (each.is_string() ? each.get<std::string>()
                                : each[0].get<std::string>() + " " + each[1].get<std::string>()) +
              "\n";
  }
  std::filesystem::create_directories(folder + "/whole");
  const std::string config =
      R"({"eos_token": "<|end|>", "bos_token": "<|end|>", "add_bos_token": true})";
  for (const char* place : {"/whole", ""}) {
    WriteBytes(folder + place + "/tokenizer_config.json", config);
  }
  WriteBytes(folder + "/whole/tokenizer.json", whole.dump());
  WriteBytes(folder + "/vocab.json", vocab.dump());
  EXPECT_FALSE(HasTokenizer(folder));
  WriteBytes(folder + "/merges.txt", merges);
  EXPECT_TRUE(HasTokenizer(folder));
  const auto expected = OpenTokenizer(folder + "/whole");
  const auto read = OpenTokenizer(folder);
  EXPECT_EQ(read->eod_id(), expected->eod_id());
  EXPECT_EQ(read->prompt_prefix(), std::vector<int32_t>{read->eod_id()});
  EXPECT_EQ(read->SpecialId("<|start|>"), expected->SpecialId("<|start|>"));
  for (const std::string& line : ManyScripts()) EXPECT_EQ(Ids(*read, line), Ids(*expected, line));
  // They are handed on as they are.
  WriteTokenizer(*read, folder + "/copy");
  for (const char* name : {"/vocab.json", "/merges.txt", "/tokenizer_config.json"}) {
    EXPECT_EQ(ReadBytes(folder + "/copy" + name), ReadBytes(folder + name)) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder + "/copy/tokenizer.json"));
  // How words are found is the class's.
  const auto with_class = [&](const std::string& name) {
    WriteBytes(folder + "/tokenizer_config.json",
               R"({"eos_token": "<|end|>", "tokenizer_class": ")" + name + "\"}");
    return OpenTokenizer(folder);
  };
  nlohmann::json qwen = nlohmann::json::parse(VocabularyJson({}, "qwen2"));
  for (const char* part : {"added_tokens", "model"}) qwen[part] = whole[part];
  const auto expected_qwen = MakeHuggingFaceTokenizer(qwen.dump(), "q", {.eos_token = "<|end|>"});
  for (const std::string& line : ManyScripts()) {
    EXPECT_EQ(Ids(*with_class("GPT2TokenizerFast"), line), Ids(*expected, line));
    EXPECT_EQ(Ids(*with_class("Qwen2Tokenizer"), line), Ids(*expected_qwen, line));
  }
  EXPECT_NE(MessageOf<InputError>([&] {
              with_class("CLIPTokenizer");
            }).find("vocab.json: words as CLIPTokenizer finds them; expected GPT2Tokenizer"),
            std::string::npos);
  with_class("GPT2Tokenizer");
  WriteBytes(folder + "/merges.txt", "ab\n");
  EXPECT_EQ(MessageOf<InputError>([&] { OpenTokenizer(folder); }),
            folder + "/merges.txt: 'ab'; expected two tokens a line");
}

TEST(OpenTokenizer, AddsTokensThatTheConfigurationDoesNotHave) {
  TokenizerConfig config = ReadTokenizerConfig(
      R"({"added_tokens_decoder": {"9": {"content": "<x>", "special": false, "lstrip": true},
                                   "7": {"content": "y", "special": true}}})",
      "c.json");
  ReadAddedTokens(R"({"<x>": 9, "<|z|>": 10, "word": 11})", "a.json", config);
  EXPECT_EQ(config.added_tokens,
            (std::vector<AddedToken>{{7, "y", true},
                                     {9, "<x>", false, {.takes_space_before = true}},
                                     {10, "<|z|>", true},
                                     {11, "word", false}}));
  EXPECT_EQ(ReadTokenizerConfig(ToJsonText(config), "c.json"), config);
  for (const char* bad : {"[]", R"({"x": -1})", R"({"x": "1"})", R"({"": 1})"}) {
    EXPECT_TRUE(MessageOf<InputError>([&] {
                  ReadAddedTokens(bad, "a.json", config);
                }).starts_with("a.json:"))
        << bad;
  }
}

TEST(OpenTokenizer, LeavesOutAddedTokensThatTheModelHasNoRowFor) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/tokenizer.json", VocabularyJson(TrainMerges(ManyScripts(), 50), "gpt2"));
  WriteBytes(folder + "/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const auto whole = OpenTokenizer(folder);
  const auto without = OpenTokenizer(folder, whole->vocab_size() - 1);
  EXPECT_EQ(without->vocab_size(), whole->vocab_size() - 1);
  EXPECT_EQ(whole->SpecialId("<|start|>"), whole->vocab_size() - 1);
  EXPECT_EQ(without->SpecialId("<|start|>"), std::nullopt);
  const std::string text = "one <|start|> two<|end|>";
  EXPECT_EQ(Ids(*without, text), Ids(*whole, text)) << "names are characters there";
  const std::vector<int32_t> ids = Ids(*without, text, SpecialNames::kTokens);
  EXPECT_EQ(ids.back(), without->eod_id());
  EXPECT_EQ(without->Decode(ids), "one <|start|> two");
  EXPECT_EQ(MessageOf<InputError>([&] { OpenTokenizer(folder, whole->vocab_size() - 2); }),
            folder +
                "/tokenizer.json: $.added_tokens: expected a special token '<|end|>', which "
                "ends a document");
}

TEST(OpenTokenizer, KeepsNothingOfTheTokenizerBefore) {
  const std::string folder = ScratchFolder();
  for (const char* name : {"tokenizer.model", "chat_template.jinja", "notes.txt"}) {
    WriteBytes(folder + "/" + name, "of another");
  }
  WriteTokenizer(*MakeByteTokenizer(), folder);
  EXPECT_EQ(OpenTokenizer(folder)->vocab_size(), 257);
  EXPECT_FALSE(std::filesystem::exists(folder + "/chat_template.jinja"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/notes.txt"));
}

TEST(OpenTokenizer, SaysWhatItExpected) {
  const std::string folder = ScratchFolder();
  EXPECT_EQ(
      MessageOf<InputError>([&] { OpenTokenizer(folder); }),
      folder + ": no tokenizer in this folder; expected a tokenizer.model or a tokenizer.json");
  EXPECT_EQ(MessageOf<InputError>([&] { OpenTokenizer("bytes"); }),
            "bytes: expected 'byte', a tokenizer.json, a tokenizer.model, or a folder with one");
  EXPECT_THROW(OpenTokenizer(folder + "/none.json"), InputError);
  for (const char* bad : {"[]", R"({"eos_token": 3})", R"({"bos_token": 3})",
                          R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
                          R"({"added_tokens_decoder": {"1": {}}})", R"({"add_bos_token": "yes"})",
                          R"({"chat_template": [{"name": "tools", "template": "x"}]})", "{"}) {
    EXPECT_TRUE(
        MessageOf<InputError>([&] { ReadTokenizerConfig(bad, "c.json"); }).starts_with("c.json:"))
        << bad;
  }
}

}  // namespace
}  // namespace trimtab
