// Steps of the scheduler that need no plan.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/base/error.h"
#include "engine/infer/scheduler/scheduler.h"
#include "engine/infer/scheduler/scheduler_sequence.h"

namespace trimtab {

bool Scheduler::AdmitsNobody() const {
  if (waiting_.empty()) return true;
  const auto rows = std::ssize(running_);
  if (rows == options_.limits.sequences || rows == options_.limits.tokens_per_step) return true;
  const Sequence& next = *waiting_.front();
  if (BlocksFor(next.length() + 1) <= pool_.available()) return false;
  // There is no room for it and will be none, unless the cache comes to have what it begins with.
  const int64_t size = options_.block_size;
  if (!options_.prefix_cache || next.length() <= size) return true;
  const auto first = next.tokens.begin();
  return !pool_.Find(0, {first, first + size}) &&
         std::ranges::all_of(running_, [](const auto& each) { return !each->chains.empty(); });
}

int64_t Scheduler::BlocksToGoOn(int64_t tokens) const {
  int64_t blocks = 0;
  for (const SequencePtr& each : running_) {
    if (!each->decodes()) continue;
    const int64_t due = BlocksFor(each->length() + tokens - 1);
    blocks += std::max<int64_t>(0, due - std::ssize(each->blocks));
  }
  return blocks;
}

Scheduler::Sequence* Scheduler::NextPrompt() const {
  const auto found =
      std::ranges::find_if(running_, [](const auto& each) { return !each->decodes(); });
  return found == running_.end() ? nullptr : found->get();
}

SteadySteps Scheduler::NextSteadySteps() const {
  if (running_.empty() || options_.draft != nullptr || options_.lookup_tokens > 0) return {};
  SteadySteps quiet;
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const SequencePtr& each : running_) {
    if (!each->decodes()) continue;
    if (!each->request.stop_tokens.empty() || each->grammar) return {};
    // All but the step that ends it.
    most = std::min({most, each->request.max_tokens - each->new_tokens() - 1,
                     options_.limits.sequence_length - each->length() - 1});
    quiet.sequences.push_back({.id = each->id, .position = each->computed});
  }
  if (const Sequence* prompt = NextPrompt()) {
    quiet.prompt_rows = options_.limits.tokens_per_step - std::ssize(quiet.sequences);
    quiet.prompt_position = prompt->computed;
    if (quiet.prompt_rows == 0) return {};
    most = std::min(most, (prompt->due() - 1) / quiet.prompt_rows);
  } else if (!AdmitsNobody()) {
    return {};
  }
  // The most for which the cache has room.
  for (int64_t none = most + 1; quiet.steps + 1 < none;) {
    const int64_t middle = std::midpoint(quiet.steps, none);
    (BlocksToGoOn(middle) <= pool_.available() ? quiet.steps : none) = middle;
  }
  return quiet;
}

void Scheduler::SkipSteadySteps(int64_t steps, int32_t token) {
  Sequence* const prompt = NextPrompt();
  std::vector<Sequence*> decoding;
  for (const SequencePtr& each : running_) {
    if (each->decodes()) decoding.push_back(each.get());
  }
  const int64_t rows = options_.limits.tokens_per_step - std::ssize(decoding);
  for (int64_t step = 0; step < steps; ++step) {
    for (Sequence* each : decoding) {
      const bool reserved = Reserve(*each, each->length());
      TRIMTAB_ASSERT(reserved, "no room for one of {} quiet steps", steps);
    }
    for (Sequence* each : decoding) {
      ++each->computed;
      each->tokens.push_back(token);
      RegisterFullBlocks(*each);
    }
    if (prompt == nullptr) continue;
    prompt->computed += rows;
    metrics_.prompt_tokens += rows;
    RegisterFullBlocks(*prompt);
  }
  metrics_.steps += steps;
  metrics_.generated_tokens += steps * std::ssize(decoding);
}

}  // namespace trimtab
