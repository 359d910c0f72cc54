#include "engine/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/adamw.h"
#include "engine/ops/elementwise.h"

namespace trimtab {

Optimizer::Optimizer(const OptimizerConfig& config, const ParallelContext& parallel,
                     ParameterStore& store)
    : config_(config), parallel_(parallel), store_(store) {
  const int64_t dp = parallel.layout.dp;
  sharded_ = parallel.layout.zero >= 1 && dp > 1;
  const int64_t numel = sharded_ ? store.padded_numel() / dp : store.padded_numel();
  shard_begin_ = sharded_ ? parallel.dp_rank * numel : 0;

  Device& device = store.weights().device();
  m_ = Tensor::Empty(device, {numel}, DType::kF32, MemoryTag::kOptimizer);
  v_ = Tensor::Empty(device, {numel}, DType::kF32, MemoryTag::kOptimizer);
  Fill(m_, 0.0f);
  Fill(v_, 0.0f);

  for (const Parameter* parameter : store.parameters()) {
    const int64_t begin = std::max(parameter->offset, shard_begin_);
    const int64_t end = std::min(parameter->offset + parameter->numel(), shard_end());
    if (begin >= end) continue;
    const bool decay = parameter->spec.is_matrix;
    if (!runs_.empty() && runs_.back().end == begin && runs_.back().decay == decay) {
      runs_.back().end = end;
    } else {
      runs_.push_back({begin, end, decay});
    }
  }
}

double Optimizer::SumSquaresWithin(int64_t begin, int64_t end) {
  begin = std::max(begin, shard_begin_);
  end = std::min(end, shard_end());
  if (begin >= end) return 0.0;
  return SumSquares(store_.gradients().Slice(begin, {end - begin}));
}

double Optimizer::GradientNorm() {
  // Tensor-parallel parameters count on every tp rank, replicated ones once.
  const int64_t split = store_.tensor_parallel_numel();
  std::array<float, 2> host = {static_cast<float>(SumSquaresWithin(0, split)),
                               static_cast<float>(SumSquaresWithin(split, store_.numel()))};
  const bool over_dp = sharded_;
  const bool over_tp = parallel_.layout.tp > 1;
  if (over_dp || over_tp) {
    Tensor sums = Tensor::Empty(store_.weights().device(), {2}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(sums, host);
    if (over_dp) parallel_.dp->AllReduce(sums);
    Tensor split_sum = sums.Slice(0, {1});
    if (over_tp) parallel_.tp->AllReduce(split_sum);
    CopyToHost(sums, host);
  }
  return std::sqrt(static_cast<double>(host[0]) + static_cast<double>(host[1]));
}

double Optimizer::Step(double learning_rate, int64_t step) {
  const double norm = GradientNorm();
  AdamWStep update = {.learning_rate = static_cast<float>(learning_rate),
                      .beta1 = static_cast<float>(config_.beta1),
                      .beta2 = static_cast<float>(config_.beta2),
                      .epsilon = static_cast<float>(config_.epsilon),
                      .step = step + 1};
  if (config_.clip_grad > 0 && norm > config_.clip_grad) {
    update.gradient_scale = static_cast<float>(config_.clip_grad / norm);
  }
  for (const Run& run : runs_) {
    const Shape shape = {run.end - run.begin};
    update.weight_decay = run.decay ? static_cast<float>(config_.weight_decay) : 0.0f;
    Tensor weight = store_.weights().Slice(run.begin, shape);
    Tensor m = m_.Slice(run.begin - shard_begin_, shape);
    Tensor v = v_.Slice(run.begin - shard_begin_, shape);
    AdamW(update, store_.gradients().Slice(run.begin, shape), weight, m, v);
  }
  if (sharded_) {
    Tensor& weights = store_.weights();
    parallel_.dp->AllGather(weights.Slice(shard_begin_, {m_.numel()}), weights);
  }
  return norm;
}

}  // namespace trimtab
