#include "cost_model/recordings/piece_cost.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cost_model/recordings/stream_clock.h"

namespace trimtab {
namespace {

void Count(const MessageCount& more, int64_t times, std::vector<MessageCount>& messages) {
  auto found = std::find_if(messages.begin(), messages.end(), [&](const MessageCount& each) {
    return each.kind == more.kind && each.group == more.group;
  });
  if (found == messages.end()) {
    found = messages.insert(messages.end(), {.kind = more.kind, .group = more.group});
  }
  found->count += times * more.count;
  found->bytes += times * more.bytes;
}

/// Prices pieces that follow one another.
class Pricing {
 public:
  Pricing(const ParallelConfig& layout, PricedOps& ops)
      : layout_(layout), ops_(ops), pricer_(ops.pricer()), clock_(pricer_.overlaps()) {}

  PieceCost Price(const Recording& piece) {
    piece_ = &piece.piece;
    PieceCost cost;
    const std::span<const RecordedEvent> events = piece.events;
    for (size_t i = 0; i < events.size(); ++i) {
      const auto* repeat = std::get_if<RepeatRecord>(&events[i]);
      if (repeat == nullptr) {
        Add(events[i], cost);
        continue;
      }
      const StreamClock before = clock_;
      PieceCost once;
      for (const RecordedEvent& event : events.subspan(i + 1, repeat->events)) Add(event, once);
      clock_.RepeatSince(before, repeat->times - 1);
      cost.Append(once, repeat->times);
      i += repeat->events;
    }
    cost.total = piece.total;
    cost.activations = piece.activations;
    return cost;
  }

 private:
  bool recomputes() const { return piece_->pass == PassKind::kRecompute; }
  /// What waiting for messages of `group` is counted as.
  double& Waited(GroupKind group, PieceCost& cost) const {
    return recomputes() ? cost.recompute_s : cost.message_s[static_cast<size_t>(group)];
  }

  void Add(const RecordedEvent& event, PieceCost& cost) {
    if (const auto* op = std::get_if<OpRecord>(&event)) return Compute(*op, cost);
    if (const auto* message = std::get_if<CommRecord>(&event)) return Submit(*message, cost);
    Wait(std::get<WaitRecord>(event).message, cost);
  }

  void Compute(const OpRecord& op, PieceCost& cost) {
    const double op_s = ops_.SecondsIn(*piece_, op);
    // Ops beside a message share the multiprocessors and the memory with it.
    const double slowed_s = pricer_.slowdown() * clock_.Beside(op_s);
    clock_.Compute(op_s + slowed_s);
    (recomputes() ? cost.recompute_s : cost.compute_s) += op_s;
    cost.compute_s += slowed_s;
    cost.flops += op.flops;
    ++cost.ops;
    if (op.kind == OpKind::kGroupedGemm) cost.products_of_groups += ProductsOf(op);
  }

  void Submit(const CommRecord& message, PieceCost& cost) {
    const double before_s = clock_.now_s();
    int64_t& stride = strides_[static_cast<size_t>(message.group)];
    if (stride == 0) stride = StrideOf(message.group, layout_);
    const double message_s = pricer_.SecondsIn(*piece_, message, layout_, stride);
    clock_.Submit(message, message_s);
    if (message.asynchronous() && pricer_.overlaps()) {
      const size_t way = message.kind == CollectiveKind::kRecv ? 1 : 0;
      cost.beside_s[static_cast<size_t>(message.group)][way] += message_s;
    }
    Waited(message.group, cost) += clock_.now_s() - before_s;
    Count({message.kind, message.group, 1, message.bytes}, 1, cost.messages);
  }

  void Wait(const CommRecord& awaited, PieceCost& cost) {
    Waited(awaited.group, cost) += clock_.Wait(awaited).seconds();
  }

  const ParallelConfig& layout_;
  PricedOps& ops_;
  const Pricer& pricer_;
  StreamClock clock_;
  const PieceRecord* piece_ = nullptr;
  std::array<int64_t, kGroupKindCount> strides_{};  // by group; 0: not asked for yet
};

}  // namespace

double PricedOps::SecondsIn(const PieceRecord& piece, const OpRecord& op) {
  if (op.flops == 0) return pricer_.SecondsIn(piece, op);
  const bool in_layer = piece.kind == PieceKind::kLayer;
  uint64_t hash = static_cast<uint64_t>(op.bytes);
  for (const int64_t size : op.dims)
    hash = hash * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(size);
  Known& known = known_[(hash * 0x9E3779B97F4A7C15ULL) >> 58];
  if (known.op != op || known.in_layer != in_layer) {
    known = {op, in_layer, in_layer ? pricer_.SecondsInLayer(op) : pricer_.Seconds(op)};
  }
  return pricer_.ShareRun(piece) * known.seconds;
}

double PieceCost::seconds() const {
  return std::accumulate(message_s.begin(), message_s.end(), compute_s + recompute_s + host_s);
}

void PieceCost::Append(const PieceCost& next, int64_t times) {
  const auto factor = static_cast<double>(times);
  compute_s += factor * next.compute_s;
  recompute_s += factor * next.recompute_s;
  host_s += factor * next.host_s;
  for (size_t i = 0; i < message_s.size(); ++i) {
    message_s[i] += factor * next.message_s[i];
    for (size_t way = 0; way < beside_s[i].size(); ++way) {
      beside_s[i][way] += factor * next.beside_s[i][way];
    }
  }
  flops += times * next.flops;
  ops += times * next.ops;
  products_of_groups += times * next.products_of_groups;
  for (const MessageCount& each : next.messages) Count(each, times, messages);
  total = total.Then(next.total.Times(times));
  activations = activations.Then(next.activations.Times(times));
}

double LongerMessage(const MessageRecording& messages, const Pricer& pricer,
                     const ParallelConfig& layout) {
  return std::max(pricer.BetweenStages(messages.activation, layout),
                  pricer.BetweenStages(messages.gradient, layout));
}

std::vector<PieceCost> PriceEach(std::span<const Recording> pieces, const ParallelConfig& layout,
                                 PricedOps& ops) {
  Pricing pricing(layout, ops);
  std::vector<PieceCost> costs;
  costs.reserve(pieces.size());
  for (const Recording& piece : pieces) costs.push_back(pricing.Price(piece));
  return costs;
}

}  // namespace trimtab
