#include "cost_model/closed_form/stage_bounds.h"

#include <algorithm>
#include <numeric>

namespace trimtab {

InFlight LeastInFlight(Schedule schedule, const PipelineShape& shape, int64_t stage) {
  if (schedule != Schedule::kZeroBubble) return {RowOf(schedule).max_in_flight(shape, stage)};
  // Inputs' parts begin as backward passes in one do; weights' parts wait for as many micro batches
  // as there are stages before this one, if there are so many.
  const int64_t whole = RowOf(Schedule::k1F1B).max_in_flight(shape, stage);
  return {whole, std::min(stage, shape.micro_batches - whole)};
}

void StageSums::Add(size_t stage, const WaySpans& ways) {
  const auto later = static_cast<double>(shape_.micro_batches - 1);
  for (const Way first : {kForwardFirst, kBackwardSetting, kInputSetting, kWeightSetting}) {
    busy_s_[stage] += ways[first].seconds + later * ways[first + 1].seconds;
  }
  StageTimes& times = times_[stage];
  times.forward += ways[kForwardLater].seconds;
  times.backward_input += ways[kBackwardAdding].seconds + ways[kInputAdding].seconds;
  times.backward_weight += ways[kWeightAdding].seconds;
}

double StageSums::Busiest() const { return *std::max_element(busy_s_.begin(), busy_s_.end()); }

double StageSums::Slowest(Schedule schedule, bool longer_weights) const {
  const auto idle_time = RowOf(schedule).idle_time;
  const auto others = static_cast<double>(shape_.pp - 1);
  const StageTimes all = All();
  std::vector<double> stages_s;
  for (size_t i = 0; i < busy_s_.size(); ++i) {
    // Each stage waits for the others.
    const StageTimes mean = {(all.forward - times_[i].forward) / others,
                             (all.backward_input - times_[i].backward_input) / others,
                             (all.backward_weight - times_[i].backward_weight) / others};
    stages_s.push_back(busy_s_[i] + idle_time(shape_, mean));
  }
  const double slowest_s = *std::max_element(stages_s.begin(), stages_s.end());
  // What a second more of the others' weights' parts, in the mean, fills of a stage's idle time.
  const double fills = -idle_time(shape_, {0, 0, 1});
  if (!longer_weights || fills <= 0) return slowest_s;
  // It makes the others, in the mean, slower by the second itself for each micro batch, but for
  // what it fills of their own idle time. So it takes off the slowest stage until they meet.
  const double mean_of_others_s =
      (std::accumulate(stages_s.begin(), stages_s.end(), 0.0) - slowest_s) / others;
  const double meeting = static_cast<double>(shape_.micro_batches) + fills / others;
  return slowest_s - fills * (slowest_s - mean_of_others_s) / meeting;
}

double StageSums::SlowestOfCrowded(double crowding) const {
  return std::max(MeanBusy(), Busiest() / crowding);
}

double StageSums::MeanBusy() const {
  return std::accumulate(busy_s_.begin(), busy_s_.end(), 0.0) / static_cast<double>(shape_.pp);
}

StageTimes StageSums::All() const {
  StageTimes all = {0, 0, 0};
  for (const StageTimes& each : times_) {
    all.forward += each.forward;
    all.backward_input += each.backward_input;
    all.backward_weight += each.backward_weight;
  }
  return all;
}

void AddToNoGradients(WaySpans& ways) {
  for (const Way setting : {kBackwardSetting, kInputSetting, kWeightSetting}) {
    double& adding_s = ways[setting + 1].seconds;
    adding_s = std::min(adding_s, ways[setting].seconds);
  }
}

void PassBytes::Consider(const WaySpans& ways, int64_t received, int64_t sent, bool several) {
  const auto lower = [&](MemorySpan& span, const MemorySpan& pass) {
    span.change = std::min(span.change, received + pass.change - sent);
    span.peak = std::min(span.peak, received + pass.peak);
  };
  lower(later, ways[kForwardLater].total);
  lower(first, ways[kForwardFirst].total);
  // Of the parts and the whole, one is there.
  const auto peak = [&](Way whole, Way part) {
    return std::max(ways[whole].total.peak, ways[part].total.peak);
  };
  backward_peak = std::min(backward_peak, peak(kBackwardSetting, kInputSetting));
  if (several) backward_peak = std::min(backward_peak, peak(kBackwardAdding, kInputAdding));
}

int64_t LeftForWeights(const WaySpans& ways, bool several_micro_batches) {
  const auto left = [&ways](Way forward, Way input) {
    return std::max<int64_t>(0, ways[forward].total.change + ways[input].total.change);
  };
  const int64_t first = left(kForwardFirst, kInputSetting);
  return several_micro_batches ? std::min(first, left(kForwardLater, kInputAdding)) : first;
}

int64_t PassBytes::Peak(const InFlight& in_flight, int64_t chunks) const {
  const int64_t firsts = std::min(in_flight.whole, chunks);
  MemorySpan all = first.Times(firsts);
  if (in_flight.whole > firsts) all = all.Then(later.Times(in_flight.whole - firsts));
  const int64_t peak = std::max<int64_t>({0, all.peak, all.change + backward_peak});
  if (in_flight.weights_to_come == 0) return peak;
  const int64_t behind = in_flight.weights_to_come * for_weights;
  return std::max(peak, behind + in_flight.whole * later.change + backward_peak);
}

std::vector<int64_t> StagesToWeigh(const std::vector<StageChunks>& stages) {
  std::vector<int64_t> weighed;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    if (std::find(stages.begin(), stage, *stage) == stage)
      weighed.push_back(stage - stages.begin());
  }
  return weighed;
}

}  // namespace trimtab
