#include "engine/grammar/token_grammar.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/grammar/front_ends.h"

namespace trimtab {
namespace {

/// Memory of one grammar's states and masks. A vocabulary of 128,000 tokens has masks of 16 KB.
constexpr int64_t kMostCacheBytes = int64_t{64} << 20;
constexpr int64_t kMostNewStates = 50'000;  // that one mask may make
constexpr size_t kMostGrammars = 64;

/// What names and texts of a source have in a message, in one line.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

}  // namespace

bool TokenMask::none() const {
  return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
}

struct TokenGrammar::Cache {
  explicit Cache(std::shared_ptr<const RuleAutomata> rules) : automaton(std::move(rules)) {}

  Mutex mutex;
  LazyAutomaton automaton TRIMTAB_GUARDED_BY(mutex);
  std::unordered_map<int32_t, std::shared_ptr<const TokenMask>> masks TRIMTAB_GUARDED_BY(mutex);
  int64_t mask_bytes TRIMTAB_GUARDED_BY(mutex) = 0;

  bool full() const TRIMTAB_REQUIRES(mutex) {
    return automaton.bytes() + mask_bytes > kMostCacheBytes;
  }
  std::shared_ptr<const TokenMask> MaskOf(int32_t state, const TokenVocabulary& vocabulary)
      TRIMTAB_REQUIRES(mutex);
};

/// Walks the tree of tokens: what one node leads to is reached once for all tokens below it.
std::shared_ptr<const TokenMask> TokenGrammar::Cache::MaskOf(int32_t state,
                                                             const TokenVocabulary& vocabulary) {
  const auto found = masks.find(state);
  if (found != masks.end()) return found->second;
  auto mask = std::make_shared<TokenMask>(vocabulary.size());
  const std::vector<TokenVocabulary::Node>& nodes = vocabulary.nodes();
  const std::vector<int32_t>& tokens = vocabulary.tokens();
  std::vector<int32_t> path(static_cast<size_t>(vocabulary.longest()) + 1, state);
  const int64_t states = automaton.size();
  for (size_t i = 0; i < nodes.size();) {
    const TokenVocabulary::Node& node = nodes[i];
    const int32_t next = automaton.Next(path[node.depth - 1], node.byte);
    if (next == LazyAutomaton::kDead) {
      i = static_cast<size_t>(node.end);
      continue;
    }
    path[node.depth] = next;
    ++i;
    const size_t last =
        i < nodes.size() ? static_cast<size_t>(nodes[i].first_token) : tokens.size();
    for (auto token = static_cast<size_t>(node.first_token); token < last; ++token) {
      mask->Add(tokens[token]);
    }
    if (automaton.size() - states > kMostNewStates) {
      throw InputError("the grammar is too ambiguous: more states than a mask of tokens may need");
    }
  }
  mask_bytes += std::ssize(mask->words()) * 8 + 64;
  masks.emplace(state, mask);
  return mask;
}

TokenGrammar::TokenGrammar(const Grammar& grammar, Grammar::Rule root,
                           std::shared_ptr<const TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      rules_(std::make_shared<const RuleAutomata>(grammar, root)),
      cache_(std::make_shared<Cache>(rules_)) {}

std::shared_ptr<const TokenGrammar> TokenGrammar::Compile(
    const GrammarSource& source, std::shared_ptr<const TokenVocabulary> vocabulary) {
  try {
    Grammar grammar;
    const Grammar::Rule root = RootOf(source, grammar);
    return std::make_shared<const TokenGrammar>(grammar, root, std::move(vocabulary));
  } catch (const InputError& error) {
    throw InputError(OneLine(fmt::format("{}: {}", Name(source.kind), error.what())));
  }
}

std::shared_ptr<TokenGrammar::Cache> TokenGrammar::CurrentCache() const {
  const MutexLock lock(mutex_);
  {
    const MutexLock inner(cache_->mutex);
    if (!cache_->full()) return cache_;
  }
  cache_ = std::make_shared<Cache>(rules_);
  return cache_;
}

GrammarState::GrammarState(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), cache_(grammar_->CurrentCache()) {
  const MutexLock lock(cache_->mutex);
  state_ = cache_->automaton.start();
}

/// Moves on to the current cache.
void GrammarState::Renew() const {
  std::shared_ptr<TokenGrammar::Cache> current = grammar_->CurrentCache();
  if (current == cache_) return;
  {
    // The older cache's mutex first, in every thread.
    const MutexLock older(cache_->mutex);
    const MutexLock newer(current->mutex);
    state_ = current->automaton.Import(cache_->automaton, state_);
  }
  cache_ = std::move(current);
}

std::shared_ptr<const TokenMask> GrammarState::Allowed() const {
  Renew();
  const MutexLock lock(cache_->mutex);
  return cache_->MaskOf(state_, grammar_->vocabulary());
}

bool GrammarState::Accept(int32_t token) {
  const TokenVocabulary& vocabulary = grammar_->vocabulary();
  if (token < 0 || token >= vocabulary.size() || vocabulary.bytes(token).empty()) return false;
  Renew();
  const MutexLock lock(cache_->mutex);
  int32_t state = state_;
  for (const char c : vocabulary.bytes(token)) {
    state = cache_->automaton.Next(state, static_cast<uint8_t>(c));
    if (state == LazyAutomaton::kDead) return false;
  }
  state_ = state;
  return true;
}

bool GrammarState::CanEnd() const {
  const MutexLock lock(cache_->mutex);
  return cache_->automaton.CanEnd(state_);
}

bool GrammarState::Finished() const {
  const MutexLock lock(cache_->mutex);
  return cache_->automaton.Finished(state_);
}

std::shared_ptr<const TokenGrammar> GrammarCompiler::Compile(const GrammarSource& source) {
  {
    const MutexLock lock(mutex_);
    const auto found = by_source_.find(source);
    if (found != by_source_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->second;
    }
  }
  // Two threads may compile the same text; one of the two is kept.
  std::shared_ptr<const TokenGrammar> made = TokenGrammar::Compile(source, vocabulary_);
  const MutexLock lock(mutex_);
  const auto found = by_source_.find(source);
  if (found != by_source_.end()) return found->second->second;
  recent_.emplace_front(source, made);
  by_source_.emplace(source, recent_.begin());
  if (recent_.size() > kMostGrammars) {
    by_source_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return made;
}

}  // namespace trimtab
