// The engine against PyTorch: logits, loss, every gradient, ten training steps (testdata/goldens).
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "engine/checkpoint/safetensors.h"
#include "engine/device/cuda/loader.h"
#include "engine/train/checkpointing.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/families.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

// The goldens are double precision rounded to fp32; the engine computes in fp32.
constexpr double kLogitTolerance = 2e-5;     // absolute, logits are of size 1
constexpr double kGradientTolerance = 2e-5;  // of the largest element of each gradient
constexpr double kLossTolerance = 1e-5;      // relative
constexpr double kNormTolerance = 1e-4;      // relative

class GoldenTokens final : public TokenSource {
 public:
  explicit GoldenTokens(const SafetensorsReader& golden)
      : tokens_(static_cast<size_t>(golden.Find("tokens").numel())) {
    golden.Read(golden.Find("tokens"), 0, tokens_);
  }
  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    const size_t begin = static_cast<size_t>(index) * tokens.size();
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(tokens_.at(begin + i));
    }
  }
  int64_t vocab_size() const override { return 61; }

 private:
  std::vector<float> tokens_;
};

/// A place where a golden is run: a cpu with some threads, or a GPU.
struct Target {
  DeviceKind device;
  int threads;
};

std::unique_ptr<Device> MakeDevice(const Target& target) {
  return target.device == DeviceKind::kCpu ? MakeCpuDevice(target.threads)
                                           : MakeCudaDevice(0, /*deterministic=*/true);
}

std::vector<float> HostCopy(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

/// One rank with the golden's weights.
class Golden {
 public:
  Golden(const std::string& stem, const Target& target)
      : file_("testdata/goldens/" + stem + ".safetensors"),
        run_(GoldenRun(stem)),
        tokens_(file_),
        device_(MakeDevice(target)),
        parallel_(MakeMetaContext(run_.layout, 0)),
        trainer_(run_, parallel_, *device_) {
    trainer_.AwaitWeights();
    for (Parameter* parameter : trainer_.parameters().parameters()) {
      const std::vector<float> values = Values("weights." + parameter->spec.name);
      // Without the padding of the vocabulary.
      Tensor weight = parameter->weight.Slice(0, {static_cast<int64_t>(values.size())});
      CopyFromHost(weight, values);
    }
  }

  std::vector<float> Values(const std::string& name) const {
    const SafetensorsEntry& entry = file_.Find(name);
    std::vector<float> values(static_cast<size_t>(entry.numel()));
    file_.Read(entry, 0, values);
    return values;
  }
  const RunConfig& run() const { return run_; }
  const TokenSource& tokens() const { return tokens_; }
  Trainer& trainer() { return trainer_; }
  const GptModel& model() { return *trainer_.chunks().front(); }

  /// The sum of the losses of micro batch `index`, with gradients scaled by `scale`.
  double Forward(int64_t index, float scale, MicroBatchState& state, Tensor* logits = nullptr) {
    Tensor scale_tensor = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    Tensor loss_sum = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(scale_tensor, std::vector<float>{scale});
    CopyFromHost(loss_sum, std::vector<float>{0.0f});
    model().Forward(Batch(index), scale_tensor, loss_sum, state, logits);
    return HostCopy(loss_sum)[0];
  }

 private:
  /// Micro batch `index`.
  MicroBatch Batch(int64_t index) {
    const int64_t batch = run_.layout.micro_batch;
    const int64_t length = run_.sequence_length;
    MicroBatch micro_batch = NewBatches(model().context(), model().chunk(), 1).front();
    std::vector<int32_t> sample(static_cast<size_t>(length + 1));
    for (int64_t b = 0; b < batch; ++b) {
      tokens_.Sample(index * batch + b, sample);
      Tensor row = micro_batch.tokens.Slice(b * length, {length});
      CopyFromHost(row, std::span<const int32_t>(sample).first(static_cast<size_t>(length)));
      row = micro_batch.targets.Slice(b * length, {length});
      CopyFromHost(row, std::span<const int32_t>(sample).last(static_cast<size_t>(length)));
    }
    return micro_batch;
  }

  SafetensorsReader file_;
  RunConfig run_;
  GoldenTokens tokens_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  Trainer trainer_;
};

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, Target>> {
 protected:
  void SetUp() override {
    const auto& [stem, target] = GetParam();
    TRIMTAB_SKIP_WITHOUT_DEVICE(target.device);
    golden_.emplace(stem, target);
  }
  std::optional<Golden> golden_;
};

TEST_P(GoldenTest, LogitsMatch) {
  MicroBatchState state;
  Tensor logits;
  golden_->Forward(0, 1.0f, state, &logits);
  const std::vector<float> expected = golden_->Values("logits");
  const std::vector<float> actual = HostCopy(logits);
  const int64_t vocab = golden_->run().model.vocab_size;
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    for (int64_t id = 0; id < vocab; ++id) {
      ASSERT_NEAR(actual[static_cast<size_t>(row * logits.dim(1) + id)],
                  expected[static_cast<size_t>(row * vocab + id)], kLogitTolerance)
          << "row " << row << " id " << id;
    }
  }
}

TEST_P(GoldenTest, EveryGradientMatches) {
  const RunConfig& run = golden_->run();
  const float scale = 1.0f / static_cast<float>(run.global_batch * run.sequence_length);
  double loss = 0;
  for (int64_t m = 0; m < run.num_micro_batches(); ++m) {
    MicroBatchState state;
    loss += scale * golden_->Forward(m, scale, state);
    golden_->model().Backward(state, {}, /*accumulate=*/m > 0);
  }
  EXPECT_NEAR(loss, golden_->Values("losses")[0], kLossTolerance * loss);
  for (const Parameter* parameter : golden_->trainer().parameters().parameters()) {
    const std::vector<float> expected = golden_->Values("grad." + parameter->spec.name);
    const std::vector<float> actual = HostCopy(parameter->gradient);
    float largest = 0;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], kGradientTolerance * largest)
          << parameter->spec.name << " element " << i;
    }
  }
}

TEST_P(GoldenTest, TenStepsTrainAlike) {
  const std::vector<float> losses = golden_->Values("losses");
  const std::vector<float> norms = golden_->Values("grad_norms");
  const bool experts = golden_->run().model.moe.used();
  const std::vector<float> router_losses =
      experts ? golden_->Values("router_losses") : std::vector<float>();
  for (size_t step = 0; step < losses.size(); ++step) {
    const StepResult result =
        golden_->trainer().Step(golden_->tokens(), static_cast<int64_t>(step));
    EXPECT_NEAR(result.loss, losses[step], kLossTolerance * losses[step]) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], kNormTolerance * norms[step]) << "step " << step;
    if (!experts) continue;
    const double router_loss = result.routing.aux_loss + result.routing.z_loss;
    EXPECT_NEAR(router_loss, router_losses[step], kLossTolerance * router_losses[step]);
  }
}

TEST_P(GoldenTest, ContinuesBitEqualFromACheckpoint) {
  const auto& [stem, target] = GetParam();
  const std::string directory = fmt::format("{}/golden_{}_{}{}", testing::TempDir(), stem,
                                            Name(target.device), target.threads);
  for (int64_t step = 0; step < 4; ++step) golden_->trainer().Step(golden_->tokens(), step);
  Trainer& trainer = golden_->trainer();
  CheckpointWriter writer(directory, HeaderOf(trainer, 4),
                          StoredParameters(trainer.run(), trainer.parameters()));
  WriteState(golden_->trainer(), writer);
  writer.Finish();

  Golden resumed(stem, target);
  ReadState(resumed.trainer(), CheckpointReader(directory));
  for (int64_t step = 4; step < 10; ++step) {
    const StepResult expected = golden_->trainer().Step(golden_->tokens(), step);
    const StepResult actual = resumed.trainer().Step(golden_->tokens(), step);
    EXPECT_EQ(actual.loss, expected.loss) << "step " << step;
    EXPECT_EQ(actual.grad_norm, expected.grad_norm) << "step " << step;
  }
}

std::string CaseName(const testing::TestParamInfo<std::tuple<std::string, Target>>& info) {
  const auto& [stem, target] = info.param;
  return fmt::format("{}_{}_threads{}", stem, Name(target.device), target.threads);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         testing::Combine(testing::ValuesIn(FamilyNames()),
                                          testing::Values(Target{DeviceKind::kCpu, 1},
                                                          Target{DeviceKind::kCpu, 2},
                                                          Target{DeviceKind::kCuda, 1})),
                         CaseName);

}  // namespace
}  // namespace trimtab
