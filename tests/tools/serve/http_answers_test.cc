// Several answers, several prompts, what is told of tokens, and other kinds of answers.
#include "tests/tools/serve/http_server_fixture.h"

namespace trimtab {
namespace {

using nlohmann::json;

TEST_F(HttpServerTest, AnswersEveryPromptSeveralTimes) {
  Start();
  const json body =
      Post("/v1/completions", Completion({{"prompt", {"ab", "cde"}}, {"n", 2}, {"max_tokens", 2}}))
          .parsed();
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], i < 2 ? "ab" : "cd");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 8);
  const json ids =
      Post("/v1/completions", Completion({{"prompt", {{97}, {98, 99}}}, {"max_tokens", 3}}))
          .parsed();
  EXPECT_EQ(ids["choices"][1]["text"], "bcb");

  std::map<int, std::string> texts;
  const std::string stream =
      Post("/v1/completions", Completion({{"prompt", {"ab", "cde"}}, {"n", 2}, {"stream", true}}))
          .body;
  for (const std::string& event : Events(stream)) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"].get<int>()] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{
                       {0, "ababababa"}, {1, "ababababa"}, {2, "cdecdecde"}, {3, "cdecdecde"}}));
  EXPECT_TRUE(Quiet());
}

// The fake's answers of odd seeds are less likely; those of one request have seeds 1, 2, 3.
TEST_F(HttpServerTest, KeepsTheLikeliestAnswers) {
  Start();
  const json body =
      Post("/v1/completions", Completion({{"best_of", 3}, {"seed", 1}, {"logprobs", 0}})).parsed();
  ASSERT_EQ(body["choices"].size(), 1u);
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"][0], -0.5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 27) << "all that were drawn";
}

// lm-evaluation-harness's request: ids in, and what each of them was worth.
TEST_F(HttpServerTest, EchoesPromptsWithTheirLogProbabilities) {
  Start();
  for (const int max_tokens : {0, 1}) {
    const json body = Post("/v1/completions", Completion({{"prompt", {{104, 105, 106}}},
                                                          {"echo", true},
                                                          {"logprobs", 1},
                                                          {"seed", 1234},
                                                          {"temperature", 0},
                                                          {"max_tokens", max_tokens}}))
                          .parsed();
    const json& choice = body["choices"][0];
    EXPECT_EQ(choice["text"], max_tokens == 0 ? "hij" : "hijh");
    const json& logprobs = choice["logprobs"];
    EXPECT_EQ(logprobs["tokens"].size(), 3u + max_tokens);
    EXPECT_EQ(logprobs["token_logprobs"][0], nullptr);
    EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
    EXPECT_EQ(logprobs["token_logprobs"][1], -0.25);
    EXPECT_EQ(logprobs["top_logprobs"][1], json({{"i", -0.25}}));
    EXPECT_EQ(logprobs["text_offset"][2], 2);
    EXPECT_EQ(logprobs["text_offset"].back(), 2 + max_tokens);
  }
  const std::string stream = Post("/v1/completions", Completion({{"prompt", "hi"},
                                                                 {"echo", true},
                                                                 {"logprobs", 0},
                                                                 {"max_tokens", 1},
                                                                 {"stream", true}}))
                                 .body;
  std::string text;
  json offsets = json::array();
  for (const std::string& event : Events(stream)) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    text += choice["text"].get<std::string>();
    for (const json& each : choice["logprobs"]["text_offset"]) offsets.push_back(each);
  }
  EXPECT_EQ(text, "hih");
  EXPECT_EQ(offsets, json({0, 1, 2}));
}

TEST_F(HttpServerTest, TellsOfPromptsAndIds) {
  Start();
  const json body = Post("/v1/completions", Completion({{"prompt", "hi"},
                                                        {"max_tokens", 1},
                                                        {"logprobs", 1},
                                                        {"prompt_logprobs", 1},
                                                        {"return_token_ids", true},
                                                        {"return_tokens_as_token_ids", true}}))
                        .parsed();
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["token_ids"], json({104}));
  EXPECT_EQ(choice["prompt_token_ids"], json({104, 105}));
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"token_id:104"}));
  EXPECT_EQ(choice["prompt_logprobs"][0], nullptr);
  EXPECT_EQ(choice["prompt_logprobs"][1]["105"]["logprob"], -0.25);
  EXPECT_EQ(choice["prompt_logprobs"][1]["105"]["rank"], 1);
}

TEST_F(HttpServerTest, CutsPromptsAndKeepsStopTexts) {
  Start();
  const auto text = [this](const json& more) {
    return Post("/v1/completions", Completion(more)).parsed()["choices"][0]["text"];
  };
  EXPECT_EQ(text({{"truncate_prompt_tokens", 2}, {"max_tokens", 2}}), "o ");
  EXPECT_EQ(text({{"truncate_prompt_tokens", 2}, {"truncation_side", "right"}, {"max_tokens", 2}}),
            "he");
  EXPECT_EQ(text({{"stop", "lo"}, {"include_stop_str_in_output", true}}), "hello");
  EXPECT_EQ(text({{"stop_token_ids", {'o'}}}), "hell");
  const json named = Post("/v1/completions", Completion({{"request_id", "abc"}})).parsed();
  EXPECT_EQ(named["id"], "cmpl-abc");
}

TEST_F(HttpServerTest, CountsTokensInEveryEvent) {
  Start();
  const std::string stream =
      Post("/v1/chat/completions",
           Chat({{"n", 2},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}))
          .body;
  int64_t completion = 0;
  std::map<int, std::string> texts;
  for (const std::string& event : Events(stream)) {
    if (event == "[DONE]") continue;
    const json parsed = json::parse(event);
    EXPECT_GE(parsed["usage"]["completion_tokens"], completion);
    completion = parsed["usage"]["completion_tokens"];
    for (const json& choice : parsed["choices"]) {
      texts[choice["index"].get<int>()] += choice["delta"].value("content", "");
    }
  }
  EXPECT_EQ(completion, 18);
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "User: hel"}, {1, "User: hel"}}));
}

TEST_F(HttpServerTest, GoesOnWithTheLastMessage) {
  Start();
  const json messages = {{{"role", "user"}, {"content", "Say"}},
                         {{"role", "assistant"}, {"content", "I do"}}};
  const json asked = {{"messages", messages},
                      {"continue_final_message", true},
                      {"echo", true},
                      {"return_token_ids", true}};
  const Reply reply = Post("/v1/chat/completions", Chat(asked));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json body = reply.parsed();
  const std::string prompt = "User: Say\nAssistant: I do";
  EXPECT_EQ(body["prompt_token_ids"], json(std::vector<int>(prompt.begin(), prompt.end())));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "I doUser: Say");
}

TEST_F(HttpServerTest, EmbedsTexts) {
  Start();
  const json body = Post("/v1/embeddings", R"({"input": ["a", "bc"], "user": "me"})").parsed();
  EXPECT_EQ(body["object"], "list");
  ASSERT_EQ(body["data"].size(), 2u);
  EXPECT_EQ(body["data"][1]["index"], 1);
  const std::vector<double> second = body["data"][1]["embedding"];
  EXPECT_NEAR(second[0] * second[0] + second[1] * second[1], 1, 1e-6);
  EXPECT_NEAR(second[1] / second[0], 98.0 / 2, 1e-3);
  EXPECT_EQ(body["usage"], json({{"prompt_tokens", 3}, {"total_tokens", 3}}));
  const json one =
      Post("/v1/embeddings", R"({"input": [97], "encoding_format": "base64", "dimensions": 2})")
          .parsed();
  EXPECT_EQ(one["data"][0]["embedding"].get<std::string>().size(), 12u) << "of eight bytes";
}

TEST_F(HttpServerTest, Responds) {
  Start();
  const std::string asked = R"({"input": "hello", "instructions": "Be kind.",
      "max_output_tokens": 9, "metadata": {"a": "b"}, "store": true})";
  const json body = Post("/v1/responses", asked).parsed();
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Be kind.\n");
  EXPECT_EQ(body["metadata"], json({{"a", "b"}}));
  EXPECT_EQ(body["usage"], json({{"input_tokens", 32}, {"output_tokens", 9}, {"total_tokens", 41}}))
      << "it counts nothing else";
  const std::string stream =
      Post("/v1/responses", asked.substr(0, asked.size() - 1) + ", \"stream\": true}").body;
  std::vector<std::string> kinds;
  std::string text;
  int64_t number = 0;
  for (const std::string& event : Events(stream)) {
    const json parsed = json::parse(event);
    EXPECT_EQ(parsed["sequence_number"], number++);
    if (kinds.empty() || kinds.back() != parsed["type"]) kinds.push_back(parsed["type"]);
    if (parsed["type"] == "response.output_text.delta") text += parsed["delta"];
  }
  EXPECT_EQ(text, "Be kind.\n");
  EXPECT_EQ(kinds, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added",
                       "response.content_part.added", "response.output_text.delta",
                       "response.output_text.done", "response.content_part.done",
                       "response.output_item.done", "response.incomplete"}));
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
}

}  // namespace
}  // namespace trimtab
