// Speculation with a smaller model (Leviathan et al., arXiv:2211.17192; Chen et al.,
// arXiv:2302.01318). A choice depends on logits, seed and position alone, so the small model draws
// with the same random numbers as the large one: the nearer their probabilities, the more often
// both choose the same token.
#pragma once

#include <vector>

#include "engine/infer/scheduler/proposer.h"
#include "engine/infer/scheduler/step_plan.h"

namespace trimtab {

/// What the small model's cache and steps have room for.
struct DraftLimits {
  int64_t sequences = 0;        // as many as are asked for at once
  int64_t sequence_length = 0;  // of the model that serves
  int64_t block_size = 0;
  int64_t tokens_per_step = 0;

  int64_t blocks_per_sequence() const;
  int64_t blocks() const { return sequences * blocks_per_sequence(); }
};

class DraftModel final : public Proposer {
 public:
  /// `runner` has limits.blocks() blocks and must outlive it; `vocab_size` is that of the model
  /// that serves, which knows no tokens beyond.
  DraftModel(const DraftLimits& limits, int64_t vocab_size, ModelExecutor& runner);

  std::vector<std::vector<int32_t>> Propose(std::span<const ProposalRequest> requests) override;

 private:
  /// A part of the cache, and whose tokens lie in it.
  struct Slot {
    RequestId id = -1;
    std::vector<int32_t> tokens{};  // whose keys and values are there
  };

  /// The slot of each request: its own, or one that none of the requests has.
  std::vector<size_t> SlotsOf(std::span<const ProposalRequest> requests);
  /// The next tokens of `text`, as many as fit into `budget`, and its logits if these are all.
  PlannedSequence Next(size_t slot, std::span<const int32_t> text, int64_t budget) const;

  DraftLimits limits_;
  size_t vocab_;
  ModelExecutor& runner_;
  std::vector<Slot> slots_;
};

}  // namespace trimtab
