// Measure: what one configuration really does on this machine.
//
// Runs the engine's own training step on the ranks of this process. A search never calls it
// directly: it launches a child process that does (trial.h), so that a crash costs one trial.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/data/dataset/token_source.h"
#include "engine/device/memory.h"
#include "engine/infer/load/load_report.h"
#include "engine/runtime/ranks.h"
#include "profiler/stragglers.h"

namespace trimtab {

struct MeasureOptions {
  int64_t warmup = 2;              // steps run and not counted, >= 0
  int64_t steps = 10;              // least number of counted steps, >= 1
  int64_t max_steps = 200;         // most counted steps, when the median will not settle
  double min_seconds = 0;          // counted steps take at least this long together
  double max_seconds = 60;         // no further step starts once counted steps have taken this long
  double stable_mad = 0.02;        // stop once MAD / median of the step time is at or below this
  double peak_flops_per_rank = 0;  // what mfu is measured against; 0 = unknown
  int64_t breakdown_visit = 1;     // runs one step more, timed op by op and not counted, for
                                   // breakdown_s; 0 = none does
};

/// Steps between two readings of the probe (profiler/probe.h).
struct StepBlock {
  double step_s = 0;   // mean of its steps
  double probe_s = 0;  // of a round of the probe: the geometric mean of the readings around it
  double taken = 0;    // the share of the cores that other programs took (other_work.h)

  bool operator==(const StepBlock&) const = default;
};

/// What the GPUs of a run drew while steps were counted.
struct MeasuredPower {
  double watts = 0;  // mean, all GPUs together
  double joules_per_token = 0;
  double clock_mhz = 0;      // of the multiprocessors, mean over time and GPUs
  double temperature_c = 0;  // of the hottest GPU
};

/// What one GPU drew in an interval (engine/device/cuda/power_sampler.h), without what nobody
/// summarises.
struct GpuPower {
  double energy_j = 0;
  double watts = 0;
  double clock_mhz = 0;
  double temperature_c = 0;
};

/// All GPUs together, over `tokens` of work. nullopt without any.
std::optional<MeasuredPower> TotalPower(std::span<const GpuPower> gpus, double tokens);

/// One measured configuration. Times are of a full optimizer step, from a barrier of all ranks to
/// the barrier after it; the slowest rank therefore decides.
struct Measurement {
  double step_time_s = 0;           // median over counted steps
  double step_time_mad_s = 0;       // median absolute deviation from that median
  int64_t steps_measured = 0;       // counted steps
  double tokens_per_s = 0;          // of all ranks together: gbs * T / step_time_s
  double tokens_per_s_per_gpu = 0;  // per rank
  double model_tflops_per_gpu = 0;  // model FLOPs (6 per matmul weight and token, full-square
                                    // attention, no recompute) per second and rank, in 1e12
  double mfu = 0;  // model FLOPs utilisation, a share of the given peak; 0 = no peak given
  int64_t peak_mem_bytes = 0;                   // allocator peak of the fullest rank
  std::map<std::string, int64_t> memory_bytes;  // by tag, at that rank's peak moment; sums to it
  std::map<std::string, double> breakdown_s;    // op or "collective:group" -> seconds of rank 0 in
                                                // one step; "other" is what no op accounts for
  std::vector<double> losses;                   // of the first steps (at most 10), warm-up included
  std::string precision;        // of the run; empty in results of older versions, as the next
  std::string optimizer_state;  // its name: cost_model/hardware/numerics.h
  std::optional<MeasuredPower> power;  // where the devices tell
  std::vector<StepBlock> blocks;       // all counted steps, with the machine's speed around them;
                                       // none in results of older versions
  std::optional<LoadReport> service;   // of a visit that served: then a step is an output token
  std::vector<Straggler> stragglers;   // that kept the others waiting: the times are not to be
                                       // believed
};

/// One rank of a run that is measured in one visit or several, with pauses in between. Every rank
/// makes the same calls.
class Visitor {
 public:
  /// Allocates what the run trains with. All must outlive it.
  Visitor(const RunConfig& run, const MeasureOptions& options, const TokenSource& source,
          Rank& rank);
  ~Visitor();

  /// Measures from where the last visit ended; the first one warms up before. The figures are whole
  /// on the ranks that speak (Rank::speaks).
  Measurement Visit();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// `run` with a length that its learning rate can go by, where it has none: what is measured does
/// not depend on it.
RunConfig WithLength(RunConfig run);

/// Measures `run` in one visit, on its `device` with `data`, or synthetic tokens when that is
/// empty. Throws InfeasibleError (illegal), OutOfMemoryError, InputError (data), EnvironmentError
/// (device).
Measurement Measure(const RunConfig& run, const MeasureOptions& options);

/// Why no figure of `measurement` can be believed: a loss or a time that is no positive number.
/// Empty when all can.
std::string WhyNotNumeric(const Measurement& measurement);

/// The field names above. `MeasurementFromJson` throws InputError naming `where`.
nlohmann::json ToJson(const Measurement& measurement);
Measurement MeasurementFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
