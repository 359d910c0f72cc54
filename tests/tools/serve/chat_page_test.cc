// The chat page in headless Chromium, over the fake engine.
#include <sys/wait.h>

#include "tests/tools/serve/http_server_fixture.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr int kNoBrowser = 77;  // the exit code of use_chat_page.py

TEST_F(HttpServerTest, APersonChats) {
  engine_.step_time = std::chrono::milliseconds(2);
  Start({.api_key = "sesame"});
  const Outcome outcome =
      Shell(fmt::format("python3 tests/tools/serve/use_chat_page.py {} {}", folder_, Url("/")));
  if (outcome.status == kNoBrowser) GTEST_SKIP() << "no chromium here (Debian package chromium)";
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json seen = json::parse(outcome.output);
  EXPECT_EQ(seen["without_key"], "needs an API key");
  EXPECT_EQ(seen["refused"].get<std::string>().find("expected the header"), 0u) << seen;
  EXPECT_EQ(seen["model"], "echo");
  // The fake repeats its prompt, up to the template's stop "\nUser:".
  EXPECT_EQ(seen["answer"], "Be kind.");
  EXPECT_EQ(seen["running_button"], "Stop");
  EXPECT_GT(seen["stopped"].get<std::string>().size(), 0u);
  EXPECT_EQ(seen["button_after"], "Send");
  EXPECT_EQ(seen["turns_after_new_chat"], 0);
  EXPECT_LE(seen["overflow"], 0);
  for (const json& request : seen["requests"]) {
    EXPECT_EQ(request.get<std::string>().find(Url("/")), 0u) << "it asks nobody else";
  }
  // The browser tells of the answers without a key, and of nothing else.
  for (const json& message : seen["messages"]) {
    EXPECT_NE(message.get<std::string>().find("401"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace trimtab
