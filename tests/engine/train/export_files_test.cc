// What stands beside the weights of a folder goes through a checkpoint and out again as it came;
// and a model that was made here goes out with what its readers need.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/dataset/corpus.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/families/hugging_face.h"
#include "engine/families/load_config.h"
#include "engine/train/export_weights.h"
#include "engine/train/run_training.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kGolden[] = "testdata/goldens/hugging_face/llama";

/// A vocabulary of Llama 2's kind that fits the golden's 61 ids.
std::string SmallVocabulary() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (const char* token : {"\u2581", "a", "b", "c", "d", "e", "\u2581a"}) {
    vocab[token] = vocab.size();
  }
  json added = json::array();
  for (const char* name : {"<unk>", "<s>", "</s>"}) {
    added.push_back(
        {{"id", vocab[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  const json space = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  return json{{"version", "1.0"},
              {"added_tokens", added},
              {"pre_tokenizer", space},
              {"decoder", space},
              {"post_processor",
               {{"type", "TemplateProcessing"},
                {"single",
                 {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                  {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}}},
              {"model",
               {{"type", "BPE"},
                {"unk_token", "<unk>"},
                {"fuse_unk", true},
                {"vocab", vocab},
                {"merges", {"\u2581 a"}}}}}
      .dump();
}

RunConfig SmallRun(const std::string& folder) {
  RunConfig run;
  run.model = LoadModelConfig(folder);
  run.global_batch = 2;
  run.sequence_length = 8;
  run.threads_per_rank = 1;
  run.steps = 1;
  return run;
}

json ReadJson(const std::string& path) { return json::parse(ReadBytes(path)); }

/// Trains a step from `options` on, and exports.
void TrainAndExport(const RunConfig& run, TrainingOptions options, const std::string& folder) {
  options.checkpoint = folder + "/checkpoint";
  RunTraining(run, options);
  ExportToHuggingFace(options.checkpoint, folder + "/out", {}, [](int64_t) {});
}

class ExportFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = ScratchFolder();
    std::filesystem::copy(kGolden, folder_ + "/in");
    std::filesystem::permissions(folder_ + "/in/config.json", std::filesystem::perms::owner_all);
    config_ = ReadJson(folder_ + "/in/config.json");
  }

  void WriteConfig() {
    std::filesystem::remove(folder_ + "/in/config.json");
    WriteBytes(folder_ + "/in/config.json", config_.dump());
  }

  std::string folder_;
  json config_;
};

TEST_F(ExportFiles, GoOutAsTheyCameIn) {
  const std::map<std::string, std::string> files = {
      {"tokenizer.json", SmallVocabulary()},
      {"tokenizer_config.json",
       "{ \"tokenizer_class\": \"LlamaTokenizer\",\n \"eos_token\": \"</s>\", \"legacy\": false,"
       " \"chat_template\": \"{{ x }}\"}"},
      {"special_tokens_map.json", R"({"eos_token":  "</s>", "bos_token": "<s>"})"},
      {"added_tokens.json", "{}\n"},
      {"chat_template.jinja", "{{ messages }}\n"},
      {"generation_config.json",
       R"({"temperature": 0.6, "eos_token_id": [2, 9], "do_sample":true})"},
      {"vocab.json", "{ }"},
      {"merges.txt", "#version: 0.2\n"}};
  for (const auto& [name, content] : files) WriteBytes(folder_ + "/in/" + name, content);
  config_["eos_token_id"] = 2;
  config_["bos_token_id"] = 1;
  config_["pad_token_id"] = 0;
  WriteConfig();
  TrainAndExport(SmallRun(folder_ + "/in"), {.load_hf = folder_ + "/in"}, folder_);
  for (const auto& [name, content] : files) {
    EXPECT_EQ(ReadBytes(folder_ + "/out/" + name), content) << name;
  }
  const json config = ReadJson(folder_ + "/out/config.json");
  EXPECT_EQ(config["eos_token_id"], 2);
  EXPECT_EQ(config["bos_token_id"], 1);
  EXPECT_EQ(config["pad_token_id"], 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/out/source_config.json"));

  // Through a second checkpoint, and through a dataset of the same vocabulary.
  WriteBytes(folder_ + "/text.txt", "abc de a\n\nbad cab\n\nabe bee ace dad abba abc de a bad");
  CorpusOptions corpus;
  corpus.inputs = {folder_ + "/text.txt"};
  corpus.prefix = folder_ + "/data";
  BuildCorpus(corpus, *OpenTokenizer(folder_ + "/in"));
  RunConfig run = SmallRun(folder_ + "/in");
  run.steps = 2;
  run.data = corpus.prefix;
  const std::string again = folder_ + "/again";
  TrainAndExport(run, {.load = folder_ + "/checkpoint", .overrides = {"steps", "data"}}, again);
  for (const auto& [name, content] : files) {
    EXPECT_EQ(ReadBytes(again + "/out/" + name), content) << name;
  }
  EXPECT_EQ(ReadJson(again + "/out/config.json")["pad_token_id"], 0);
}

TEST_F(ExportFiles, SayTheIdsOfAFolderThatHasNoGenerationConfig) {
  WriteBytes(folder_ + "/in/tokenizer.json", SmallVocabulary());
  WriteBytes(folder_ + "/in/special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  config_["eos_token_id"] = {2, 7};
  config_["bos_token_id"] = 1;
  WriteConfig();
  TrainAndExport(SmallRun(folder_ + "/in"), {.load_hf = folder_ + "/in"}, folder_);
  const json generation = ReadJson(folder_ + "/out/generation_config.json");
  EXPECT_EQ(generation,
            (json{{"_from_model_config", true}, {"bos_token_id", 1}, {"eos_token_id", {2, 7}}}));
  const json config = ReadJson(folder_ + "/out/tokenizer_config.json");
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["unk_token"], "<unk>");
  EXPECT_EQ(config["model_max_length"], 64);
  EXPECT_EQ(config["added_tokens_decoder"]["2"],
            (json{{"content", "</s>"}, {"special", true}, {"normalized", false}}));
}

// Ids of another vocabulary would end answers at random.
TEST_F(ExportFiles, LeaveOutTheIdsOfAnotherVocabulary) {
  WriteBytes(folder_ + "/in/tokenizer.json", SmallVocabulary());
  WriteBytes(folder_ + "/in/tokenizer_config.json", R"({"eos_token": "</s>"})");
  WriteBytes(folder_ + "/in/generation_config.json", R"({"eos_token_id": 5})");
  config_["vocab_size"] = 61;
  config_["eos_token_id"] = 5;
  WriteConfig();
  json other = json::parse(SmallVocabulary());
  other["model"]["vocab"]["x"] = 10;
  std::filesystem::create_directories(folder_ + "/other");
  WriteBytes(folder_ + "/other/tokenizer.json", other.dump());
  WriteBytes(folder_ + "/other/tokenizer_config.json", R"({"eos_token": "</s>"})");
  WriteBytes(folder_ + "/text.txt", "abc de a bad cab axe abe bee ace dad abba abc de a bad");
  CorpusOptions corpus;
  corpus.inputs = {folder_ + "/text.txt"};
  corpus.prefix = folder_ + "/data";
  BuildCorpus(corpus, *OpenTokenizer(folder_ + "/other"));
  RunConfig run = SmallRun(folder_ + "/in");
  run.data = corpus.prefix;
  TrainAndExport(run, {.load_hf = folder_ + "/in"}, folder_);
  EXPECT_EQ(ReadBytes(folder_ + "/out/tokenizer.json"), other.dump());
  EXPECT_EQ(ReadJson(folder_ + "/out/config.json")["eos_token_id"], 2);
  EXPECT_EQ(ReadJson(folder_ + "/out/generation_config.json")["eos_token_id"], 2);
}

TEST_F(ExportFiles, SayWhatReadersNeedOfAModelMadeHere) {
  WriteBytes(folder_ + "/text.txt", "In the beginning God created the heaven and the earth.");
  CorpusOptions corpus;
  corpus.inputs = {folder_ + "/text.txt"};
  corpus.prefix = folder_ + "/data";
  BuildCorpus(corpus, *MakeByteTokenizer());
  RunConfig run = SmallRun(folder_ + "/in");
  run.model.vocab_size = 257;
  run.data = corpus.prefix;
  TrainAndExport(run, {}, folder_);
  EXPECT_EQ(ReadJson(folder_ + "/out/config.json")["eos_token_id"], 256);
  EXPECT_EQ(ReadJson(folder_ + "/out/generation_config.json"),
            (json{{"_from_model_config", true}, {"eos_token_id", 256}}));
  const json config = ReadJson(folder_ + "/out/tokenizer_config.json");
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["pad_token"], "<|endoftext|>");
  EXPECT_EQ(config["added_tokens_decoder"]["256"]["special"], true);
  EXPECT_FALSE(config.contains("bos_token"));
}

}  // namespace
}  // namespace trimtab
