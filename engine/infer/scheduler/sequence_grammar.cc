#include "engine/infer/scheduler/sequence_grammar.h"

#include <algorithm>

#include "engine/base/error.h"

namespace trimtab {

std::vector<uint64_t> GrammarMask(const GrammarState& state, std::span<const int32_t> stops,
                                  int64_t vocab_size) {
  std::vector<uint64_t> words = state.Allowed()->words();
  words.resize(static_cast<size_t>((vocab_size + 63) / 64));
  const bool can_end = state.CanEnd();
  for (const int32_t stop : stops) {
    if (stop < 0 || stop >= vocab_size) continue;
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(stop) % 64);
    uint64_t& word = words[static_cast<size_t>(stop) / 64];
    // One that is text too ends the answer wherever it comes.
    word &= ~bit;
  }
  const bool goes_on = std::ranges::any_of(words, [](uint64_t word) { return word != 0; });
  if (!goes_on && !can_end) {
    throw InputError("no token of the vocabulary goes on with the text as its grammar demands");
  }
  if (!goes_on) return words;
  for (const int32_t stop : stops) {
    if (!can_end || stop < 0 || stop >= vocab_size) continue;
    words[static_cast<size_t>(stop) / 64] |= uint64_t{1} << (static_cast<size_t>(stop) % 64);
  }
  return words;
}

SequenceGrammar::SequenceGrammar(const GrammarSource& source, GrammarCompiler* compiler,
                                 std::span<const int32_t> answer) {
  if (compiler == nullptr) {
    fault_ = "a grammar needs an engine that knows the bytes of its tokens";
    return;
  }
  try {
    state_.emplace(compiler->Compile(source));
  } catch (const InputError& error) {
    fault_ = error.what();
    return;
  }
  for (const int32_t token : answer) {
    const bool taken = state_->Accept(token);
    TRIMTAB_ASSERT(taken, "token {} of an answer does not fit its grammar", token);
  }
}

void SequenceGrammar::ThrowIfFaulty() const {
  if (!state_) throw InputError(fault_);
}

size_t SequenceGrammar::Fitting(std::span<const int32_t> proposed) const {
  if (!state_) return 0;
  GrammarState state = *state_;
  size_t count = 0;
  while (count < proposed.size() && state.Accept(proposed[count])) ++count;
  return count;
}

void SequenceGrammar::Prepare(std::span<const int32_t> proposed) const noexcept {
  if (!state_) return;
  try {
    GrammarState state = *state_;
    state.Allowed();
    for (const int32_t token : proposed) {
      if (!state.Accept(token)) return;
      state.Allowed();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): thrown again where the mask is used
  }
}

bool SequenceGrammar::Take(int32_t token) {
  const bool taken = state_->Accept(token);
  TRIMTAB_ASSERT(taken, "token {} was chosen, which the grammar does not allow", token);
  return state_->Finished();
}

}  // namespace trimtab
