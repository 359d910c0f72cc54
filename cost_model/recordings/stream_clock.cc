#include "cost_model/recordings/stream_clock.h"

#include <algorithm>

#include "engine/base/error.h"

namespace trimtab {

TimeSpan StreamClock::Compute(double seconds) {
  const double start_s = now_s_;
  now_s_ += seconds;
  return {start_s, now_s_};
}

double StreamClock::Beside(double seconds) const {
  return std::clamp(last_s_ - now_s_, 0.0, seconds);
}

double StreamClock::BesideEarlier(double seconds) const {
  return std::clamp(std::min(earlier_s_ - now_s_, seconds) - Beside(seconds), 0.0, seconds);
}

void StreamClock::BeginStep() {
  earlier_s_ = std::max(earlier_s_, last_s_);
  last_s_ = 0;
}

TimeSpan StreamClock::Submit(const CommRecord& message, double seconds) {
  const size_t way = message.kind == CollectiveKind::kRecv ? 1 : 0;
  double& free_s = free_s_[static_cast<size_t>(message.group)][way];
  const double start_s = std::max(now_s_, free_s);
  free_s = start_s + seconds;
  last_s_ = std::max(last_s_, free_s);
  if (message.asynchronous() && overlaps_) {
    under_way_.push_back({message.id, free_s});
  } else {
    now_s_ = free_s;
  }
  return {start_s, free_s};
}

TimeSpan StreamClock::Wait(const CommRecord& message) {
  if (!overlaps_) return {now_s_, now_s_};
  const double start_s = now_s_;
  const auto found = Find(message);
  now_s_ = std::max(now_s_, found->end_s);
  under_way_.erase(found);
  return {start_s, now_s_};
}

std::vector<int64_t> StreamClock::under_way() const {
  std::vector<int64_t> ids;
  for (const UnderWay& each : under_way_) ids.push_back(each.id);
  return ids;
}

double StreamClock::EndOf(const CommRecord& message) const { return Find(message)->end_s; }

std::vector<StreamClock::UnderWay>::const_iterator StreamClock::Find(
    const CommRecord& message) const {
  const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                  [&](const UnderWay& each) { return each.id == message.id; });
  TRIMTAB_ASSERT(found != under_way_.end(), "message {} of {} is not under way", message.id,
                 Name(message.group));
  return found;
}

void StreamClock::RepeatSince(const StreamClock& before, int64_t times) {
  const double more_s = static_cast<double>(times) * (now_s_ - before.now_s_);
  now_s_ += more_s;
  if (last_s_ != before.last_s_) last_s_ += more_s;
  for (size_t group = 0; group < free_s_.size(); ++group) {
    for (size_t way = 0; way < free_s_[group].size(); ++way) {
      if (free_s_[group][way] != before.free_s_[group][way]) free_s_[group][way] += more_s;
    }
  }
  for (UnderWay& each : under_way_) {
    const bool older = std::any_of(before.under_way_.begin(), before.under_way_.end(),
                                   [&](const UnderWay& other) { return other.id == each.id; });
    if (!older) each.end_s += more_s;
  }
}

}  // namespace trimtab
