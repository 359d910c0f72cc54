// The constants that published runs are fitted with: numbers of hardware profiles, shared by the
// machines of a generation, and numbers of software stacks. Each with what was expected before,
// how far it may be off, and the range in which it keeps its meaning.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"

namespace trimtab {

/// What is published of a run.
enum class Outcome { kStepTime, kPeakMemory };

/// What a constant is, whichever machine or stack it is of.
struct ConstantKind {
  std::string name;  // "gemm_efficiency"
  Outcome outcome{};
  bool of_stack = false;  // else of a generation, or of the networks between nodes
  double spread = 0;      // standard deviation of its logarithm before the fit
  double least = 0;       // the range that it keeps its meaning in
  double most = 0;
  double neutral = 0;  // what says that there is no such effect; 0 = it cannot be left out
};
std::span<const ConstantKind> ConstantKinds();

/// A constant as a factor of the shipped value: exp(logarithm of it).
///
/// Stacks of which the same was expected are alike, so they also share a factor: what one of them
/// is off by, another that no run is known of is likely to be off by too.
struct FitConstant {
  const ConstantKind* kind = nullptr;
  std::string owner;  // the generation, kNetworks or the stack; "stacks" if it is shared
  bool shared = false;
  double shipped = 0;  // or of a shared one, what was expected of the stacks that share it
  double prior = 0;    // logarithm of the factor expected
  double least = 0;    // and its range
  double most = 0;
  double spread = 0;  // standard deviation of the logarithm before the fit

  std::string Name() const;
};

/// Owner of what a network between nodes reaches, whatever GPUs it connects.
inline constexpr char kNetworks[] = "networks";

/// The constants of `clusters` that have a prior and say something about `outcome`, each once.
std::vector<FitConstant> ConstantsOf(std::span<const Cluster* const> clusters, Outcome outcome);

/// Whether the price of a run on `cluster` depends on the constant.
bool Concerns(const FitConstant& constant, const Cluster& cluster);
/// Multiplies the constant in `cluster`, which it concerns, by `factor`.
void Apply(const FitConstant& constant, double factor, Cluster& cluster);

}  // namespace trimtab
