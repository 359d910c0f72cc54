#include "engine/families/load_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(LoadConfig, UnknownPresetsSuggestOne) {
  EXPECT_EQ(ErrorText<UsageError>([] { LoadModelConfig("lama2-7b"); }),
            "model 'lama2-7b' is neither a preset nor a file; did you mean 'llama2-7b'?");
  const std::string listed = ErrorText<UsageError>([] { LoadModelConfig("?"); });
  for (const std::string& name : ModelPresetNames()) {
    EXPECT_NE(listed.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(ErrorText<InputError>([] { LoadModelConfig("no/such.json"); }),
            "no/such.json: cannot be read: No such file or directory");
}

TEST(LoadConfig, ReadsAFileAndFillsInDefaults) {
  const RunConfig run = LoadRunConfig("testdata/configs/run.json");
  EXPECT_EQ(run.model, LoadModelConfig("gpt2-10m"));
  EXPECT_EQ(ToString(run.layout), "tp=2,sp=1,dp=2,zero=1,mbs=4,recompute=full:block:2");
  EXPECT_EQ(run.optimizer.learning_rate, 0.001);
  EXPECT_EQ(run.optimizer.beta2, OptimizerConfig{}.beta2);
  EXPECT_EQ(run.optimizer.warmup_steps, 5);
  EXPECT_EQ(run.global_batch, 32);
  EXPECT_EQ(run.sequence_length, 128);
  EXPECT_EQ(run.steps, 50);
  EXPECT_EQ(run.seed, 7u);
  EXPECT_EQ(run.threads_per_rank, 0);
  EXPECT_EQ(run.data, "text/train");
}

TEST(LoadConfig, ReadsTheRecommendedRunOfAReport) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/report.json";
  const RunConfig run = LoadRunConfig("testdata/configs/run.json");
  const nlohmann::json report = {{"schema_version", 1},
                                 {"ranking", {1, 2, 3}},
                                 {"recommended", {{"run", ToJson(run)}, {"why", "x"}}}};
  std::ofstream(path) << report;
  EXPECT_EQ(LoadRunConfig(path), run);
}

// Only what people write may name a preset: config/ has none.
TEST(LoadConfig, ARunMayNameAPreset) {
  const nlohmann::json run = {{"model", "gpt2-10m"}, {"global_batch", 8}, {"sequence_length", 64}};
  EXPECT_EQ(RunConfigFromJson(run, "f: $").model, LoadModelConfig("gpt2-10m"));
  EXPECT_EQ(ErrorText<InputError>([&] { RunConfigFromJson(run, "f: $", ModelConfigFromJson); }),
            "f: $.model: expected an object, got \"gpt2-10m\"");
}

}  // namespace
}  // namespace trimtab
