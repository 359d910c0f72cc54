// Requirements: what a training run must keep to, as in --require
// "headroom>=8GiB,gpus<=512,days<=30,price<=2M".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trimtab {

struct Problem;

/// One figure of a run, and what it must not pass.
struct TrainingRequirement {
  enum class Figure { kHeadroom, kGpus, kNodes, kDays, kPrice };

  Figure figure{};
  double limit = 0;    // bytes a rank, GPUs, nodes, days; price in the currency of the cluster's
  std::string text{};  // as it was given

  /// "require-days": what candidates are pruned by that do not meet it.
  std::string id() const;
  bool operator==(const TrainingRequirement&) const = default;
};

/// Separated by commas; none in an empty text. Throws UsageError naming --require.
std::vector<TrainingRequirement> ParseTrainingRequirements(const std::string& text);

/// Throws UsageError where the problem does not say what its requirements take: the tokens of the
/// run, the price of a GPU hour, a cluster of GPUs.
void RequireMeasurable(const Problem& problem);

/// Those of `requirements` about days and price that training of `hours` for `price`, which may be
/// unknown, does not meet: a phrase each, such as "days<=30: 33.1 days".
std::vector<std::string> UnmetByTraining(const std::vector<TrainingRequirement>& requirements,
                                         double hours, std::optional<double> price);

/// The numbers of GPUs to choose among that are allowed, ascending: of those that the problem
/// names, or of all that the cluster has as many as are allowed, in whole nodes or a part of one.
/// Throws UsageError where none is left.
std::vector<int64_t> AllowedGpus(const Problem& problem);

/// Bytes of a rank's memory that stay free.
int64_t HeadroomBytes(const Problem& problem);

/// Those about the speed of a run: of its days and its price. The problem must outlive it.
class SpeedRequirements {
 public:
  explicit SpeedRequirements(const Problem& problem);

  /// The first that a run on so many ranks does not meet at this speed, or nullptr. A faster run
  /// meets all that a slower one does.
  const TrainingRequirement* FirstUnmet(int64_t ranks, double tokens_per_s) const;

 private:
  const Problem& problem_;
  std::vector<const TrainingRequirement*> requirements_;
  double checkpoint_bytes_ = 0;
};

}  // namespace trimtab
