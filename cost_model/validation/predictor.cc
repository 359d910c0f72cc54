#include "cost_model/validation/predictor.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

/// What recordings are shared by: the same model and sequences on the same machines.
std::string RecordingKey(const ValidationRow& row) {
  const Cluster& cluster = row.of.cluster;
  return fmt::format("{}|{}|{}|{}|{}|{}", ToJson(row.of.run.model).dump(),
                     row.of.run.sequence_length, cluster.profile.name, cluster.ranks_per_node,
                     cluster.profile.network_bandwidth.value, cluster.stack.name);
}

}  // namespace

std::string ValidationRow::Group() const {
  return fmt::format("{}, {} x {} on {}", published.source, published.model.name,
                     published.model.sequence, published.hardware.gpu);
}

double ValidationRow::StepSeconds() const {
  const auto tokens =
      static_cast<double>(published.global_batch) * static_cast<double>(published.model.sequence);
  return tokens / tokens_per_s_per_gpu / static_cast<double>(published.hardware.gpus);
}

double PeakBytesAsMeasured(const ValidationRow& row, const Cluster& cluster,
                           const Estimate& estimate) {
  const bool tensors = row.published.measured.mem_kind.find("allocated") != std::string::npos;
  return static_cast<double>(estimate.memory.peak_total) -
         (tensors ? cluster.stack.memory_bytes.value : 0);
}

bool SaidToFit(const ValidationRow& row, const Estimate& estimate) {
  return static_cast<double>(estimate.memory.peak_total) <= VisibleMemory(row.of.cluster.profile);
}

class RunPredictor::Impl {
 public:
  void Prepare(const ValidationRow& row) {
    TRIMTAB_ASSERT(!row.recordings.empty(), "{} is not of TakeRuns", row.published.id);
    auto& made = estimators_[row.recordings];
    if (made != nullptr) return;
    made = std::make_unique<ClosedFormEstimator>(row.of.run.model, row.of.run.sequence_length,
                                                 row.of.cluster, /*keep=*/true);
  }
  Estimate Predict(const ValidationRow& row, Cluster cluster, Tier tier) {
    cluster.stack = InYear(std::move(cluster.stack), row.of.release);
    const auto estimator = estimators_.find(row.recordings);
    TRIMTAB_ASSERT(estimator != estimators_.end(), "{} is new", row.published.id);
    estimator->second->SetPrices(cluster);
    if (tier == Tier::kClosedForm) return estimator->second->Run(row.of.run);
    return BriefDryRun(row.of.run, cluster, estimator->second->Stages(row.of.run));
  }

 private:
  std::unordered_map<std::string, std::unique_ptr<ClosedFormEstimator>> estimators_;
};

RunPredictor::RunPredictor() : impl_(std::make_unique<Impl>()) {}
RunPredictor::~RunPredictor() = default;
Estimate RunPredictor::Predict(const ValidationRow& row, Tier tier) {
  impl_->Prepare(row);
  return impl_->Predict(row, row.of.cluster, tier);
}
Estimate RunPredictor::PredictWith(const ValidationRow& row, Cluster cluster) {
  return impl_->Predict(row, std::move(cluster), Tier::kClosedForm);
}

TakenRuns TakeRuns(const std::vector<PublishedRun>& runs) {
  TakenRuns taken;
  for (const PublishedRun& run : runs) {
    ValidationRow row = {.published = run, .of = CaseOf(run)};
    if (row.of.refusal.empty()) {
      const Precision precision =
          row.of.cluster.stack.fp8_layers ? Precision::kFp8 : row.of.run.layout.numerics.precision;
      const auto& peaks = row.of.cluster.profile.peak_flops;
      const auto peak = peaks.find(std::string(Name(precision)));
      if (peak == peaks.end()) {
        row.of.refusal = Unpriceable(row.of.cluster.profile, precision);
      } else {
        row.tokens_per_s_per_gpu = run.TokensPerSecondPerGpu(peak->second.value);
        if (row.tokens_per_s_per_gpu <= 0 && run.measured.peak_mem_bytes <= 0 &&
            !run.measured.out_of_memory) {
          row.of.refusal = "no outcome is told";
        }
      }
    }
    if (row.of.refusal.empty()) {
      row.recordings = RecordingKey(row);
      taken.rows.push_back(std::move(row));
    } else {
      taken.skipped.emplace_back(run.id, row.of.refusal);
    }
  }
  return taken;
}

}  // namespace trimtab
