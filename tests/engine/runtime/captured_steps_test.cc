// Ranks over a device whose captures count, and fail on one rank as a test wants.
#include "engine/runtime/captured_steps.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace trimtab {
namespace {

/// Its work is done by the host at once; of what is captured nothing is.
class CapturingDevice final : public Device {
 public:
  explicit CapturingDevice(bool lacks_memory)
      : Device(DeviceKind::kCpu, {DeviceKind::kCpu, 1}), lacks_memory_(lacks_memory) {}

  void CopyFromHost(void*, const void*, int64_t) override {}
  void CopyToHost(void*, const void*, int64_t) override {}
  void Synchronize() override {}
  bool CanCapture() const override { return true; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    capturing = true;
    work();
    capturing = false;
    if (lacks_memory_) throw OutOfMemoryError("the GPU has no more");
    return std::make_unique<Counted>(*this);
  }

  bool capturing = false;
  int replays = 0;
  int graphs = 0;

 protected:
  void* AllocateRaw(int64_t bytes) override { return std::malloc(static_cast<size_t>(bytes)); }
  void FreeRaw(void* data, int64_t) override { std::free(data); }

 private:
  class Counted final : public CapturedWork {
   public:
    explicit Counted(CapturingDevice& device) : device_(device) { ++device_.graphs; }
    ~Counted() override { --device_.graphs; }
    void Replay() override { ++device_.replays; }

   private:
    CapturingDevice& device_;
  };

  bool lacks_memory_;
};

struct Outcome {
  int ran = 0;  // calls of the work outside of captures
  int replays = 0;
  int graphs = 0;  // at the end
};

constexpr int kRanks = 3;

/// Three steps of one part on each rank; what each rank did.
std::array<Outcome, kRanks> ThreeSteps(
    const std::function<bool(int rank, int step)>& wanted,
    const std::function<bool(int rank)>& lacks_memory = [](int) { return false; }) {
  std::array<Outcome, kRanks> outcomes;
  RunInprocRanks({.dp = kRanks}, [&](ParallelContext& context) {
    CapturingDevice device(lacks_memory(context.rank));
    Outcome& outcome = outcomes[static_cast<size_t>(context.rank)];
    CapturedSteps steps(context, device);
    for (int step = 0; step < 3; ++step) {
      steps.BeginStep(/*possible=*/step > 0, wanted(context.rank, step));
      steps.Run(0, [&] { outcome.ran += device.capturing ? 0 : 1; });
    }
    outcome.replays = device.replays;
    outcome.graphs = device.graphs;
  });
  return outcomes;
}

TEST(CapturedSteps, AreReplayedFromTheFirstPossibleStepOn) {
  for (const Outcome& each : ThreeSteps([](int, int) { return true; })) {
    EXPECT_EQ(each.ran, 1);
    EXPECT_EQ(each.replays, 2);
    EXPECT_EQ(each.graphs, 1);
  }
}

TEST(CapturedSteps, OneRankThatListensHoldsAllBack) {
  const auto wanted = [](int rank, int step) { return rank != 1 || step != 1; };
  for (const Outcome& each : ThreeSteps(wanted)) {
    EXPECT_EQ(each.ran, 2);
    EXPECT_EQ(each.replays, 1);
  }
}

TEST(CapturedSteps, OneRankWithoutMemoryForGraphsFreesThoseOfAll) {
  const auto outcomes =
      ThreeSteps([](int, int) { return true; }, [](int rank) { return rank == 2; });
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.ran, 3);
    EXPECT_EQ(each.replays, 0);
    EXPECT_EQ(each.graphs, 0);
  }
}

}  // namespace
}  // namespace trimtab
