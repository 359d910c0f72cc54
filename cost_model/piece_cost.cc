#include "cost_model/piece_cost.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cost_model/stream_clock.h"

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
  return std::accumulate(message_s.begin(), message_s.end(), compute_s + recompute_s + host_s);
}

void PieceCost::Append(const PieceCost& next, int64_t times) {
  const auto factor = static_cast<double>(times);
  compute_s += factor * next.compute_s;
  recompute_s += factor * next.recompute_s;
  host_s += factor * next.host_s;
  for (size_t i = 0; i < message_s.size(); ++i) message_s[i] += factor * next.message_s[i];
  flops += times * next.flops;
  ops += times * next.ops;
  products_of_groups += times * next.products_of_groups;
  for (const MessageCount& each : next.messages) Add(each, times, messages);
  total = total.Then(next.total.Times(times));
  activations = activations.Then(next.activations.Times(times));
}

std::vector<PieceCost> PriceEach(std::span<const Recording> pieces, const ParallelConfig& layout,
                                 const Pricer& pricer) {
  StreamClock clock(pricer.overlaps());
  std::vector<std::pair<int64_t, double>> under_way_s;  // messages by id, with all of their time
  std::vector<PieceCost> costs;
  costs.reserve(pieces.size());
  for (const Recording& piece : pieces) {
    PieceCost& cost = costs.emplace_back();
    const bool recompute = piece.piece.pass == PassKind::kRecompute;
    const auto waited = [&](GroupKind group) -> double& {
      return recompute ? cost.recompute_s : cost.message_s[static_cast<size_t>(group)];
    };
    for (const RecordedEvent& event : piece.events) {
      if (const auto* op = std::get_if<OpRecord>(&event)) {
        const bool in_layer = piece.piece.kind == PieceKind::kLayer;
        const double op_s = in_layer ? pricer.SecondsInLayer(*op) : pricer.Seconds(*op);
        (recompute ? cost.recompute_s : cost.compute_s) += clock.Compute(op_s).seconds();
        cost.flops += op->flops;
        ++cost.ops;
        if (op->kind == OpKind::kGroupedGemm) cost.products_of_groups += ProductsOf(*op);
      } else if (const auto* message = std::get_if<CommRecord>(&event)) {
        const double before_s = clock.now_s();
        const double message_s = pricer.Seconds(*message, StrideOf(message->group, layout));
        clock.Submit(*message, message_s);
        if (message->asynchronous()) under_way_s.emplace_back(message->id, message_s);
        waited(message->group) += clock.now_s() - before_s;
        Add({message->kind, message->group, 1, message->bytes}, 1, cost.messages);
      } else {
        const CommRecord& awaited = std::get<WaitRecord>(event).message;
        const double wait_s = clock.Wait(awaited).seconds();
        waited(awaited.group) += wait_s;
        // Ops beside a message share the multiprocessors and the memory with it.
        const auto awaited_s =
            std::find_if(under_way_s.begin(), under_way_s.end(),
                         [&](const auto& each) { return each.first == awaited.id; });
        if (awaited_s == under_way_s.end()) continue;
        const double beside_s = awaited_s->second - wait_s;
        under_way_s.erase(awaited_s);
        cost.compute_s += pricer.slowdown() * std::max(0.0, beside_s);
      }
    }
    cost.recompute_s *= pricer.recompute();
    cost.total = piece.total;
    cost.activations = piece.activations;
  }
  return costs;
}

}  // namespace trimtab
