#include "tools/serve/reply/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace trimtab {
namespace {

using nlohmann::json;

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

bool Known(const SampledToken& token) { return !std::isnan(token.log_probability); }

}  // namespace

std::string TextOfBytes(const std::string& bytes) {
  TextStream stream;
  const std::string text = stream.Add(bytes);
  return text + stream.Finish();
}

std::string TokenNames::operator()(int32_t token) const {
  if (as_ids) return fmt::format("token_id:{}", token);
  const std::string bytes = tokenizer.BytesOf(token);
  if (TextOfBytes(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

int64_t TokenPlaces::Add(const std::string& bytes) {
  const int64_t place = characters_ + BrokenOff(whole_, bytes);
  characters_ += CharactersOf(whole_.Add(bytes));
  return place;
}

json CompletionLogProbabilities(std::span<const SampledToken> tokens,
                                std::span<const int64_t> places, const TokenNames& names) {
  json out = {{"tokens", json::array()},
              {"token_logprobs", json::array()},
              {"top_logprobs", json::array()},
              {"text_offset", json::array()}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string name = names(tokens[i].id);
    out["tokens"].push_back(name);
    out["text_offset"].push_back(places[i]);
    if (!Known(tokens[i])) {
      out["token_logprobs"].push_back(nullptr);
      out["top_logprobs"].push_back(nullptr);
      continue;
    }
    out["token_logprobs"].push_back(tokens[i].log_probability);
    json top = json::object();
    for (const auto& [id, value] : tokens[i].likeliest) {
      top.emplace(names(id), value);  // of equal names the likeliest
    }
    top.emplace(name, tokens[i].log_probability);  // the one chosen, however unlikely
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

json ChatLogProbabilities(std::span<const SampledToken> tokens, const TokenNames& names) {
  const auto entry = [&names](int32_t id, float log_probability) {
    const std::string bytes = names.tokenizer.BytesOf(id);
    return json{{"token", names.as_ids ? names(id) : TextOfBytes(bytes)},
                {"logprob", log_probability},
                {"bytes", BytesJson(bytes)}};
  };
  json content = json::array();
  for (const SampledToken& token : tokens) {
    json each = entry(token.id, token.log_probability);
    each["top_logprobs"] = json::array();
    for (const auto& [id, value] : token.likeliest) {
      each["top_logprobs"].push_back(entry(id, value));
    }
    content.push_back(std::move(each));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

json PromptLogProbabilities(std::span<const SampledToken> tokens, const TokenNames& names) {
  json out = json::array();
  for (const SampledToken& token : tokens) {
    if (!Known(token)) {
      out.push_back(nullptr);
      continue;
    }
    json each = json::object();
    const auto add = [&](int32_t id, float log_probability, const json& rank) {
      each.emplace(
          std::to_string(id),
          json{{"logprob", log_probability}, {"rank", rank}, {"decoded_token", names(id)}});
    };
    for (size_t i = 0; i < token.likeliest.size(); ++i) {
      add(token.likeliest[i].first, token.likeliest[i].second, i + 1);
    }
    add(token.id, token.log_probability, nullptr);
    out.push_back(std::move(each));
  }
  return out;
}

json IdsOf(std::span<const SampledToken> tokens) {
  json ids = json::array();
  for (const SampledToken& token : tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace trimtab
