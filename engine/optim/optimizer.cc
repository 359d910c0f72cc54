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

int64_t MomentBlocks(int64_t numel) { return (numel + kMomentBlock - 1) / kMomentBlock; }

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
                     ParameterStore& store)
    : config_(config), parallel_(parallel), store_(store) {
  const int64_t dp = parallel.dp->size();
  sharded_ = parallel.layout.zero >= 1 && dp > 1;
  const int64_t numel = sharded_ ? store.padded_numel() / dp : store.padded_numel();
  shard_begin_ = sharded_ ? parallel.dp->rank() * numel : 0;

  const TrainingTypes types = TypesOf(parallel.layout);
  Device& device = store.weights().device();
  const auto zeros = [&device](int64_t count, DType dtype) {
    Tensor tensor = Tensor::Empty(device, {count}, dtype, MemoryTag::kOptimizer);
    Fill(tensor, 0.0f);
    return tensor;
  };
  if (types.has_master) master_ = zeros(numel, types.master);
  m_ = zeros(numel, types.moments);
  v_ = zeros(numel, types.moments);
  if (types.moments == DType::kF16) {
    m_scale_ = zeros(MomentBlocks(numel), DType::kF32);
    v_scale_ = zeros(MomentBlocks(numel), DType::kF32);
  }
  sums_ = zeros(2, DType::kF32);
  scalars_ = zeros(kUpdateScalarCount, DType::kF32);

  for (const Parameter* parameter : store.parameters()) {
    // With the gap that aligns the next parameter, so that runs join and blocks stay whole.
    const int64_t aligned_end =
        RoundUp(parameter->offset + parameter->numel(), kParameterAlignment);
    const int64_t begin = std::max(parameter->offset, shard_begin_);
    const int64_t end = std::min(aligned_end, shard_end());
    if (begin >= end) continue;
    const bool decay = parameter->spec.is_matrix;
    if (!runs_.empty() && runs_.back().end == begin && runs_.back().decay == decay) {
      runs_.back().end = end;
    } else {
      runs_.push_back({begin, end, decay});
    }
  }
}

void Optimizer::WriteWeights(int64_t begin, std::span<const float> values) {
  const int64_t end = begin + static_cast<int64_t>(values.size());
  const bool remainder = has_master() && master_.dtype() == DType::kU16;
  if (remainder) {
    WriteBits(store_.weights(), begin, Map(values, MasterWeightBits));
  } else {
    Tensor weights = store_.weights().Slice(begin, {end - begin});
    CopyFromHost(weights, values);
  }
  if (!has_master()) return;
  const int64_t own_begin = std::max(begin, shard_begin_);
  const int64_t own_end = std::min(end, shard_end());
  if (own_begin >= own_end) return;
  const auto own = values.subspan(static_cast<size_t>(own_begin - begin),
                                  static_cast<size_t>(own_end - own_begin));
  if (remainder) {
    WriteBits(master_, own_begin - shard_begin_, Map(own, MasterRemainder));
  } else {
    Tensor master = master_.Slice(own_begin - shard_begin_, {own_end - own_begin});
    CopyFromHost(master, own);
  }
}

void Optimizer::ReadWeights(int64_t begin, std::span<float> values) const {
  const auto count = static_cast<int64_t>(values.size());
  if (!has_master()) return CopyToHost(store_.weights().Slice(begin, {count}), values);
  TRIMTAB_ASSERT(begin >= shard_begin_ && begin + count <= shard_end(),
                 "weights {} to {} have their masters elsewhere", begin, begin + count);
  if (master_.dtype() == DType::kF32) {
    return CopyToHost(master_.Slice(begin - shard_begin_, {count}), values);
  }
  const std::vector<uint16_t> weights = ReadBits(store_.weights(), begin, values.size());
  const std::vector<uint16_t> rest = ReadBits(master_, begin - shard_begin_, values.size());
  std::transform(weights.begin(), weights.end(), rest.begin(), values.begin(), JoinMaster);
}

void Optimizer::WriteMoments(Moment which, int64_t begin, std::span<const float> values) {
  const int64_t at = begin - shard_begin_;
  const auto count = static_cast<int64_t>(values.size());
  Tensor target = moment(which).Slice(at, {count});
  if (target.dtype() != DType::kF16) return CopyFromHost(target, values);
  TRIMTAB_ASSERT(at % kMomentBlock == 0, "fp16 moments are written in whole blocks, not from {}",
                 at);
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
  Tensor scale_target =
      moment_scale(which).Slice(at / kMomentBlock, {static_cast<int64_t>(scales.size())});
  CopyFromHost(scale_target, scales);
}

void Optimizer::ReadMoments(Moment which, int64_t begin, std::span<float> values) const {
  const int64_t at = begin - shard_begin_;
  const auto count = static_cast<int64_t>(values.size());
  const bool first = which == Moment::kFirst;
  const Tensor& source = first ? m_ : v_;
  CopyToHost(source.Slice(at, {count}), values);
  if (source.dtype() != DType::kF16) return;
  const int64_t first_block = at / kMomentBlock;
  std::vector<float> scales(static_cast<size_t>(MomentBlocks(at + count) - first_block));
  const Tensor& scale = first ? m_scale_ : v_scale_;
  CopyToHost(scale.Slice(first_block, {static_cast<int64_t>(scales.size())}), scales);
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] *=
        scales[static_cast<size_t>((at + i) / kMomentBlock - first_block)];
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

void Optimizer::SumSquaresWithin(int64_t begin, int64_t end, int64_t slot) {
  begin = std::max(begin, shard_begin_);
  end = std::min(end, shard_end());
  Tensor sum = sums_.Slice(slot, {1});
  if (begin >= end) {
    Fill(sum, 0.0f);
  } else {
    SumSquares(store_.gradients().Slice(begin, {end - begin}), sum);
  }
}

AdamWState Optimizer::StateOf(const Run& run) {
  const Shape shape = {run.end - run.begin};
  const int64_t at = run.begin - shard_begin_;
  AdamWState state;
  state.weight = store_.weights().Slice(run.begin, shape);
  state.m = m_.Slice(at, shape);
  state.v = v_.Slice(at, shape);
  if (has_master()) state.master = master_.Slice(at, shape);
  if (m_scale_.defined()) {
    const Shape blocks = {MomentBlocks(shape.numel())};
    state.m_scale = m_scale_.Slice(at / kMomentBlock, blocks);
    state.v_scale = v_scale_.Slice(at / kMomentBlock, blocks);
  }
  return state;
}

void Optimizer::Update() {
  // Tensor-parallel parameters count on every tp rank, replicated ones once, duplicates never.
  SumSquaresWithin(0, store_.own_tensor_parallel_numel(), 0);
  SumSquaresWithin(store_.tensor_parallel_numel(), store_.numel(), 1);
  if (sharded_) parallel_.dp->AllReduce(sums_);
  Tensor split_sum = sums_.Slice(0, {1});
  if (parallel_.layout.tp > 1) parallel_.tp->AllReduce(split_sum);
  if (parallel_.layout.pp > 1) parallel_.pp->AllReduce(sums_);
  Clip(sums_, static_cast<float>(config_.clip_grad), scalars_);

  AdamWConfig config = {.beta1 = static_cast<float>(config_.beta1),
                        .beta2 = static_cast<float>(config_.beta2),
                        .epsilon = static_cast<float>(config_.epsilon)};
  for (const Run& run : runs_) {
    config.weight_decay = run.decay ? static_cast<float>(config_.weight_decay) : 0.0f;
    AdamWState state = StateOf(run);
    AdamW(config, scalars_, store_.gradients().Slice(run.begin, {run.end - run.begin}), state);
  }
  if (sharded_) {
    Tensor& weights = store_.weights();
    parallel_.dp->AllGather(weights.Slice(shard_begin_, {m_.numel()}), weights);
  }
}

UpdateOutcome Optimizer::Outcome() const {
  std::array<float, kUpdateScalarCount> scalars{};
  CopyToHost(scalars_, scalars);
  return {.grad_norm = scalars[kGradientNorm], .applied = scalars[kApply] != 0.0f};
}

}  // namespace trimtab
