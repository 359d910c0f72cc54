#include "tools/serve/api_request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's
constexpr int64_t kManyTokens = std::numeric_limits<int32_t>::max();

/// Takes `key` only with one of the values that mean nothing is asked.
void Unsupported(StrictObject& object, const std::string& key, const std::vector<json>& harmless) {
  const json* value = object.Find(key);
  if (value == nullptr || value->is_null()) return;
  if (std::find(harmless.begin(), harmless.end(), *value) != harmless.end()) return;
  object.Refuse(key, fmt::format("{}, as anything else is not supported", harmless[0].dump()));
}

bool Given(StrictObject& object, const std::string& key) {
  const json* value = object.Find(key);
  return value != nullptr && !value->is_null();
}

class Parser {
 public:
  Parser(Endpoint endpoint, const json& root, const ServedModel& model)
      : model_(model), object_(root, "$") {
    out_.endpoint = endpoint;
    ReadModel();
    ReadSampling();
    ReadStops();
    ReadStream();
    if (endpoint == Endpoint::kChat) {
      ReadChat();
    } else {
      ReadCompletion();
    }
    std::vector<int32_t>& stops = out_.generation.stop_tokens;
    stops.insert(stops.end(), model.end_tokens.begin(), model.end_tokens.end());
    bool ignore_end = false;
    if (Given(object_, "ignore_eos")) object_.Boolean("ignore_eos", ignore_end);
    if (ignore_end) stops.clear();
    Unsupported(object_, "n", {1});
    Unsupported(object_, "presence_penalty", {0, 0.0});
    Unsupported(object_, "frequency_penalty", {0, 0.0});
    Unsupported(object_, "logit_bias", {json::object()});
    object_.Find("user");  // whose request it is makes no difference
    object_.Finish();
  }

  ApiRequest Take() { return std::move(out_); }

 private:
  void ReadModel() {
    std::string name;
    object_.Line("model", name, Need::kRequired);
    if (name == model_.name) return;
    throw UnknownModelError(
        fmt::format("$.model: '{}' is not served here; expected '{}'", name, model_.name));
  }

  void Number(const std::string& key, double& value, double min, double max) {
    if (Given(object_, key)) object_.Number(key, value, min, max);
  }

  /// Of no probability at all nothing could be drawn.
  void ReadTopP(double& top_p) {
    if (!Given(object_, "top_p")) return;
    const json& value = *object_.Find("top_p");
    if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() <= 1)) {
      object_.Refuse("top_p", "a number above 0, up to 1");
    }
    top_p = value.get<double>();
  }

  void ReadSampling() {
    SamplingOptions& sampling = out_.generation.sampling;
    sampling.temperature = 1;
    Number("temperature", sampling.temperature, 0, 100);
    ReadTopP(sampling.top_p);
    Number("min_p", sampling.min_p, 0, 1);
    Number("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
    if (Given(object_, "top_k")) object_.Integer("top_k", sampling.top_k, 0, kManyTokens);
    if (Given(object_, "seed")) {
      int64_t seed = 0;
      object_.Integer("seed", seed, std::numeric_limits<int64_t>::min(),
                      std::numeric_limits<int64_t>::max());
      sampling.seed = static_cast<uint64_t>(seed);
    } else {
      std::random_device device;
      sampling.seed = static_cast<uint64_t>(device()) << 32 | device();
    }
  }

  void ReadStops() {
    const json* stop = object_.Find("stop");
    if (stop == nullptr || stop->is_null()) return;
    const json list = stop->is_array() ? *stop : json::array({*stop});
    for (const json& each : list) {
      if (!each.is_string() || each == "") {
        object_.Refuse("stop", "a string or a list of strings, none of them empty");
      }
      out_.stop_strings.push_back(each.get<std::string>());
    }
    if (std::ssize(out_.stop_strings) > kMaxStops) {
      object_.Refuse("stop", fmt::format("at most {} strings", kMaxStops));
    }
  }

  void ReadStream() {
    if (Given(object_, "stream")) object_.Boolean("stream", out_.stream);
    const json* options = object_.Find("stream_options");
    if (options == nullptr || options->is_null()) return;
    if (!out_.stream) object_.Refuse("stream_options", "none without \"stream\": true");
    StrictObject inner(*options, object_.Where("stream_options"));
    inner.Boolean("include_usage", out_.include_usage);
    inner.Finish();
  }

  void ReadCompletion() {
    GenerationRequest& generation = out_.generation;
    generation.max_tokens = kDefaultCompletionTokens;
    if (Given(object_, "max_tokens")) {
      object_.Integer("max_tokens", generation.max_tokens, 1, kManyTokens);
    }
    if (Given(object_, "logprobs")) {
      out_.log_probabilities = true;
      object_.Integer("logprobs", generation.sampling.log_probabilities, 0, kMaxLogProbabilities);
    }
    generation.stop_tokens = {model_.tokenizer->eod_id()};
    ReadPrompt(*object_.Find("prompt", Need::kRequired));
    Unsupported(object_, "best_of", {1});
    Unsupported(object_, "echo", {false});
    Unsupported(object_, "suffix", {""});
  }

  /// A text, or a list of ids; either may be the one element of a list.
  void ReadPrompt(const json& given) {
    const bool in_list = given.is_array() && given.size() == 1 && !given[0].is_number();
    const json& prompt = in_list ? given[0] : given;
    const std::string where = object_.Where("prompt") + (in_list ? "[0]" : "");
    std::vector<int32_t>& tokens = out_.generation.prompt;
    if (prompt.is_string()) {
      tokens = model_.tokenizer->prompt_prefix();
      model_.tokenizer->Encode(prompt.get_ref<const std::string&>(), SpecialNames::kTokens, tokens);
      // Nothing at all is what follows the end of a document.
      if (tokens.empty()) tokens.push_back(model_.tokenizer->eod_id());
      return;
    }
    if (!prompt.is_array() || prompt.empty() || !prompt[0].is_number()) {
      object_.Refuse("prompt",
                     fmt::format("one text, or a list of token ids below {}", model_.vocab_size));
    }
    for (size_t i = 0; i < prompt.size(); ++i) {
      const json& id = prompt[i];
      if (!id.is_number_integer() || id < 0 || id >= model_.vocab_size) {
        throw InputError(fmt::format("{}[{}]: expected a token id from 0 to {}, got {}", where, i,
                                     model_.vocab_size - 1, DescribeJson(id)));
      }
      tokens.push_back(id.get<int32_t>());
    }
  }

  void ReadChat() {
    if (model_.chat == nullptr) throw InputError(model_.no_chat);
    GenerationRequest& generation = out_.generation;
    generation.max_tokens = kManyTokens;  // as long as a sequence may be
    for (const char* key : {"max_tokens", "max_completion_tokens"}) {
      if (Given(object_, key)) object_.Integer(key, generation.max_tokens, 1, kManyTokens);
    }
    if (Given(object_, "logprobs")) object_.Boolean("logprobs", out_.log_probabilities);
    if (Given(object_, "top_logprobs")) {
      if (!out_.log_probabilities)
        object_.Refuse("top_logprobs", "none without \"logprobs\": true");
      object_.Integer("top_logprobs", generation.sampling.log_probabilities, 0,
                      kMaxLogProbabilities);
    }
    ChatPrompt prompt = model_.chat->Render({.messages = ReadMessages()});
    generation.prompt = std::move(prompt.tokens);
    generation.stop_tokens = std::move(prompt.stop_tokens);
    for (std::string& stop : prompt.stop_strings) out_.stop_strings.push_back(std::move(stop));
    Unsupported(object_, "response_format", {json({{"type", "text"}})});
    Unsupported(object_, "tools", {json::array()});
    Unsupported(object_, "tool_choice", {"none"});
  }

  nlohmann::ordered_json ReadMessages() {
    const json* list = object_.Find("messages", Need::kRequired);
    if (!list->is_array() || list->empty()) object_.Refuse("messages", "a list of messages");
    auto messages = nlohmann::ordered_json::array();
    for (size_t i = 0; i < list->size(); ++i) {
      StrictObject message((*list)[i], fmt::format("$.messages[{}]", i));
      std::string role;
      const std::string roles[] = {"system", "developer", "user", "assistant"};
      message.Choice("role", role, roles, Need::kRequired);
      if (role == "developer") role = "system";  // OpenAI's newer name of it
      messages.push_back({{"role", role}, {"content", ReadContent(message)}});
      Unsupported(message, "name", {""});
      message.Finish();
    }
    return messages;
  }

  /// A text, or a list of parts that are texts.
  static std::string ReadContent(StrictObject& message) {
    const json* content = message.Find("content", Need::kRequired);
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) message.Refuse("content", "a text, or a list of parts");
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
      StrictObject part((*content)[i], fmt::format("{}[{}]", message.Where("content"), i));
      const std::string types[] = {"text"};
      std::string type;
      std::string piece;
      part.Choice("type", type, types, Need::kRequired);
      part.Text("text", piece, Need::kRequired);
      part.Finish();
      text += piece;
    }
    return text;
  }

  const ServedModel& model_;
  StrictObject object_;
  ApiRequest out_;
};

}  // namespace

ApiRequest ParseApiRequest(Endpoint endpoint, const std::string& body, const ServedModel& model) {
  const json root = ParseJsonText(body, "body");
  return Parser(endpoint, root, model).Take();
}

}  // namespace trimtab
