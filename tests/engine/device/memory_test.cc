#include "engine/device/memory.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

int64_t Of(const BytesByTag& bytes, MemoryTag tag) { return bytes[static_cast<size_t>(tag)]; }

TEST(MemoryTrackerTest, CountsPerTagAndRemembersPeaks) {
  MemoryTracker memory;
  memory.Add(100, MemoryTag::kWeights);
  memory.Add(50, MemoryTag::kWorkspace);
  memory.Remove(50, MemoryTag::kWorkspace);
  memory.Add(30, MemoryTag::kActivations);
  EXPECT_EQ(memory.current_total(), 130);
  EXPECT_EQ(memory.peak_total(), 150);
  EXPECT_EQ(Of(memory.current_by_tag(), MemoryTag::kWorkspace), 0);
  EXPECT_EQ(Of(memory.peak_by_tag(), MemoryTag::kWorkspace), 50);
  EXPECT_EQ(Of(memory.peak_by_tag(), MemoryTag::kActivations), 30);
  // The tags peaked at different moments: at the peak of the sum there were no activations.
  EXPECT_EQ(Of(memory.by_tag_at_peak(), MemoryTag::kWeights), 100);
  EXPECT_EQ(Of(memory.by_tag_at_peak(), MemoryTag::kWorkspace), 50);
  EXPECT_EQ(Of(memory.by_tag_at_peak(), MemoryTag::kActivations), 0);
}

TEST(MemoryTrackerTest, ResetPeaksStartsFromWhatIsInUse) {
  MemoryTracker memory;
  memory.Add(100, MemoryTag::kWeights);
  memory.Add(900, MemoryTag::kWorkspace);
  memory.Remove(900, MemoryTag::kWorkspace);
  memory.ResetPeaks();
  EXPECT_EQ(memory.peak_total(), 100);
  EXPECT_EQ(Of(memory.peak_by_tag(), MemoryTag::kWorkspace), 0);
  EXPECT_EQ(Of(memory.by_tag_at_peak(), MemoryTag::kWeights), 100);
}

TEST(MemoryTrackerTest, RefusesWhatPassesTheLimitAndCountsNothingThen) {
  MemoryTracker memory;
  memory.set_limit_bytes(100);
  memory.Add(60, MemoryTag::kWeights);
  try {
    memory.Add(41, MemoryTag::kActivations);
    FAIL() << "101 bytes fit in 100";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("activations"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ExitCode::kInfeasible);
  }
  EXPECT_EQ(memory.current_total(), 60);
  EXPECT_EQ(memory.peak_total(), 60);
  EXPECT_EQ(Of(memory.peak_by_tag(), MemoryTag::kActivations), 0);
  memory.Add(40, MemoryTag::kActivations);  // exactly the limit fits
  EXPECT_EQ(memory.current_total(), 100);
}

TEST(MemoryTrackerTest, StopsWhenBytesComeBackTwice) {
  MemoryTracker memory;
  memory.Add(10, MemoryTag::kWeights);
  EXPECT_DEATH(memory.Remove(11, MemoryTag::kWeights), "11 bytes of weights returned twice");
}

TEST(MemoryTrackerTest, CountsNothingWhileUncounted) {
  MemoryTracker memory;
  memory.set_limit_bytes(100);
  memory.Add(60, MemoryTag::kWeights);
  {
    const MemoryTracker::Uncounted uncounted(memory);
    memory.Add(1000, MemoryTag::kWorkspace);  // past the limit, and nobody minds
    const MemoryTracker::Uncounted nested(memory);
    memory.Remove(400, MemoryTag::kWorkspace);
  }
  {
    const MemoryTracker::Uncounted uncounted(memory);
    memory.Remove(600, MemoryTag::kWorkspace);
  }
  EXPECT_EQ(memory.current_total(), 60);
  EXPECT_EQ(memory.peak_total(), 60);
  EXPECT_THROW(memory.Add(41, MemoryTag::kWorkspace), OutOfMemoryError);
}

TEST(MemoryTrackerTest, NamesEveryTag) {
  EXPECT_EQ(Name(MemoryTag::kWeights), "weights");
  EXPECT_EQ(Name(MemoryTag::kGradients), "gradients");
  EXPECT_EQ(Name(MemoryTag::kOptimizer), "optimizer");
  EXPECT_EQ(Name(MemoryTag::kActivations), "activations");
  EXPECT_EQ(Name(MemoryTag::kWorkspace), "workspace");
  EXPECT_EQ(Name(MemoryTag::kCommunication), "communication");
}

}  // namespace
}  // namespace trimtab
