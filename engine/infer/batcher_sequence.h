// A sequence that the batcher works on, for its sources alone.
#pragma once

#include <memory>
#include <vector>

#include "engine/infer/batcher.h"

namespace trimtab {

struct Batcher::Sequence {
  RequestId id = 0;
  GenerationRequest request;  // without its prompt
  int64_t prompt_tokens = 0;
  std::vector<int32_t> tokens;  // of the prompt, and the new ones
  int64_t computed = 0;         // of these, whose keys and values are in the cache
  std::vector<int32_t> blocks;
  std::vector<BlockPool::ChainId> chains;  // of the blocks that are registered, the first ones
  double arrived_s = 0;
  BlockContents contents;  // of its blocks, once it is to be handed over
  // Of one that another engine began, until it has blocks here: where its keys and values are.
  std::unique_ptr<MovedSequence> moved;

  int64_t length() const { return std::ssize(tokens); }
  int64_t new_tokens() const { return length() - prompt_tokens; }
  int64_t due() const { return length() - computed; }
  /// Whether only the last token is due: it goes on by one.
  bool decodes() const { return due() == 1 && new_tokens() > 0; }
};

}  // namespace trimtab
