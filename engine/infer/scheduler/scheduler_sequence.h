// A sequence that the scheduler works on, for its sources alone.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "engine/infer/scheduler/lookup.h"
#include "engine/infer/scheduler/scheduler.h"
#include "engine/infer/scheduler/sequence_grammar.h"

namespace trimtab {

struct Scheduler::Sequence {
  RequestId id = 0;
  GenerationRequest request;  // without its prompt
  int64_t prompt_tokens = 0;
  std::vector<int32_t> tokens;  // of the prompt, and the new ones
  int64_t computed = 0;         // of these, whose keys and values are in the cache
  std::vector<int32_t> blocks;
  std::vector<BlockPool::ChainId> chains;  // of the blocks that are registered, the first ones
  // Registered blocks that the sequence may begin with, as far as they were found.
  std::vector<BlockPool::Found> known;
  int64_t known_registrations = -1;  // of the pool, when the block after them was looked up
  ContinuationIndex continuations;   // of `tokens`
  double arrived_s = 0;
  std::optional<SequenceGrammar> grammar;
  std::vector<SampledToken> scored;  // of the prompt, the first ones, where they are asked
  std::vector<float> states;         // [C]: of an embedding, the sum so far
  BlockContents contents;            // of its blocks, once it is to be handed over
  // Of one that another engine began, until it has blocks here: where its keys and values are.
  std::unique_ptr<TransferredSequence> moved;

  int64_t length() const { return std::ssize(tokens); }
  int64_t new_tokens() const { return length() - prompt_tokens; }
  int64_t due() const { return length() - computed; }
  bool embeds() const { return request.pooling != Pooling::kNone; }
  /// True while log probabilities of the prompt are missing.
  bool scores() const {
    return request.prompt_log_probabilities && std::ssize(scored) < prompt_tokens;
  }
  /// Rows of the next `count` tokens whose logits, or states, are asked; the last ones.
  int64_t rows_asked(int64_t count) const {
    if (embeds() && request.pooling == Pooling::kMean) return count;
    // The logits of a row score the token that follows it.
    const int64_t from = std::max<int64_t>(0, std::ssize(scored) - 1);
    if (scores()) return std::clamp<int64_t>(computed + count - from, 0, count);
    return count == due() ? 1 : 0;
  }
  /// Whether only the last token is due: it goes on by one.
  bool decodes() const { return due() == 1 && new_tokens() > 0; }
};

}  // namespace trimtab
