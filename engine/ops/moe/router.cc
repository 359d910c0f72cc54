#include "engine/ops/moe/router.h"

#include "engine/ops/cpu/moe/router.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"

namespace trimtab {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kId = 4;

OpRecord Record(OpKind kind, int64_t rows, int64_t experts, int64_t topk, int64_t bytes) {
  return {.kind = kind, .dims = {rows, experts, topk}, .bytes = bytes};
}

struct LogitsShape {
  Device& device;
  int64_t rows;     // N
  int64_t experts;  // E
};

/// Of logits [N, E], checked.
LogitsShape CheckLogits(OpKind op, const Tensor& logits) {
  CheckMatrix(op, "logits", logits);
  const LogitsShape shape{logits.device(), logits.dim(0), logits.dim(1)};
  CheckOperand(op, "logits", logits, {shape.rows, shape.experts}, shape.device);
  return shape;
}

/// Of choice [N, k], int32.
void CheckChoice(OpKind op, const Tensor& choice, int64_t rows, int64_t topk, Device& device) {
  CheckOperand(op, "choice", choice, {rows, topk}, device, DType::kI32);
}

}  // namespace

RouterOptions RouterOptionsOf(const MoeConfig& moe) {
  return {.topk = moe.router_topk,
          .score = moe.score,
          .pre_softmax = moe.pre_softmax,
          .norm_topk = moe.norm_topk,
          .scaling_factor = static_cast<float>(moe.topk_scaling_factor),
          .num_groups = moe.num_groups,
          .group_topk = moe.group_topk,
          .group_score = moe.group_score,
          .soft_cap = {.cap = static_cast<float>(moe.logit_soft_cap)}};
}

OpRecord RouterChooseRecord(int64_t rows, int64_t experts, int64_t topk, bool bias) {
  return Record(OpKind::kRouterChoose, rows, experts, topk,
                rows * (experts * kFloat + topk * kId) + (bias ? experts * kFloat : 0));
}
OpRecord RouterWeightsRecord(int64_t rows, int64_t experts, int64_t topk) {
  return Record(OpKind::kRouterWeights, rows, experts, topk,
                rows * (experts * kFloat + topk * (kId + kFloat)));
}
OpRecord RouterWeightsBackwardRecord(int64_t rows, int64_t experts, int64_t topk) {
  return Record(OpKind::kRouterWeightsBackward, rows, experts, topk,
                rows * (2 * experts * kFloat + topk * (kId + kFloat)));
}
OpRecord RouterLossBackwardRecord(int64_t rows, int64_t experts, int64_t sequences) {
  return Record(OpKind::kRouterLossBackward, rows, experts, 0,
                rows * (3 * experts + 2) * kFloat + sequences * experts * kFloat);
}
OpRecord CountChoicesRecord(int64_t rows, int64_t experts, int64_t topk, int64_t runs) {
  return Record(OpKind::kCountChoices, rows, experts, topk,
                rows * topk * kId + runs * experts * kFloat);
}
OpRecord UpdateExpertBiasRecord(int64_t experts) {
  return {.kind = OpKind::kUpdateExpertBias, .dims = {experts}, .bytes = 3 * experts * kFloat};
}

void RouterChoose(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                  Tensor& choice) {
  constexpr OpKind kOp = OpKind::kRouterChoose;
  const auto [device, rows, experts] = CheckLogits(kOp, logits);
  CheckChoice(kOp, choice, rows, options.topk, device);
  if (bias.defined()) CheckOperand(kOp, "bias", bias, {experts}, device);
  TRIMTAB_ASSERT(experts % options.num_groups == 0 && options.group_topk <= options.num_groups &&
                     options.topk <= experts / options.num_groups * options.group_topk &&
                     options.num_groups <= kMaxExpertGroups,
                 "{}: {} of {} experts, {} of {} groups", Name(kOp), options.topk, experts,
                 options.group_topk, options.num_groups);
  const OpScope scope(device, RouterChooseRecord(rows, experts, options.topk, bias.defined()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::router_choose)(logits, bias, options, choice);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RouterChooseCpu(device.threads(), rows, experts, logits.f32(),
                  bias.defined() ? bias.f32() : nullptr, options, choice.i32());
}

void RouterChooseInTurn(const RowLayout& layout, int64_t experts, Tensor& choice) {
  constexpr OpKind kOp = OpKind::kRouterChoose;
  CheckMatrix(kOp, "choice", choice);
  Device& device = choice.device();
  const int64_t rows = choice.dim(0);
  const int64_t topk = choice.dim(1);
  CheckChoice(kOp, choice, rows, topk, device);
  TRIMTAB_ASSERT(rows % layout.sequence == 0, "{}: {} rows of sequences of {}", Name(kOp), rows,
                 layout.sequence);
  // It stands for a choice by scores, and costs as much in a prediction.
  const OpScope scope(device, RouterChooseRecord(rows, experts, topk, /*bias=*/false));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::router_choose_in_turn)(layout, experts, choice);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RouterChooseInTurnCpu(device.threads(), rows, experts, topk, layout.view(), choice.i32());
}

void RouterWeights(const Tensor& logits, const Tensor& choice, const RouterOptions& options,
                   Tensor& weights) {
  constexpr OpKind kOp = OpKind::kRouterWeights;
  const auto [device, rows, experts] = CheckLogits(kOp, logits);
  CheckChoice(kOp, choice, rows, options.topk, device);
  CheckOperand(kOp, "weights", weights, {rows, options.topk}, device);
  const OpScope scope(device, RouterWeightsRecord(rows, experts, options.topk));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::router_weights)(logits, choice, options, weights);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RouterWeightsCpu(device.threads(), rows, experts, logits.f32(), choice.i32(), options,
                   weights.f32());
}

void RouterWeightsBackward(const Tensor& logits, const Tensor& choice, const Tensor& dweights,
                           const RouterOptions& options, Tensor& dlogits) {
  constexpr OpKind kOp = OpKind::kRouterWeightsBackward;
  const auto [device, rows, experts] = CheckLogits(kOp, logits);
  CheckChoice(kOp, choice, rows, options.topk, device);
  CheckOperand(kOp, "dweights", dweights, {rows, options.topk}, device);
  CheckOperand(kOp, "dlogits", dlogits, {rows, experts}, device);
  const OpScope scope(device, RouterWeightsBackwardRecord(rows, experts, options.topk));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::router_weights_backward)(logits, choice, dweights,
                                                                      options, dlogits);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RouterWeightsBackwardCpu(device.threads(), rows, experts, logits.f32(), choice.i32(),
                           dweights.f32(), options, dlogits.f32());
}

void RouterLossBackward(const Tensor& logits, const Tensor& load, const RouterLossOptions& options,
                        const Tensor& gradient_scale, Tensor& dlogits, Tensor& losses) {
  constexpr OpKind kOp = OpKind::kRouterLossBackward;
  const auto [device, rows, experts] = CheckLogits(kOp, logits);
  CheckMatrix(kOp, "load", load);
  const int64_t sequences = load.dim(0);
  CheckOperand(kOp, "load", load, {sequences, experts}, device);
  CheckOperand(kOp, "gradient_scale", gradient_scale, {1}, device);
  CheckOperand(kOp, "dlogits", dlogits, {rows, experts}, device);
  CheckOperand(kOp, "losses", losses, {2, rows}, device);
  TRIMTAB_ASSERT(rows % sequences == 0, "{}: {} rows of {} sequences", Name(kOp), rows, sequences);
  const OpScope scope(device, RouterLossBackwardRecord(rows, experts, sequences));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::router_loss_backward)(logits, load, options,
                                                                   gradient_scale, dlogits, losses);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  RouterLossBackwardCpu(device.threads(), rows, experts, rows / sequences, logits.f32(), load.f32(),
                        options, *gradient_scale.f32(), dlogits.f32(), losses.f32());
}

void CountChoices(const Tensor& choice, Tensor& counts, bool accumulate) {
  constexpr OpKind kOp = OpKind::kCountChoices;
  CheckMatrix(kOp, "choice", choice);
  CheckMatrix(kOp, "counts", counts);
  Device& device = choice.device();
  const int64_t runs = counts.dim(0);
  const int64_t experts = counts.dim(1);
  CheckChoice(kOp, choice, choice.dim(0), choice.dim(1), device);
  CheckOperand(kOp, "counts", counts, {runs, experts}, device);
  TRIMTAB_ASSERT(choice.dim(0) % runs == 0, "{}: {} rows in {} runs", Name(kOp), choice.dim(0),
                 runs);
  const OpScope scope(device, CountChoicesRecord(choice.dim(0), experts, choice.dim(1), runs));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::count_choices)(choice, counts, accumulate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  CountChoicesCpu(device.threads(), runs, choice.numel() / runs, experts, choice.i32(),
                  counts.f32(), accumulate);
}

void UpdateExpertBias(const Tensor& counts, float rate, Tensor& bias) {
  constexpr OpKind kOp = OpKind::kUpdateExpertBias;
  Device& device = bias.device();
  const int64_t experts = bias.numel();
  CheckOperand(kOp, "counts", counts, {experts}, device);
  CheckOperand(kOp, "bias", bias, {experts}, device);
  const OpScope scope(device, UpdateExpertBiasRecord(experts));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::update_expert_bias)(counts, rate, bias);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  UpdateExpertBiasCpu(experts, counts.f32(), rate, bias.f32());
}

}  // namespace trimtab
