#include "engine/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/float16.h"
#include "engine/base/units.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

/// Host copies of a run of 16-bit patterns.
void WriteBits(Tensor& tensor, int64_t begin, const std::vector<uint16_t>& bits) {
  const Tensor part = tensor.Slice(begin, {static_cast<int64_t>(bits.size())});
  tensor.device().CopyFromHost(part.raw(), bits.data(), part.bytes());
}

std::vector<uint16_t> ReadBits(const Tensor& tensor, int64_t begin, size_t count) {
  std::vector<uint16_t> bits(count);
  const Tensor part = tensor.Slice(begin, {static_cast<int64_t>(count)});
  tensor.device().CopyToHost(bits.data(), part.raw(), part.bytes());
  return bits;
}

template <typename Value>
std::vector<uint16_t> Map(std::span<const float> values, const Value& value) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), value);
  return bits;
}

float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
                     ParameterShards& shards)
    : config_(config), parallel_(parallel), shards_(shards) {
  const int64_t numel = shards.numel();
  const TrainingTypes types = TypesOf(parallel.layout);
  const auto zeros = [&shards](int64_t count, DType dtype) {
    Tensor tensor = Tensor::Empty(shards.device(), {count}, dtype, MemoryTag::kOptimizer);
    Fill(tensor, 0.0f);
    return tensor;
  };
  if (types.has_master) master_ = zeros(numel, types.master);
  m_ = zeros(numel, types.moments);
  v_ = zeros(numel, types.moments);
  PlanRuns();
  if (types.moments == DType::kF16) {
    const int64_t used = runs_.empty() ? 0 : runs_.back().end_block();
    const int64_t blocks = std::max(CeilDiv(numel, kMomentBlock), used);
    m_scale_ = zeros(blocks, DType::kF32);
    v_scale_ = zeros(blocks, DType::kF32);
  }
  const std::vector<ParameterUnit>& units = shards.store().units();
  const bool experts = std::any_of(units.begin(), units.end(), [](const ParameterUnit& unit) {
    return unit.grid == Grid::kExperts;
  });
  sums_ = zeros(experts ? 3 : 2, DType::kF32);
  // What other ranks count of a parameter cuts its unit in two.
  const auto& parameters = shards.store().parameters();
  const int64_t cuts =
      std::count_if(parameters.begin(), parameters.end(),
                    [](const Parameter* each) { return each->spec.copied.copies > 1; });
  unit_sums_ = zeros(sums_.numel() * (static_cast<int64_t>(units.size()) + cuts), DType::kF32);
  scalars_ = zeros(kUpdateScalarCount, DType::kF32);
  PlanNorm();
}

std::vector<int64_t> Optimizer::BlockCuts() const {
  std::vector<int64_t> cuts;
  if (TypesOf(parallel_.layout).moments != DType::kF16) return cuts;
  for (const Parameter* each : shards_.store().parameters()) {
    const FlatRange copied = each->copied();
    if (each->spec.copied.copies == 1 || copied.begin % kMomentBlock == 0) continue;
    cuts.push_back(copied.begin);
    cuts.push_back(RoundUp(copied.end, kMomentBlock));
  }
  return cuts;
}

void Optimizer::PlanRuns() {
  const std::vector<int64_t> cuts = BlockCuts();
  const auto add_whole = [&](const FlatRange& range, bool decay) {
    const OwnedPart part = shards_.Within(range);
    if (part.numel == 0) return;
    const OwnedPart* last = runs_.empty() ? nullptr : &runs_.back().part;
    const bool joins = last != nullptr && runs_.back().decay == decay &&
                       last->begin + last->numel == part.begin &&
                       last->shard_begin + last->numel == part.shard_begin &&
                       !std::ranges::binary_search(cuts, part.begin);
    if (joins) {
      runs_.back().part.numel += part.numel;
      return;
    }
    const int64_t free = runs_.empty() ? 0 : runs_.back().end_block();
    runs_.push_back({part, decay, std::max(part.shard_begin / kMomentBlock, free)});
  };
  const auto add = [&](FlatRange range, bool decay) {
    for (auto cut = std::ranges::upper_bound(cuts, range.begin);
         cut != cuts.end() && *cut < range.end; ++cut) {
      add_whole({range.begin, *cut}, decay);
      range.begin = *cut;
    }
    add_whole(range, decay);
  };
  runs_.reserve(3 * shards_.store().units().size());
  for (const ParameterUnit& unit : shards_.store().units()) {
    // Matrices stand around the vectors. With the gaps that align them, so that runs join and
    // blocks stay whole; without the padding of the unit.
    const FlatRange used = {unit.tensor_parallel.begin, unit.replicated.end};
    const FlatRange vectors =
        unit.vectors.numel() > 0 ? unit.vectors : FlatRange{used.end, used.end};
    add({used.begin, vectors.begin}, /*decay=*/true);
    add(vectors, /*decay=*/false);
    add({vectors.end, used.end}, /*decay=*/true);
  }
}

void Optimizer::PlanNorm() {
  const auto add = [this](const FlatRange& range, int64_t slot) {
    const OwnedPart part = shards_.Within(range);
    if (part.numel > 0) norm_parts_.push_back({part, slot});
  };
  const std::vector<ParameterUnit>& units = shards_.store().units();
  const int64_t count = unit_sums_.numel() / sums_.numel();
  auto next = static_cast<int64_t>(units.size());  // free slot
  norm_parts_.reserve(2 * units.size());
  for (int64_t i = 0; i < static_cast<int64_t>(units.size()); ++i) {
    const ParameterUnit& unit = units[static_cast<size_t>(i)];
    // Duplicates have a unit of their own, and count where they first are.
    const std::span<Parameter* const> parameters = shards_.store().ParametersOf(unit);
    if (!parameters.empty() && parameters.front()->spec.duplicate) continue;
    if (unit.grid == Grid::kDense) {
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

OwnedPart Optimizer::Owned(int64_t begin, size_t count) const {
  const int64_t end = begin + static_cast<int64_t>(count);
  const OwnedPart part = shards_.Within({begin, end});
  TRIMTAB_ASSERT(part.begin == begin && part.begin + part.numel == end,
                 "elements {} to {} are updated elsewhere", begin, end);
  return part;
}

void Optimizer::WriteWeights(int64_t begin, std::span<const float> values) {
  const int64_t end = begin + static_cast<int64_t>(values.size());
  const OwnedPart part = shards_.Within({begin, end});
  const std::span<const float> own = part.numel == 0
                                         ? std::span<const float>()
                                         : values.subspan(static_cast<size_t>(part.begin - begin),
                                                          static_cast<size_t>(part.numel));
  const bool remainder = has_master() && master_.dtype() == DType::kU16;
  const auto write = [remainder](Tensor weights, std::span<const float> kept) {
    if (remainder) {
      WriteBits(weights, 0, Map(kept, MasterWeightBits));
    } else {
      CopyFromHost(weights, kept);
    }
  };
  if (!shards_.weights_sharded()) write(shards_.weights().Slice(begin, {end - begin}), values);
  if (part.numel == 0) return;
  if (shards_.weights_sharded()) write(shards_.Weights(part), own);
  if (!has_master()) return;
  if (remainder) {
    WriteBits(master_, part.shard_begin, Map(own, MasterRemainder));
  } else {
    Tensor master = master_.Slice(part.shard_begin, {part.numel});
    CopyFromHost(master, own);
  }
}

void Optimizer::ReadWeights(int64_t begin, std::span<float> values) const {
  const OwnedPart part = Owned(begin, values.size());
  if (!has_master()) return CopyToHost(shards_.Weights(part), values);
  if (master_.dtype() == DType::kF32) {
    return CopyToHost(master_.Slice(part.shard_begin, {part.numel}), values);
  }
  const std::vector<uint16_t> weights = ReadBits(shards_.Weights(part), 0, values.size());
  const std::vector<uint16_t> rest = ReadBits(master_, part.shard_begin, values.size());
  std::transform(weights.begin(), weights.end(), rest.begin(), values.begin(), JoinMaster);
}

void Optimizer::WriteMoments(Moment which, int64_t begin, std::span<const float> values) {
  const OwnedPart part = Owned(begin, values.size());
  const int64_t at = part.shard_begin;
  Tensor target = moment(which).Slice(at, {part.numel});
  if (target.dtype() != DType::kF16) return CopyFromHost(target, values);
  for (const Run& run : runs_) {
    const int64_t begin_here = std::max(at, run.part.shard_begin);
    const int64_t end_here = std::min(at + part.numel, run.shard_end());
    if (begin_here >= end_here) continue;
    TRIMTAB_ASSERT((begin_here - run.part.shard_begin) % kMomentBlock == 0,
                   "fp16 moments are written in whole blocks, not from {}", begin_here);
    WriteScaled(which, begin_here, run.BlockOf(begin_here),
                values.subspan(static_cast<size_t>(begin_here - at),
                               static_cast<size_t>(end_here - begin_here)));
  }
}

void Optimizer::WriteScaled(Moment which, int64_t at, int64_t first_block,
                            std::span<const float> values) {
  std::vector<float> scales;
  std::vector<uint16_t> bits;
  for (size_t first = 0; first < values.size(); first += kMomentBlock) {
    const auto block = values.subspan(first, std::min<size_t>(kMomentBlock, values.size() - first));
    float scale = 0;
    float inverse = 0;
    MomentScale(Largest(block), scale, inverse);
    scales.push_back(scale);
    for (const float value : block) bits.push_back(FloatToF16(value * inverse));
  }
  WriteBits(moment(which), at, bits);
  Tensor target = moment_scale(which).Slice(first_block, {static_cast<int64_t>(scales.size())});
  CopyFromHost(target, scales);
}

void Optimizer::ReadMoments(Moment which, int64_t begin, std::span<float> values) const {
  const OwnedPart part = Owned(begin, values.size());
  const int64_t at = part.shard_begin;
  const int64_t count = part.numel;
  const bool first = which == Moment::kFirst;
  const Tensor& source = first ? m_ : v_;
  CopyToHost(source.Slice(at, {count}), values);
  if (source.dtype() != DType::kF16) return;
  const Tensor& scale = first ? m_scale_ : v_scale_;
  std::vector<float> scales;
  for (const Run& run : runs_) {
    const int64_t begin_here = std::max(at, run.part.shard_begin);
    const int64_t end_here = std::min(at + count, run.shard_end());
    if (begin_here >= end_here) continue;
    const int64_t first_block = run.BlockOf(begin_here);
    scales.resize(static_cast<size_t>(run.BlockOf(end_here - 1) + 1 - first_block));
    CopyToHost(scale.Slice(first_block, {static_cast<int64_t>(scales.size())}), scales);
    for (int64_t i = begin_here; i < end_here; ++i) {
      values[static_cast<size_t>(i - at)] *=
          scales[static_cast<size_t>(run.BlockOf(i) - first_block)];
    }
  }
}

void Optimizer::Prepare(double learning_rate, int64_t updates, double loss_scale) {
  const double steps = static_cast<double>(updates + 1);
  // In double: 1 - beta^step loses half its digits in fp32 while beta^step is near 1.
  const std::array<float, 4> scalars = {
      static_cast<float>(learning_rate),
      static_cast<float>(1.0 / (1.0 - std::pow(config_.beta1, steps))),
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(config_.beta2, steps))),
      static_cast<float>(loss_scale)};
  static_assert(kLearningRate == 0 && kBiasCorrection == 1 && kRootCorrection == 2 &&
                kLossScale == 3);
  Tensor target = scalars_.Slice(0, {static_cast<int64_t>(scalars.size())});
  CopyFromHost(target, scalars);
}

AdamWState Optimizer::StateOf(const Run& run) {
  const OwnedPart& part = run.part;
  const Shape shape = {part.numel};
  const int64_t at = part.shard_begin;
  AdamWState state;
  state.weight = shards_.Weights(part);
  state.m = m_.Slice(at, shape);
  state.v = v_.Slice(at, shape);
  if (has_master()) state.master = master_.Slice(at, shape);
  if (m_scale_.defined()) {
    const Shape blocks = {CeilDiv(part.numel, kMomentBlock)};
    state.m_scale = m_scale_.Slice(run.first_block, blocks);
    state.v_scale = v_scale_.Slice(run.first_block, blocks);
  }
  return state;
}

Tensor Optimizer::GradientSquares() {
  // Slots of parts that other ranks have stay zero.
  for (const NormPart& each : norm_parts_) {
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
  shards_.shard_group(Grid::kDense).AllReduce(dense_sums);
  // Tensor-parallel parameters count on every tp rank, replicated ones once.
  if (parallel_.layout.tp > 1) parallel_.tp->AllReduce(split_sum);
  if (has_experts()) {
    Tensor expert_sum = sums_.Slice(kExperts, {1});
    shards_.shard_group(Grid::kExperts).AllReduce(expert_sum);
    parallel_.etp_ep->AllReduce(expert_sum);
    Sum(expert_sum, split_sum, /*accumulate=*/true);
  }
  if (parallel_.layout.pp > 1) parallel_.pp->AllReduce(dense_sums);
  return dense_sums;
}

void Optimizer::Update() {
  Clip(GradientSquares(), static_cast<float>(config_.clip_grad), scalars_);

  AdamWConfig config = {.beta1 = static_cast<float>(config_.beta1),
                        .beta2 = static_cast<float>(config_.beta2),
                        .epsilon = static_cast<float>(config_.epsilon)};
  for (const Run& run : runs_) {
    config.weight_decay = run.decay ? static_cast<float>(config_.weight_decay) : 0.0f;
    AdamWState state = StateOf(run);
    AdamW(config, scalars_, shards_.Gradients(run.part), state);
  }
}

UpdateOutcome Optimizer::Outcome() const {
  std::array<float, kUpdateScalarCount> scalars{};
  CopyToHost(scalars_, scalars);
  return {.grad_norm = scalars[kGradientNorm], .applied = scalars[kApply] != 0.0f};
}

}  // namespace trimtab
