// Serving as a workload: configurations of an engine under a load.
#pragma once

#include <memory>
#include <string>

#include "search/serving/serving_problem.h"
#include "search/workload/workload.h"

namespace trimtab {

class ServingWorkload final : public Workload {
 public:
  explicit ServingWorkload(ServingProblem problem);
  /// The problem that a study holds, to judge and report what was found. Throws StorageError.
  explicit ServingWorkload(const Study& study);

  StudyProblem Identity() const override;
  const Cluster& cluster() const override { return problem_.cluster; }
  void PriceBy(const HardwareProfile& profile) override { problem_.cluster.profile = profile; }
  /// Takes perplexities from `study`, or measures them for it.
  void Calibrate(Study& study) override;
  void StoreSpace(Objective objective, const Walkers& walkers, Study& study) override;
  void Judge(Objective objective, std::vector<CandidateRecord>& candidates) const override;
  TrialJob JobOf(const CandidateRecord& candidate, const MeasureOptions& visit) const override;

  const ServingProblem& problem() const { return problem_; }

 private:
  /// Puts into `problem_.quality` what `study` knows, or else what is measured now.
  void MeasureQuality(Study& study);

  ServingProblem problem_;
};

/// Names, in the measured figures of a study, the formats that may do better but for their quality.
inline constexpr char kHeldBack[] = "held back for quality";

}  // namespace trimtab
