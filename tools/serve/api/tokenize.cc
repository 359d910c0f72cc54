#include "tools/serve/api/tokenize.h"

#include <nlohmann/json.hpp>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// A token's text as JSON can hold it: llama.cpp lists the bytes of what is no text.
json PieceOf(const std::string& bytes) {
  try {
    static_cast<void>(json(bytes).dump());
    return bytes;
  } catch (const json::type_error&) {
    json list = json::array();
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    return list;
  }
}

}  // namespace

json Tokenize(const std::string& body, const ServedModel& model) {
  const Json root = ParseBody(body);
  Asked asked(model);
  asked.out.endpoint = kTokenize;
  const bool bare = root.contains("content");  // llama.cpp's form
  if (bare) asked.special_tokens = false;
  ReadFields(root, asked);
  if (asked.messages) {
    RenderChat(asked);
  } else if (asked.prompt && asked.prompt->json().is_string()) {
    ReadPrompts(*asked.prompt, asked);
    if (asked.prompt->Text().empty() && bare) asked.out.prompts = {{}};
  } else {
    throw InputError("$: expected \"prompt\" with a text, or \"messages\"");
  }
  const std::vector<int32_t>& tokens = asked.out.prompts[0];
  json out = {{"tokens", tokens}};
  if (asked.token_pieces) {
    out["tokens"] = json::array();
    for (const int32_t id : tokens) {
      out["tokens"].push_back({{"id", id}, {"piece", PieceOf(model.tokenizer->BytesOf(id))}});
    }
  }
  if (bare) return out;
  out["count"] = tokens.size();
  out["max_model_len"] = model.limits.sequence_length;
  out["token_strs"] = nullptr;
  if (!asked.token_texts) return out;
  out["token_strs"] = json::array();
  for (const int32_t id : tokens) out["token_strs"].push_back(model.tokenizer->BytesOf(id));
  return out;
}

json Detokenize(const std::string& body, const ServedModel& model) {
  const Json root = ParseBody(body);
  Asked asked(model);
  asked.out.endpoint = kDetokenize;
  ReadFields(root, asked);
  if (!asked.prompt) throw InputError("$.tokens: required, but missing");
  const std::string text = model.tokenizer->Decode(asked.prompt->Tokens(model.vocab_size));
  return {{"prompt", text}, {"content", text}};
}

}  // namespace trimtab
