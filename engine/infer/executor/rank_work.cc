#include "engine/infer/executor/rank_work.h"

#include <algorithm>

#include "engine/comm/process_groups.h"

namespace trimtab {
namespace {

/// `values` become those of rank `from`.
template <typename Value>
void Broadcast(Rank& rank, int from, std::vector<Value>& values) {
  BroadcastHostBytes(*rank.parallel().host, std::as_writable_bytes(std::span(values)), from);
}

/// The logits of the whole plan, on rank 0.
std::vector<float> RunPlan(Rank& rank, ServingModel& model, const StepPlan& plan) {
  std::vector<float> logits = model.Run(plan);
  // They are on the first rank of the last stage.
  const ParallelConfig& layout = rank.parallel().layout;
  const int holder = RankAt(layout, {.pp = static_cast<int>(layout.pp) - 1});
  const int64_t width =
      plan.output == StepOutput::kLogits ? model.vocab_size() : model.hidden_size();
  const int64_t values = plan.logit_rows() * width;
  if (holder != 0 && values > 0) {
    logits.resize(static_cast<size_t>(values));
    Broadcast(rank, holder, logits);
  }
  return logits;
}

/// What all ranks have of `blocks`, on rank 0.
BlockContents ReadFromAll(Rank& rank, const ServingModel& model,
                          const std::vector<int32_t>& blocks) {
  Communicator& host = *rank.parallel().host;
  std::vector<std::byte> own = model.ReadBlocks(blocks);
  const auto size = static_cast<int64_t>(own.size());
  const std::vector<int64_t> sizes = rank.Gather(std::span(&size, 1));
  if (rank.index() != 0) {
    SendHostBytes(host, own, /*destination=*/0);
    return {};
  }
  BlockContents contents = {std::move(own)};
  for (int other = 1; other < host.size(); ++other) {
    contents.emplace_back(static_cast<size_t>(sizes[static_cast<size_t>(other)]));
    RecvHostBytes(host, contents.back(), other);
  }
  return contents;
}

/// Each rank gets its own part of what rank 0 has.
void WriteToAll(Rank& rank, ServingModel& model, const std::vector<int32_t>& blocks,
                const BlockContents* contents) {
  Communicator& host = *rank.parallel().host;
  const int64_t size = std::ssize(blocks) * model.block_bytes();
  const std::vector<int64_t> sizes = rank.Gather(std::span(&size, 1));
  if (rank.index() != 0) {
    std::vector<std::byte> own(static_cast<size_t>(size));
    RecvHostBytes(host, own, /*source=*/0);
    return model.WriteBlocks(blocks, own);
  }
  for (int other = 1; other < host.size(); ++other) {
    const auto part = static_cast<size_t>(other);
    const std::span<const std::byte> all = contents->at(part);
    SendHostBytes(host, all.last(static_cast<size_t>(sizes[part])), other);
  }
  model.WriteBlocks(blocks, contents->front());
}

}  // namespace

std::vector<int64_t> PackWork(const RankWork& work) {
  std::vector<int64_t> numbers = {static_cast<int64_t>(work.kind),
                                  static_cast<int64_t>(work.plan.output)};
  const auto append = [&numbers](const std::vector<int32_t>& ids) {
    numbers.push_back(std::ssize(ids));
    numbers.insert(numbers.end(), ids.begin(), ids.end());
  };
  append(work.blocks);
  for (const PlannedSequence& each : work.plan.sequences) {
    numbers.insert(numbers.end(), {each.first_position, each.logits});
    append(each.tokens);
    append(each.blocks);
  }
  return numbers;
}

RankWork UnpackWork(std::span<const int64_t> numbers) {
  auto next = numbers.begin();
  const auto take = [&next] {
    const int64_t count = *next++;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::transform(next, next + count, ids.begin(),
                   [](int64_t id) { return static_cast<int32_t>(id); });
    next += count;
    return ids;
  };
  RankWork work = {.kind = static_cast<RankWork::Kind>(*next++)};
  work.plan.output = static_cast<StepOutput>(*next++);
  work.blocks = take();
  while (next != numbers.end()) {
    PlannedSequence& sequence = work.plan.sequences.emplace_back();
    sequence.first_position = *next++;
    sequence.logits = *next++;
    sequence.tokens = take();
    sequence.blocks = take();
  }
  return work;
}

WorkOutcome RunTogether(Rank& rank, ServingModel& model, std::vector<int64_t>& packed,
                        const BlockContents* contents) {
  Broadcast(rank, 0, packed);
  const RankWork work = UnpackWork(packed);
  WorkOutcome outcome;
  switch (work.kind) {
    case RankWork::Kind::kStep:
      outcome.logits = RunPlan(rank, model, work.plan);
      break;
    case RankWork::Kind::kReadBlocks:
      outcome.contents = ReadFromAll(rank, model, work.blocks);
      break;
    case RankWork::Kind::kWriteBlocks:
      WriteToAll(rank, model, work.blocks, contents);
      break;
  }
  const int64_t peak = rank.device().memory().peak_total();
  const std::vector<int64_t> peaks = rank.Gather(std::span(&peak, 1));
  outcome.peak_mem_bytes = *std::max_element(peaks.begin(), peaks.end());
  return outcome;
}

}  // namespace trimtab
