#include "cost_model/dry_run/pricing_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr char kCompute[] = "compute";

std::string Describe(const OpRecord& op) {
  std::string text(Name(op.kind));
  const char* separator = " ";
  for (const int64_t dim : op.dims) {
    if (dim == 0) break;
    text += fmt::format("{}{}", separator, dim);
    separator = "x";
  }
  return text;
}

std::string Describe(const CommRecord& message) {
  return fmt::format("{} {} {}", Name(message.kind), Name(message.group),
                     FormatBytes(message.bytes));
}

/// "layer 3 forward", "head backward", "update".
std::string Describe(const PieceRecord& piece) {
  if (piece.kind == PieceKind::kUpdate) return std::string(Name(piece.kind));
  const std::string number = piece.kind == PieceKind::kLayer ? fmt::format(" {}", piece.layer) : "";
  return fmt::format("{}{} {}", Name(piece.kind), number, Name(piece.pass));
}

}  // namespace

PricingRecorder::PricingRecorder(const Pricer& pricer, const ParallelConfig& layout,
                                 std::vector<size_t> kinds, bool with_timeline)
    : pricer_(pricer),
      layout_(layout),
      with_timeline_(with_timeline),
      clock_(pricer.overlaps()),
      kinds_(std::move(kinds)) {
  const size_t most = kinds_.empty() ? 0 : *std::max_element(kinds_.begin(), kinds_.end());
  estimates_.resize(most + 2);
  seconds_.actions.resize(kinds_.size());
  seconds_.not_before.resize(kinds_.size());
  events_.resize(kinds_.size() + 1);
}

void PricingRecorder::EnterAction(int64_t index) {
  Close();
  action_ = static_cast<size_t>(index);
}

void PricingRecorder::Close() {
  ClosePiece();
  WaitForHost();
  const bool at_end = action_ >= seconds_.actions.size();
  if (at_end) WaitForLate();
  double& seconds = at_end ? seconds_.end : seconds_.actions[action_];
  seconds += clock_.now_s() - action_start_s_;
  action_start_s_ = clock_.now_s();
}

void PricingRecorder::BeginNextStep() {
  Close();
  std::fill(estimates_.begin(), estimates_.end(), Estimate{});
  seconds_ = {.actions = std::vector<double>(seconds_.actions.size()),
              .not_before = std::vector<double>(seconds_.actions.size())};
  for (std::vector<TimelineEvent>& action : events_) action.clear();
  step_start_s_ = clock_.now_s();
  clock_.BeginStep();
  for (const int64_t id : clock_.under_way()) early_.insert(id);
}

void PricingRecorder::ClosePiece() {
  if (piece_.kind == PieceKind::kLayer) launched_s_ += clock_.now_s() - piece_start_s_;
  piece_start_s_ = clock_.now_s();
  if (!open_) return;
  TimelineEvent& event = events_[action_][piece_event_];
  event.duration_s = clock_.now_s() - action_start_s_ - event.start_s;
  open_ = false;
}

void PricingRecorder::EnterPiece(const PieceRecord& piece) {
  ClosePiece();
  if (piece.kind == PieceKind::kLayer) {
    launches_.passes += LaunchesOf(piece);
  } else {
    WaitForHost();
  }
  piece_ = piece;
  piece_start_s_ = clock_.now_s();
  if (!with_timeline_) return;
  piece_event_ = events_[action_].size();
  AddEvent(Describe(piece), kCompute, {clock_.now_s(), clock_.now_s()});
  open_ = true;
}

double PricingRecorder::LaunchesOf(const PieceRecord& layer) {
  if (layer.pass != PassKind::kBackward) return 1;
  // What is recomputed lies within a backward pass, which goes on after it.
  if (std::exchange(backward_layer_, layer.layer) == layer.layer) return 0;
  // It launches twice as many ops as a forward pass, where it is in one part.
  return layout_.schedule == Schedule::kZeroBubble ? 1 : 2;
}

void PricingRecorder::WaitForHost() {
  const double wait_s = pricer_.HostWait(layout_, launches_, launched_s_);
  launches_ = {};
  launched_s_ = 0;
  backward_layer_ = -1;
  if (wait_s <= 0) return;
  const TimeSpan span = clock_.Compute(wait_s);
  piece_start_s_ = clock_.now_s();
  estimate().breakdown_s.host += span.seconds();
  if (with_timeline_) AddEvent("wait for the host", kCompute, span);
}

void PricingRecorder::WaitForLate() {
  for (const auto& [group, late_s] : std::exchange(late_s_, {})) {
    AddWait(group, clock_.Compute(late_s), std::string(Name(group)) + " messages that are late");
  }
  SlowOps(std::exchange(late_ops_s_, 0));
}

void PricingRecorder::BeginOp(const OpRecord& op) {
  const double run_s = pricer_.SecondsIn(piece_, op);
  // Ops beside a message share the multiprocessors and the memory with it.
  const double slowed_s = pricer_.slowdown() * clock_.Beside(run_s);
  late_ops_s_ += pricer_.slowdown() * clock_.BesideEarlier(run_s);
  const TimeSpan span = clock_.Compute(run_s + slowed_s);
  if (op.kind == OpKind::kGroupedGemm && piece_.kind == PieceKind::kLayer) {
    launches_.products += ProductsOf(op);
  }
  Breakdown& parts = estimate().breakdown_s;
  double& part = piece_.kind == PieceKind::kUpdate ? parts.optimizer : parts.compute;
  (recomputes() ? parts.recompute : part) += run_s;
  part += slowed_s;
  estimate().hardware_flops += op.flops;
  ++estimate().op_count;
  if (with_timeline_) AddEvent(Describe(op), kCompute, span);
}

double PricingRecorder::ShareExposed(const CommRecord& message) const {
  if (!message.asynchronous() || !pricer_.overlaps() || !IsOfDataRanks(message.group)) return 0;
  // From stage 2 on gradients, and weights in stage 3, move with each micro batch.
  const bool once_a_step =
      layout_.zero <= 1 || (layout_.zero == 2 && message.kind == CollectiveKind::kAllGather);
  return once_a_step ? pricer_.dp_exposed() : 0;
}

void PricingRecorder::BeginComm(const CommRecord& message) {
  double message_s = pricer_.SecondsIn(piece_, message, layout_, StrideOf(message.group, layout_));
  CommTotal& total = estimate().comm.at(message.kind, message.group);
  ++total.count;
  total.bytes += message.bytes;
  const std::string text = with_timeline_ ? Describe(message) : "";
  const std::string stream(Name(message.group));
  if (message.group == GroupKind::kPipeline && message.asynchronous()) {
    // It is an action of its own. When it comes, the stages decide among themselves.
    seconds_.actions[action_] = message_s;
    if (with_timeline_) {
      AddEvent(text, stream, {action_start_s_, action_start_s_ + message_s});
    }
    return;
  }
  if (const double late_s = ShareExposed(message) * message_s; late_s > 0) {
    late_s_[message.group] += late_s;
    message_s -= late_s;
  }
  const double before_s = clock_.now_s();
  const TimeSpan span = clock_.Submit(message, message_s);
  if (with_timeline_) AddEvent(text, stream, span);
  AddWait(message.group, {before_s, clock_.now_s()}, text);
}

void PricingRecorder::BeginWait(const CommRecord& message) {
  if (message.group == GroupKind::kPipeline) return;  // as above
  if (early_.erase(message.id) > 0 && action_ < seconds_.not_before.size()) {
    // A stage that is not the first begins later than this rank does on its own, and finds more of
    // it done: the pass itself does not become longer.
    const double within_s = clock_.now_s() - action_start_s_;
    double& not_before_s = seconds_.not_before[action_];
    not_before_s = std::max(not_before_s, clock_.EndOf(message) - step_start_s_ - within_s);
    const double wait_s = clock_.Wait(message).seconds();
    action_start_s_ += wait_s;
    piece_start_s_ += wait_s;
    return;
  }
  AddWait(message.group, clock_.Wait(message), with_timeline_ ? Describe(message) : "");
}

void PricingRecorder::SlowOps(double seconds) {
  if (seconds > 0) estimate().breakdown_s.compute += clock_.Compute(seconds).seconds();
}

void PricingRecorder::AddWait(GroupKind group, const TimeSpan& span, const std::string& name) {
  if (span.seconds() <= 0) return;
  Breakdown& parts = estimate().breakdown_s;
  (recomputes() ? parts.recompute : parts.exposed(group)) += span.seconds();
  if (with_timeline_) AddEvent("wait for " + name, kCompute, span);
}

void PricingRecorder::AddEvent(const std::string& name, const std::string& stream,
                               const TimeSpan& span) {
  events_[action_].push_back({name, stream, span.start_s - action_start_s_, span.seconds()});
}

}  // namespace trimtab
