#include "cost_model/piece_cost.h"

#include <algorithm>
#include <numeric>

#include "cost_model/overlap.h"

namespace trimtab {
namespace {

void Add(const MessageCount& more, int64_t times, std::vector<MessageCount>& messages) {
  auto found = std::find_if(messages.begin(), messages.end(), [&](const MessageCount& each) {
    return each.kind == more.kind && each.group == more.group;
  });
  if (found == messages.end()) {
    found = messages.insert(messages.end(), {.kind = more.kind, .group = more.group});
  }
  found->count += times * more.count;
  found->bytes += times * more.bytes;
}

}  // namespace

double PieceCost::seconds() const {
  return std::accumulate(message_s.begin(), message_s.end(), compute_s + recompute_s);
}

void PieceCost::Append(const PieceCost& next, int64_t times) {
  const auto factor = static_cast<double>(times);
  compute_s += factor * next.compute_s;
  recompute_s += factor * next.recompute_s;
  for (size_t i = 0; i < message_s.size(); ++i) message_s[i] += factor * next.message_s[i];
  flops += times * next.flops;
  ops += times * next.ops;
  for (const MessageCount& each : next.messages) Add(each, times, messages);
  total = total.Then(next.total.Times(times));
  activations = activations.Then(next.activations.Times(times));
}

PieceCost PriceOf(std::span<const Recording> pieces, const ParallelConfig& layout,
                  const Pricer& pricer) {
  PieceCost cost;
  OverlapClock clock;
  for (const Recording& piece : pieces) {
    const bool recompute = piece.piece.pass == PassKind::kRecompute;
    const auto part_of = [&](const CommRecord& message) -> double& {
      return recompute ? cost.recompute_s : cost.message_s[static_cast<size_t>(message.group)];
    };
    for (const RecordedEvent& event : piece.events) {
      if (const auto* op = std::get_if<OpRecord>(&event)) {
        const double seconds = pricer.Seconds(*op);
        (recompute ? cost.recompute_s : cost.compute_s) += seconds;
        clock.Pass(seconds);
        cost.flops += op->flops;
        ++cost.ops;
        continue;
      }
      if (const auto* wait = std::get_if<WaitRecord>(&event)) {
        part_of(wait->message) += clock.Wait(wait->message);
        continue;
      }
      const CommRecord& message = std::get<CommRecord>(event);
      Add({message.kind, message.group, 1, message.bytes}, 1, cost.messages);
      const double seconds = pricer.Seconds(message, StrideOf(message.group, layout));
      if (WaitedForWithinPiece(message)) {
        clock.Submit(message, seconds);
      } else {
        part_of(message) += seconds;
        if (!message.asynchronous()) clock.Pass(seconds);
      }
    }
    cost.total = cost.total.Then(piece.total);
    cost.activations = cost.activations.Then(piece.activations);
  }
  return cost;
}

}  // namespace trimtab
