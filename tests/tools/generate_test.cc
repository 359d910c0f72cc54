// A model that was trained a moment ago continues prompts.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kByteRun[] = R"({
  "model": {"name": "letters", "vocab_size": 257, "hidden_size": 32, "num_layers": 2,
            "num_heads": 2, "num_kv_heads": 2, "ffn_hidden_size": 64, "max_sequence_length": 32},
  "global_batch": 8, "sequence_length": 32, "steps": 60,
  "optimizer": {"learning_rate": 0.01, "min_learning_rate": 0.001}
})";

class GenerateTest : public testing::Test {
 protected:
  /// A checkpoint at `c` that knows one line, made once.
  void SetUp() override {
    if (!folder_.empty()) return;
    folder_ = ScratchFolder();
    std::string text;
    for (int i = 0; i < 200; ++i) text += "abcdefgh\n";
    WriteBytes(folder_ + "/text.txt", text);
    WriteBytes(folder_ + "/run.json", kByteRun);
    ASSERT_EQ(Run({"data", "build", "--input", "@text.txt", "--out", "@d"}).exit_code, 0);
    const CliResult trained =
        Run({"train", "--config", "@run.json", "--data", "@d", "--checkpoint", "@c"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }

  /// Arguments "@x" are the file or folder x of the scratch folder.
  static CliResult Run(std::vector<std::string> arguments) {
    for (std::string& argument : arguments) {
      if (argument.starts_with("@")) argument = folder_ + "/" + argument.substr(1);
    }
    return RunCli(arguments);
  }
  static CliResult Generate(std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "--load", "@c", "--quiet"});
    return Run(more);
  }
  static void ExpectRefused(const std::vector<std::string>& more, int exit_code,
                            const std::string& says) {
    const CliResult result = Generate(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  static inline std::string folder_;
};

TEST_F(GenerateTest, PrintsTheTextAlone) {
  const CliResult result = Generate({"--prompt", "abc", "--max-tokens", "10"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "defgh\nabcd\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(GenerateTest, EveryWayToServeGivesTheSameText) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--layout", "tp=2"},
                                               {"--layout", "pp=2"},
                                               {"--weights", "bf16", "--cache", "bf16"},
                                               {"--weights", "int8", "--cache", "int8"},
                                               {"--weights", "fp8", "--cache", "fp8"},
                                               {"--weights", "fp16", "--cache", "fp16"},
                                               {"--weights", "int4"},
                                               {"--lookup", "4"},
                                               {"--block-size", "3", "--no-prefix-cache"},
                                               {"--tokens-per-step", "1", "--sequences", "1"},
                                               {"--threads-per-rank", "1"}}) {
    std::vector<std::string> arguments = {"--prompt", "abcdefgh\nabc", "--max-tokens", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CliResult result = Generate(arguments);
    EXPECT_EQ(result.out, "defgh\nabcdef\n") << more[0] << " " << more[1] << result.err;
  }
}

// A configuration that a search recommends names the model that proposes; its weights are told.
TEST_F(GenerateTest, AConfigurationMayHaveADraft) {
  const json model = json::parse(kByteRun)["model"];
  const json draft = {{"model", model}, {"weights", "int8"}, {"tokens", 3}};
  WriteBytes(folder_ + "/plain.json", json{{"model", model}}.dump());
  WriteBytes(folder_ + "/drafted.json", json{{"model", model}, {"draft", draft}}.dump());
  const std::vector<std::string> ask = {"--prompt", "abc", "--max-tokens", "10"};
  const auto with = [&ask](std::vector<std::string> more) {
    more.insert(more.end(), ask.begin(), ask.end());
    return more;
  };
  std::vector<std::string> loud = with({"generate", "--load", "@c"});
  loud.insert(loud.end(), {"--config", "@drafted.json", "--draft", "@c"});
  const CliResult drafted = Run(loud);
  EXPECT_EQ(drafted.out, "defgh\nabcd\n") << drafted.err;
  EXPECT_NE(drafted.err.find("accepted: acceptance 1.000"), std::string::npos) << drafted.err;
  ExpectRefused(with({"--config", "@drafted.json"}), 2, "expected --draft, with its weights");
  ExpectRefused(with({"--config", "@plain.json", "--draft", "@c"}), 2,
                "--draft contradicts --config");
  ExpectRefused(with({"--config", "@drafted.json", "--draft", "@c", "--draft-tokens", "2"}), 2,
                "--draft-tokens contradicts --config");
  json other = draft;
  other["model"]["num_layers"] = 1;
  WriteBytes(folder_ + "/other.json", json{{"model", model}, {"draft", other}}.dump());
  ExpectRefused(with({"--config", "@other.json", "--draft", "@c"}), 3, "of another model");
  WriteBytes(folder_ + "/both.json",
             json{{"model", model}, {"draft", draft}, {"lookup_tokens", 2}}.dump());
  ExpectRefused(with({"--config", "@both.json", "--draft", "@c"}), 4, "serving-speculation");
}

TEST_F(GenerateTest, ACheckpointCarriesItsTokenizer) {
  const std::string elsewhere = ScratchFolder();
  std::filesystem::copy(folder_ + "/c", elsewhere + "/c");
  for (const char* file : {"/d.bin", "/d.idx", "/d.json"}) {
    std::filesystem::rename(folder_ + file, elsewhere + file);
  }
  const std::vector<std::string> ask = {"--prompt", "abc", "--max-tokens", "6", "--quiet"};
  const auto generate = [&](const std::string& checkpoint) {
    std::vector<std::string> arguments = {"generate", "--load", checkpoint};
    arguments.insert(arguments.end(), ask.begin(), ask.end());
    return Run(arguments);
  };
  const CliResult moved = generate(elsewhere + "/c");
  EXPECT_EQ(moved.out, "defgh\n\n") << moved.err;
  // A run that goes on from it, on other data, hands it on.
  const CliResult trained =
      Run({"train", "--config", "@run.json", "--load", elsewhere + "/c", "--steps", "61",
           "--override", "data,steps", "--checkpoint", elsewhere + "/later"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(generate(elsewhere + "/later").exit_code, 0);
  WriteBytes(elsewhere + "/c/tokenizer.json", "{}");
  EXPECT_EQ(generate(elsewhere + "/c").exit_code, 7);  // damaged, as its checksum says
  for (const char* file : {"/d.bin", "/d.idx", "/d.json"}) {
    std::filesystem::rename(elsewhere + file, folder_ + file);
  }
}

TEST_F(GenerateTest, ServesWhatItQuantised) {
  for (const char* weights : {"int8", "fp8", "int4"}) {
    const std::string out = "@q-" + std::string(weights);
    std::vector<std::string> arguments = {"quantize",  "--load", "@c", "--weights",
                                          weights,     "--out",  out,  "--held-out",
                                          "@text.txt", "--json"};
    const bool scales = std::string(weights) == "int4";
    if (scales) arguments.insert(arguments.end(), {"--calibration", "@text.txt"});
    const CliResult quantized = Run(arguments);
    ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
    const json summary = json::parse(quantized.out);
    EXPECT_EQ(summary["weights"], weights);
    EXPECT_EQ(summary["scaled_matrices"].get<int64_t>() > 0, scales) << quantized.out;
    const double original = summary["perplexity"]["original"];
    EXPECT_LT(original, 1.5);
    EXPECT_NEAR(summary["perplexity"]["quantized"].get<double>(), original, 0.1 * original);
    const CliResult text = Run({"generate", "--load", out, "--prompt", "abc", "--max-tokens", "10",
                                "--layout", "tp=1", "--quiet"});
    EXPECT_EQ(text.out, "defgh\nabcd\n") << text.err;
  }
}

TEST_F(GenerateTest, RefusesToQuantiseWhatItCannot) {
  const auto refused = [](std::vector<std::string> more, int exit_code, const std::string& says) {
    more.insert(more.begin(), {"quantize", "--load", "@c"});
    const CliResult result = Run(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  refused({}, 2, "--out");
  refused({"--out", "@x", "--weights", "int2"}, 2, "--weights");
  refused({"--out", "@x", "--held-out-tokens", "9"}, 2, "--held-out-tokens needs --held-out");
  refused({"--out", "@x", "--weights", "int8", "--calibration", "@text.txt"}, 2, "--calibration");
  refused({"--out", "@x", "--calibration", "@missing.txt"}, 3, "missing.txt");
  refused({"--out", "@c"}, 7, "/c");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/x"));
  WriteBytes(folder_ + "/empty.txt", "");
  refused({"--out", "@x", "--held-out", "@empty.txt"}, 3, "empty.txt");
}

// What fewer bits cost is measured with the model's own weights, and the search keeps to the limit.
TEST_F(GenerateTest, ASearchMeasuresTheQualityThatItKeepsTo) {
  const json model = json::parse(kByteRun)["model"];
  WriteBytes(folder_ + "/model.json", model.dump());
  const auto search = [](const std::string& require, const std::string& weights) {
    return Run({"search",    "--for",         "serving",    "--model",   "@model.json",
                "--cluster", "1xh100",        "--workload", "8/8",       "--requests",
                "8",         "--concurrency", "4",          "--weights", weights,
                "--cache",   "bf16",          "--require",  require,     "--load",
                "@c",        "--held-out",    "@text.txt",  "--json",    "--quiet"});
  };
  const CliResult found = search("perplexity<1.5x", "bf16,int4");
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const json report = json::parse(found.out);
  std::map<std::string, double> rises;
  for (const json& each : report["problem"]["perplexity"]["rises"]) {
    rises[each["weights"]] = each["rise"];
  }
  ASSERT_EQ(rises.size(), 2u);
  EXPECT_NEAR(rises["bf16"], 1, 0.01);
  EXPECT_GT(rises["int4"], 1);
  // Between what both cost: int4 is out, and nothing else.
  const double between = (std::max(1.0, rises["bf16"]) + rises["int4"]) / 2;
  const std::string require = fmt::format("perplexity<{}x", between);
  const CliResult kept = search(require, "bf16,int4");
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  const json best = json::parse(kept.out);
  EXPECT_EQ(best["recommended"]["serving"]["weights"], "bf16");
  const json& pruned = best["space"]["pruned"];
  EXPECT_TRUE(std::ranges::any_of(pruned, [&](const json& each) {
    return each["rule"] == require;
  })) << pruned;
  const CliResult none = search(require, "int4");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_NE(none.err.find("would meet perplexity<1."), std::string::npos) << none.err;
}

TEST_F(GenerateTest, AnswersManyPromptsInTheirOrder) {
  WriteBytes(folder_ + "/prompts.txt", "abcd\r\nef\n");
  const CliResult result = Generate({"--prompts", "@prompts.txt", "--prompt", "gh\na",
                                     "--max-tokens", "6", "--stop", "h", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<json> lines;
  for (size_t begin = 0; begin < result.out.size();) {
    const size_t end = result.out.find('\n', begin);
    lines.push_back(json::parse(result.out.substr(begin, end - begin)));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["prompt"], "gh\na");
  EXPECT_EQ(lines[0]["text"], "bcdefg");
  EXPECT_EQ(lines[0]["finish"], "length");
  EXPECT_EQ(lines[1]["prompt"], "abcd");  // lines may end as DOS's do
  EXPECT_EQ(lines[1]["text"], "efg");
  EXPECT_EQ(lines[1]["finish"], "stop");
  EXPECT_EQ(lines[2]["text"], "g");
  EXPECT_EQ(lines[2]["prompt_tokens"], 2);
}

TEST_F(GenerateTest, DrawsTheSameFromTheSameSeed) {
  const auto draw = [](const char* seed) {
    return Generate({"--prompt", "abc", "--temperature", "3", "--seed", seed}).out;
  };
  EXPECT_EQ(draw("5"), draw("5"));
  EXPECT_NE(draw("5"), draw("6"));
}

TEST_F(GenerateTest, RefusesWhatItCannotDo) {
  ExpectRefused({}, 2, "expected --prompt or --prompts");
  ExpectRefused({"--prompt", ""}, 2, "--prompt: the text is empty");
  ExpectRefused({"--prompt", "a", "--load-hf", "@c"}, 2, "--load-hf contradicts --load");
  ExpectRefused({"--prompts", "@missing.txt"}, 3, "missing.txt: cannot be read");
  ExpectRefused({"--prompts", "@"}, 3, "is a folder");
  ExpectRefused({"--prompts", "/dev/null"}, 3, "/dev/null: is empty");
  ExpectRefused({"--prompt", "a", "--stop", ""}, 2, "--stop: the text is empty");
  ExpectRefused({"--prompt", std::string(40, 'a')}, 2, "the prompt has 40 tokens; expected fewer");
  ExpectRefused({"--prompt", "a", "--layout", "cp=2"}, 4, "serving-layout");
  ExpectRefused({"--prompt", "a", "--layout", "mbs=3"}, 2, "mbs=3: training has it");
  ExpectRefused({"--prompt", "a", "--layout", "overlap_grad_reduce=0"}, 2, "training has it");
  ExpectRefused({"--prompt", "a", "--layout", "tp=4"}, 4, "heads-divisible-by-tp");
  ExpectRefused({"--prompt", "a", "--max-length", "33"}, 4, "serving-length");
  ExpectRefused({"--prompt", "a", "--weights", "int3"}, 2, "--weights");
  ExpectRefused({"--prompt", "a", "--draft-tokens", "2"}, 2, "--draft-tokens needs --draft");
  ExpectRefused({"--prompt", "a", "--draft", "@nothing"}, 3, "nothing: no such folder");
  const CliResult bench =
      Run({"bench", "--load", "@c", "--workload", "40/4", "--requests", "2", "--rate", "9", "-q"});
  EXPECT_EQ(bench.exit_code, 2) << bench.err;
  EXPECT_NE(bench.err.find("has 40 tokens; expected fewer than 32"), std::string::npos)
      << bench.err;
  EXPECT_EQ(bench.out, "") << "there is nothing to make a table of";
  WriteBytes(folder_ + "/gap.txt", "a\n\nb\n");
  ExpectRefused({"--prompts", "@gap.txt"}, 3, "gap.txt:2: an empty line");
}

// Of a run that trains, only the model counts; the flags say how to serve it.
TEST_F(GenerateTest, TakesTheRunThatTrainedTheModel) {
  const std::vector<std::string> words = {"--prompt", "abc", "--max-tokens", "5"};
  std::vector<std::string> by_run = words;
  by_run.insert(by_run.end(), {"--config", "@run.json", "--layout", "tp=2"});
  const CliResult result = Generate(by_run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, Generate(words).out);
  WriteBytes(folder_ + "/other.json",
             R"({"model": "gpt2-tiny", "global_batch": 8, "sequence_length": 32})");
  ExpectRefused({"--prompt", "a", "--config", "@other.json"}, 3,
                "other.json: a configuration of gpt2-tiny; the weights are of another model");
}

TEST_F(GenerateTest, RefusesFoldersWithoutACheckpoint) {
  const auto refusal = [](const std::string& folder) {
    const CliResult result = Run({"generate", "--load", folder, "--prompt", "a", "--quiet"});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    return result.err;
  };
  EXPECT_NE(refusal("@nothing").find("nothing: no such folder; expected one that"),
            std::string::npos);
  std::filesystem::create_directories(folder_ + "/other");
  EXPECT_NE(refusal("@other").find("other: holds no checkpoint"), std::string::npos);
  WriteBytes(folder_ + "/other/config.json", "{}");
  EXPECT_NE(refusal("@other").find("other: is a Hugging Face folder, which --load-hf takes"),
            std::string::npos);
  // What is left of a checkpoint is a damaged one.
  WriteBytes(folder_ + "/other/optimizer.safetensors", "");
  EXPECT_EQ(Run({"generate", "--load", "@other", "--prompt", "a", "--quiet"}).exit_code, 7);
}

// An export has the tokenizer and the ids that end answers, and a run that begins with it hands
// both on.
TEST_F(GenerateTest, EndsAtTheIdsThatComeWithAModel) {
  const auto made = [](const std::vector<std::string>& arguments) {
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  const auto ask = [](const std::string& flag, const std::string& folder) {
    const CliResult result = Run(
        {"generate", flag, folder, "--prompt", "abc", "--max-tokens", "10", "--json", "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  };
  made({"export", "--load", "@c", "--out", "@hf"});
  EXPECT_EQ(ask("--load-hf", "@hf")["text"], "defgh\nabcd");
  WriteBytes(folder_ + "/hf/generation_config.json", R"({"eos_token_id": [1, 103]})");
  const json answer = ask("--load-hf", "@hf");
  EXPECT_EQ(answer["text"], "def");  // 103: g
  EXPECT_EQ(answer["finish"], "stop");
  made({"train", "--load-hf", "@hf", "--data", "@d", "--gbs", "8", "--seq", "32", "--steps", "1",
        "--checkpoint", "@tuned"});
  EXPECT_EQ(ask("--load", "@tuned")["finish"], "stop");
  made({"export", "--load", "@tuned", "--out", "@again"});
  EXPECT_EQ(ask("--load-hf", "@again")["finish"], "stop");
  made({"quantize", "--load-hf", "@hf", "--weights", "int8", "--out", "@rounded"});
  EXPECT_EQ(ask("--load", "@rounded")["finish"], "stop");
  WriteBytes(folder_ + "/hf/generation_config.json", R"({"eos_token_id": [1, 257]})");
  const CliResult refused = Run({"generate", "--load-hf", "@hf", "--prompt", "a", "--quiet"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("hf/generation_config.json: $.eos_token_id[1]: expected an id"),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace trimtab
