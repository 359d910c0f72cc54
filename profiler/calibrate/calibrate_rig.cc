#include "profiler/calibrate/calibrate_rig.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

constexpr double kMostCalls = 2000;  // of one window
// Short against the seconds in which a machine's speed changes, long against a probe reading.
constexpr double kPieceSeconds = 0.2;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void FillForTiming(Tensor& tensor) { Fill(tensor, 0.01f); }

Rig::Rig(double window_s, Rank& rank, RigClock& clock)
    : window_s_(window_s),
      rank_(rank),
      clock_(&clock),
      probe_(std::make_unique<Probe>(rank)),
      probe_before_s_(probe_->Seconds()),
      inputs_(rank.device()),
      outputs_(rank.device()) {
  if (rank.speaks()) other_work_.emplace();
}

Rig::Rig(std::span<const double>& answers, Rank& rank)
    : rank_(rank), answers_(&answers), inputs_(rank.device()), outputs_(rank.device()) {}

double Rig::NextAnswer() {
  TRIMTAB_ASSERT(!answers_->empty(), "more timings are asked for than were taken");
  const double answer = answers_->front();
  *answers_ = answers_->subspan(1);
  return answer;
}

double Rig::Window(const std::function<void()>& work, int calls) {
  const auto rank = static_cast<size_t>(rank_.index());
  rank_.Barrier();
  // Ranks beyond the cores leave a barrier one after the other, so no rank's own clock will do.
  clock_->begin_s[rank] = Now();
  for (int call = 0; call < calls; ++call) work();
  clock_->end_s[rank] = Now();
  rank_.Barrier();
  const double seconds = *std::max_element(clock_->end_s.begin(), clock_->end_s.end()) -
                         *std::min_element(clock_->begin_s.begin(), clock_->begin_s.end());
  piece_s_ += seconds;
  return seconds;
}

double Rig::Seconds(const std::function<void()>& work) {
  if (answers_ != nullptr) return NextAnswer();
  Window(work, 1);  // finds code and pages in place for the next
  double seconds = Window(work, 1);
  // A call shorter than a window only says how many of them to time.
  if (seconds < window_s_) {
    const double calls = std::min(std::ceil(window_s_ / std::max(seconds, 1e-7)), kMostCalls);
    seconds = Window(work, static_cast<int>(calls)) / calls;
  }
  AddReading(seconds);
  return seconds;
}

double Rig::SecondsOfCalls(const std::function<void()>& work, int calls) {
  if (answers_ != nullptr) return NextAnswer();
  const double seconds = Window(work, calls) / calls;
  AddReading(seconds);
  return seconds;
}

void Rig::AddReading(double seconds) {
  readings_.push_back({.seconds = seconds, .piece = piece_});
  // The sum is the same on every rank, so all of them read the probe together.
  if (piece_s_ >= kPieceSeconds) ClosePiece();
}

void Rig::ClosePiece() {
  const double after_s = probe_->Seconds();
  const bool disturbed = other_work_ && other_work_->Share() > kDisturbedShare;
  for (; closed_ < readings_.size(); ++closed_) {
    readings_[closed_].probe_s = std::sqrt(probe_before_s_ * after_s);
    readings_[closed_].disturbed = disturbed;
  }
  probe_before_s_ = after_s;
  piece_s_ = 0;
  ++piece_;
}

Pass Rig::TakeReadings() {
  if (closed_ < readings_.size()) ClosePiece();
  closed_ = 0;
  return std::exchange(readings_, {});
}

Tensor ColdPool::Next(const Shape& shape) {
  constexpr int64_t kNumel = kBytes / SizeOf(DType::kF32);
  const int64_t numel = shape.numel();
  if (numel > kNumel) {
    if (!oversize_.defined() || oversize_.numel() < numel) {
      oversize_ = Tensor::Empty(device_, {numel}, DType::kF32, MemoryTag::kWorkspace);
      FillForTiming(oversize_);
    }
    return oversize_.Slice(0, shape);
  }
  if (!buffer_.defined()) {
    buffer_ = Tensor::Empty(device_, {kNumel}, DType::kF32, MemoryTag::kWorkspace);
    FillForTiming(buffer_);
  }
  if (next_ + numel > kNumel) next_ = 0;
  const Tensor part = buffer_.Slice(next_, shape);
  next_ += numel;
  return part;
}

}  // namespace trimtab
