// The whole model's backward pass against central differences of its loss.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/data/dataset/token_source.h"
#include "engine/model/gpt_model.h"
#include "tests/engine/train/moe_runs.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

/// The derivative along a unit direction, measured with step kEpsilon, agrees to kRelative of the
/// gradient's length: fp32 losses carry about 1e-6 of noise, divided by 2 * kEpsilon.
constexpr float kEpsilon = 2e-2f;
constexpr double kRelative = 2e-2;

class ModelUnderTest {
 public:
  explicit ModelUnderTest(const RunConfig& run)
      : run_(run),
        device_(MakeCpuDevice(1)),
        parallel_(MakeMetaContext(run_.layout, 0)),
        model_(store_,
               LayerContext{.device = *device_,
                            .parallel = parallel_,
                            .model = run_.model,
                            .micro_batch = run_.layout.micro_batch,
                            .sequence = run_.sequence_length,
                            .routing = run_.routing},
               WholeModel(run_.model)) {
    store_.Allocate(*device_, DType::kF32, DType::kF32);
    store_.Initialize(3);
    // Weights of normal size, so that every path carries a gradient well above the noise.
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (Parameter* parameter : store_.parameters()) {
      const bool norm = parameter->spec.init == InitKind::kOnes;
      for (int64_t i = 0; i < parameter->numel(); ++i) {
        parameter->weight.f32()[i] = norm ? 1.0f + 0.1f * normal(random) : 0.2f * normal(random);
      }
    }
    batch_ = NewBatches(model_.context(), model_.chunk(), 1).front();
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(run_.model.vocab_size - 1));
    for (Tensor* ids : {&batch_.tokens, &batch_.targets}) {
      for (int64_t i = 0; i < ids->numel(); ++i) ids->i32()[i] = id(random);
    }
    gradient_scale_ = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    loss_sum_ = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    gradient_scale_.f32()[0] = 1.0f;
  }

  double Loss() {
    MicroBatchState state;
    return Forward(state);
  }
  void Backward() {
    MicroBatchState state;
    Forward(state);
    model_.Backward(state, {}, /*accumulate=*/false);
  }
  ParameterStore& store() { return store_; }

 private:
  double Forward(MicroBatchState& state) {
    loss_sum_.f32()[0] = 0.0f;
    model_.Forward(batch_, gradient_scale_, loss_sum_, state);
    return loss_sum_.f32()[0];
  }

  RunConfig run_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  ParameterStore store_;
  GptModel model_;
  MicroBatch batch_;
  Tensor gradient_scale_;
  Tensor loss_sum_;
};

double Length(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

double Difference(ModelUnderTest& model, Parameter& parameter, const std::vector<float>& direction,
                  float step) {
  float* weight = parameter.weight.f32();
  const std::vector<float> original(weight, weight + parameter.numel());
  double difference = 0;
  for (const float sign : {1.0f, -1.0f}) {
    for (size_t i = 0; i < original.size(); ++i) {
      weight[i] = original[i] + sign * step * direction[i];
    }
    difference += sign * model.Loss();
  }
  std::copy(original.begin(), original.end(), weight);
  return difference / (2.0 * step);
}

/// From two steps, so that what the loss bends by (the square of the step) drops out.
double DerivativeAlong(ModelUnderTest& model, Parameter& parameter,
                       const std::vector<float>& direction) {
  const double whole = Difference(model, parameter, direction, kEpsilon);
  const double half = Difference(model, parameter, direction, kEpsilon / 2);
  return (4.0 * half - whole) / 3.0;
}

struct Case {
  const char* name;
  RunConfig run;
};

/// The test differentiates the loss of the language model alone.
RunConfig WithoutLosses(RunConfig run) {
  run.model.moe.aux_loss_coeff = run.model.moe.z_loss_coeff = 0;
  return run;
}

/// Experts whose choices stay as they are while weights are moved.
RunConfig Balanced(RunConfig run) {
  run.routing.force_balance = true;
  return run;
}

std::vector<Case> Cases() {
  RunConfig llama = SmallRun(/*llama=*/true);
  llama.model.num_kv_heads = 2;
  RunConfig post_norm = SmallRun(/*llama=*/false);
  post_norm.model.block = BlockKind::kPostNorm;
  post_norm.model.embedding_dim = 20;
  RunConfig olmo = llama;
  olmo.model.block = BlockKind::kReorderedNorm;
  olmo.model.query_key_norm = olmo.model.query_key_norm_whole = true;
  olmo.model.norm_weight_plus_one = true;
  return {{"gpt2", SmallRun(/*llama=*/false)},
          {"olmo", olmo},
          {"post_norm", post_norm},
          {"llama", llama},
          {"mixtral", Balanced(WithoutLosses(SmallMoeRun("mixtral")))},
          {"qwen", Balanced(WithoutLosses(SmallMoeRun("qwen")))},
          {"deepseek", Balanced(WithoutLosses(SmallMoeRun("deepseek")))},
          {"biased_experts", Balanced(WithoutLosses(SmallMoeRun("dropping")))}};
}

class GradientCheckTest : public testing::TestWithParam<Case> {};

TEST_P(GradientCheckTest, BackwardMatchesCentralDifferences) {
  RunConfig run = GetParam().run;
  run.layout.micro_batch = 2;
  ModelUnderTest model(run);
  model.Backward();
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (Parameter* parameter : model.store().parameters()) {
    const float* gradient = parameter->gradient.f32();
    const std::vector<float> g(gradient, gradient + parameter->numel());
    const double length = Length(g);
    ASSERT_GT(length, 0.0) << parameter->spec.name;

    std::vector<float> along = g;
    for (float& value : along) value = static_cast<float>(value / length);
    EXPECT_NEAR(DerivativeAlong(model, *parameter, along), length, kRelative * length)
        << parameter->spec.name << " along its gradient";

    // A random direction also sees what the gradient leaves out.
    std::vector<float> any(g.size());
    for (float& value : any) value = normal(random);
    const double scale = Length(any);
    double projection = 0;
    for (size_t i = 0; i < any.size(); ++i) {
      any[i] = static_cast<float>(any[i] / scale);
      projection += double{any[i]} * g[i];
    }
    EXPECT_NEAR(DerivativeAlong(model, *parameter, any), projection, kRelative * length)
        << parameter->spec.name << " along a random direction";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GradientCheckTest, testing::ValuesIn(Cases()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace trimtab
