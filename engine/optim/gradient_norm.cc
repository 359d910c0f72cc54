#include "engine/optim/gradient_norm.h"

#include <algorithm>

#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

Tensor ZeroSums(Device& device, int64_t count) {
  Tensor tensor = Tensor::Empty(device, {count}, DType::kF32, MemoryTag::kOptimizer);
  Fill(tensor, 0.0f);
  return tensor;
}

}  // namespace

GradientNorm::GradientNorm(const ParallelContext& parallel, ParameterShards& shards)
    : parallel_(parallel), shards_(shards) {
  const std::vector<ParameterUnit>& units = shards.store().units();
  const bool experts = std::any_of(units.begin(), units.end(), [](const ParameterUnit& unit) {
    return unit.grid == ParallelGrid::kExperts;
  });
  sums_ = ZeroSums(shards.device(), experts ? 3 : 2);
  // What other ranks count of a parameter cuts its unit in two.
  const auto& parameters = shards.store().parameters();
  const int64_t cuts =
      std::count_if(parameters.begin(), parameters.end(),
                    [](const Parameter* each) { return each->spec.copied.copies > 1; });
  unit_sums_ =
      ZeroSums(shards.device(), sums_.numel() * (static_cast<int64_t>(units.size()) + cuts));
  PlanParts();
}

void GradientNorm::PlanParts() {
  const auto add = [this](const FlatRange& range, int64_t slot) {
    const OwnedPart part = shards_.Within(range);
    if (part.numel > 0) parts_.push_back({part, slot});
  };
  const std::vector<ParameterUnit>& units = shards_.store().units();
  const int64_t count = unit_sums_.numel() / sums_.numel();
  auto next = static_cast<int64_t>(units.size());  // free slot
  parts_.reserve(2 * units.size());
  for (int64_t i = 0; i < static_cast<int64_t>(units.size()); ++i) {
    const ParameterUnit& unit = units[static_cast<size_t>(i)];
    if (!unit.trainable) continue;
    // Duplicates have a unit of their own, and count where they first are.
    const std::span<Parameter* const> parameters = shards_.store().ParametersOf(unit);
    if (!parameters.empty() && parameters.front()->spec.duplicate) continue;
    if (unit.grid == ParallelGrid::kDense) {
      FlatRange rest = unit.tensor_parallel;
      for (const Parameter* each : parameters) {
        if (!each->spec.copied.of_another(parallel_.tp_rank)) continue;
        const FlatRange copied = each->copied();
        add({rest.begin, copied.begin}, kSplit * count + next++);
        rest.begin = copied.end;
      }
      add(rest, kSplit * count + i);
      add(unit.replicated, kReplicated * count + i);
    } else {
      // What the ranks of an expert share counts on the first of them.
      add(parallel_.etp_rank == 0 ? unit.range : unit.tensor_parallel, kExperts * count + i);
    }
  }
}

Tensor GradientNorm::Squares() {
  // Slots of parts that other ranks have stay zero.
  for (const Part& each : parts_) {
    Tensor sum = unit_sums_.Slice(each.slot, {1});
    SumSquares(shards_.Gradients(each.part), sum);
  }
  const int64_t units = unit_sums_.numel() / sums_.numel();
  for (int64_t each = 0; each < sums_.numel(); ++each) {
    Tensor sum = sums_.Slice(each, {1});
    Sum(unit_sums_.Slice(each * units, {units}), sum, /*accumulate=*/false);
  }
  Tensor dense_sums = sums_.Slice(0, {2});
  Tensor split_sum = sums_.Slice(kSplit, {1});
  shards_.shard_group(ParallelGrid::kDense).AllReduce(dense_sums);
  // Tensor-parallel parameters count on every tp rank, replicated ones once.
  if (parallel_.layout.tp > 1) parallel_.tp->AllReduce(split_sum);
  if (has_experts()) {
    Tensor expert_sum = sums_.Slice(kExperts, {1});
    shards_.shard_group(ParallelGrid::kExperts).AllReduce(expert_sum);
    parallel_.etp_ep->AllReduce(expert_sum);
    Sum(expert_sum, split_sum, /*accumulate=*/true);
  }
  if (parallel_.layout.pp > 1) parallel_.pp->AllReduce(dense_sums);
  return dense_sums;
}

}  // namespace trimtab
