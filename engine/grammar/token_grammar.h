// TokenGrammar: which tokens may follow in a text that must fit a grammar.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/grammar/grammar_source.h"
#include "engine/grammar/lazy_automaton.h"
#include "engine/grammar/rule_automata.h"
#include "engine/grammar/token_vocabulary.h"

namespace trimtab {

/// A bit for each token of a vocabulary.
class TokenMask {
 public:
  explicit TokenMask(int64_t size) : size_(size), words_(static_cast<size_t>((size + 63) / 64)) {}

  int64_t size() const { return size_; }
  bool Has(int32_t token) const {
    return token >= 0 && token < size_ &&
           (words_[static_cast<size_t>(token) / 64] >> (static_cast<size_t>(token) % 64) & 1) != 0;
  }
  void Add(int32_t token) {
    words_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
  }
  bool none() const;
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  int64_t size_;
  std::vector<uint64_t> words_;
};

/// A grammar for one vocabulary. Safe to use from several threads: what is found of its states is
/// kept for all of them, in bounded memory.
class TokenGrammar {
 public:
  /// Throws InputError, in one line, when `source` is not understood, when no text fits it, or when
  /// it is too large.
  static std::shared_ptr<const TokenGrammar> Compile(
      const GrammarSource& source, std::shared_ptr<const TokenVocabulary> vocabulary);

  TokenGrammar(const Grammar& grammar, Grammar::Rule root,
               std::shared_ptr<const TokenVocabulary> vocabulary);

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }

 private:
  friend class GrammarState;
  struct Cache;

  /// What states are made in now: an empty cache when the last one has become too large.
  std::shared_ptr<Cache> CurrentCache() const;

  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::shared_ptr<const RuleAutomata> rules_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<Cache> cache_ TRIMTAB_GUARDED_BY(mutex_);
};

/// Where a text has come in its grammar. A copy goes on by itself.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<const TokenGrammar> grammar);

  /// The tokens that may follow: those with which the text is the beginning of a text of the
  /// grammar. A token that ends the text is none of them: see CanEnd. The first call in a state
  /// walks the vocabulary, later ones look the mask up. Throws InputError when the grammar is too
  /// ambiguous to go on.
  std::shared_ptr<const TokenMask> Allowed() const;
  /// Takes a token; false, and nothing changes, if it may not follow.
  bool Accept(int32_t token);
  /// Returns true if the text may end here.
  bool CanEnd() const;
  /// Returns true if it must end here: no byte may follow.
  bool Finished() const;

 private:
  void Renew() const;

  std::shared_ptr<const TokenGrammar> grammar_;
  mutable std::shared_ptr<TokenGrammar::Cache> cache_;
  mutable int32_t state_ = 0;
};

/// Compiles grammars for one vocabulary and keeps the last ones. Safe to use from several threads.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  /// See TokenGrammar::Compile.
  std::shared_ptr<const TokenGrammar> Compile(const GrammarSource& source);

 private:
  using Entry = std::pair<GrammarSource, std::shared_ptr<const TokenGrammar>>;

  std::shared_ptr<const TokenVocabulary> vocabulary_;
  Mutex mutex_;
  std::list<Entry> recent_ TRIMTAB_GUARDED_BY(mutex_);  // the last one used first
  std::map<GrammarSource, std::list<Entry>::iterator> by_source_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab
