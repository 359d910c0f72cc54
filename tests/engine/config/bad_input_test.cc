// Every file of testdata/configs/bad is refused with one line that names the file, the place in it
// and what was expected.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/rules/rules.h"
#include "engine/config/run/run_config.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

const std::string kFolder = "testdata/configs/bad/";

// File name (without .json) -> what follows the path of the file in the message.
const std::map<std::string, std::string> kExpected = {
    {"array", ": $: expected an object, got an array of 3"},
    {"beta_of_one", ": $.optimizer.beta2: expected a number from 0 to 0.999999, got 1.0"},
    {"deep", ":1:65: nested deeper than 64 levels"},
    {"duplicate_key", ": key \"global_batch\" appears twice in one object"},
    {"empty", ":1:1: not JSON: unexpected end of input"},
    {"fraction_for_integer", ": $.global_batch: expected an integer from 1 to 1073741824, got 8.5"},
    {"huge_integer",
     ": $.global_batch: expected an integer from 1 to 1073741824, got 1.8446744073709552e+19"},
    {"huge_world", ": $.layout: tp 1048576 x cp 1 x pp 1 x dp 2 is more than 1048576 ranks"},
    {"integer_for_boolean", ": $.layout.sp: expected true or false, got 1"},
    {"learning_rates_swapped",
     ": $.optimizer.min_learning_rate: expected at most the learning_rate 1e-05, got 6e-05"},
    {"missing_key", ": $.global_batch: required, but missing"},
    {"mistyped_key",
     ": $.sequence_length: required, but missing; is 'sequence_lenght' meant to be it?"},
    {"negative_seed", ": $.seed: expected an integer from 0 to 2^64 - 1, got -1"},
    {"newer_schema", ": $.schema_version: expected an integer from 1 to 1, got 2"},
    {"not_json", ":1:2: not JSON: invalid literal"},
    {"not_utf8", ":2:18: not JSON: invalid string"},
    {"number_overflow", ": not JSON: number overflow parsing '1e999'"},
    {"out_of_range", ": $.global_batch: expected an integer from 1 to 1073741824, got 0"},
    {"report_with_bad_run",
     ": $.recommended.run.sequence_length: expected an integer from 1 to 134217728, got \"64\""},
    {"report_without_run", ": $.recommended.run: required, but missing"},
    {"number_for_layer_name", ": $.fp8.bf16_layers[1]: expected the name of a layer, got 3"},
    {"loss_scale_below_one",
     ": $.loss_scale.initial: expected a number from 1 to 4294967296, got 0.5"},
    {"imbalance_below_one",
     ": $.routing.imbalance_factor: expected a number from 1 to 1000000, got 0.5"},
    {"more_chosen_than_experts", ": $.model.moe: router_topk 4 is more than num_experts 2"},
    {"string_for_integer", ": $.global_batch: expected an integer from 1 to 1073741824, got \"8\""},
    {"trailing_comma", ":1:41: not JSON: unexpected '}'"},
    {"truncated", ":4:15: not JSON: invalid string"},
    {"unknown_choice",
     ": $.model.norm: expected one of layernorm, rmsnorm, got \"layer_norm\"; did you mean "
     "'layernorm'?"},
    {"unknown_device", ": $.device: expected one of cpu, cuda, got \"tpu\"; did you mean 'cpu'?"},
    {"unknown_key", ": $.step: unknown key; did you mean 'steps'?"},
    {"unknown_rope_scaling",
     ": $.model.rope_scaling.kind: expected one of none, linear, llama3, yarn, got \"ntk\""},
    {"unknown_layout_key", ": $.layout.mbz: unknown key; did you mean 'mbs'?"},
    {"unknown_recompute",
     ": $.layout.recompute: unknown recomputation 'selectiv'; available: none, "
     "selective[:MODULE+MODULE...], full, full:uniform:N, full:block:N"},
    {"unknown_preset",
     ": $.model: expected an object or the name of a preset, got \"gpt2-10\"; did you mean "
     "'gpt2-10m'?"},
};

TEST(BadInput, EachFileIsRefusedWithOneClearLine) {
  for (const auto& [name, expected] : kExpected) {
    const std::string path = kFolder + name + ".json";
    const std::string message = ErrorText<InputError>([&path] { LoadRunConfig(path); });
    EXPECT_TRUE(message.starts_with(path + expected)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u) << message;
  }
}

TEST(BadInput, EveryFileOfTheFolderIsListed) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    EXPECT_TRUE(kExpected.contains(entry.path().stem())) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, kExpected.size());
}

// Files damaged at random either still are a run, which the rules then judge, or are refused as
// above.
TEST(BadInput, DamagedFilesAreReadOrRefusedAndNothingElse) {
  std::stringstream whole;
  whole << std::ifstream("testdata/configs/run.json").rdbuf();
  std::mt19937 random(99);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole.str();
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, "{}[]\",:0123456789-e."[random() % 21]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
    }
    try {
      const RunConfig run = RunConfigFromJson(ParseJsonText(text, "f"), "f: $");
      if (const Rule* broken = FirstBrokenRule(run)) {
        EXPECT_FALSE(broken->message(run).empty());
      }
      EXPECT_EQ(RunConfigFromJson(ToJson(run), "f: $"), run);
    } catch (const InputError& error) {
      ++refused;
      EXPECT_TRUE(std::string(error.what()).starts_with("f:")) << error.what();
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace trimtab
