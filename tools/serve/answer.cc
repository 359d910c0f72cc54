#include "tools/serve/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace trimtab {
namespace {

using nlohmann::json;

/// What bytes are as text of their own: part of a character becomes U+FFFD.
std::string TextOf(const std::string& bytes) {
  TextStream stream;
  const std::string text = stream.Add(bytes);
  return text + stream.Finish();
}

/// What a token is called where its name is all that is said of it: text, or "bytes:\\xe6" of one
/// that is no text by itself.
std::string NameOf(const std::string& bytes) {
  if (TextOf(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

int64_t CharactersOf(const std::string& utf8) {
  return std::ranges::count_if(
      utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

/// 1 where `text` ends within a character that `bytes` do not continue: U+FFFD takes its place.
int64_t BrokenOff(const TextStream& text, const std::string& bytes) {
  const bool goes_on = bytes.empty() || (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80;
  return goes_on ? 0 : CharactersOf(TextStream(text).Finish());
}

json BytesJson(const std::string& bytes) {
  json list = json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

std::string EventOf(const json& data) { return "data: " + JsonText(data) + "\n\n"; }

}  // namespace

Answer::Answer(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, bool trim_start)
    : tokenizer_(tokenizer), stream_(std::move(stop_strings)), trim_start_(trim_start) {}

std::string Answer::Certain(std::string text) {
  if (!trim_start_) return text;
  text.erase(0, text.find_first_not_of(' '));
  trim_start_ = text.empty();
  return text;
}

std::string Answer::Add(const std::vector<SampledToken>& tokens, FinishReason finish) {
  begin_ = tokens_.size();
  std::string text;
  for (const SampledToken& token : tokens) {
    if (ended()) break;
    tokens_.push_back(token);
    const std::string bytes = tokenizer_.BytesOf(token.id);
    offsets_.push_back(characters_ + BrokenOff(whole_, bytes));
    characters_ += CharactersOf(whole_.Add(bytes));
    text += stream_.Add(bytes);
    if (stream_.stopped()) finish_ = "stop";
  }
  if (!ended() && finish != FinishReason::kNone) {
    text += stream_.Finish();
    finish_ = stream_.stopped() ? "stop" : std::string(Name(finish));
  }
  return Certain(std::move(text));
}

AnswerWriter::AnswerWriter(const ApiRequest& request, const Tokenizer& tokenizer, std::string model,
                           std::string id, int64_t created)
    : endpoint_(request.endpoint),
      log_probabilities_(request.log_probabilities),
      include_usage_(request.include_usage),
      prompt_tokens_(std::ssize(request.generation.prompt)),
      tokenizer_(tokenizer),
      model_(std::move(model)),
      id_(std::move(id)),
      created_(created) {
  // Keys are in the order of the alphabet, so "choices" comes first.
  events_end_ = "]," + JsonText(Envelope(/*chunk=*/true)).substr(1) + "\n\n";
}

json AnswerWriter::Envelope(bool chunk) const {
  const char* object = endpoint_ == Endpoint::kCompletions ? "text_completion"
                       : chunk                             ? "chat.completion.chunk"
                                                           : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

std::string AnswerWriter::ChoiceEvent(const json& choice) const {
  return "data: {\"choices\":[" + JsonText(choice) + events_end_;
}

json AnswerWriter::LogProbabilities(const Answer& answer, size_t begin) const {
  if (!log_probabilities_) return nullptr;
  const auto& tokens = answer.tokens();
  if (endpoint_ == Endpoint::kChat) {
    const auto entry = [this](int32_t id, float log_probability) {
      const std::string bytes = tokenizer_.BytesOf(id);
      return json{
          {"token", TextOf(bytes)}, {"logprob", log_probability}, {"bytes", BytesJson(bytes)}};
    };
    json content = json::array();
    for (size_t i = begin; i < tokens.size(); ++i) {
      json each = entry(tokens[i].id, tokens[i].log_probability);
      each["top_logprobs"] = json::array();
      for (const auto& [id, value] : tokens[i].likeliest) {
        each["top_logprobs"].push_back(entry(id, value));
      }
      content.push_back(std::move(each));
    }
    return {{"content", content}};
  }
  json out = {{"tokens", json::array()},
              {"token_logprobs", json::array()},
              {"top_logprobs", json::array()},
              {"text_offset", json::array()}};
  for (size_t i = begin; i < tokens.size(); ++i) {
    const std::string name = NameOf(tokenizer_.BytesOf(tokens[i].id));
    out["tokens"].push_back(name);
    out["token_logprobs"].push_back(tokens[i].log_probability);
    out["text_offset"].push_back(answer.offsets()[i]);
    json top = json::object();
    for (const auto& [id, value] : tokens[i].likeliest) {
      top.emplace(NameOf(tokenizer_.BytesOf(id)), value);  // of equal names the likeliest
    }
    top.emplace(name, tokens[i].log_probability);  // the one chosen, however unlikely
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

json AnswerWriter::Usage(const Answer& answer) const {
  const int64_t completion = std::ssize(answer.tokens());
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", completion},
          {"total_tokens", prompt_tokens_ + completion}};
}

std::string AnswerWriter::Body(const Answer& answer, const std::string& text) const {
  json choice = {
      {"index", 0}, {"logprobs", LogProbabilities(answer, 0)}, {"finish_reason", answer.finish()}};
  if (endpoint_ == Endpoint::kChat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  json body = Envelope(/*chunk=*/false);
  body["choices"] = {choice};
  body["usage"] = Usage(answer);
  return JsonText(body) + "\n";
}

std::string AnswerWriter::FirstEvent() const {
  if (endpoint_ != Endpoint::kChat) return "";
  return ChoiceEvent({{"index", 0},
                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
}

std::string AnswerWriter::Event(const Answer& answer, const std::string& text) const {
  const bool tells = !text.empty() || answer.ended() ||
                     (log_probabilities_ && answer.begin() < answer.tokens().size());
  if (!tells) return "";
  json choice = {{"index", 0},
                 {"logprobs", LogProbabilities(answer, answer.begin())},
                 {"finish_reason", answer.ended() ? json(answer.finish()) : json()}};
  if (endpoint_ == Endpoint::kChat) {
    choice["delta"] = text.empty() ? json::object() : json{{"content", text}};
  } else {
    choice["text"] = text;
  }
  return ChoiceEvent(choice);
}

std::string AnswerWriter::LastEvents(const Answer& answer) const {
  std::string last;
  if (include_usage_) {
    json event = Envelope(/*chunk=*/true);
    event["choices"] = json::array();
    event["usage"] = Usage(answer);
    last = EventOf(event);
  }
  return last + "data: [DONE]\n\n";
}

std::string ErrorBody(const std::string& message, const std::string& type) {
  return JsonText(
             {{"error",
               {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}}) +
         "\n";
}

std::string JsonText(const json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace trimtab
