#include "profiler/calibrate/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "cost_model/hardware/cluster.h"
#include "engine/base/error.h"
#include "profiler/calibrate/calibrate_steps.h"
#include "profiler/calibrate/calibrate_visit.h"
#include "profiler/drift.h"
#include "profiler/quiet_wait.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWideSpread = 0.05;
constexpr int kFewestPasses = 2;  // fewer have no spread

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

ProbeReading ProbeOf(const Visit& visit) {
  std::vector<ProbeReading> readings;
  for (const auto& [table, pass] : visit) {
    for (const Reading& each : pass) readings.push_back({each.probe_s, each.disturbed});
  }
  return TypicalProbe(readings);
}

/// The roofline's rates as the tables have them, for utilisation and for modes without tables.
void SummarisePeaks(HardwareProfile& profile) {
  double best_rate_per_core = 0;
  double best_bandwidth = 0;
  for (const ModeTables& tables : profile.modes) {
    for (const GemmPoint& point : tables.gemm) {
      const double flops = 2.0 * static_cast<double>(point.m * point.n * point.k);
      // Ranks beyond the cores would count a core twice.
      const auto cores = static_cast<double>(
          std::min<int64_t>(tables.mode.ranks * tables.mode.threads, CoresOfThisMachine()));
      best_rate_per_core =
          std::max(best_rate_per_core, flops / point.seconds * tables.mode.ranks / cores);
    }
    const auto streams = tables.ops.find(OpKind::kAdamW);
    if (streams == tables.ops.end()) continue;
    const BytesPoint& largest = streams->second.back();
    best_bandwidth = std::max(
        best_bandwidth, static_cast<double>(largest.bytes) / largest.seconds * tables.mode.ranks);
  }
  profile.peak_flops["fp32"] = {best_rate_per_core, Origin::kMeasured,
                                "fastest matrix product of the calibration, per core"};
  for (const char* precision : {"bf16", "fp16", "fp8"}) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const ModeTables& tables : profile.modes) {
      fastest = std::min(fastest, tables.precisions.at(precision).gemm);
    }
    profile.peak_flops[precision] = {best_rate_per_core / fastest, Origin::kMeasured,
                                     "the fp32 rate over what such operands cost more"};
  }
  profile.memory_bandwidth = {best_bandwidth, Origin::kMeasured,
                              "AdamW over cold memory, all ranks together"};
}

/// Calibration of one machine, pass by pass over all modes.
class Calibration {
 public:
  Calibration(const CalibrateOptions& options, std::vector<Mode> modes)
      : progress_(options.progress),
        plan_(options.plan ? *options.plan : MakeCalibrationPlan(options.quick)),
        steps_(modes) {
    for (const Mode& mode : modes) modes_.emplace_back().mode = mode;
  }

  HardwareProfile Run() {
    do {
      const Clock::time_point start = Clock::now();
      OnePass();
      Combine();
      longest_pass_s_ = std::max(longest_pass_s_, SecondsSince(start));
    } while (!IsEnough());
    return MakeProfile();
  }

 private:
  /// One mode: everything read in it, and what that comes to.
  struct ModeReadings {
    Mode mode;
    std::map<std::string, std::vector<Pass>> passes;  // by table
    ProbeReference probe;
    std::map<std::string, CombinedTable> combined;
  };

  void OnePass() {
    // An order of its own for every pass: no mode always follows the same other one.
    std::vector<size_t> order(modes_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    ++passes_;
    std::vector<ProbeReading> probes(modes_.size());
    for (const size_t i : order) {
      ModeReadings& mode = modes_[i];
      Announce(InWords(mode.mode));
      if (disturbed_) {
        quiet_wait_.Wait([this] { return SecondsSince(start_) > plan_.most_seconds; });
      }
      const Visit visit = VisitMode(mode.mode, plan_);
      probes[i] = ProbeOf(visit);
      disturbed_ = probes[i].disturbed;
      for (const auto& [table, pass] : visit) mode.passes[table].push_back(pass);
    }
    probes_.push_back(std::move(probes));
    for (int round = 0; round < plan_.rounds_of_a_pass; ++round) {
      Announce("whole steps of every mode");
      probes_.push_back(steps_.Round(plan_, random_));
    }
  }

  void Announce(std::string_view part) {
    const int parts = static_cast<int>(modes_.size()) + plan_.rounds_of_a_pass;
    if (progress_) {
      progress_(fmt::format("pass {}: {}", passes_, part), announced_,
                std::max(passes_, plan_.least_passes) * parts);
    }
    ++announced_;
  }

  void Combine() {
    const std::vector<ProbeReference> probes = ReferenceProbes(probes_);
    for (size_t i = 0; i < modes_.size(); ++i) {
      ModeReadings& mode = modes_[i];
      mode.probe = probes[i];
      std::vector<Pass> whole(static_cast<size_t>(passes_));
      for (const auto& [table, passes] : mode.passes) {
        for (size_t pass = 0; pass < passes.size(); ++pass) Append(passes[pass], whole[pass]);
      }
      for (const auto& [table, passes] : mode.passes) {
        mode.combined[table] = CombinePasses(passes, whole, mode.probe.probe_s);
      }
    }
  }

  bool IsEnough() const {
    if (passes_ < std::min(kFewestPasses, plan_.least_passes)) return false;
    if (SecondsSince(start_) + longest_pass_s_ > plan_.most_seconds) return true;
    if (passes_ < plan_.least_passes) return false;
    std::map<Mode, ProbeReference> references;
    for (const ModeReadings& mode : modes_) references[mode.mode] = mode.probe;
    const std::vector<double> steps = steps_.Spreads(references);
    double widest = *std::max_element(steps.begin(), steps.end());
    for (const ModeReadings& mode : modes_) {
      widest = std::max(widest, mode.probe.spread);
      for (const auto& [table, combined] : mode.combined) {
        widest = std::max(widest, combined.spread);
      }
    }
    return widest <= plan_.enough_spread;
  }

  HardwareProfile MakeProfile() {
    HardwareProfile profile = BuiltinProfile("cpu");
    profile.name = "calibrated cpu";
    profile.measured_on = fmt::format("{}, {}", DescribeThisMachine(), Today());
    for (const ModeReadings& mode : modes_) {
      ModeTables& tables = profile.modes.emplace_back();
      tables.mode = mode.mode;
      tables.source = fmt::format(
          "trimtab calibrate: medians of {} passes, windows of at least {} ms, each taken to the "
          "speed at which the probe takes probe_s; whole steps in {} rounds of all modes",
          passes_, plan_.window_s * 1e3, passes_ * plan_.rounds_of_a_pass);
      tables.probe_s = mode.probe.probe_s;
      tables.probe_spread = mode.probe.spread;
      std::map<std::string, std::vector<double>> seconds;
      for (const auto& [table, combined] : mode.combined) {
        seconds[table] = combined.seconds;
        // Precisions are ratios of neighbouring readings, which drift does not touch.
        if (table != "precisions") tables.spread[table] = combined.spread;
      }
      FillTables(plan_, seconds, tables);
    }
    SummarisePeaks(profile);
    steps_.FillStepFactors(profile);
    return profile;
  }

  const std::function<void(std::string_view part, int done, int total)>& progress_;
  CalibrationPlan plan_;
  ReferenceRace steps_;
  std::vector<ModeReadings> modes_;
  int passes_ = 0;
  std::vector<std::vector<ProbeReading>> probes_;  // [pass, or round of whole steps][mode]
  std::mt19937_64 random_;                         // of a fixed seed
  Clock::time_point start_ = Clock::now();
  double longest_pass_s_ = 0;
  bool disturbed_ = false;  // other programs were running when the last visit ended
  QuietWait quiet_wait_ = QuietWait::OnThisMachine(CoresOfThisMachine());
  int announced_ = 0;
};

}  // namespace

HardwareProfile Calibrate(const CalibrateOptions& options) {
  if (options.device != DeviceKind::kCpu) {
    throw EnvironmentError(fmt::format(
        "cannot calibrate device \"{}\": this build measures cpu only", Name(options.device)));
  }
  std::vector<Mode> modes = options.modes;
  if (modes.empty()) {
    modes = DefaultModes(static_cast<int>(CoresOfThisMachine()), options.quick);
  }
  return Calibration(options, std::move(modes)).Run();
}

std::string SpreadCaveat(const HardwareProfile& profile) {
  double widest = kWideSpread;
  std::string where;
  for (const ModeTables& tables : profile.modes) {
    const auto consider = [&](double spread, const std::string& what) {
      if (spread <= widest) return;
      widest = spread;
      where = fmt::format("{} of {}", what, InWords(tables.mode));
    };
    for (const auto& [table, spread] : tables.spread) consider(spread, table);
    consider(tables.probe_spread, "probe");
  }
  if (where.empty()) return "";
  return fmt::format(
      "this machine's speed wanders: the profile may be off by {:.0f} % ({}), and its predictions "
      "have wider intervals; calibrate again when the machine has less other work",
      100 * widest, where);
}

}  // namespace trimtab
