// How a sequence goes from the engine that has computed its prompt to one that goes on with it
// (Zhong et al., DistServe, arXiv:2401.09670; Patel et al., Splitwise, arXiv:2311.18677).
//
// What the blocks hold goes through host memory, from whatever device to whatever process. The
// first engine keeps the blocks until the second has copied them, which it does when it has blocks
// of its own for them. So no more is on its way than fits the caches of those who compute prompts,
// and prompts wait where nobody can go on with them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/infer/api/engine.h"
#include "engine/infer/scheduler/step_plan.h"

namespace trimtab {

/// Blocks that an engine keeps for a sequence that has left it.
struct PinnedBlocks {
  int64_t engine = 0;  // which of several: who hands sequences over says so
  RequestId id = 0;    // as that engine knew it
};

struct TransferredSequence {
  GenerationRequest request{};  // without its prompt
  int64_t prompt_tokens = 0;
  std::vector<int32_t> tokens{};  // of the prompt, and the new ones
  int64_t computed = 0;           // of these, whose keys and values are in the blocks
  BlockContents contents{};       // of the blocks that these are in, in order
  PinnedBlocks held{};
};

/// An engine that may share the work on a sequence with others.
class DisaggregatedEngine : public Engine {
 public:
  /// The sequences whose prompts were done since it was asked last, if it is one that hands them
  /// over. It no longer knows them, but keeps their blocks until ReleaseBlocksOf.
  virtual std::vector<TransferredSequence> TakePrefilled() = 0;
  virtual void ReleaseBlocksOf(RequestId id) = 0;

  /// Takes a sequence over, which then waits for its turn, however many wait. It is of an engine of
  /// the same model in the same layout and precisions.
  virtual RequestId AddPrefilled(TransferredSequence sequence) = 0;
  /// What is no longer needed since it was asked last: blocks that were copied, and those of
  /// sequences that were aborted before.
  virtual std::vector<PinnedBlocks> TakeReleasable() = 0;
};

}  // namespace trimtab
