// Whole models train over the CUDA kernels, run on the host, as they do on the cpu: in every
// precision, and with the step captured and replayed from its second time on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "engine/comm/cuda/emulated_comm.h"
#include "engine/comm/parallel_context.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "tests/engine/train/families.h"
#include "tests/engine/train/moe_runs.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 3;
constexpr uint64_t kFirstSeed = 7;

/// The kernels add in another order than the cpu's. That changes roundings of the storage type, and
/// every step multiplies the difference by about ten; the differences seen after three are about a
/// third of what is allowed here. A wrong kernel shows in the first.
struct PrecisionCase {
  const char* layout;
  double loss_tolerance;  // relative, of each step
  double norm_tolerance;
  // Texts of which the middle one counts: in a few places of 8 bits, one may be far more sensitive
  // to the order of sums, which differs from one kind of cpu to another.
  uint64_t sources = 1;
};
constexpr PrecisionCase kPrecisions[] = {
    {"precision=fp32", 3e-7, 2e-6},
    {"precision=bf16", 6e-5, 6e-3},
    {"precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-5, 6e-3},
    {"precision=fp16", 1.5e-5, 2e-4},
    {"precision=fp16,moments=fp16", 1.5e-5, 2e-4},
    {"precision=fp8", 1.2e-4, 1.2e-2, 5},
    {"precision=fp8,master=remainder,moments=bf16", 1.2e-4, 1.2e-2, 5},
};

RunConfig RunOf(bool llama, const std::string& layout) {
  RunConfig run = SmallRun(llama);
  if (llama) {
    run.model.ffn_hidden_size = 64;  // fp8 takes multiples of 16
    run.model.num_kv_heads = 2;
  }
  // Two micro batches: gradients are added up.
  run.layout = ParseLayout("mbs=4," + layout, 0);
  return run;
}

/// Trains on the ranks of the run, each on a device that `make` makes.
template <typename MakeDevice>
TrainedLosses TrainOn(const MakeDevice& make, const RunConfig& run, int64_t steps = kSteps,
                      uint64_t seed = kFirstSeed) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, seed);
  std::vector<TrainedLosses> of_rank(static_cast<size_t>(run.layout.world_size()));
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = make();
    Trainer trainer(run, context, *device);
    TrainedLosses& result = of_rank[static_cast<size_t>(context.rank)];
    for (int64_t step = 0; step < steps; ++step) {
      const StepResult step_result = trainer.Step(*source, step);
      result.losses.push_back(step_result.loss);
      result.grad_norms.push_back(step_result.grad_norm);
    }
    result.peak_bytes.push_back(device->memory().peak_total());
  });
  for (const TrainedLosses& other : of_rank) EXPECT_EQ(other.losses, of_rank[0].losses);
  return of_rank[0];
}

std::unique_ptr<Device> MakeCpu() { return MakeCpuDevice(1); }
std::unique_ptr<Device> MakeMeta() { return MakeMetaDevice(1, DeviceKind::kCuda); }
std::unique_ptr<Device> MakeEmulated() { return MakeEmulatedDevice(); }
/// One of several ranks.
std::unique_ptr<Device> MakeEmulatedRank() {
  auto device = MakeEmulatedDevice({.deterministic = true});
  device->set_cuda_comm(&EmulatedCudaComm());
  return device;
}

using Parameter = std::tuple<bool, PrecisionCase>;

class EmulatedDeviceTest : public testing::TestWithParam<Parameter> {};

double WorstDifference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]) / std::abs(expected[i]);
    // NaN is the worst of all.
    worst = difference <= worst ? worst : difference;
  }
  return worst;
}

double Middle(std::vector<double> values) {
  // NaN is the worst of all.
  const auto less = [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  std::sort(values.begin(), values.end(), less);
  return values[values.size() / 2];
}

void ExpectTrainingAsOnTheCpu(const RunConfig& run, const PrecisionCase& precision,
                              int64_t steps = kSteps) {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<int64_t> peak_bytes;
  for (uint64_t i = 0; i < precision.sources; ++i) {
    const TrainedLosses expected = TrainOn(MakeCpu, run, steps, kFirstSeed + i);
    const TrainedLosses actual = TrainOn(MakeEmulated, run, steps, kFirstSeed + i);
    ASSERT_EQ(actual.losses.size(), static_cast<size_t>(steps));
    losses.push_back(WorstDifference(actual.losses, expected.losses));
    norms.push_back(WorstDifference(actual.grad_norms, expected.grad_norms));
    peak_bytes = actual.peak_bytes;
  }
  const double loss = Middle(losses);
  const double norm = Middle(norms);
  testing::Test::RecordProperty("worst_loss_difference", std::to_string(loss));
  testing::Test::RecordProperty("worst_norm_difference", std::to_string(norm));
  // Written so that NaN fails.
  EXPECT_TRUE(loss <= precision.loss_tolerance) << loss;
  EXPECT_TRUE(norm <= precision.norm_tolerance) << norm;
  EXPECT_EQ(peak_bytes, TrainOn(MakeMeta, run, steps).peak_bytes);
}

TEST_P(EmulatedDeviceTest, TrainsAsTheCpuDoesInTheMemoryOfTheDryRun) {
  const auto& [llama, precision] = GetParam();
  ExpectTrainingAsOnTheCpu(RunOf(llama, precision.layout), precision);
}

std::string CaseName(const testing::TestParamInfo<Parameter>& info) {
  const auto& [llama, precision] = info.param;
  std::string name = fmt::format("{}_{}", llama ? "llama" : "gpt2", precision.layout);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, EmulatedDeviceTest,
                         testing::Combine(testing::Bool(), testing::ValuesIn(kPrecisions)),
                         CaseName);

/// Has no memory for graphs from the capture `first_lacking` on.
class LackingDevice final : public EmulatedDevice {
 public:
  explicit LackingDevice(int first_lacking)
      : EmulatedDevice(MakeEmulatedDevice()->cuda_ops()), first_lacking_(first_lacking) {}

  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    auto graph = EmulatedDevice::Capture(work);
    if (captures_++ < first_lacking_) return graph;
    throw OutOfMemoryError("captured work needs more than the GPU has to give");
  }

 private:
  int first_lacking_;
  int captures_ = 0;
};

// A step is captured as a first micro batch, one between if there is one, and the last one with the
// update.
TEST(EmulatedDevice, TrainsOnWhereGraphsDoNotFit) {
  for (const char* precision : {"precision=bf16", "precision=fp8"}) {
    RunConfig run = RunOf(/*llama=*/true, precision);
    if (!TypesOf(run.layout.numerics).fp8) run.layout.micro_batch = 2;  // fp8 takes 16 rows
    const TrainedLosses captured = TrainOn(MakeEmulated, run);
    for (const int first_lacking : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << precision << ", capture " << first_lacking << " fails");
      const TrainedLosses lacking =
          TrainOn([=] { return std::make_unique<LackingDevice>(first_lacking); }, run);
      EXPECT_EQ(lacking.losses, captured.losses);
      EXPECT_EQ(lacking.grad_norms, captured.grad_norms);
    }
  }
}

/// Counts what it captures, if it may.
class CountingDevice final : public EmulatedDevice {
 public:
  CountingDevice(bool captures, std::atomic<int>& count)
      : EmulatedDevice(MakeEmulatedDevice()->cuda_ops()), captures_(captures), count_(count) {}

  bool CanCapture() const override { return captures_; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    ++count_;
    return EmulatedDevice::Capture(work);
  }

 private:
  bool captures_;
  std::atomic<int>& count_;
};

// Of two micro batches and the update, only the update where the host must read how many rows the
// experts get.
TEST(EmulatedDevice, CapturesExpertsWhoseRowsAreKnown) {
  for (const auto& [name, captures] : {std::pair{"balanced", 3},
                                       {"balanced_biases", 3},
                                       {"padding", 3},
                                       {"mixtral", 1},
                                       {"dropping", 1},
                                       {"sinkhorn", 1}}) {
    SCOPED_TRACE(name);
    RunConfig run = SmallMoeRun(name);
    run.layout = ParseLayout("mbs=4", 0);
    std::atomic<int> count{0};
    const auto train = [&](bool may_capture) {
      return TrainOn(
          [&, may_capture] { return std::make_unique<CountingDevice>(may_capture, count); }, run);
    };
    const TrainedLosses eager = train(false);
    EXPECT_EQ(count, 0);
    const TrainedLosses captured = train(true);
    EXPECT_EQ(count, captures);
    EXPECT_EQ(captured.losses, eager.losses);
    EXPECT_EQ(captured.grad_norms, eager.grad_norms);
  }
}

// What is to launch of a step of one micro batch is one graph.
TEST(EmulatedDevice, CapturesTheUpdateWithTheLastMicroBatch) {
  for (const auto& [layout, captures] :
       {std::pair{"mbs=8", 1}, {"mbs=4", 2}, {"mbs=2", 3}, {"mbs=8,precision=fp8", 1}}) {
    SCOPED_TRACE(layout);
    RunConfig run = RunOf(/*llama=*/true, "precision=bf16");
    run.layout = ParseLayout(layout, 0);
    std::atomic<int> count{0};
    const TrainedLosses captured =
        TrainOn([&] { return std::make_unique<CountingDevice>(true, count); }, run);
    EXPECT_EQ(count, captures);
    EXPECT_EQ(captured.losses,
              TrainOn([&] { return std::make_unique<CountingDevice>(false, count); }, run).losses);
  }
}

class EmulatedFamilyTest : public testing::TestWithParam<std::string> {};

TEST_P(EmulatedFamilyTest, TrainsAsTheCpuDoesInTheMemoryOfTheDryRun) {
  for (const PrecisionCase& precision : {kPrecisions[0], kPrecisions[1]}) {
    SCOPED_TRACE(precision.layout);
    RunConfig run = FamilyRun(GetParam());
    run.layout = ParseLayout(fmt::format("mbs=4,{}", precision.layout), 0);
    // Roundings to bf16 turn over which experts a token goes to.
    if (run.model.moe.used() && run.layout.numerics.precision != Precision::kFp32) continue;
    // The first step of AdamW divides each gradient by its own size, so without this a rounding in
    // one that is nearly zero moves its weight by a whole step.
    run.optimizer.epsilon = 1e-4;
    ExpectTrainingAsOnTheCpu(run, precision, /*steps=*/2);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedFamilyTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& param) { return param.param; });

/// An optimizer over the kernels. Newton-Schulz iterations enlarge roundings of directions in which
/// a gradient hardly points; one of two neighbouring numbers of 8 bits may be either.
struct OptimizerCase {
  const char* name;
  OptimizerKind kind;
  PrecisionCase precision;
};
constexpr OptimizerCase kOptimizerCases[] = {
    {"sgd", OptimizerKind::kSgd, kPrecisions[0]},
    {"sgd_bf16", OptimizerKind::kSgd, kPrecisions[2]},
    {"sgd_fp16", OptimizerKind::kSgd, kPrecisions[4]},
    {"sgd_int8", OptimizerKind::kSgd, {"precision=fp32,moments=int8", 1e-5, 1e-4}},
    {"muon", OptimizerKind::kMuon, {"precision=fp32", 1e-5, 1e-4}},
    {"muon_bf16", OptimizerKind::kMuon, {"precision=bf16,master=remainder", 1e-3, 3e-2}},
    {"adamw_int8", OptimizerKind::kAdamW, {"precision=fp32,moments=int8", 1e-4, 1e-3}},
    {"adamw_int8_bf16",
     OptimizerKind::kAdamW,
     {"precision=bf16,master=remainder,moments=int8,grads=bf16", 1e-3, 3e-2}},
};

class EmulatedOptimizerTest : public testing::TestWithParam<OptimizerCase> {};

TEST_P(EmulatedOptimizerTest, TrainsAsTheCpuDoesInTheMemoryOfTheDryRun) {
  const OptimizerCase& test_case = GetParam();
  RunConfig run = RunOf(/*llama=*/true, test_case.precision.layout);
  run.optimizer.kind = test_case.kind;
  ExpectTrainingAsOnTheCpu(run, test_case.precision, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EmulatedOptimizerTest, testing::ValuesIn(kOptimizerCases),
                         [](const auto& param) { return std::string(param.param.name); });

/// Counts the ops it is told of.
class Counter final : public Recorder {
 public:
  void BeginOp(const OpRecord&) override { ++ops; }
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}

  int64_t ops = 0;
};

// Steps are captured from the second on; one that somebody listens to runs op by op again.
TEST(EmulatedSteps, ARecorderSeesEveryOpAlsoAfterACapture) {
  const RunConfig run = RunOf(/*llama=*/true, "precision=bf16");
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const std::unique_ptr<Device> device = MakeEmulatedDevice();
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, *device);
  Counter counters[3];
  for (int64_t step = 0; step < 4; ++step) {
    // Not in the second step, which is captured.
    if (step != 1) device->set_recorder(&counters[std::max<int64_t>(0, step - 1)]);
    trainer.Step(*source, step);
    device->set_recorder(nullptr);
  }
  EXPECT_GT(counters[0].ops, 0);
  EXPECT_EQ(counters[1].ops, counters[0].ops);
  EXPECT_EQ(counters[2].ops, counters[0].ops);
}

TEST(EmulatedRanks, TwoRunsGiveTheSameBits) {
  const RunConfig run = RunOf(/*llama=*/true, "tp=2,precision=bf16");
  const TrainedLosses first = TrainOn(MakeEmulatedRank, run);
  const TrainedLosses second = TrainOn(MakeEmulatedRank, run);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.grad_norms, second.grad_norms);
}

}  // namespace
}  // namespace trimtab
