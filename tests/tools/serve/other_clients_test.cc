// Clients that others wrote on OpenAI's API, the AI SDK and LangChain, against the command that
// serves.
#include "tests/tools/serve/npm_client_fixture.h"

namespace trimtab {
namespace {

class OtherClients : public NpmClientTest {
 protected:
  static void SetUpTestSuite() {
    SetUpServer(
        "ai@5.0.277 @ai-sdk/openai-compatible@1.0.61 @langchain/openai@0.6.9 "
        "@langchain/core@0.3.80 zod@3.25.76");
  }
  static void Run(const std::string& scenario) { NpmClientTest::Run("other_clients.js", scenario); }
};

TEST_F(OtherClients, AiSdkWrites) { Run("aiSdkWrites"); }
TEST_F(OtherClients, AiSdkWritesObjects) { Run("aiSdkWritesObjects"); }
TEST_F(OtherClients, AiSdkCallsTools) { Run("aiSdkCallsTools"); }
TEST_F(OtherClients, AiSdkEmbeds) { Run("aiSdkEmbeds"); }
TEST_F(OtherClients, LangChainWrites) { Run("langChainWrites"); }
TEST_F(OtherClients, LangChainCallsTools) { Run("langChainCallsTools"); }
TEST_F(OtherClients, LangChainWritesObjects) { Run("langChainWritesObjects"); }
TEST_F(OtherClients, LangChainEmbeds) { Run("langChainEmbeds"); }
TEST_F(OtherClients, AreRefusedWithTheirOwnErrors) { Run("refused"); }

}  // namespace
}  // namespace trimtab
