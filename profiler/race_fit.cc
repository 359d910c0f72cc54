#include "profiler/race_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "profiler/other_work.h"
#include "profiler/stats.h"
#include "profiler/two_way_fit.h"

namespace trimtab {
namespace {

// What is known of a mode's reference without a calibration: nothing that matters.
constexpr double kUnknownSpread = 2;
constexpr double kModeScatter = 0.03;  // expected of what the visits of a round say of a mode
// A mode is throttled when it is off by this much more than its calibration explains.
constexpr double kThrottledErrors = 3;
constexpr double kThrottledLeast = 0.05;
// The probe is said not to stand for the steps when the speed wandered by this much, and they went
// with it by another factor than expected: by this many errors of that factor and by this much.
constexpr double kNotableWander = 0.05;
constexpr double kLeastFreedom = 4;  // visits beyond each entrant's first
constexpr double kSlopeErrors = 3;
constexpr double kSlopeLeast = 0.1;
constexpr double kMostExponent = 1.5;
constexpr double kReadingNoise = 0.02;  // of the probe, where visits have too few to tell
// What a visit is expected to scatter by: as steadily as machines do it, and before enough entrants
// were visited again to know.
constexpr double kVisitScatter = 0.004;
constexpr double kFirstVisitScatter = 0.007;
constexpr int64_t kLeastAgain = 2;
// What a share of the cores taken by others leaves a visit off by, beyond what the probe sees of
// it: who waits for whom differs between layouts.
constexpr double kErrorOfShare = 0.5;
constexpr double kMany = 1e6;  // degrees of freedom of a normal distribution

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

template <typename T>
size_t IndexIn(std::vector<T>& values, const T& value) {
  const auto at = std::find(values.begin(), values.end(), value);
  if (at != values.end()) return static_cast<size_t>(at - values.begin());
  values.push_back(value);
  return values.size() - 1;
}

RaceSpeed SpeedOf(std::vector<double> speeds) {
  std::sort(speeds.begin(), speeds.end());
  return {.median = Median(speeds), .low = speeds.front(), .high = speeds.back()};
}

}  // namespace

Mode ModeOf(const RunConfig& run) {
  if (run.device != DeviceKind::kCpu) return {};
  return {.ranks = static_cast<int>(run.layout.world_size()),
          .threads = static_cast<int>(run.threads_per_rank)};
}

RaceVisit RaceVisitOf(size_t entrant, int64_t round, const RunConfig& run,
                      const Measurement& measurement) {
  RaceVisit visit = {.entrant = entrant, .round = round, .mode = ModeOf(run)};
  visit.blocks = measurement.blocks;
  if (visit.blocks.empty()) visit.blocks.push_back({measurement.step_time_s, 0});
  for (const Straggler& each : measurement.stragglers) {
    visit.straggling = std::max(visit.straggling, each.times);
  }
  return visit;
}

std::map<Mode, ProbeReference> ProbeReferences(const HardwareProfile& profile) {
  std::map<Mode, ProbeReference> references;
  for (const ModeTables& tables : profile.modes) {
    if (tables.probe_s <= 0) continue;
    references[tables.mode] = {.probe_s = tables.probe_s, .spread = tables.probe_spread};
  }
  return references;
}

struct RaceFit::Reading {
  size_t entrant = 0;
  size_t mode = 0;
  size_t column = 0;  // its round, counted from 0 without gaps
  int64_t round = 0;
  std::vector<double> steps{};     // log seconds of a step, by block
  std::vector<double> slowness{};  // log of probe / reference around it
  double disturbance = 0;          // what others may have it off by, a relative standard deviation

  /// Against a visit that nothing disturbed and that scatters by `scatter`.
  double Weight(double scatter) const {
    return scatter * scatter / (scatter * scatter + disturbance * disturbance);
  }
};

RaceFit::RaceFit(const std::vector<RaceVisit>& visits, size_t entrants,
                 const std::map<Mode, ProbeReference>& references, double confidence)
    : confidence_(confidence), count_(entrants, 0), mode_(entrants, 0) {
  for (const RaceVisit& visit : visits) {
    TRIMTAB_ASSERT(visit.entrant < entrants && !visit.blocks.empty(), "a visit of entrant {}",
                   visit.entrant);
    const auto reference = references.find(visit.mode);
    if (reference == references.end() || reference->second.probe_s <= 0) calibrated_ = false;
    for (const StepBlock& block : visit.blocks) probed_ = probed_ && block.probe_s > 0;
  }
  std::vector<Reading> readings;
  std::vector<int64_t> rounds;
  for (const RaceVisit& visit : visits) {
    Reading& reading = readings.emplace_back();
    reading.entrant = visit.entrant;
    reading.mode = IndexIn(modes_, visit.mode);
    reading.round = visit.round;
    reading.column = IndexIn(rounds, visit.round);
    const double reference = calibrated_ ? references.at(visit.mode).probe_s : 1;
    const bool some_quiet =
        std::any_of(visit.blocks.begin(), visit.blocks.end(),
                    [](const StepBlock& block) { return block.taken <= kDisturbedShare; });
    for (const StepBlock& block : visit.blocks) {
      if (some_quiet && block.taken > kDisturbedShare) continue;
      reading.steps.push_back(std::log(block.step_s));
      reading.slowness.push_back(probed_ ? std::log(block.probe_s / reference) : 0);
      reading.disturbance += kErrorOfShare * std::max(0.0, block.taken - kDisturbedShare);
    }
    reading.disturbance /= static_cast<double>(reading.steps.size());
    // Up to so much slower than it is, by how long the others had to wait.
    reading.disturbance += std::log(visit.straggling);
    ++count_[visit.entrant];
    mode_[visit.entrant] = reading.mode;
  }
  calibrated_ = calibrated_ && probed_ && !visits.empty();
  level_.assign(entrants, 0);
  corrected_.assign(entrants, 0);
  covariance_.assign(entrants, std::vector<double>(entrants, 0));
  if (visits.empty()) return;
  CompareModes(readings, references);
  TakeOffNoise(readings);
  FindExponent(readings);
  FitLevels(readings);
  SummariseSpeed(readings);
}

/// Makes the slowness of one mode comparable with that of another: the ratio of their references
/// comes from the calibration, as far as that is sure, and from what the rounds show.
void RaceFit::CompareModes(std::vector<Reading>& readings,
                           const std::map<Mode, ProbeReference>& references) {
  const size_t modes = modes_.size();
  mode_covariance_.assign(modes, std::vector<double>(modes, 0));
  if (!calibrated_) {
    // Without a calibration speeds are against this race's own median.
    for (size_t mode = 0; mode < modes; ++mode) {
      std::vector<double> all;
      for (const Reading& each : readings) {
        if (each.mode == mode) all.insert(all.end(), each.slowness.begin(), each.slowness.end());
      }
      const double median = Median(all);
      for (Reading& each : readings) {
        if (each.mode != mode) continue;
        for (double& slowness : each.slowness) slowness -= median;
      }
    }
  }
  if (modes == 1) return;

  std::vector<TableCell> cells;
  size_t columns = 0;
  for (const Reading& each : readings) {
    cells.push_back({each.mode, each.column, Mean(each.slowness), each.Weight(kModeScatter)});
    columns = std::max(columns, each.column + 1);
  }
  TwoWayOptions options;
  options.expected_scatter = kModeScatter;
  options.row_variance.assign(modes, kUnknownSpread * kUnknownSpread);
  TwoWayFit fit = FitTwoWay(cells, modes, columns, options);
  std::vector<double> spread(modes, kUnknownSpread);
  if (calibrated_) {
    for (size_t mode = 0; mode < modes; ++mode) spread[mode] = references.at(modes_[mode]).spread;
    const double middle = Median(fit.rows);
    for (size_t mode = 0; mode < modes; ++mode) {
      const double error = std::hypot(spread[mode], std::sqrt(fit.variance));
      if (std::abs(fit.rows[mode] - middle) > kThrottledErrors * error + kThrottledLeast) {
        throttled_.push_back(modes_[mode]);
      }
    }
    for (size_t mode = 0; mode < modes; ++mode) {
      options.row_variance[mode] = std::max(1e-8, spread[mode] * spread[mode]);
    }
    fit = FitTwoWay(cells, modes, columns, options);
  }
  mode_covariance_ = fit.covariance;
  // References are off against each other: what is common to all modes is the machine's.
  const double common = Mean(fit.rows);
  for (Reading& each : readings) {
    for (double& slowness : each.slowness) slowness -= fit.rows[each.mode] - common;
  }
}

/// Takes for the machine's what the noise of readings cannot have made up. On a machine that
/// wanders nearly all of a visit's slowness against the middle one is its own; on a quiet one that
/// is so only where it is well past twice the noise, so that noise corrects nothing.
void RaceFit::TakeOffNoise(std::vector<Reading>& readings) {
  std::vector<double> all;
  std::vector<double> bends;  // a block against its neighbours: no slow change bends
  for (const Reading& each : readings) {
    all.push_back(Mean(each.slowness));
    for (size_t i = 2; i < each.slowness.size(); ++i) {
      const double bend = each.slowness[i] - 2 * each.slowness[i - 1] + each.slowness[i - 2];
      bends.push_back(bend * bend);
    }
    if (each.slowness.size() == 2) {
      const double change = each.slowness[1] - each.slowness[0];
      bends.push_back(2 * change * change);
    }
  }
  const double middle = Median(all);
  double square = 0;
  // Blocks share the readings between them, so a bend varies as much as one reading does. The
  // median of its square is 0.455 of its mean.
  const double reading = bends.empty() ? kReadingNoise * kReadingNoise : Median(bends) / 0.455;
  const double deviation = MedianAbsoluteDeviation(all, middle) / 0.6745;
  for (Reading& each : readings) {
    const double noise = 1.1 * reading / static_cast<double>(each.slowness.size() + 1);
    const double off = Mean(each.slowness) - middle;
    const double wander = std::max(0.0, deviation * deviation - noise);
    const double usual = wander == 0 ? 0 : wander / (wander + noise);
    const double large = off == 0 ? 0 : 1 / (1 + std::pow(4 * noise / (off * off), 3));
    const double kept = std::max(usual, large);
    corrected_[each.entrant] += kept / static_cast<double>(count_[each.entrant]);
    square += kept * kept * off * off;
    for (double& slowness : each.slowness) {
      slowness = middle + kept * (slowness - middle);
    }
  }
  wander_ = std::sqrt(square / static_cast<double>(readings.size()));
}

/// Steps take as much longer as the probe does, unless the visits clearly say otherwise.
void RaceFit::FindExponent(const std::vector<Reading>& readings) {
  // How each visit differs from its entrant's others.
  std::vector<std::pair<double, double>> offs;  // of the probe, of the steps
  double freedom = 0;
  for (size_t entrant = 0; entrant < count_.size(); ++entrant) {
    if (count_[entrant] < 2) continue;
    std::vector<double> steps;
    std::vector<double> slowness;
    for (const Reading& each : readings) {
      if (each.entrant != entrant) continue;
      steps.push_back(Mean(each.steps));
      slowness.push_back(Mean(each.slowness));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      offs.emplace_back(slowness[i] - Mean(slowness), steps[i] - Mean(steps));
    }
    freedom += static_cast<double>(count_[entrant] - 1);
  }
  double square = 0;
  for (const auto& [probe, step] : offs) square += probe * probe;
  if (freedom < kLeastFreedom || std::sqrt(square / freedom) < kNotableWander) return;

  double slope = exponent_;
  double error = 0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<double> left;
    for (const auto& [probe, step] : offs) left.push_back(std::abs(step - slope * probe));
    const double limit = 3 * std::max(Median(left), kVisitScatter);
    double both = 0;
    double weight_square = 0;
    double rest = 0;
    for (size_t i = 0; i < offs.size(); ++i) {
      if (left[i] > limit) continue;
      both += offs[i].first * offs[i].second;
      weight_square += offs[i].first * offs[i].first;
      rest += left[i] * left[i];
    }
    if (weight_square == 0) return;
    slope = both / weight_square;
    error = std::sqrt(rest / freedom / weight_square);
  }
  if (std::abs(slope - exponent_) < kSlopeErrors * error + kSlopeLeast) return;
  exponent_ = std::clamp(slope, 0.0, kMostExponent);
  stands_for_steps_ = false;
}

void RaceFit::FitLevels(const std::vector<Reading>& readings) {
  std::vector<size_t> visited;
  std::vector<TableCell> cells;
  std::vector<double> ranges;  // of a visit's blocks
  size_t columns = 0;
  for (const Reading& each : readings) {
    std::vector<double> blocks;
    for (size_t i = 0; i < each.steps.size(); ++i) {
      blocks.push_back(each.steps[i] - exponent_ * each.slowness[i]);
    }
    cells.push_back(
        {IndexIn(visited, each.entrant), each.column, Median(blocks), each.Weight(kVisitScatter)});
    columns = std::max(columns, each.column + 1);
    const auto [low, high] = std::minmax_element(blocks.begin(), blocks.end());
    ranges.push_back(*high - *low);
  }
  // A visit whose own blocks disagree was disturbed in its middle, and says less.
  const double usual = 3 * std::max(Median(ranges), kVisitScatter);
  for (size_t i = 0; i < cells.size(); ++i) {
    if (ranges[i] > usual) cells[i].weight *= usual * usual / (ranges[i] * ranges[i]);
  }
  // The fit expects values about zero.
  std::vector<double> values;
  for (const TableCell& cell : cells) values.push_back(cell.value);
  const double middle = Median(values);
  for (TableCell& cell : cells) cell.value -= middle;
  TwoWayOptions options;
  int64_t again = 0;  // visits beyond each entrant's first
  for (const int64_t count : count_) again += std::max<int64_t>(0, count - 1);
  const double expected = again < kLeastAgain ? kFirstVisitScatter : kVisitScatter;
  options.expected_scatter = std::max(expected, Median(ranges));
  options.expected_scatter_weight = 2;
  // With the probe's slowness off, a round shares what is left where steps follow it not quite.
  if (probed_) options.expected_columns = std::max(kVisitScatter, kSlopeLeast * wander_);
  const TwoWayFit fit = FitTwoWay(cells, visited.size(), columns, options);
  for (size_t i = 0; i < visited.size(); ++i) {
    level_[visited[i]] = fit.rows[i] + middle;
    for (size_t j = 0; j < visited.size(); ++j) {
      covariance_[visited[i]][visited[j]] = fit.covariance[i][j];
    }
  }
  std::vector<double> weights;
  for (const TableCell& cell : cells) weights.push_back(cell.weight);
  scatter_ = std::sqrt(fit.variance / Median(std::move(weights)));
  round_scatter_ = std::sqrt(fit.column_variance);
  quantile_ = StudentQuantile(confidence_, fit.degrees_of_freedom);
  normal_quantile_ = StudentQuantile(confidence_, kMany);
}

void RaceFit::SummariseSpeed(const std::vector<Reading>& readings) {
  std::map<int64_t, std::vector<double>> of_round;
  std::vector<double> all;
  for (const Reading& each : readings) {
    speed_of_visit_.push_back(std::exp(-Mean(each.slowness)));
    for (const double slowness : each.slowness) {
      of_round[each.round].push_back(std::exp(-slowness));
      all.push_back(std::exp(-slowness));
    }
  }
  for (auto& [round, speeds] : of_round) speed_of_round_[round] = SpeedOf(std::move(speeds));
  speed_ = SpeedOf(std::move(all));
}

RaceFit::Estimate RaceFit::StepTime(size_t entrant) const {
  TRIMTAB_ASSERT(visited(entrant), "entrant {} was not visited", entrant);
  return {level_[entrant], quantile_ * std::sqrt(covariance_[entrant][entrant])};
}

double RaceFit::Covariance(size_t entrant, size_t other) const {
  TRIMTAB_ASSERT(visited(entrant) && visited(other), "entrants {} and {} were not both visited",
                 entrant, other);
  // What a mode's reference is off by matters as far as the readings were used.
  const double modes = exponent_ * exponent_ * corrected_[entrant] * corrected_[other] *
                       mode_covariance_[mode_[entrant]][mode_[other]];
  const double wider = quantile_ / normal_quantile_;
  return wider * wider * (covariance_[entrant][other] + modes);
}

}  // namespace trimtab
