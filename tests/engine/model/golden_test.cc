// The engine against PyTorch: logits, loss, every gradient, ten training steps (testdata/goldens).
#include <gtest/gtest.h>

#include <cmath>

#include "engine/checkpoint/safetensors.h"
#include "engine/train/checkpointing.h"
#include "engine/train/trainer.h"

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

/// One rank with the golden's weights.
class Golden {
 public:
  explicit Golden(const std::string& stem, int threads)
      : file_("testdata/goldens/" + stem + ".safetensors"),
        run_(LoadRunConfig("testdata/goldens/" + stem + ".json")),
        tokens_(file_),
        device_(MakeCpuDevice(threads)),
        parallel_(MakeMetaContext(run_.layout, 0)),
        trainer_(run_, parallel_, *device_) {
    for (Parameter* parameter : trainer_.parameters().parameters()) {
      const std::vector<float> values = Values("weights." + parameter->spec.name);
      std::copy(values.begin(), values.end(), parameter->weight.f32());
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

  /// The sum of the losses of micro batch `index`, with gradients scaled by `scale`.
  double Forward(int64_t index, float scale, MicroBatchState& state, Tensor* logits = nullptr) {
    const auto [tokens, targets] = MicroBatch(index);
    Tensor scale_tensor = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    Tensor loss_sum = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    scale_tensor.f32()[0] = scale;
    loss_sum.f32()[0] = 0.0f;
    trainer_.model().Forward(tokens, targets, scale_tensor, loss_sum, state, logits);
    return loss_sum.f32()[0];
  }

 private:
  /// Tokens and targets of micro batch `index`.
  std::pair<Tensor, Tensor> MicroBatch(int64_t index) {
    const int64_t batch = run_.layout.micro_batch;
    const int64_t length = run_.sequence_length;
    Tensor tokens = Tensor::Empty(*device_, {batch * length}, DType::kI32, MemoryTag::kWorkspace);
    Tensor targets = Tensor::Empty(*device_, {batch * length}, DType::kI32, MemoryTag::kWorkspace);
    std::vector<int32_t> sample(static_cast<size_t>(length + 1));
    for (int64_t b = 0; b < batch; ++b) {
      tokens_.Sample(index * batch + b, sample);
      std::copy(sample.begin(), sample.end() - 1, tokens.i32() + b * length);
      std::copy(sample.begin() + 1, sample.end(), targets.i32() + b * length);
    }
    return {tokens, targets};
  }

  SafetensorsReader file_;
  RunConfig run_;
  GoldenTokens tokens_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  Trainer trainer_;
};

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  Golden golden_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(GoldenTest, LogitsMatch) {
  MicroBatchState state;
  Tensor logits;
  golden_.Forward(0, 1.0f, state, &logits);
  const std::vector<float> expected = golden_.Values("logits");
  const int64_t vocab = golden_.run().model.vocab_size;
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    for (int64_t id = 0; id < vocab; ++id) {
      ASSERT_NEAR(logits.f32()[row * logits.dim(1) + id],
                  expected[static_cast<size_t>(row * vocab + id)], kLogitTolerance)
          << "row " << row << " id " << id;
    }
  }
}

TEST_P(GoldenTest, EveryGradientMatches) {
  const RunConfig& run = golden_.run();
  const float scale = 1.0f / static_cast<float>(run.global_batch * run.sequence_length);
  double loss = 0;
  for (int64_t m = 0; m < run.num_micro_batches(); ++m) {
    MicroBatchState state;
    loss += scale * golden_.Forward(m, scale, state);
    golden_.trainer().model().Backward(state, /*accumulate=*/m > 0);
  }
  EXPECT_NEAR(loss, golden_.Values("losses")[0], kLossTolerance * loss);
  for (const Parameter* parameter : golden_.trainer().parameters().parameters()) {
    const std::vector<float> expected = golden_.Values("grad." + parameter->spec.name);
    float largest = 0;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(parameter->gradient.f32()[i], expected[i], kGradientTolerance * largest)
          << parameter->spec.name << " element " << i;
    }
  }
}

TEST_P(GoldenTest, TenStepsTrainAlike) {
  const std::vector<float> losses = golden_.Values("losses");
  const std::vector<float> norms = golden_.Values("grad_norms");
  for (size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = golden_.trainer().Step(golden_.tokens(), static_cast<int64_t>(step));
    EXPECT_NEAR(result.loss, losses[step], kLossTolerance * losses[step]) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], kNormTolerance * norms[step]) << "step " << step;
  }
}

TEST_P(GoldenTest, ContinuesBitEqualFromACheckpoint) {
  const std::string directory = testing::TempDir() + "/golden_" + std::get<0>(GetParam()) +
                                std::to_string(std::get<1>(GetParam()));
  for (int64_t step = 0; step < 4; ++step) golden_.trainer().Step(golden_.tokens(), step);
  const std::vector<const ParameterSpec*> specs = ParameterSpecs(golden_.trainer());
  CheckpointWriter writer(directory, {.run = golden_.run(), .step = 4}, specs);
  WriteState(golden_.trainer(), writer);
  writer.Finish();

  Golden resumed(std::get<0>(GetParam()), std::get<1>(GetParam()));
  ReadState(resumed.trainer(), CheckpointReader(directory));
  for (int64_t step = 4; step < 10; ++step) {
    const StepResult expected = golden_.trainer().Step(golden_.tokens(), step);
    const StepResult actual = resumed.trainer().Step(golden_.tokens(), step);
    EXPECT_EQ(actual.loss, expected.loss) << "step " << step;
    EXPECT_EQ(actual.grad_norm, expected.grad_norm) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         testing::Combine(testing::Values("gpt2", "llama"), testing::Values(1, 2)),
                         [](const auto& param_info) {
                           return std::get<0>(param_info.param) + "_threads" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

}  // namespace
}  // namespace trimtab
