// What the server answers.
#include "tests/tools/serve/http_server_fixture.h"

namespace trimtab {
namespace {

using nlohmann::json;

TEST_F(HttpServerTest, Completes) {
  Start();
  const Reply reply = Post("/v1/completions", Completion());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json body = reply.parsed();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "hello hel");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 9);
  EXPECT_EQ(
      Post("/v1/completions", Completion({{"prompt", {104, 105}}})).parsed()["choices"][0]["text"],
      "hihihihih");
  EXPECT_EQ(Post("/v1/completions", Completion({{"prompt", json::array({{104, 105}})}}))
                .parsed()["choices"][0]["text"],
            "hihihihih");
}

// Beside the tokenizer's own: what came with the model.
TEST_F(HttpServerTest, EndsAtTheIdsOfTheModel) {
  end_tokens_ = {'z', 'o'};
  Start();
  const json ended = Post("/v1/completions", Completion()).parsed()["choices"][0];
  EXPECT_EQ(ended["text"], "hell");
  EXPECT_EQ(ended["finish_reason"], "stop");
  const json on = Post("/v1/completions", Completion({{"ignore_eos", true}})).parsed();
  EXPECT_EQ(on["choices"][0]["text"], "hello hel");
  const json chat = {{"model", "echo"}, {"messages", {{{"role", "user"}, {"content", "zoo"}}}}};
  const json answer = Post("/v1/chat/completions", chat.dump()).parsed()["choices"][0];
  EXPECT_EQ(answer["message"]["content"], "User: ");
  EXPECT_EQ(answer["finish_reason"], "stop");
}

// Several tokens that are part of a character have names of their own.
TEST_F(HttpServerTest, NamesTokensThatAreNoTextByTheirBytes) {
  Start();
  const std::string body =
      Completion({{"prompt", {0xc3, 0xa9}}, {"max_tokens", 2}, {"logprobs", 2}});
  const Reply reply = Post("/v1/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json logprobs = reply.parsed()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"bytes:\\xc3", "bytes:\\xa9"}));
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u) << logprobs;
  EXPECT_EQ(logprobs["text_offset"], json({0, 0}));
}

// The first is no character without the rest of it, and U+FFFD in the text.
TEST_F(HttpServerTest, TokensBeginBehindWhatIsNoCharacter) {
  Start();
  const Reply reply = Post(
      "/v1/completions", Completion({{"prompt", {0xc3, '!'}}, {"max_tokens", 4}, {"logprobs", 0}}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choice = reply.parsed()["choices"][0];
  EXPECT_EQ(choice["text"], "\uFFFD!\uFFFD!");
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 3}));
}

// Streamed or not: where each token begins in the text, and the one that was chosen among the
// likeliest, however many are asked for.
TEST_F(HttpServerTest, SaysWhereTokensBegin) {
  Start();
  for (const bool stream : {false, true}) {
    const Reply reply =
        Post("/v1/completions",
             Completion(
                 {{"prompt", "h\u00e9!"}, {"max_tokens", 5}, {"logprobs", 0}, {"stream", stream}}));
    ASSERT_EQ(reply.status, 200) << reply.body;
    json offsets = json::array();
    json tops = json::array();
    const auto add = [&](const json& choice) {
      const json& logprobs = choice["logprobs"];
      if (logprobs.is_null()) return;
      for (const json& each : logprobs["text_offset"]) offsets.push_back(each);
      for (const json& each : logprobs["top_logprobs"]) tops.push_back(each);
    };
    if (stream) {
      for (const std::string& event : Events(reply.body)) {
        if (event != "[DONE]") add(json::parse(event)["choices"][0]);
      }
    } else {
      add(reply.parsed()["choices"][0]);
    }
    EXPECT_EQ(offsets, json({0, 1, 1, 2, 3}));
    ASSERT_EQ(tops.size(), 5u);
    EXPECT_EQ(tops[0], json({{"h", -0.5}}));
  }
}

TEST_F(HttpServerTest, StreamsWhatItAnswersWhole) {
  Start();
  const Reply reply =
      Post("/v1/completions",
           Completion({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(reply.status, 200);
  const std::vector<std::string> events = Events(reply.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 9);
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    text += json::parse(events[i])["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "hello hel");
  EXPECT_EQ(json::parse(events[events.size() - 3])["choices"][0]["finish_reason"], "length");
}

TEST_F(HttpServerTest, Chats) {
  Start();
  json body = {{"model", "echo"},
               {"messages",
                {{{"role", "developer"}, {"content", "Be kind."}},
                 {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}}}},
               {"max_tokens", 10},
               {"logprobs", true},
               {"top_logprobs", 2}};
  const Reply reply = Post("/v1/chat/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choice = reply.parsed()["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Be kind.\n\n");
  EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "B");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"], json({66}));
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"][1]["token"], "C");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 10u);

  body["stream"] = true;
  const std::vector<std::string> events = Events(Post("/v1/chat/completions", body.dump()).body);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(events[1])["object"], "chat.completion.chunk");
  std::string streamed;
  for (size_t i = 1; i + 1 < events.size(); ++i) {
    streamed += json::parse(events[i])["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, "Be kind.\n\n");
  // The fake repeats its prompt, whose second "User:" ends the answer.
  body = {{"model", "echo"}, {"messages", {{{"role", "user"}, {"content", "Hi\nUser: me"}}}}};
  const json whole = Post("/v1/chat/completions", body.dump()).parsed()["choices"][0];
  EXPECT_EQ(whole["message"]["content"], "User: Hi");
  EXPECT_EQ(whole["finish_reason"], "stop");
}

TEST_F(HttpServerTest, EndsAtStopStrings) {
  Start();
  for (const bool stream : {false, true}) {
    const Reply reply =
        Post("/v1/completions",
             Completion({{"max_tokens", 400}, {"stop", {"lo h", "zz"}}, {"stream", stream}}));
    std::string text;
    if (stream) {
      for (const std::string& event : Events(reply.body)) {
        if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"];
      }
    } else {
      text = reply.parsed()["choices"][0]["text"];
    }
    EXPECT_EQ(text, "hel");
  }
  EXPECT_TRUE(Quiet());
}

TEST_F(HttpServerTest, ShowsItsModelAndItsCounts) {
  Start();
  EXPECT_EQ(Get("/v1/models").parsed()["data"][0]["id"], "echo");
  EXPECT_EQ(Get("/v1/models").parsed()["data"][0]["max_model_len"], 512);
  EXPECT_EQ(Get("/v1/models/echo").parsed(), Get("/v1/models").parsed()["data"][0]);
  const Reply other = Get("/v1/models/gpt-4");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.parsed()["error"]["message"], "'gpt-4' is not served here; expected 'echo'");
  Post("/v1/completions", Completion());
  const std::string metrics = Get("/metrics").body;
  for (const char* line :
       {"trimtab_generated_tokens_total 9\n",
        "trimtab_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n",
        "trimtab_time_to_first_token_seconds_count 1\n",
        "trimtab_time_between_tokens_seconds_count 8\n",
        "trimtab_request_seconds_bucket{le=\"+Inf\"} 1\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  }
}

}  // namespace
}  // namespace trimtab
