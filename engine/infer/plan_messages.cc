#include "engine/infer/plan_messages.h"

#include <algorithm>

#include "engine/comm/process_groups.h"

namespace trimtab {
namespace {

/// `values` become those of rank `from`.
template <typename Value>
void Broadcast(Rank& rank, int from, std::vector<Value>& values) {
  BroadcastHostBytes(*rank.parallel().host, std::as_writable_bytes(std::span(values)), from);
}

}  // namespace

std::vector<int64_t> PackPlan(const StepPlan& plan) {
  std::vector<int64_t> numbers;
  const auto append = [&numbers](const std::vector<int32_t>& ids) {
    numbers.push_back(std::ssize(ids));
    numbers.insert(numbers.end(), ids.begin(), ids.end());
  };
  for (const PlannedSequence& each : plan.sequences) {
    numbers.insert(numbers.end(), {each.first_position, each.logits});
    append(each.tokens);
    append(each.blocks);
  }
  return numbers;
}

StepPlan UnpackPlan(std::span<const int64_t> numbers) {
  StepPlan plan;
  auto next = numbers.begin();
  const auto take = [&next] {
    const int64_t count = *next++;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::transform(next, next + count, ids.begin(),
                   [](int64_t id) { return static_cast<int32_t>(id); });
    next += count;
    return ids;
  };
  while (next != numbers.end()) {
    PlannedSequence& sequence = plan.sequences.emplace_back();
    sequence.first_position = *next++;
    sequence.logits = *next++;
    sequence.tokens = take();
    sequence.blocks = take();
  }
  return plan;
}

StepOutcome RunTogether(Rank& rank, ServingModel& model, std::vector<int64_t>& packed) {
  Broadcast(rank, 0, packed);
  const StepPlan plan = UnpackPlan(packed);
  StepOutcome outcome = {.logits = model.Run(plan)};
  // They are on the first rank of the last stage.
  const ParallelConfig& layout = rank.parallel().layout;
  const int holder = RankAt(layout, {.pp = static_cast<int>(layout.pp) - 1});
  const int64_t values = plan.logit_rows() * model.vocab_size();
  if (holder != 0 && values > 0) {
    outcome.logits.resize(static_cast<size_t>(values));
    Broadcast(rank, holder, outcome.logits);
  }
  const int64_t peak = rank.device().memory().peak_total();
  const std::vector<int64_t> peaks = rank.Gather(std::span(&peak, 1));
  outcome.peak_mem_bytes = *std::max_element(peaks.begin(), peaks.end());
  return outcome;
}

}  // namespace trimtab
