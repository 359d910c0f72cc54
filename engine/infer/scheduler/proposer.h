// Who proposes tokens that may follow, to be checked in one step of the model that serves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/token_grammar.h"
#include "engine/infer/api/request.h"

namespace trimtab {

/// One sequence that goes on.
struct ProposalRequest {
  RequestId id = 0;
  std::span<const int32_t> history;  // prompt and answer so far; at least one token
  int64_t most = 0;                  // tokens to propose
  const GenerationRequest* request = nullptr;
  int64_t prompt_tokens = 0;              // of the history
  const GrammarState* grammar = nullptr;  // where the answer is in its grammar; null: it has none
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  /// Of each request at most so many tokens, in its order. Any tokens will do: they stand only
  /// where the model that serves chooses the same.
  virtual std::vector<std::vector<int32_t>> Propose(std::span<const ProposalRequest> requests) = 0;
};

}  // namespace trimtab
