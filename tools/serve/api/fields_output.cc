// Fields that say when an answer ends, how many there are and how they are written.
#include <array>
#include <limits>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;

constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostStops = 16;
constexpr int64_t kMostLogProbabilities = 20;
constexpr int64_t kMostAnswers = 128;
constexpr size_t kLongestRequestId = 64;

void ReadStop(Asked& asked, const FieldValue& value) {
  const Json list = value.json().is_array() ? value.json() : Json::array({value.json()});
  for (const Json& each : list) {
    if (!each.is_string() || each == "") {
      value.Refuse("a string or a list of strings, none of them empty");
    }
    asked.out.answer.stops.push_back(each.get<std::string>());
  }
  if (std::ssize(list) > kMostStops) value.Refuse(fmt::format("at most {} strings", kMostStops));
}

/// -1 is llama.cpp's word for no limit.
void ReadMaxTokens(Asked& asked, const FieldValue& value) {
  const bool old = value.path() == "$.n_predict";
  const int64_t least = old ? -1 : asked.out.endpoint == kCompletions ? 0 : 1;
  const int64_t tokens = value.Integer(least, kMany);
  asked.max_tokens = tokens < 0 ? kMany : tokens;
}

/// A number in completions, a switch in chats.
void ReadLogProbabilities(Asked& asked, const FieldValue& value) {
  if (asked.out.endpoint == kChat) {
    asked.out.log_probabilities = value.Boolean();
    return;
  }
  if (value.json() == false) return;
  asked.out.log_probabilities = true;
  asked.out.generation.sampling.log_probabilities = value.Integer(0, kMostLogProbabilities);
}

void ReadRequestId(Asked& asked, const FieldValue& value) {
  const std::string& id = value.Text();
  if (id.empty() || Printable(id, kLongestRequestId) != id) {
    value.Refuse(fmt::format("1 to {} printable characters", kLongestRequestId));
  }
  asked.out.request_id = id;
}

constexpr std::array kFields = {
    Field{"max_tokens", kText, kTaken, R"("type":"integer")", "",
          "tokens of the answer at most; 0 with echo: none", ReadMaxTokens},
    Field{"max_completion_tokens", kChat, kTaken, R"("type":"integer")", "",
          "tokens of the answer at most", ReadMaxTokens},
    Field{"max_output_tokens", kResponses, kTaken, R"("type":"integer")", "",
          "tokens of the answer at most", ReadMaxTokens},
    Field{"n_predict", kText, kTaken, R"("type":"integer")", "",
          "llama.cpp's name of max_tokens; -1: no limit", ReadMaxTokens},
    Field{"n", kText, kTaken, R"("type":"integer")", "", "answers to each prompt",
          [](Asked& a, const FieldValue& v) { a.out.answers = v.Integer(1, kMostAnswers); }},
    Field{"best_of", kText, kTaken, R"("type":"integer")", "",
          "draws so many answers and keeps the n likeliest per token",
          [](Asked& a, const FieldValue& v) { a.best_of = v.Integer(1, kMostAnswers); }},
    Field{"stop", kText, kTaken, R"("type":["string","array"])", "",
          "texts that end the answer and are not part of it", ReadStop},
    Field{"include_stop_str_in_output", kText, kTaken, R"("type":"boolean")", "",
          "the text that ended the answer is part of it",
          [](Asked& a, const FieldValue& v) { a.out.answer.keep_stop = v.Boolean(); }},
    Field{"stream", kAnswers, kTaken, R"("type":"boolean")", "", "events while the answer grows",
          [](Asked& a, const FieldValue& v) { a.out.stream = v.Boolean(); }},
    Field{"stream_options", kAnswers, kTaken, R"("type":"object")", "",
          "include_usage, continuous_usage_stats",
          [](Asked& a, const FieldValue& v) { a.stream_options = v; }},
    Field{"logprobs", kText, kTaken, R"("type":["boolean","integer"])", "",
          "log-probabilities of tokens", ReadLogProbabilities},
    Field{"top_logprobs", kChat, kTaken, R"("type":"integer")", "",
          "also of so many likeliest tokens",
          [](Asked& a, const FieldValue& v) {
            a.top_log_probabilities = v.Integer(0, kMostLogProbabilities);
          }},
    Field{"top_logprobs", kResponses, kNeutral, R"("type":"integer")", "[0]",
          "use /v1/chat/completions for log-probabilities"},
    Field{"n_probs", kText, kNeutral, R"("type":"integer")", "[0]", "use logprobs or top_logprobs"},
    Field{"prompt_logprobs", kText, kTaken, R"("type":"integer")", "",
          "log-probabilities of the prompt's tokens",
          [](Asked& a, const FieldValue& v) {
            a.prompt_log_probabilities = v.Integer(0, kMostLogProbabilities);
          }},
    Field{"echo", kText, kTaken, R"("type":"boolean")", "",
          "the answer begins with the prompt, or with the message that it goes on with",
          [](Asked& a, const FieldValue& v) { a.out.echo = v.Boolean(); }},
    Field{"suffix", kCompletions, kNeutral, R"("type":"string")", R"([""])",
          "nothing is written between two texts; write the model's own tokens for it in prompt"},
    Field{"skip_special_tokens", kText, kTaken, R"("type":"boolean")", "",
          "false: names of special tokens are part of the text",
          [](Asked& a, const FieldValue& v) { a.out.answer.show_special = !v.Boolean(); }},
    Field{"spaces_between_special_tokens", kText, kNothing, R"("type":"boolean")", "",
          "byte-level text has no such spaces"},
    Field{"detokenize", kText, kNeutral, R"("type":"boolean")", "[true]",
          "use return_token_ids for ids beside the text"},
    Field{"return_tokens_as_token_ids", kText, kTaken, R"("type":"boolean")", "",
          "tokens of log-probabilities are named \"token_id:N\"",
          [](Asked& a, const FieldValue& v) { a.out.tokens_as_ids = v.Boolean(); }},
    Field{"return_token_ids", kText, kTaken, R"("type":"boolean")", "",
          "ids of prompt and answer beside the text",
          [](Asked& a, const FieldValue& v) { a.out.token_ids = v.Boolean(); }},
    Field{"return_tokens", kText, kNeutral, R"("type":"boolean")", "[false]",
          "use return_token_ids"},
    Field{"logprob_token_ids", kText, kNeutral, R"("type":"array")", "[[]]",
          "use logprobs, or allowed_token_ids to choose among tokens"},
    Field{"post_sampling_probs", kText, kNeutral, R"("type":"boolean")", "[false]",
          "log-probabilities are the model's, before filters"},
    Field{"timings_per_token", kText, kNeutral, R"("type":"boolean")", "[false]",
          "times are in /metrics"},
    Field{"return_progress", kText, kNeutral, R"("type":"boolean")", "[false]",
          "events begin with the answer"},
    Field{"response_fields", kText, kNeutral, R"("type":"array")", "[[]]",
          "answers have the fields of OpenAI's API"},
    Field{"request_id", kAnswers | kEmbeddings, kTaken, R"("type":"string")", "",
          "part of the answer's id", ReadRequestId},
    Field{"include", kResponses, kNeutral, R"("type":"array")",
          R"([[], ["reasoning.encrypted_content"]])", "nothing more can be included"},
    Field{"truncation", kResponses, kNeutral, R"("type":"string")", R"(["disabled"])",
          "a conversation that is too long is refused"},
};

}  // namespace

std::span<const Field> OutputFields() { return kFields; }

}  // namespace trimtab
