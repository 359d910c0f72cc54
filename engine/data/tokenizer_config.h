// What stands beside a vocabulary: tokenizer_config.json.
#pragma once

#include <optional>
#include <string>

namespace trimtab {

inline constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";

/// What is read of it; its other keys are of other programs.
struct TokenizerConfig {
  std::string eos_token{};              // the name of the token that ends a document
  std::string bos_token{};              // and of the one that begins a text
  std::optional<bool> add_bos_token{};  // whether prompts begin with the id that begins a text
  std::string chat_template{};          // in Jinja

  bool operator==(const TokenizerConfig&) const = default;
};

/// Throws InputError with the JSON path of a key whose value is not what it must be.
TokenizerConfig ReadTokenizerConfig(const std::string& text, const std::string& path);

/// The same as JSON, for a file of its own.
std::string ToJsonText(const TokenizerConfig& config);

}  // namespace trimtab
