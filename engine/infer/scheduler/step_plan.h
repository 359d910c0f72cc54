// One step of an engine that serves: which tokens of which sequences the model sees, where their
// keys and values lie, and whose logits are asked. The scheduler plans it; a ModelExecutor carries
// it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trimtab {

struct PlannedSequence {
  std::vector<int32_t> tokens;  // a run of the sequence; at least one
  int64_t first_position = 0;   // of the first of them; all before it are in the cache
  std::vector<int32_t> blocks;  // of the cache, in order, for all tokens up to the last of these
  int64_t logits = 0;           // of so many of the tokens, the last ones
};

/// What a step brings for the rows whose logits are planned.
enum class StepOutput : uint8_t {
  kLogits,  // [V]
  kStates,  // the final hidden states instead, normalised, [C]
};

struct StepPlan {
  std::vector<PlannedSequence> sequences;
  StepOutput output = StepOutput::kLogits;

  int64_t rows() const {
    int64_t count = 0;
    for (const PlannedSequence& each : sequences) count += std::ssize(each.tokens);
    return count;
  }
  int64_t logit_rows() const {
    int64_t count = 0;
    for (const PlannedSequence& each : sequences) count += each.logits;
    return count;
  }
};

/// What blocks of a cache hold: of each rank, in order, all that it has of one block after the
/// other. It is the same in every cache of one model, layout and precisions.
using BlockContents = std::vector<std::vector<std::byte>>;

/// What carries out steps: the engine's model, or what imitates it.
class ModelExecutor {
 public:
  virtual ~ModelExecutor() = default;

  /// Returns logits [plan.logit_rows(), V], or states [plan.logit_rows(), C], row after row, in the
  /// order of the plan. Not empty plans.
  virtual std::vector<float> Run(const StepPlan& plan) = 0;
  /// What `blocks` of the cache hold.
  virtual BlockContents ReadBlocks(std::span<const int32_t> blocks) = 0;
  /// Gives `blocks` what the last as many of those blocks held that `contents` are of.
  virtual void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) = 0;
  /// V.
  virtual int64_t vocab_size() const = 0;
  /// Allocator peak of the fullest rank so far; 0 where nothing is allocated.
  virtual int64_t peak_mem_bytes() const { return 0; }
};

}  // namespace trimtab
