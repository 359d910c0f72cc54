// Trains a run on in-process ranks and returns what the ranks saw. For tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/train/trainer.h"

namespace trimtab {

/// Losses and gradient norms of `steps` optimizer steps on run.device, as rank 0 reports them.
/// Asserts that all ranks agree bit for bit.
struct TrainedLosses {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<RoutingReport> routing;
  std::vector<int64_t> peak_bytes;  // allocator peak of each rank
};
TrainedLosses TrainOnRanks(const RunConfig& run, const TokenSource& source, int64_t steps);

/// The allocator peak of each rank in a step on the meta device.
std::vector<int64_t> DryRunPeaks(const RunConfig& run, const TokenSource& source);

/// Expects equal losses, up to `tolerance` of them, and equal gradient norms in the first step, up
/// to ten times that: they see every gradient, also of parameters that hardly move the loss.
void ExpectSameTraining(const TrainedLosses& actual, const TrainedLosses& expected,
                        double tolerance);

/// A small legal run to vary: GPT-2 or Llama family, 4 heads, 61 ids, T 12, global batch 8.
RunConfig SmallRun(bool llama);

/// The same with four experts in every layer, two of which take a token; no rounding turns a choice
/// over.
RunConfig SmallExpertRun(bool llama);

/// Why a test cannot run on `device`; empty when it can.
std::string WhyNotOn(DeviceKind device);

}  // namespace trimtab

/// Skips the test, with the reason, where there is no such device.
#define TRIMTAB_SKIP_WITHOUT_DEVICE(device)                                      \
  if (const std::string why_not = ::trimtab::WhyNotOn(device); !why_not.empty()) \
  GTEST_SKIP() << why_not
