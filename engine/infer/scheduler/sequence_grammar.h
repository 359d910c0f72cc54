// SequenceGrammar: the grammar that one sequence's answer must fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/grammar/token_grammar.h"

namespace trimtab {

/// The tokens that may follow in `state`, as words of bits for `vocab_size` tokens (TokenRules).
/// Tokens of `stops` may where the text may end, and nowhere else. All zero where it must end.
/// Throws InputError if the text can neither go on nor end.
std::vector<uint64_t> GrammarMask(const GrammarState& state, std::span<const int32_t> stops,
                                  int64_t vocab_size);

class SequenceGrammar {
 public:
  /// Follows an answer that has the tokens `answer` already. `compiler` may be null: an engine
  /// without a vocabulary.
  SequenceGrammar(const GrammarSource& source, GrammarCompiler* compiler,
                  std::span<const int32_t> answer);

  /// Null if the source is not understood: ThrowIfFaulty says why.
  const GrammarState* state() const { return state_ ? &*state_ : nullptr; }
  void ThrowIfFaulty() const;

  /// How many of the first of `proposed` may follow.
  size_t Fitting(std::span<const int32_t> proposed) const;
  /// Makes the masks of the places before, between and behind `proposed`, which fit. Finding them
  /// again then is a look-up. What goes wrong shows there too.
  void Prepare(std::span<const int32_t> proposed) const noexcept;

  /// Takes a token that a mask allows; true if the text must end behind it.
  bool Take(int32_t token);

 private:
  std::optional<GrammarState> state_;
  std::string fault_;
};

}  // namespace trimtab
