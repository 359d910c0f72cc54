// What jinja2 makes of each of many small templates (testdata/chat_templates).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/chat/jinja/json_value.h"
#include "engine/chat/jinja/template.h"
#include "tests/engine/chat/jinja/jinja_test_util.h"

namespace trimtab::jinja {
namespace {

using nlohmann::ordered_json;

TEST(JinjaGoldens, AreRenderedAsJinja2Does) {
  std::ifstream file("testdata/chat_templates/jinja.json");
  const ordered_json goldens = ordered_json::parse(file);
  ASSERT_GT(goldens["cases"].size(), 150u);
  for (const ordered_json& each : goldens["cases"]) {
    const auto source = each["template"].get<std::string>();
    const Outcome outcome = RenderWith(source, goldens["context"]);
    if (each.contains("output")) {
      EXPECT_EQ(outcome.error, "") << source;
      EXPECT_EQ(outcome.text.bytes(), each["output"].get<std::string>()) << source;
    } else {
      EXPECT_NE(outcome.error, "") << source << "\n" << outcome.text.bytes();
      if (each["error"].is_string()) {
        EXPECT_EQ(outcome.error, each["error"].get<std::string>());
      }
    }
  }
}

}  // namespace
}  // namespace trimtab::jinja
