// Random texts, written through masks of tokens.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/token_grammar.h"

namespace trimtab {

/// A token for every byte, and tokens of several.
inline std::shared_ptr<const TokenVocabulary> ByteVocabulary(std::vector<std::string> more = {}) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();  // a special token
  bytes.insert(bytes.end(), more.begin(), more.end());
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

/// Returns true if `text` is a text of the grammar, byte by byte.
inline bool Takes(const std::shared_ptr<const TokenGrammar>& grammar, std::string_view text) {
  GrammarState state(grammar);
  for (const char c : text) {
    if (!state.Accept(static_cast<unsigned char>(c))) return false;
  }
  return state.CanEnd();
}

inline bool Takes(GrammarSource::Kind kind, const std::string& source, std::string_view text) {
  return Takes(TokenGrammar::Compile({kind, source}, ByteVocabulary()), text);
}

/// A text of random tokens; nothing if it has not ended after `most` of them.
inline std::optional<std::string> RandomText(const std::shared_ptr<const TokenGrammar>& grammar,
                                             int most, std::mt19937& random) {
  GrammarState state(grammar);
  const TokenVocabulary& vocabulary = grammar->vocabulary();
  std::string text;
  for (int i = 0; i < most; ++i) {
    const std::shared_ptr<const TokenMask> mask = state.Allowed();
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary.size(); ++token) {
      if (mask->Has(token)) allowed.push_back(token);
    }
    // Ends often, and closes what is open, or most texts would grow for ever.
    if (state.CanEnd() && (allowed.empty() || random() % 4 == 0)) return text;
    if (allowed.empty()) return std::nullopt;
    int32_t token = allowed[random() % allowed.size()];
    if (random() % 2 == 0) {
      for (const char c : std::string_view("\"}],")) {
        if (mask->Has(c) && random() % 2 == 0) token = c;
      }
    }
    if (!state.Accept(token)) return std::nullopt;
    text += vocabulary.bytes(token);
  }
  return std::nullopt;
}

}  // namespace trimtab
