#include "profiler/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "cost_model/cluster.h"
#include "cost_model/dry_run.h"
#include "engine/base/error.h"
#include "engine/train/trainer.h"
#include "profiler/calibrate_ops.h"
#include "profiler/calibrate_precision.h"
#include "profiler/calibrate_rig.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

// Ranks of the default modes: others borrow the nearest mode's tables, and a search of one machine
// rarely gains from more.
constexpr int kMostRanks = 16;
constexpr int kMostRanksQuick = 4;
constexpr int kReferenceRounds = 4;  // calls of RunReferenceSteps

/// Runs `body` on every rank of a mode as the engine runs them: threads of this process, each with
/// its own device. `layout` says how they form groups.
void RunRanks(const ParallelConfig& layout, int threads,
              const std::function<void(ParallelContext&, Device&)>& body) {
  RunInprocRanks(layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(threads);
    body(context, *device);
  });
}

/// 1, 2, 4, ... ranks that share the cores, up to two ranks per core.
std::vector<Mode> DefaultModes(int cores, int most_ranks) {
  std::vector<Mode> modes;
  for (int ranks = 1; ranks <= std::min(2 * cores, most_ranks); ranks *= 2) {
    modes.push_back({ranks, std::max(1, cores / ranks)});
  }
  return modes;
}

/// The layouts that one mode's step factor is taken from: all ranks in one tensor-parallel group,
/// and all in one data-parallel group.
std::vector<ParallelConfig> ReferenceLayouts(int ranks) {
  std::vector<ParallelConfig> layouts(ranks > 1 ? 2 : 1);
  layouts.front().tp = ranks;
  layouts.back().dp = ranks;
  if (ranks == 1) layouts.front() = {};
  for (ParallelConfig& layout : layouts) layout.micro_batch = 2;
  return layouts;
}

/// A small model of GPT-2's shape that any mode can run: its heads divide by many ranks.
RunConfig ReferenceRun(const ParallelConfig& layout, const Mode& mode) {
  RunConfig run;
  ModelConfig& model = run.model;
  model.name = "reference";
  model.vocab_size = 512;
  model.num_heads = std::max(8, mode.ranks);
  model.num_kv_heads = model.num_heads;
  model.hidden_size = 48 * model.num_heads;
  model.num_layers = 3;
  model.ffn_hidden_size = 4 * model.hidden_size;
  model.max_sequence_length = 128;
  run.layout = layout;
  run.sequence_length = 128;
  run.global_batch = std::max<int64_t>(4, 2 * layout.dp);
  run.steps = 100;
  run.threads_per_rank = mode.threads;
  return run;
}

/// Seconds of `steps` training steps, after one that finds caches, pages and thread pools cold.
std::vector<double> StepSeconds(const RunConfig& run, int steps) {
  std::vector<double> seconds;
  RunRanks(run.layout, static_cast<int>(run.threads_per_rank),
           [&](ParallelContext& context, Device& device) {
             Trainer trainer(run, context, device);
             const auto source = MakeSyntheticSource(run.model.vocab_size, run.seed);
             for (int step = 0; step <= steps; ++step) {
               context.world->Barrier();
               const auto begin = std::chrono::steady_clock::now();
               trainer.Step(*source, step);
               context.world->Barrier();
               const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
               if (step > 0 && context.rank == 0) seconds.push_back(took.count());
             }
           });
  return seconds;
}

/// Calibration of one machine, mode by mode.
class Calibration {
 public:
  Calibration(const CalibrateOptions& options, std::vector<Mode> modes)
      : options_(options),
        modes_(std::move(modes)),
        plan_(options.plan ? *options.plan : MakeCalibrationPlan(options.quick)) {
    rig_options_.repeats = plan_.repeats;
    rig_options_.window_s = plan_.window_s;
  }

  HardwareProfile Run() {
    profile_ = BuiltinProfile("cpu");
    profile_.name = "calibrated cpu";
    profile_.measured_on = fmt::format("{}, {}", DescribeThisMachine(), Today());
    for (const Mode& mode : modes_) {
      ModeTables& tables = profile_.modes.emplace_back();
      tables.mode = mode;
      tables.source = fmt::format("trimtab calibrate: medians of {} windows of at least {} ms",
                                  plan_.repeats, plan_.window_s * 1e3);
    }
    // Part by part, not mode by mode: a machine whose speed drifts then treats all modes alike.
    // Steps are run in between, so that they and the tables see the same machine on average.
    RunReferenceSteps();
    for (ModeTables& tables : profile_.modes) tables.gemm = Products(tables.mode);
    RunReferenceSteps();
    for (ModeTables& tables : profile_.modes) tables.attention = Attention(tables.mode);
    RunReferenceSteps();
    for (ModeTables& tables : profile_.modes) tables.ops = Ops(tables.mode);
    for (ModeTables& tables : profile_.modes) tables.precisions = Precisions(tables.mode);
    for (ModeTables& tables : profile_.modes) {
      if (tables.mode.ranks > 1) AddCollectives(tables);
    }
    RunReferenceSteps();
    SummarisePeaks();
    FitStepFactors();
    return profile_;
  }

 private:
  static std::string Today() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[16];
    std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
    return text;
  }

  void Announce(const std::string& part) {
    if (options_.progress) options_.progress(part, done_, Parts());
    ++done_;
  }

  int Parts() const {
    int parts = kReferenceRounds;
    for (const Mode& mode : modes_) {
      parts += 4;  // products, attention, other ops, other precisions
      for (int size = 2; size <= mode.ranks; ++size) parts += mode.ranks % size == 0 ? 1 : 0;
    }
    return parts;
  }

  /// Runs one part on every rank of a mode and keeps the first rank's table.
  template <typename Table>
  Table OnRanks(const ParallelConfig& layout, const Mode& mode, const std::string& part,
                const std::function<Table(Rig&, const CalibrationPlan&)>& measure) {
    Announce(fmt::format("{} on {} ranks x {} threads", part, mode.ranks, mode.threads));
    Table table;
    RigClock clock(static_cast<size_t>(mode.ranks));
    RunRanks(layout, mode.threads, [&](ParallelContext& context, Device& device) {
      Rig rig(rig_options_, context, device, clock);
      Table mine = measure(rig, plan_);
      if (context.rank == 0) table = std::move(mine);
    });
    return table;
  }

  static ParallelConfig AllTensorParallel(const Mode& mode) {
    ParallelConfig layout;
    layout.tp = mode.ranks;
    return layout;
  }

  std::vector<GemmPoint> Products(const Mode& mode) {
    return OnRanks<std::vector<GemmPoint>>(AllTensorParallel(mode), mode, "matrix products",
                                           MeasureGemm);
  }
  std::vector<AttentionPoint> Attention(const Mode& mode) {
    return OnRanks<std::vector<AttentionPoint>>(AllTensorParallel(mode), mode, "attention",
                                                MeasureAttention);
  }
  std::map<OpKind, std::vector<BytesPoint>> Ops(const Mode& mode) {
    return OnRanks<std::map<OpKind, std::vector<BytesPoint>>>(AllTensorParallel(mode), mode,
                                                              "other ops", MeasureOps);
  }

  std::map<std::string, PrecisionFactors> Precisions(const Mode& mode) {
    return OnRanks<std::map<std::string, PrecisionFactors>>(
        AllTensorParallel(mode), mode, "bf16, fp16 and fp8", MeasurePrecisions);
  }

  /// For every size of group that the mode's ranks divide into.
  void AddCollectives(ModeTables& tables) {
    for (int size = 2; size <= tables.mode.ranks; ++size) {
      if (tables.mode.ranks % size != 0) continue;
      ParallelConfig groups;
      groups.tp = size;
      groups.dp = tables.mode.ranks / size;
      const auto measured = OnRanks<std::map<CollectiveKind, std::vector<BytesPoint>>>(
          groups, tables.mode, fmt::format("collectives of {}", size), MeasureCollectives);
      for (const auto& [kind, points] : measured) tables.collectives[{kind, size}] = points;
    }
  }

  /// The roofline's rates as measured, for utilisation and for modes without tables.
  void SummarisePeaks() {
    double best_rate_per_core = 0;
    double best_bandwidth = 0;
    for (const ModeTables& tables : profile_.modes) {
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
    profile_.peak_flops["fp32"] = {best_rate_per_core, Origin::kMeasured,
                                   "fastest matrix product of the calibration, per core"};
    for (const char* precision : {"bf16", "fp16", "fp8"}) {
      double fastest = std::numeric_limits<double>::infinity();
      for (const ModeTables& tables : profile_.modes) {
        fastest = std::min(fastest, tables.precisions.at(precision).gemm);
      }
      profile_.peak_flops[precision] = {best_rate_per_core / fastest, Origin::kMeasured,
                                        "the fp32 rate over what such operands cost more"};
    }
    profile_.memory_bandwidth = {best_bandwidth, Origin::kMeasured,
                                 "AdamW over cold memory, all ranks together"};
  }

  /// One round of reference steps, every layout of every mode in turn.
  void RunReferenceSteps() {
    Announce("whole steps");
    size_t next = 0;
    for (const Mode& mode : modes_) {
      for (const ParallelConfig& layout : ReferenceLayouts(mode.ranks)) {
        if (next == references_.size())
          references_.push_back({ReferenceRun(layout, mode), mode, {}});
        Reference& reference = references_[next++];
        for (const double each : StepSeconds(reference.run, plan_.reference_steps)) {
          reference.seconds.push_back(each);
        }
      }
    }
  }

  /// Steps against the sums of their prices. The tables and the steps are two measurements of the
  /// machine's speed, at different moments: the factor goes half the way (of logs) from the one to
  /// the other, which on a machine of unsteady speed is nearer the truth than either.
  void FitStepFactors() {
    const Cluster cluster = LocalMachine(profile_);
    for (ModeTables& tables : profile_.modes) {
      std::vector<double> ratios;
      for (const Reference& reference : references_) {
        if (reference.mode != tables.mode) continue;
        ratios.push_back(Median(reference.seconds) / DryRun(reference.run, cluster).step_time_s);
      }
      tables.step_factor = std::sqrt(Median(std::move(ratios)));
    }
  }

  /// Steps of the reference model in one layout.
  struct Reference {
    RunConfig run;
    Mode mode;
    std::vector<double> seconds;
  };

  const CalibrateOptions& options_;
  std::vector<Mode> modes_;
  CalibrationPlan plan_;
  RigOptions rig_options_;
  HardwareProfile profile_;
  std::vector<Reference> references_;
  int done_ = 0;
};

}  // namespace

HardwareProfile Calibrate(const CalibrateOptions& options) {
  if (options.device != "cpu") {
    throw EnvironmentError(fmt::format(
        "cannot calibrate device \"{}\": this build measures cpu only", options.device));
  }
  std::vector<Mode> modes = options.modes;
  if (modes.empty()) {
    modes = DefaultModes(static_cast<int>(CoresOfThisMachine()),
                         options.quick ? kMostRanksQuick : kMostRanks);
  }
  return Calibration(options, std::move(modes)).Run();
}

}  // namespace trimtab
