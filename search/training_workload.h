// Training as a workload: layouts of a model on a cluster, for a batch and a sequence length.
#pragma once

#include <memory>

#include "search/space/predictor.h"
#include "search/workload/workload.h"

namespace trimtab {

class TrainingWorkload final : public Workload {
 public:
  /// Asks `predictor`, which must outlive it, or what that makes for other prices.
  TrainingWorkload(Problem problem, Predictor& predictor);
  /// Asks the cost model.
  explicit TrainingWorkload(Problem problem);

  StudyProblem Identity() const override { return StudyProblemOf(problem_); }
  const Cluster& cluster() const override { return problem_.cluster; }
  void PriceBy(const HardwareProfile& profile) override;
  void StoreSpace(Objective objective, const Walkers& walkers, Study& study) override;
  std::string Relaxations(const Walkers& walkers) override;
  /// Makes a dry run of the best by closed form, then of what would be chosen without one.
  void LookCloser(const CloserLook& look, Study& study, SearchEvents& events) override;
  TrialJob JobOf(const CandidateRecord& candidate, const MeasureOptions& visit) const override;

 private:
  Predictor& predictor() const { return own_ != nullptr ? *own_ : *asked_; }

  Problem problem_;
  Predictor* asked_ = nullptr;
  std::unique_ptr<Predictor> own_;
};

}  // namespace trimtab
