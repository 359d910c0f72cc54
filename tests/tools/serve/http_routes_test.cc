// The paths that the server answers, and what browsers are told.
#include "tests/tools/serve/http_server_fixture.h"
#include "tools/serve/openapi.h"
#include "tools/serve/routes.h"

namespace trimtab {
namespace {

using nlohmann::json;

TEST(Routes, AreFoundWithSlashesAndNames) {
  EXPECT_EQ(FindRoute("/v1/models/")->handler, Handler::kModels);
  EXPECT_EQ(FindRoute("/v1/models")->handler, Handler::kModels);
  const Route* model = FindRoute("/v1/models/org/name/");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(NameIn(*model, "/v1/models/org/name/"), "org/name");
  EXPECT_EQ(FindRoute("/")->handler, Handler::kPage);
  EXPECT_EQ(FindRoute("/v1"), nullptr);
  EXPECT_EQ(FindRoute(""), nullptr);
  EXPECT_EQ(MethodsOf("/v1/completions"), "POST, OPTIONS");
  EXPECT_EQ(MethodsOf("/infill"), "") << "known, but not served";
  EXPECT_EQ(LabelOf("/v1/models/x"), "/v1/models/*");
}

TEST(OpenApi, DescribesEveryRouteAndField) {
  const json api = OpenApi("m", /*needs_key=*/true);
  EXPECT_EQ(api["openapi"], "3.1.0");
  size_t described = 0;
  for (const Route& route : AllRoutes()) {
    if (route.handler == Handler::kRefused) continue;
    std::string path(route.path);
    if (path.ends_with('*')) path.replace(path.size() - 1, 1, "{name}");
    ASSERT_TRUE(api["paths"].contains(path)) << path;
    EXPECT_TRUE(api["paths"][path].contains(route.post() ? "post" : "get")) << path;
    ++described;
  }
  EXPECT_EQ(api["paths"].size(), described);
  const json& chat = api["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
                        ["application/json"]["schema"];
  EXPECT_EQ(chat["required"], json({"messages"}));
  EXPECT_EQ(chat["properties"]["temperature"]["type"], "number");
  EXPECT_EQ(chat["properties"]["typical_p"]["enum"], json({1}));
  std::set<std::string> ids;
  for (const auto& [path, operations] : api["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"].get<std::string>()).second) << path;
    }
  }
}

TEST_F(HttpServerTest, AnswersWhatOthersCallItsPaths) {
  Start();
  for (const char* path : {"/health", "/v1/health/", "/ping", "/version", "/models", "/v1/models/",
                           "/models/echo", "/openapi.json", "/metrics", "/"}) {
    EXPECT_EQ(Get(path).status, 200) << path;
    EXPECT_NE(Head(path, "-I").find(" 200 "), std::string::npos) << path;
  }
  for (const char* path : {"/completions", "/v1/completions/", "/v1/completions"}) {
    EXPECT_EQ(Post(path, Completion()).status, 200) << path;
  }
  EXPECT_EQ(Post("/chat/completions", Chat()).status, 200);
  EXPECT_EQ(Get("/openapi.json").parsed(), OpenApi("echo", /*needs_key=*/false));
  EXPECT_EQ(Get("/infill").status, 404);
}

TEST_F(HttpServerTest, TokenizesAndBack) {
  Start();
  const json vllm = Post("/tokenize", R"({"prompt": "hi", "return_token_strs": true})").parsed();
  EXPECT_EQ(vllm["tokens"], json({'h', 'i'}));
  EXPECT_EQ(vllm["count"], 2);
  EXPECT_EQ(vllm["max_model_len"], 512);
  EXPECT_EQ(vllm["token_strs"], json({"h", "i"}));
  const json chat = Post("/tokenize", Chat()).parsed();
  EXPECT_EQ(chat["count"], std::string("User: hello\nAssistant:").size());
  const json llama = Post("/tokenize", R"({"content": "\u00e9", "with_pieces": true})").parsed();
  EXPECT_EQ(llama["tokens"][0], json({{"id", 0xc3}, {"piece", {0xc3}}}));
  EXPECT_EQ(Post("/tokenize", R"({"content": ""})").parsed()["tokens"], json::array());
  const json text = Post("/detokenize", R"({"tokens": [104, 105]})").parsed();
  EXPECT_EQ(text["prompt"], "hi");
  EXPECT_EQ(text["content"], "hi");
}

TEST_F(HttpServerTest, LetsPagesOfOneOriginRead) {
  Start({.api_key = "sesame", .cors_origin = "https://a.example"});
  const std::string preflight =
      Head("/v1/chat/completions",
           "-X OPTIONS -H 'Origin: https://a.example' -H 'Access-Control-Request-Method: POST' "
           "-H 'Access-Control-Request-Headers: authorization,x-stainless-os'");
  for (const char* line : {" 204 ", "Access-Control-Allow-Origin: https://a.example\r\n",
                           "Vary: Origin\r\n", "Access-Control-Allow-Methods: POST, OPTIONS\r\n",
                           "Access-Control-Allow-Headers: authorization,x-stainless-os\r\n"}) {
    EXPECT_NE(preflight.find(line), std::string::npos) << line << preflight;
  }
  // Also where the key is missing: a page is to read why.
  const std::string refused = Head("/v1/models");
  EXPECT_NE(refused.find(" 401 "), std::string::npos) << refused;
  EXPECT_NE(refused.find("Access-Control-Allow-Origin: https://a.example\r\n"), std::string::npos);
  server_.reset();
  Start();
  EXPECT_EQ(Head("/v1/models").find("Access-Control"), std::string::npos);
}

TEST_F(HttpServerTest, ServesAPageThatRunsNothingElse) {
  Start({.api_key = "sesame"});
  const std::string head = Head("/");
  EXPECT_NE(head.find("Content-Security-Policy: default-src 'none'; script-src 'nonce-"),
            std::string::npos)
      << head;
  const std::string page = Get("/").body;
  EXPECT_EQ(page.find("@nonce@"), std::string::npos);
  EXPECT_EQ(page.find("://"), std::string::npos) << "it asks nobody else";
  EXPECT_NE(Get("/").body, page) << "a nonce is used once";
}

}  // namespace
}  // namespace trimtab
