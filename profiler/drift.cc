#include "profiler/drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

constexpr size_t kFewPieces = 12;              // fewer have no slope of their own
constexpr size_t kFewestPasses = 2;            // that are left without the disturbed ones
constexpr double kSteepest = 1.2;              // slope of seconds over probe seconds
constexpr double kDeviationsOfSigma = 1.4826;  // median absolute deviations of a normal's sigma
constexpr double kErrorOfMedian = 1.2533;      // against that of a mean, of normal values
/// What the median absolute deviation of 2, 3, ... values falls short by (Croux and Rousseeuw,
/// "Time-efficient algorithms for two highly robust estimators of scale", 1992).
constexpr std::array<double, 8> kSmallSample = {1.196, 1.495, 1.363, 1.206,
                                                1.200, 1.140, 1.129, 1.107};

/// A stretch of work between two probe readings.
struct Piece {
  double log_probe = 0;
  double log_seconds = 0;  // against each cell's own median
  bool disturbed = false;
};

/// The passes to go by: all but the disturbed ones, or all where those leave too few.
std::vector<size_t> Undisturbed(size_t passes, const std::function<bool(size_t)>& disturbed) {
  std::vector<size_t> all;
  std::vector<size_t> kept;
  for (size_t pass = 0; pass < passes; ++pass) {
    all.push_back(pass);
    if (!disturbed(pass)) kept.push_back(pass);
  }
  return kept.size() < kFewestPasses ? all : kept;
}

/// The readings of one cell to go by.
std::vector<Reading> ReadingsOf(const std::vector<Pass>& passes, size_t cell) {
  std::vector<Reading> readings;
  for (const size_t pass :
       Undisturbed(passes.size(), [&](size_t each) { return passes[each][cell].disturbed; })) {
    readings.push_back(passes[pass][cell]);
  }
  return readings;
}

double TypicalLogSeconds(const std::vector<Pass>& passes, size_t cell) {
  std::vector<double> logs;
  for (const Reading& reading : ReadingsOf(passes, cell)) logs.push_back(std::log(reading.seconds));
  return Median(std::move(logs));
}

std::vector<Piece> Pieces(const std::vector<Pass>& passes) {
  std::vector<double> typical;
  for (size_t cell = 0; cell < passes.front().size(); ++cell) {
    typical.push_back(TypicalLogSeconds(passes, cell));
  }
  std::vector<Piece> pieces;
  for (const Pass& pass : passes) {
    struct Logs {
      std::vector<double> probes;
      std::vector<double> seconds;
      bool disturbed = false;
    };
    std::map<int, Logs> by_piece;
    for (size_t cell = 0; cell < pass.size(); ++cell) {
      Logs& logs = by_piece[pass[cell].piece];
      logs.probes.push_back(std::log(pass[cell].probe_s));
      logs.seconds.push_back(std::log(pass[cell].seconds) - typical[cell]);
      logs.disturbed = logs.disturbed || pass[cell].disturbed;
    }
    for (const auto& [piece, logs] : by_piece) {
      pieces.push_back({Median(logs.probes), Median(logs.seconds), logs.disturbed});
    }
  }
  // How work slows down under others' has little to do with how it does when clocks fall.
  std::vector<Piece> undisturbed;
  for (const Piece& piece : pieces) {
    if (!piece.disturbed) undisturbed.push_back(piece);
  }
  return undisturbed.size() < kFewPieces ? pieces : undisturbed;
}

/// Slope of log seconds over log probe seconds: a median over pairs, weighted by their distance.
double SlopeOf(const std::vector<Piece>& pieces) {
  std::vector<std::pair<double, double>> slopes;  // and their weights
  double total = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = i + 1; j < pieces.size(); ++j) {
      const double run = pieces[j].log_probe - pieces[i].log_probe;
      if (run == 0) continue;
      // Pieces that the probe hardly tells apart say little about the slope.
      slopes.emplace_back((pieces[j].log_seconds - pieces[i].log_seconds) / run, std::abs(run));
      total += std::abs(run);
    }
  }
  std::sort(slopes.begin(), slopes.end());
  double below = 0;
  for (const auto& [slope, weight] : slopes) {
    below += weight;
    if (2 * below >= total) return std::clamp(slope, 0.0, kSteepest);
  }
  return 0;
}

}  // namespace

void Append(const Pass& more, Pass& pass) {
  const int shift = pass.empty() || more.empty() ? 0 : pass.back().piece + 1 - more.front().piece;
  for (Reading reading : more) {
    reading.piece += shift;
    pass.push_back(reading);
  }
}

double StandardErrorOfMedian(const std::vector<double>& values) {
  const size_t count = values.size();
  if (count < 2) return 0;
  const double small = count - 2 < kSmallSample.size()
                           ? kSmallSample[count - 2]
                           : static_cast<double>(count) / (static_cast<double>(count) - 0.8);
  const double sigma = kDeviationsOfSigma * small * MedianAbsoluteDeviation(values, Median(values));
  return kErrorOfMedian * sigma / std::sqrt(static_cast<double>(count));
}

double DriftSlope(const std::vector<Pass>& passes) { return SlopeOf(Pieces(passes)); }

CombinedTable CombinePasses(const std::vector<Pass>& passes, const std::vector<Pass>& whole,
                            double reference_probe_s) {
  TRIMTAB_ASSERT(!passes.empty(), "a table without passes");
  const std::vector<Piece> pieces = Pieces(passes);
  const double slope = pieces.size() < kFewPieces ? DriftSlope(whole) : SlopeOf(pieces);
  CombinedTable table;
  std::vector<double> errors;
  for (size_t cell = 0; cell < passes.front().size(); ++cell) {
    std::vector<double> logs;
    for (const Reading& reading : ReadingsOf(passes, cell)) {
      logs.push_back(std::log(reading.seconds) -
                     slope * std::log(reading.probe_s / reference_probe_s));
    }
    errors.push_back(StandardErrorOfMedian(logs));
    table.seconds.push_back(std::exp(Median(std::move(logs))));
  }
  if (!errors.empty()) table.spread = Median(std::move(errors));
  return table;
}

ProbeReading TypicalProbe(const std::vector<ProbeReading>& readings) {
  std::vector<double> all;
  std::vector<double> undisturbed;
  for (const ProbeReading& reading : readings) {
    all.push_back(reading.seconds);
    if (!reading.disturbed) undisturbed.push_back(reading.seconds);
  }
  if (2 * undisturbed.size() < all.size()) return {Median(std::move(all)), true};
  return {Median(std::move(undisturbed)), false};
}

std::vector<ProbeReference> ReferenceProbes(const std::vector<std::vector<ProbeReading>>& probes) {
  TRIMTAB_ASSERT(!probes.empty() && !probes.front().empty(), "no probe readings");
  const size_t modes = probes.front().size();
  const auto disturbed = [](const ProbeReading& reading) { return reading.disturbed; };
  std::vector<double> speeds;  // of the passes: the mean log probe over all modes
  for (const size_t pass : Undisturbed(probes.size(), [&](size_t each) {
         return std::any_of(probes[each].begin(), probes[each].end(), disturbed);
       })) {
    double sum = 0;
    for (const ProbeReading& reading : probes[pass]) sum += std::log(reading.seconds);
    speeds.push_back(sum / static_cast<double>(modes));
  }
  const double typical = Median(std::move(speeds));
  std::vector<ProbeReference> references;
  for (size_t mode = 0; mode < modes; ++mode) {
    // The mean over all pairs is what fits their ratios best, and errs by about one pair's error.
    double ratio = 0;
    std::vector<double> errors;
    for (size_t other = 0; other < modes; ++other) {
      if (other == mode) continue;
      std::vector<double> logs;
      for (const size_t pass : Undisturbed(probes.size(), [&](size_t each) {
             return disturbed(probes[each][mode]) || disturbed(probes[each][other]);
           })) {
        logs.push_back(std::log(probes[pass][mode].seconds / probes[pass][other].seconds));
      }
      errors.push_back(StandardErrorOfMedian(logs));
      ratio += Median(std::move(logs)) / static_cast<double>(modes);
    }
    references.push_back({std::exp(typical + ratio), errors.empty() ? 0 : Median(errors)});
  }
  return references;
}

}  // namespace trimtab
