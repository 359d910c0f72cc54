// Sequences that leave the scheduler when their prompts are done, and those that come to it so.
#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/infer/scheduler/scheduler.h"
#include "engine/infer/scheduler/scheduler_sequence.h"

namespace trimtab {

void Scheduler::SetReadyAside() {
  const auto ready = std::stable_partition(running_.begin(), running_.end(),
                                           [](const auto& each) { return !each->decodes(); });
  for (auto each = ready; each != running_.end(); ++each) {
    const auto computed = static_cast<size_t>(BlocksFor((*each)->computed));
    (*each)->contents = runner_.ReadBlocks(std::span((*each)->blocks).first(computed));
  }
  std::move(ready, running_.end(), std::back_inserter(ready_));
  running_.erase(ready, running_.end());
}

std::vector<TransferredSequence> Scheduler::TakePrefilled() {
  std::vector<TransferredSequence> moved;
  for (SequencePtr& each : std::exchange(ready_, {})) {
    each->request.prompt_log_probabilities.reset();  // they are told
    moved.push_back({.request = std::move(each->request),
                     .prompt_tokens = each->prompt_tokens,
                     .tokens = std::move(each->tokens),
                     .computed = each->computed,
                     .contents = std::move(each->contents),
                     .held = {.id = each->id}});
    held_.push_back(std::move(each));
  }
  return moved;
}

void Scheduler::ReleaseBlocksOf(RequestId id) {
  const auto found = std::ranges::find_if(held_, [id](const auto& each) { return each->id == id; });
  TRIMTAB_ASSERT(found != held_.end(), "no blocks are held for request {}", id);
  ReleaseBlocks(**found);
  held_.erase(found);
}

RequestId Scheduler::AddPrefilled(TransferredSequence moved) {
  TRIMTAB_ASSERT(!options_.hands_over, "a sequence comes to who would hand it over");
  auto sequence = std::make_unique<Sequence>();
  sequence->id = ++last_id_;
  sequence->prompt_tokens = moved.prompt_tokens;
  sequence->tokens = std::move(moved.tokens);
  sequence->request = std::move(moved.request);
  StartGrammar(*sequence);
  sequence->arrived_s = clock_.Now();
  sequence->moved = std::make_unique<TransferredSequence>(std::move(moved));
  waiting_.push_back(std::move(sequence));
  return last_id_;
}

void Scheduler::CopyMoved(Sequence& sequence) {
  const std::unique_ptr<TransferredSequence> moved = std::move(sequence.moved);
  if (moved == nullptr) return;
  // But for what the cache has of it already.
  const std::span blocks =
      std::span(sequence.blocks).first(static_cast<size_t>(BlocksFor(moved->computed)));
  const std::span missing = blocks.subspan(std::min(sequence.chains.size(), blocks.size()));
  if (!missing.empty()) runner_.WriteBlocks(missing, moved->contents);
  sequence.computed = moved->computed;
  RegisterFullBlocks(sequence);
  copied_.push_back(moved->held);
  ++metrics_.moved_requests;
}

std::vector<PinnedBlocks> Scheduler::TakeReleasable() { return std::exchange(copied_, {}); }

bool Scheduler::HasWork() const {
  if (!running_.empty()) return true;
  if (waiting_.empty()) return false;
  // Sequences that nobody goes on with yet may have all blocks; nobody else has any now.
  return (ready_.empty() && held_.empty()) || HasRoomFor(*waiting_.front());
}

bool Scheduler::HasRoomFor(Sequence& sequence) const {
  // Blocks that somebody has, and that it would have too.
  const auto shared = std::ranges::count_if(
      KnownPrefix(sequence), [this](const auto& each) { return pool_.owners(each.block) > 0; });
  return BlocksFor(sequence.length() + 1) - shared <= pool_.available();
}

}  // namespace trimtab
