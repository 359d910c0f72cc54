// The dry run and the real run on the cpu agree to the byte; its timeline is one.
#include "cost_model/dry_run/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/families/load_config.h"
#include "engine/train/trainer.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

/// What the allocator of a real run's fullest rank saw in one step.
struct RealPeaks {
  int64_t total = 0;
  int64_t activations = 0;
};

RealPeaks RunForReal(const RunConfig& run) {
  std::vector<RealPeaks> ranks(static_cast<size_t>(run.layout.world_size()));
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(static_cast<int>(run.threads_per_rank));
    Trainer trainer(run, context, *device);
    device->memory().ResetPeaks();
    trainer.Step(*MakeSyntheticSource(run.model.vocab_size, run.seed), 0);
    const auto tag = static_cast<size_t>(MemoryTag::kActivations);
    ranks[static_cast<size_t>(context.rank)] = {device->memory().peak_total(),
                                                device->memory().peak_by_tag()[tag]};
  });
  return *std::max_element(ranks.begin(), ranks.end(), [](const auto& left, const auto& right) {
    return left.total < right.total;
  });
}

void ExpectRealPeaks(const std::vector<RunConfig>& runs) {
  const Cluster cluster = GenericCpu();
  for (const RunConfig& run : runs) {
    SCOPED_TRACE(Describe(run));
    const Estimate dry = DryRun(run, cluster);
    const RealPeaks real = RunForReal(run);
    EXPECT_EQ(dry.memory.peak_total, real.total);
    EXPECT_EQ(dry.memory.activations, real.activations);
    if (testing::Test::HasFailure()) return;
  }
}

/// One of `count`.
std::vector<RunConfig> EachOf(const std::vector<RunConfig>& runs, size_t count) {
  std::vector<RunConfig> some;
  for (size_t i = 0; i < runs.size(); i += count) some.push_back(runs[i]);
  return some;
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteOverEveryLayoutOfAGpt2) {
  ExpectRealPeaks(EveryRun(TinyGpt2(), 4, 20, 4));
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteOverEveryLayoutOfALlama) {
  std::vector<RunConfig> runs = EveryRun(TinyLlama(), 4, 12, 4);
  for (RunConfig& run : runs) run.threads_per_rank = 2;
  ExpectRealPeaks(runs);
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteWhereSequencesAreCut) {
  ExpectRealPeaks(EveryContextParallelRun(TinyGpt2(), 20, 4));
  ExpectRealPeaks(EveryContextParallelRun(TinyLlama(), 12, 4));
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteOverPipelines) {
  ExpectRealPeaks(EachOf(EveryPipeline(TinyGpt2(), 20, 6), 10));
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteInEverySettingOfSharding) {
  ExpectRealPeaks(EachOf(RunsIn(ShardingSettings(), TinyGpt2(), 20), 3));
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteWhereTensorParallelMessagesOverlap) {
  ExpectRealPeaks(EachOf(RunsIn(TpOverlapSettings(), TinyGpt2(), 20), 3));
}

TEST(DryRun, PeakEqualsTheCpuRunToTheByteInEveryPrecision) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    ExpectRealPeaks(EachOf(EveryRunIn(precision, DeviceKind::kCpu), 41));
  }
}

/// Whether slices of one stream of one stage lie within one another or apart.
void ExpectNested(const std::vector<TimelineEvent>& timeline) {
  std::map<std::pair<int64_t, std::string>, std::vector<double>> open;  // ends of slices around
  for (const TimelineEvent& event : timeline) {
    constexpr double kRounding = 1e-12;
    std::vector<double>& ends = open[{event.stage, event.stream}];
    while (!ends.empty() && ends.back() <= event.start_s + kRounding) ends.pop_back();
    const double end = event.start_s + event.duration_s;
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back() + kRounding) << event.name;
    }
    ends.push_back(end);
  }
}

TEST(DryRun, TimelineCoversTheStep) {
  RunConfig run = EveryRun(TinyGpt2(), 4, 20, 1).front();
  for (const char* layout :
       {"tp=2,dp=2", "tp=2,pp=3,mbs=2", "pp=2,schedule=zero-bubble,recompute=full"}) {
    SCOPED_TRACE(layout);
    run.layout = ParseLayout(layout, 0);
    // Where ranks share cores, the step takes less than the timeline of ranks that are all busy.
    Cluster machine = GenericCpu();
    machine.cores = run.layout.world_size();
    const DryRunResult result = DryRunStep(run, machine, true);
    double end = 0;
    std::set<int64_t> stages;
    for (const TimelineEvent& event : result.timeline) {
      end = std::max(end, event.start_s + event.duration_s);
      stages.insert(event.stage);
    }
    EXPECT_EQ(static_cast<int64_t>(stages.size()), run.layout.pp);
    const Breakdown& parts = result.estimate.breakdown_s;
    EXPECT_NEAR(end, result.estimate.step_time_s - parts.overhead, 1e-9);
    EXPECT_EQ(parts.exposed_tp > 0, run.layout.tp > 1);
    EXPECT_EQ(parts.bubble > 0, run.layout.pp > 1);
    EXPECT_GT(result.timeline.size(), 100u);
    ExpectNested(result.timeline);
  }
}

// With wide layers the products of a chunk take longer than its messages.
TEST(DryRun, ProductsHideTheMessagesOfTensorParallelism) {
  RunConfig run;
  run.model = LoadModelConfig("gpt3-13b");
  run.device = DeviceKind::kCuda;
  run.sequence_length = 2048;
  run.global_batch = 4;
  const Cluster cluster = LoadCluster("8xh200");
  const auto estimate = [&](int chunks) {
    run.layout =
        ParseLayout(fmt::format("tp=8,sp=1,mbs=4,precision=bf16,tp_overlap_chunks={}", chunks), 0);
    return DryRun(run, cluster);
  };
  const Estimate whole = estimate(1);
  const Estimate chunked = estimate(2);
  EXPECT_EQ(chunked.hardware_flops, whole.hardware_flops);
  EXPECT_LT(chunked.breakdown_s.exposed_tp, 0.6 * whole.breakdown_s.exposed_tp);
  EXPECT_LT(chunked.step_time_s, whole.step_time_s);
}

TEST(DryRun, MessagesRunBesideProductsOnTheTimeline) {
  RunConfig run;
  run.model = TinyGpt2();
  run.device = DeviceKind::kCuda;
  run.sequence_length = 20;
  run.global_batch = 2;
  run.layout = ParseLayout("tp=2,sp=1,mbs=2,tp_overlap_chunks=2", 0);
  const DryRunResult result = DryRunStep(run, LoadCluster("8xh200"), true);
  ExpectNested(result.timeline);
  double messages_s = 0;
  for (const TimelineEvent& event : result.timeline) {
    if (event.stream == "tp") messages_s += event.duration_s;
  }
  EXPECT_GT(messages_s, result.estimate.breakdown_s.exposed_tp);
}

}  // namespace
}  // namespace trimtab
