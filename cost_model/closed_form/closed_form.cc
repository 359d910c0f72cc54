#include "cost_model/closed_form/closed_form.h"

#include <algorithm>
#include <utility>

#include "cost_model/closed_form/stage_costs.h"
#include "cost_model/closed_form/stage_waits.h"
#include "cost_model/closed_form/step_bounds.h"
#include "cost_model/finish.h"
#include "cost_model/shared_cores.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

PipelineShape ShapeOf(const RunConfig& run) {
  return {run.layout.pp, run.layout.vp, run.num_micro_batches()};
}

/// What a micro batch takes on all stages together.
StageTimes AllTimes(const std::vector<StageCosts>& stages) {
  StageTimes all = {0, 0, 0};
  for (const StageCosts& each : stages) all += each.times;
  return all;
}

/// Seconds that a stage stands idle in a step: while micro batches pass the other stages, which
/// take as long as they do on average.
double IdleSeconds(const RunConfig& run, const StageTimes& all, const StageCosts& stage) {
  if (run.layout.pp == 1) return 0;
  const StageTimes others = MeanOfOthers(all, stage.times, run.layout.pp);
  return RowOf(run.layout.schedule).idle_time(ShapeOf(run), others);
}

/// See stage_waits.h.
double ExposedBetweenStages(const RunConfig& run, const StageCosts& stage) {
  return ExposedBetweenStages(ShapeOf(run), stage.times, stage.message_s);
}
double ExposedByRoundTrips(const RunConfig& run, const std::vector<StageCosts>& stages,
                           const StageTimes& all, const StageCosts& stage) {
  const auto round_trip = RowOf(run.layout.schedule).round_trip;
  if (run.layout.pp == 1 || round_trip == nullptr) return 0;
  return ExposedByRoundTrips(ShapeOf(run), stage.times, stage.message_s,
                             round_trip(all, stages.front().times));
}
BesidePasses Beside(const RunConfig& run, const StageCosts& stage, const EndCosts& end,
                    const Pricer& pricer) {
  return Beside(run.layout, stage.first_passes_s, stage.last_passes_s, end, pricer);
}

/// What each micro batch takes if all take the same.
StageTimes EvenTimes(const RunConfig& run, const StageCosts& stage) {
  const double share =
      stage.passes.seconds() / static_cast<double>(run.num_micro_batches()) / stage.times.total();
  return {share * stage.times.forward, share * stage.times.backward_input,
          share * stage.times.backward_weight};
}

void Count(const std::vector<MessageCount>& messages, Estimate& estimate) {
  for (const MessageCount& each : messages) {
    CommTotal& total = estimate.comm.at(each.kind, each.group);
    total.count += each.count;
    total.bytes += each.bytes;
  }
}

void Add(const PieceCost& cost, Estimate& estimate) {
  Breakdown& parts = estimate.breakdown_s;
  parts.recompute += cost.recompute_s;
  parts.host += cost.host_s;
  for (size_t i = 0; i < cost.message_s.size(); ++i) {
    parts.exposed(static_cast<GroupKind>(i)) += cost.message_s[i];
  }
  estimate.hardware_flops += cost.flops;
  estimate.op_count += cost.ops;
  Count(cost.messages, estimate);
}

MemoryEstimate MemoryOf(const StageCosts& stage, const EndCosts& end) {
  MemoryEstimate memory = {.weights = end.held_as(MemoryTag::kWeights),
                           .gradients = end.held_as(MemoryTag::kGradients),
                           .optimizer = end.held_as(MemoryTag::kOptimizer)};
  memory.activations =
      std::max(stage.activations_peak, stage.id_bytes + end.update.activations.peak);
  memory.peak_total =
      memory.persistent() + std::max(stage.total_peak, stage.id_bytes + end.update.total.peak);
  return memory;
}

Estimate EstimateOf(const RunConfig& run, const StageCosts& stage, const EndCosts& end,
                    const Pricer& pricer) {
  Estimate estimate;
  Add(stage.passes, estimate);
  Count(stage.messages, estimate);
  Add(end.update, estimate);
  const BesidePasses beside = Beside(run, stage, end, pricer);
  estimate.breakdown_s.compute = stage.passes.compute_s + beside.slowed_s;
  estimate.breakdown_s.optimizer = end.update.compute_s;
  estimate.breakdown_s.exposed_dp += beside.exposed_s;
  estimate.memory = MemoryOf(stage, end);
  return estimate;
}

}  // namespace

class ClosedFormEstimator::Impl {
 public:
  Impl(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster,
       std::shared_ptr<SharedCosts> shared)
      : model_(model),
        sequence_(sequence_length),
        cluster_(cluster),
        shared_(std::move(shared)),
        ends_(shared_->whole().remembered() == Remembered::kRecordings),
        costs_(model, sequence_length, shared_->whole(), ends_),
        bounds_(model, cluster, *shared_, ends_) {}

  std::unique_ptr<Impl> ForThread() const {
    TRIMTAB_ASSERT(shared_->whole().remembered() != Remembered::kRecordings,
                   "prices are set by one thread");
    return std::make_unique<Impl>(model_, sequence_, cluster_, shared_);
  }
  Estimate Run(const RunConfig& run);
  StepBound Bound(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) {
    TRIMTAB_ASSERT(shared_->whole().remembered() != Remembered::kRecordings,
                   "bounds are of prices that stay");
    return bounds_.Of(run, chosen, plans);
  }
  std::vector<Estimate> Stages(const RunConfig& run);
  void ForgetIfMany() { shared_->ForgetIfMany(); }
  void SetPrices(const Cluster& cluster) {
    cluster_ = cluster;
    shared_->SetPrices(cluster);
    costs_.PricesChanged();
  }

 private:
  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::shared_ptr<SharedCosts> shared_;
  StepEnds ends_;
  StepCosts costs_;
  StepBounds bounds_;
};

Estimate ClosedFormEstimator::Impl::Run(const RunConfig& run) {
  const StepView step = costs_.Of(run);
  size_t slowest = 0;
  double slowest_s = -1;
  double longest_s = -1;  // with round trips, which make all stages about as slow
  MemoryEstimate memory = {.peak_total = -1};
  const double crowding = Crowding(run, cluster_);
  const bool shared_cores = crowding > 1 && run.layout.pp > 1;
  const StageTimes all = AllTimes(step.stages);
  std::vector<StageWork> work;
  for (size_t i = 0; i < step.stages.size(); ++i) {
    const StageCosts& stage = step.stages[i];
    const EndCosts& end = step.ends[i];
    const double end_s = end.update.seconds() + Beside(run, stage, end, step.pricer).seconds();
    const double idle_s = shared_cores ? 0 : IdleSeconds(run, all, stage);
    const double seconds =
        stage.passes.seconds() + idle_s + end_s + ExposedBetweenStages(run, stage);
    if (seconds > slowest_s) {
      slowest = i;
      slowest_s = seconds;
    }
    longest_s = std::max(longest_s, seconds + ExposedByRoundTrips(run, step.stages, all, stage));
    if (shared_cores) work.push_back({EvenTimes(run, stage), end_s});
    const MemoryEstimate own = MemoryOf(stage, end);
    if (own.peak_total > memory.peak_total) memory = own;
  }
  const StageCosts& stage = step.stages[slowest];
  Estimate estimate = EstimateOf(run, stage, step.ends[slowest], step.pricer);
  estimate.memory = memory;
  if (shared_cores) {
    FillTo(SecondsOnSharedCores(run.layout.schedule, ShapeOf(run), work, crowding),
           estimate.breakdown_s);
  } else {
    estimate.breakdown_s.bubble = IdleSeconds(run, all, stage);
    estimate.breakdown_s.exposed_pp += longest_s - slowest_s;
  }
  estimate.breakdown_s.exposed_pp += ExposedBetweenStages(run, stage);
  FinishEstimate(run, cluster_, step.pricer, estimate);
  return estimate;
}

std::vector<Estimate> ClosedFormEstimator::Impl::Stages(const RunConfig& run) {
  const StepView step = costs_.Of(run);
  std::vector<Estimate> stages;
  for (size_t i = 0; i < step.stages.size(); ++i) {
    stages.push_back(EstimateOf(run, step.stages[i], step.ends[i], step.pricer));
  }
  return stages;
}

ClosedFormEstimator::ClosedFormEstimator(const ModelConfig& model, int64_t sequence_length,
                                         const Cluster& cluster, bool keep)
    : impl_(std::make_unique<Impl>(
          model, sequence_length, cluster,
          std::make_shared<SharedCosts>(cluster,
                                        keep ? Remembered::kRecordings : Remembered::kCosts))) {}
ClosedFormEstimator::ClosedFormEstimator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClosedFormEstimator ClosedFormEstimator::ForThread() const {
  return ClosedFormEstimator(impl_->ForThread());
}
ClosedFormEstimator::~ClosedFormEstimator() = default;
ClosedFormEstimator::ClosedFormEstimator(ClosedFormEstimator&&) noexcept = default;

Estimate ClosedFormEstimator::Run(const RunConfig& run) { return impl_->Run(run); }
StepBound ClosedFormEstimator::Bound(const RunConfig& run, LayoutPart chosen,
                                     const PlanRange& plans) {
  return impl_->Bound(run, chosen, plans);
}
void ClosedFormEstimator::ForgetIfMany() { impl_->ForgetIfMany(); }
void ClosedFormEstimator::SetPrices(const Cluster& cluster) { impl_->SetPrices(cluster); }
std::vector<Estimate> ClosedFormEstimator::Stages(const RunConfig& run) {
  return impl_->Stages(run);
}

Estimate ClosedForm(const RunConfig& run, const Cluster& cluster) {
  RequireLegal(run);
  return ClosedFormEstimator(run.model, run.sequence_length, cluster).Run(run);
}

}  // namespace trimtab
