#include "cost_model/closed_form/stage_bounds.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cost_model/closed_form/stage_waits.h"

namespace trimtab {

InFlight LeastInFlight(Schedule schedule, const PipelineShape& shape, int64_t stage) {
  if (schedule != Schedule::kZeroBubble) return {RowOf(schedule).max_in_flight(shape, stage)};
  // Inputs' parts begin as backward passes in one do; weights' parts wait for as many micro batches
  // as there are stages before this one, if there are so many.
  const int64_t whole = RowOf(Schedule::k1F1B).max_in_flight(shape, stage);
  return {whole, std::min(stage, shape.micro_batches - whole)};
}

void StageSums::Add(size_t stage, const WaySpans& ways) {
  const auto add = [&ways](StageTimes& times, int64_t later) {
    const auto seconds = [&](Way first) { return ways[first + later].seconds; };
    times.forward += seconds(kForwardFirst);
    times.backward_input += seconds(kBackwardSetting) + seconds(kInputSetting);
    times.backward_weight += seconds(kWeightSetting);
  };
  add(stages_[stage].first, 0);
  add(stages_[stage].later, 1);
}

void StageSums::AddEnd(size_t stage, const ParallelConfig& layout, const EndCosts& end,
                       const Pricer& pricer) {
  // Passes that hide messages take no less than what they hide: where they are longer than is known
  // here, the step is longer by as much, at least. So it is enough that they are among those that
  // are summed up, and that no more of them hide messages than are counted here.
  Stage& ended = stages_[stage];
  const int64_t each = HidingPasses();
  double first_s = std::numeric_limits<double>::infinity();
  double last_s = first_s;
  if (shape_.micro_batches == 1 || each < shape_.micro_batches) {
    const StageTimes& times = shape_.micro_batches == 1 ? ended.first : ended.later;
    first_s = static_cast<double>(each) * times.forward;
    last_s = static_cast<double>(each) * (times.total() - times.forward);
  }
  ended.end_s = end.update.seconds() + Beside(layout, first_s, last_s, end, pricer).seconds();
}

int64_t StageSums::HidingPasses() const { return shape_.vp > 1 ? shape_.pp : 1; }

double StageSums::PassesSeconds(const Stage& stage) const {
  return stage.first.total() + static_cast<double>(shape_.micro_batches - 1) * stage.later.total();
}

double StageSums::Seconds(const Stage& stage) const {
  // A pass may be longer than is known here, and a message then longer than it by less. So passes
  // count that are as long as those of later micro batches, but not those that hide messages.
  PipelineShape others = shape_;
  others.micro_batches -= HidingPasses();
  return PassesSeconds(stage) + ExposedBetweenStages(others, stage.later, message_s_) + stage.end_s;
}

double StageSums::Busiest() const {
  double busiest_s = 0;
  for (const Stage& stage : stages_) busiest_s = std::max(busiest_s, Seconds(stage));
  return busiest_s;
}

double StageSums::RoundTrips(Schedule schedule, const StageTimes& all, const Stage& stage) const {
  const auto round_trip = RowOf(schedule).round_trip;
  // Where backward passes are in two parts, what is known of one may be of both together.
  if (round_trip == nullptr || schedule == Schedule::kZeroBubble) return 0;
  PipelineShape others = shape_;  // as above
  others.micro_batches = std::max<int64_t>(1, others.micro_batches - HidingPasses());
  return ExposedByRoundTrips(others, stage.later, message_s_,
                             round_trip(all, stages_.front().later));
}

double StageSums::Slowest(Schedule schedule, bool longer_weights) const {
  const auto idle_time = RowOf(schedule).idle_time;
  const auto others = static_cast<double>(shape_.pp - 1);
  const StageTimes all = All();
  std::vector<double> stages_s;
  for (const Stage& stage : stages_) {
    // Each stage waits for the others.
    const StageTimes mean = MeanOfOthers(all, stage.later, shape_.pp);
    stages_s.push_back(Seconds(stage) + idle_time(shape_, mean) + RoundTrips(schedule, all, stage));
  }
  const double slowest_s = *std::max_element(stages_s.begin(), stages_s.end());
  // What a second more of the others' weights' parts, in the mean, fills of a stage's idle time at
  // most: as much as while they are the shortest.
  const double fills = idle_time(shape_, {1, 1, 0}) - idle_time(shape_, {1, 1, 1});
  if (!longer_weights || fills <= 0) return slowest_s;
  // It makes the others, in the mean, slower by the second itself for each micro batch, but for
  // what it fills of their own idle time and what the last micro batch hides of the step's end. So
  // it takes off the slowest stage until they meet. Where they wait for messages that are longer
  // than passes, it makes none slower.
  const double busiest_s = Busiest();
  const auto chunks = static_cast<double>(shape_.vp);
  for (const Stage& stage : stages_) {
    const double backward_s = (stage.later.total() - stage.later.forward) / chunks;
    if (message_s_ > backward_s) return busiest_s;
  }
  const double mean_of_others_s =
      (std::accumulate(stages_s.begin(), stages_s.end(), 0.0) - slowest_s) / others;
  const double meeting = static_cast<double>(shape_.micro_batches - 1) + fills / others;
  return std::max(busiest_s, slowest_s - fills * (slowest_s - mean_of_others_s) / meeting);
}

double StageSums::SlowestOfCrowded(double crowding) const {
  double sum_s = 0;
  double busiest_s = 0;
  for (const Stage& stage : stages_) {
    sum_s += PassesSeconds(stage);
    busiest_s = std::max(busiest_s, PassesSeconds(stage));
  }
  // Messages that fill and drain the pipeline.
  const auto rounds = static_cast<double>(shape_.pp * shape_.vp - 1);
  return std::max(sum_s / static_cast<double>(shape_.pp), busiest_s / crowding) +
         2 * rounds * message_s_;
}

StageTimes StageSums::All() const {
  StageTimes all = {0, 0, 0};
  for (const Stage& stage : stages_) all += stage.later;
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
  const int64_t behind = in_flight.weights_to_come * left_for_weights;
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

std::vector<int64_t> FullestOfAlike(const std::vector<LayerRange>& chunks, int64_t pp) {
  std::vector<int64_t> layers(static_cast<size_t>(pp));
  for (size_t i = 0; i < chunks.size(); ++i) layers[i % layers.size()] += chunks[i].count;
  const int64_t fullest = std::max_element(layers.begin(), layers.end()) - layers.begin();
  std::vector<int64_t> weighed = {0, pp - 1};
  if (fullest > 0 && fullest < pp - 1) weighed.push_back(fullest);
  return weighed;
}

}  // namespace trimtab
