#include "cost_model/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cost_model/finish.h"
#include "cost_model/price.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

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

/// Prices every op and message of a rank, one after the other as the engine issues them.
class PricingRecorder final : public Recorder {
 public:
  PricingRecorder(const Pricer& pricer, const ParallelConfig& layout, bool with_timeline)
      : pricer_(pricer), layout_(layout), with_timeline_(with_timeline) {}

  void EnterPiece(const PieceRecord& piece) override { piece_ = piece; }

  void BeginOp(const OpRecord& op) override {
    const double seconds = pricer_.Seconds(op);
    Breakdown& parts = estimate.breakdown_s;
    double& part = piece_.kind == PieceKind::kUpdate ? parts.optimizer : parts.compute;
    (recomputes() ? parts.recompute : part) += seconds;
    estimate.hardware_flops += op.flops;
    ++estimate.op_count;
    if (with_timeline_) timeline.push_back({Describe(op), "compute", now_s_, seconds});
    now_s_ += seconds;
  }

  void BeginComm(const CommRecord& message) override {
    const double seconds = pricer_.Seconds(message, StrideOf(message.group, layout_));
    Breakdown& parts = estimate.breakdown_s;
    double& part = message.group == GroupKind::kTensor ? parts.exposed_tp : parts.exposed_dp;
    (recomputes() ? parts.recompute : part) += seconds;
    CommTotal& total = estimate.comm.at(message.kind, message.group);
    ++total.count;
    total.bytes += message.bytes;
    if (with_timeline_) {
      const std::string group(Name(message.group));
      timeline.push_back(
          {fmt::format("{} {} {}", Name(message.kind), group, FormatBytes(message.bytes)), group,
           now_s_, seconds});
    }
    now_s_ += seconds;
  }

  // Messages are priced one after the other, as if each were waited for at once.
  void BeginWait(const CommRecord&) override {}
  void End() override {}

  double now_s() const { return now_s_; }

  Estimate estimate;
  std::vector<TimelineEvent> timeline;

 private:
  bool recomputes() const { return piece_.pass == PassKind::kRecompute; }

  const Pricer& pricer_;
  const ParallelConfig& layout_;
  bool with_timeline_;
  PieceRecord piece_;
  double now_s_ = 0;
};

/// What one rank's dry step says.
struct RankResult {
  Estimate estimate;
  double seconds = 0;
  BytesByTag peak_by_tag{};
  BytesByTag by_tag_at_peak{};
  std::vector<TimelineEvent> timeline;
};

RankResult DryRank(const RunConfig& run, const Pricer& pricer, int rank, const Executor& executor,
                   bool with_timeline) {
  const std::unique_ptr<Device> device = MakeMetaDevice(executor.threads, executor.kind);
  const ParallelContext context = MakeMetaContext(run.layout, rank);
  Trainer trainer(run, context, *device);
  const auto bytes = [&device](MemoryTag tag) {
    return device->memory().current_by_tag()[static_cast<size_t>(tag)];
  };
  RankResult result;
  MemoryEstimate memory = {.weights = bytes(MemoryTag::kWeights),
                           .gradients = bytes(MemoryTag::kGradients),
                           .optimizer = bytes(MemoryTag::kOptimizer)};
  device->memory().ResetPeaks();
  PricingRecorder recorder(pricer, run.layout, with_timeline);
  device->set_recorder(&recorder);
  trainer.Step(*MakeSyntheticSource(run.model.vocab_size, run.seed), 0);
  device->set_recorder(nullptr);

  result.peak_by_tag = device->memory().peak_by_tag();
  result.by_tag_at_peak = device->memory().by_tag_at_peak();
  memory.activations = result.peak_by_tag[static_cast<size_t>(MemoryTag::kActivations)];
  memory.peak_total = device->memory().peak_total();
  result.estimate = recorder.estimate;
  result.estimate.memory = memory;
  result.seconds = recorder.now_s();
  result.timeline = std::move(recorder.timeline);
  return result;
}

}  // namespace

DryRunResult DryRunStep(const RunConfig& run, const Cluster& cluster, bool with_timeline) {
  RequireLegal(run);
  RequireEstimable(run);
  RunConfig unlimited = run;
  unlimited.memory_per_rank_bytes = 0;  // the estimate says how much memory it takes
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores,
                      run.layout.precision);
  const Executor executor = ExecutorOf(mode, cluster);

  DryRunResult result;
  double slowest_s = -1;
  int64_t fullest = -1;
  MemoryEstimate memory;
  for (int rank = 0; rank < run.layout.tp; ++rank) {
    RankResult each = DryRank(unlimited, pricer, rank, executor, with_timeline);
    if (each.estimate.memory.peak_total > fullest) {
      fullest = each.estimate.memory.peak_total;
      memory = each.estimate.memory;
      result.peak_by_tag = each.peak_by_tag;
      result.by_tag_at_peak = each.by_tag_at_peak;
    }
    if (each.seconds > slowest_s) {
      slowest_s = each.seconds;
      result.estimate = each.estimate;
      result.timeline = std::move(each.timeline);
    }
  }
  result.estimate.memory = memory;
  FinishEstimate(run, cluster, pricer, result.estimate);
  return result;
}

Estimate DryRun(const RunConfig& run, const Cluster& cluster) {
  return DryRunStep(run, cluster, false).estimate;
}

void WriteChromeTrace(const std::vector<TimelineEvent>& timeline, const std::string& path) {
  nlohmann::json events = nlohmann::json::array();
  std::vector<std::string> streams;  // the format numbers them and names them apart
  for (const TimelineEvent& event : timeline) {
    const auto found = std::find(streams.begin(), streams.end(), event.stream);
    const auto stream = found - streams.begin();
    if (found == streams.end()) {
      streams.push_back(event.stream);
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", 0},
                        {"tid", stream},
                        {"args", {{"name", event.stream}}}});
    }
    events.push_back({{"name", event.name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", stream},
                      {"ts", event.start_s * 1e6},
                      {"dur", event.duration_s * 1e6}});
  }
  std::ofstream file(path);
  file << nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() << '\n';
  file.flush();
  if (!file) throw StorageError(fmt::format("{}: cannot write the trace", path));
}

}  // namespace trimtab
