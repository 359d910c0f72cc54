// Tokens as answers show them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/infer/api/request.h"
#include "engine/infer/api/text_stream.h"

namespace trimtab {

/// Bytes as text of their own: part of a character becomes U+FFFD.
std::string TextOfBytes(const std::string& bytes);

/// How a client wants tokens to be named.
struct TokenNames {
  const Tokenizer& tokenizer;
  bool as_ids = false;  // "token_id:5"

  /// A token where its name is all that is told of it: text, or "bytes:\\xe6" of one that is no
  /// text by itself.
  std::string operator()(int32_t token) const;
};

/// Where tokens begin in a text, counted in characters.
class TokenPlaces {
 public:
  /// The place of the next token. Part of a character begins where the character does.
  int64_t Add(const std::string& bytes);

 private:
  TextStream whole_;
  int64_t characters_ = 0;
};

/// Log-probabilities as completions list them. A NaN, of a prompt's first token, is null.
nlohmann::json CompletionLogProbabilities(std::span<const SampledToken> tokens,
                                          std::span<const int64_t> places, const TokenNames& names);

/// Log-probabilities as chats list them.
nlohmann::json ChatLogProbabilities(std::span<const SampledToken> tokens, const TokenNames& names);

/// Log-probabilities of a prompt as vLLM lists them: of each token but the first, by id.
nlohmann::json PromptLogProbabilities(std::span<const SampledToken> tokens,
                                      const TokenNames& names);

/// The ids of tokens.
nlohmann::json IdsOf(std::span<const SampledToken> tokens);

}  // namespace trimtab
