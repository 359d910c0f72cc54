// A client that others wrote, npm's package openai, against the command that serves.
#include "tests/tools/serve/npm_client_fixture.h"

namespace trimtab {
namespace {

class OpenAiClient : public NpmClientTest {
 protected:
  static void SetUpTestSuite() { SetUpServer("openai@4.104.0"); }
  static void Run(const std::string& scenario) { NpmClientTest::Run("openai_client.js", scenario); }
};

TEST_F(OpenAiClient, ListsTheModel) { Run("lists"); }
TEST_F(OpenAiClient, Completes) { Run("completes"); }
TEST_F(OpenAiClient, Chats) { Run("chats"); }
TEST_F(OpenAiClient, Embeds) { Run("embeds"); }
TEST_F(OpenAiClient, Echoes) { Run("echoes"); }
TEST_F(OpenAiClient, Responds) { Run("responds"); }
TEST_F(OpenAiClient, CallsTools) { Run("callsTools"); }
TEST_F(OpenAiClient, WritesJson) { Run("writesJson"); }
TEST_F(OpenAiClient, AbortsAndNothingIsLeft) { Run("aborts"); }
TEST_F(OpenAiClient, IsRefusedWithItsOwnErrors) { Run("refuses"); }
TEST_F(OpenAiClient, ComesManyTimesAtOnce) { Run("comesTogether"); }
TEST_F(OpenAiClient, NeedsItsKey) { Run("needsItsKey"); }

}  // namespace
}  // namespace trimtab
