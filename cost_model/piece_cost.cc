#include "cost_model/piece_cost.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "cost_model/message_stream.h"
#include "engine/base/error.h"

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

/// Follows the ops and messages of one piece.
class PieceWalk {
 public:
  PieceWalk(const PieceRecord& piece, const ParallelConfig& layout, const Pricer& pricer,
            PieceCost& cost)
      : recomputes_(piece.pass == PassKind::kRecompute),
        layout_(layout),
        pricer_(pricer),
        cost_(cost) {}

  void operator()(const OpRecord& op) {
    const double seconds = pricer_.Seconds(op);
    (recomputes_ ? cost_.recompute_s : cost_.compute_s) += seconds;
    now_s_ += seconds;
    cost_.flops += op.flops;
    ++cost_.ops;
  }

  void operator()(const CommRecord& message) {
    Add({message.kind, message.group, 1, message.bytes}, 1, cost_.messages);
    const double seconds = pricer_.Seconds(message, StrideOf(message.group, layout_));
    if (pricer_.RunsBesideOps(message)) {
      stream_.Submit(message.id, now_s_, seconds);
      return;
    }
    Expose(message, seconds);
    if (Pricer::StaysWithinPiece(message)) now_s_ += seconds;
  }

  void operator()(const WaitRecord& wait) {
    if (!pricer_.RunsBesideOps(wait.message)) return;
    const double seconds = stream_.Wait(wait.message.id, now_s_);
    Expose(wait.message, seconds);
    now_s_ += seconds;
  }

  bool idle() const { return stream_.idle(); }

 private:
  void Expose(const CommRecord& message, double seconds) {
    double& part =
        recomputes_ ? cost_.recompute_s : cost_.message_s[static_cast<size_t>(message.group)];
    part += seconds;
  }

  const bool recomputes_;
  const ParallelConfig& layout_;
  const Pricer& pricer_;
  PieceCost& cost_;
  MessageStream stream_;
  double now_s_ = 0;
};

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
  for (const Recording& piece : pieces) {
    PieceWalk walk(piece.piece, layout, pricer, cost);
    for (const RecordedEvent& event : piece.events) std::visit(walk, event);
    TRIMTAB_ASSERT(walk.idle(), "a piece ends before its messages do");
    cost.total = cost.total.Then(piece.total);
    cost.activations = cost.activations.Then(piece.activations);
  }
  return cost;
}

}  // namespace trimtab
