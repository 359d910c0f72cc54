#include "engine/layers/fp8_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/float8.h"

namespace trimtab {
namespace {

/// Two fp8 linear layers [16, 32] over one device.
class Fixture {
 public:
  explicit Fixture(const Fp8Config& config)
      : device_(MakeCpuDevice(1)), context_(MakeMetaContext({}, 0)), state_(config) {
    for (const char* name : {"layers.0.fc1", "layers.0.fc2"}) {
      Parameter& weight = store_.Declare({.name = std::string(name) + ".weight",
                                          .rows = 16,
                                          .columns = 32,
                                          .init = InitKind::kNormal,
                                          .init_std = 0.02,
                                          .partition = WholePartition(16, 32)});
      indices_.push_back(state_.Declare(name, weight));
    }
  }
  void Allocate(int64_t in_flight = 1) {
    store_.Allocate(*device_, DType::kBf16, DType::kF32);
    store_.Initialize(1);
    state_.RequireNamedLayers();
    state_.Allocate(*device_, in_flight);
    state_.QuantizeWeights(context_);
  }

  /// Quantises a [16, 16] matrix of one value as the input of the first layer; what it restores to.
  float RoundTrip(float value) {
    Tensor x = Tensor::Empty(*device_, {16, 16}, DType::kF32, MemoryTag::kWorkspace);
    std::fill_n(x.f32(), x.numel(), value);
    const Tensor rows = Tensor::Empty(*device_, {16, 16}, DType::kF8E4M3, MemoryTag::kWorkspace);
    state_.Quantize(context_, 0, Fp8State::Operand::kInput, x, false, false, rows, {});
    return E4M3ToFloat(static_cast<const uint8_t*>(rows.raw())[0]) * Inverse();
  }
  float Inverse() const { return state_.inverse(0, Fp8State::Operand::kInput).f32()[0]; }

  ParallelContext& context() { return context_; }
  Fp8State& state() { return state_; }
  const std::vector<int>& indices() const { return indices_; }

 private:
  std::unique_ptr<Device> device_;
  ParallelContext context_;
  ParameterStore store_;
  Fp8State state_;
  std::vector<int> indices_;
};

TEST(Fp8StateTest, KeepsNamedLayersInBf16) {
  EXPECT_EQ(Fixture({}).indices(), (std::vector<int>{0, 1}));
  EXPECT_EQ(Fixture({.bf16_layers = {"layers.0.fc1"}}).indices(), (std::vector<int>{-1, 0}));
  EXPECT_EQ(Fixture({.bf16_layers = {"layers.0"}}).indices(), (std::vector<int>{-1, -1}));
}

TEST(Fp8StateTest, RefusesALayerThatIsNotThere) {
  Fixture fixture({.bf16_layers = {"layers.0.fc"}});
  try {
    fixture.Allocate();
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "fp8.bf16_layers: no linear layer is called 'layers.0.fc' or lies in it; "
                 "expected a name such as 'layers.0.fc1'");
  }
}

TEST(Fp8StateTest, QuantisesWeightsToTheLargestCode) {
  Fixture fixture({});
  fixture.Allocate();
  const Fp8Weight& weight = fixture.state().weight(0);
  const auto* rows = static_cast<const uint8_t*>(weight.rows.raw());
  const auto* transposed = static_cast<const uint8_t*>(weight.transposed.raw());
  float largest = 0;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 32; ++j) {
      EXPECT_EQ(rows[i * 32 + j], transposed[j * 16 + i]);
      largest = std::max(largest, std::abs(E4M3ToFloat(rows[i * 32 + j])));
    }
  }
  EXPECT_EQ(largest, 448.0f);
}

TEST(Fp8StateTest, CurrentScalingFitsEachTensor) {
  Fixture fixture({.scaling = "current"});
  fixture.Allocate();
  for (const float value : {1.0f, 1e-6f, 3e7f}) {
    EXPECT_NEAR(fixture.RoundTrip(value), value, 1e-6f * value);
  }
}

TEST(Fp8StateTest, DelayedScalingFollowsTheLastSteps) {
  Fixture fixture({.scaling = "delayed", .history = 2});
  fixture.Allocate();
  EXPECT_NEAR(fixture.RoundTrip(1e-3f), 1e-3f, 1e-9f) << "a first step has current scales";
  fixture.state().EndStep(fixture.context());
  EXPECT_NEAR(fixture.RoundTrip(1.0f), 1e-3f, 1e-9f) << "saturates at what the last step saw";
  fixture.state().EndStep(fixture.context());
  EXPECT_NEAR(fixture.RoundTrip(1.0f), 1.0f, 1e-6f);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(fixture.RoundTrip(1e-4f), 1e-4f, 1e-5f);
    fixture.state().EndStep(fixture.context());
  }
  EXPECT_NEAR(fixture.RoundTrip(1.0f), 1e-4f, 1e-9f) << "1 has left the history";
}

TEST(Fp8StateTest, MicroBatchesInFlightKeepTheirCurrentScales) {
  Fixture fixture({.scaling = "delayed", .history = 2});
  fixture.Allocate(/*in_flight=*/2);
  std::vector<float> inverses;
  for (const float value : {1.0f, 1e-3f}) {
    fixture.state().EnterMicroBatch(static_cast<int64_t>(inverses.size()));
    EXPECT_NEAR(fixture.RoundTrip(value), value, 1e-6f * value);
    inverses.push_back(fixture.Inverse());
  }
  for (const int64_t number : {0, 1}) {
    fixture.state().EnterMicroBatch(number);
    EXPECT_EQ(fixture.Inverse(), inverses[static_cast<size_t>(number)]);
  }
  // The scales of delayed scaling are the same for all.
  fixture.state().EndStep(fixture.context());
  for (const int64_t number : {2, 3}) {
    fixture.state().EnterMicroBatch(number);
    EXPECT_EQ(fixture.Inverse(), inverses[0]);
  }
}

TEST(Fp8StateTest, GoesOnFromASnapshot) {
  Fixture first({});
  first.Allocate();
  EXPECT_EQ(first.state().Snapshot().history, 0) << "nothing to remember before a step";
  first.RoundTrip(0.5f);
  first.state().EndStep(first.context());
  Fixture second({});
  second.Allocate();
  second.state().Restore(first.state().Snapshot());
  EXPECT_EQ(second.RoundTrip(7.0f), first.RoundTrip(7.0f));
  EXPECT_NEAR(second.RoundTrip(7.0f), 0.5f, 1e-6f) << "the scale is that of the history";

  Fixture other({.history = 4});
  other.Allocate();
  other.state().Restore(first.state().Snapshot());
  EXPECT_NEAR(other.RoundTrip(7.0f), 7.0f, 1e-5f) << "a history of another length is no help";
}

}  // namespace
}  // namespace trimtab
