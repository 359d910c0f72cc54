// Prompts that are no conversations.
#include <fmt/format.h>

#include "tools/serve/api/asked.h"

namespace trimtab {
namespace {

constexpr size_t kMostPrompts = 2048;

std::vector<int32_t> Encode(const Asked& asked, const std::string& text) {
  const Tokenizer& tokenizer = *asked.model.tokenizer;
  std::vector<int32_t> tokens;
  if (asked.special_tokens.value_or(true)) tokens = tokenizer.prompt_prefix();
  const SpecialNames names = asked.special_names ? SpecialNames::kTokens : SpecialNames::kText;
  tokenizer.Encode(text, names, tokens);
  // Nothing at all is what follows the end of a document.
  if (tokens.empty()) tokens.push_back(tokenizer.eod_id());
  return tokens;
}

void Add(Asked& asked, const FieldValue& value) {
  ApiRequest& out = asked.out;
  if (value.json().is_string()) {
    out.prompts.push_back(Encode(asked, value.Text()));
    out.prompt_texts.push_back(value.Text());
    return;
  }
  std::vector<int32_t> tokens = value.Tokens(asked.model.vocab_size);
  if (tokens.empty()) value.Refuse("at least one token id");
  out.prompt_texts.push_back(asked.model.tokenizer->Decode(tokens));
  out.prompts.push_back(std::move(tokens));
}

}  // namespace

void ReadPrompts(const FieldValue& value, Asked& asked) {
  const Json& json = value.json();
  const bool several = json.is_array() && !json.empty() && !json[0].is_number();
  if (!several) {
    if (!json.is_string() && (!json.is_array() || json.empty())) {
      value.Refuse(
          fmt::format("a text, or token ids below {}, or a list of these", asked.model.vocab_size));
    }
    return Add(asked, value);
  }
  if (json.size() > kMostPrompts) value.Refuse(fmt::format("at most {} prompts", kMostPrompts));
  for (const FieldValue& each : value.List("")) {
    if (!each.json().is_string() && !each.json().is_array()) {
      each.Refuse("a text, or a list of token ids");
    }
    Add(asked, each);
  }
}

}  // namespace trimtab
