#include "cost_model/prices/op_roofline.h"

#include <algorithm>
#include <cmath>

#include "cost_model/prices/overlap.h"
#include "cost_model/prices/tile_share.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Share of the peak by size.
LogCurve ShareCurve(const EfficiencyCurve& curve) {
  std::vector<double> sizes;
  std::vector<double> shares;
  for (const EfficiencyPoint& point : curve.points) {
    sizes.push_back(static_cast<double>(point.size));
    shares.push_back(point.efficiency);
  }
  return LogCurve(sizes, shares, LogCurve::Ends::kProportional, LogCurve::Ends::kHold);
}

// Attention that is not fused: a product's rate, for each of its matrices is small, and passes over
// the square of scores in 16 bits: softmax, mask, scale, dropout and the products themselves.
constexpr double kUnfusedProductShare = 0.53;
constexpr double kUnfusedForwardPasses = 7;
constexpr double kUnfusedBackwardPasses = 8.4;
constexpr double kScoreBytes = 2;

// Heads below this size leave tensor cores idle beside the exponentials.
constexpr double kFullHead = 128;
constexpr double kSmallHeadExponent = 0.12;

// The best share of the peak that any large product of these GPUs was measured at: 271 of the 312
// TFLOP/s of an A100 (Bekman, Machine Learning Engineering, "Maximum achievable matmul FLOPS").
constexpr double kMostOfPeak = 0.87;

}  // namespace

OpRoofline::OpRoofline(const HardwareProfile& profile, const Mode& mode, int64_t cores,
                       const SoftwareStack& stack)
    : attention_forward_(ShareCurve(profile.attention_forward)),
      attention_backward_(ShareCurve(profile.attention_backward)),
      fused_ops_(stack.fused_ops),
      attention_kernel_(stack.attention_kernel),
      attention_speed_(stack.attention.value),
      bandwidth_(profile.memory_bandwidth.value * profile.bandwidth_efficiency.value),
      memory_traffic_(stack.memory_traffic.value),
      loss_bytes_(stack.loss_bytes.value),
      dispatch_s_(stack.dispatch_s.value),
      chunk_s_(stack.chunk_s.value),
      launch_overhead_s_(profile.launch_overhead_s.value),
      multiprocessors_(profile.multiprocessors) {
  const bool cpu = profile.device == DeviceKind::kCpu;
  // Ranks of a cpu share its memory; a GPU has its own.
  if (cpu) bandwidth_ /= std::max(1, mode.ranks);
  if (attention_kernel_ == AttentionKernel::kFlash2) {
    attention_speed_ *= profile.flash_attention_2.value;
  }
  const double share = cpu ? CoresPerRank(mode, cores) : 1;
  for (size_t i = 0; i < kPrecisions.size(); ++i) {
    const std::string name(Name(static_cast<Precision>(i)));
    const auto peak = profile.peak_flops.find(name);
    if (peak != profile.peak_flops.end()) rates_[i].peak = peak->second.value * share;
    rates_[i].speed = rates_[i].peak * stack.compute.value;
    if (static_cast<Precision>(i) == Precision::kFp8) rates_[i].speed *= stack.fp8_compute.value;
    const auto own = profile.gemm_efficiency_of.find(name);
    rates_[i].efficiency =
        ShareCurve(own == profile.gemm_efficiency_of.end() ? profile.gemm_efficiency : own->second);
  }
}

const OpRoofline::Rate& OpRoofline::RateFor(const OpRecord& op, Precision run) const {
  const Rate& rate = rates_[static_cast<size_t>(RateOf(op, run))];
  TRIMTAB_ASSERT(rate.peak > 0, "the profile has no peak rate for {}", Name(op.dtype));
  return rate;
}

double OpRoofline::Seconds(const OpRecord& op, Precision run) const {
  if (fused_ops_ || op.fused.bytes == 0) return Alone(op, run);
  OpRecord own = op;
  own.bytes -= op.fused.beside;
  return Alone(own, run) + static_cast<double>(op.fused.bytes) * memory_traffic_ / bandwidth_ +
         launch_overhead_s_;
}

double OpRoofline::Alone(const OpRecord& op, Precision run) const {
  if (op.flops == 0) {
    const double waits_s = op.kind == OpKind::kSortByExpert
                               ? dispatch_s_ + static_cast<double>(op.dims[1]) * chunk_s_
                               : 0;
    const double bytes = static_cast<double>(op.bytes) + LossBytes(op);
    return waits_s + bytes * memory_traffic_ / bandwidth_ + launch_overhead_s_;
  }
  const Rate& rate = RateFor(op, run);
  if (IsProduct(op)) return Product(op, rate) + launch_overhead_s_;
  const bool unfused = attention_kernel_ == AttentionKernel::kUnfused;
  return (unfused ? UnfusedAttention(op, rate) : FusedAttention(op, rate)) + launch_overhead_s_;
}

double OpRoofline::LossBytes(const OpRecord& op) const {
  const auto logits = static_cast<double>(op.dims[0] * op.dims[1]);
  switch (op.kind) {
    case OpKind::kCrossEntropy:
      return loss_bytes_ * logits;
    case OpKind::kCrossEntropyParts:  // forward and backward, where ranks share the vocabulary
    case OpKind::kCrossEntropyGrad:
      return loss_bytes_ * logits / 2;
    default:
      return 0;
  }
}

double OpRoofline::Product(const OpRecord& op, const Rate& rate) const {
  const int64_t smallest = std::min({op.dims[0], op.dims[1], op.dims[2]});
  double share = rate.efficiency.At(static_cast<double>(std::max<int64_t>(smallest, 1)));
  if (multiprocessors_ > 0) {
    // No software makes products faster than this, however much better it is than others.
    const double most = std::max(share, kMostOfPeak) * rate.peak;
    share = std::min(share, most / rate.speed);
    share *= TileShare(op.dims[0], op.dims[1], ProductsOf(op), multiprocessors_) *
             DepthShare(op.dims[2]);
  }
  const double compute_s = static_cast<double>(op.flops) / (rate.speed * share);
  return BesideEachOther(compute_s, static_cast<double>(op.bytes) / bandwidth_);
}

double OpRoofline::CastSeconds(const OpRecord& product) const {
  // What is multiplied is read in 16 bits and written in 8 before; weights are so once a step.
  constexpr double kCastBytes = 3;
  const auto values = static_cast<double>(ProductsOf(product) * product.dims[0] * product.dims[2]);
  return kCastBytes * values * memory_traffic_ / bandwidth_;
}

double OpRoofline::FusedAttention(const OpRecord& op, const Rate& rate) const {
  const bool backward = op.kind == OpKind::kAttentionBackward;
  double share =
      (backward ? attention_backward_ : attention_forward_).At(static_cast<double>(op.dims[1]));
  const auto head = static_cast<double>(op.dims[2]);
  if (multiprocessors_ > 0 && head < kFullHead) {
    share *= std::pow(head / kFullHead, kSmallHeadExponent);
  }
  const double compute_s = static_cast<double>(op.flops) / (rate.peak * share * attention_speed_);
  return std::max(compute_s, static_cast<double>(op.bytes) / bandwidth_);
}

double OpRoofline::UnfusedAttention(const OpRecord& op, const Rate& rate) const {
  const bool backward = op.kind == OpKind::kAttentionBackward;
  // The record counts the causal half, of 2 products forward and 5 backward, one of which is the
  // forward pass's again; what is not fused keeps the scores, and multiplies the whole square.
  const double products = backward ? 4 : 2;
  const double recorded = backward ? 5 : 2;
  const double flops = 2 * static_cast<double>(op.flops) * products / recorded;
  const double scores = flops / (2 * products * static_cast<double>(op.dims[2]));
  const double share = rate.efficiency.At(kFullHead) * kUnfusedProductShare;
  const double passes = backward ? kUnfusedBackwardPasses : kUnfusedForwardPasses;
  return flops / (rate.speed * share * attention_speed_) +
         passes * scores * kScoreBytes * memory_traffic_ / bandwidth_;
}

}  // namespace trimtab
