#include "cost_model/finish.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/layout/precision.h"
#include "engine/config/run/run_config.h"
#include "engine/schedule/schedules.h"

namespace trimtab {
namespace {

// Half-widths of the interval of a cpu, relative. Calibrated: what layouts of small models were
// seen to differ by from their prediction. Without measurements it is right within a factor.
constexpr double kCalibratedHalfWidth = 0.25;
constexpr double kModelledHalfWidth = 1.0;
constexpr double kSpreadsOfHalfWidth = 2;  // standard errors of what the tables may be off by

// Of a step on GPUs: with less of it in ops, messages, bubbles and the host decide, which published
// runs say less about.
constexpr double kMostlyWorking = 0.75;

double HalfWidthOf(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                   const Breakdown& parts, bool calibrated) {
  // What the model is off by and what its tables are off by are independent of each other.
  if (calibrated) return std::hypot(kCalibratedHalfWidth, kSpreadsOfHalfWidth * pricer.spread());
  if (cluster.device == DeviceKind::kCpu) return kModelledHalfWidth;
  const bool known = cluster.stack.compute.origin == Origin::kFitted &&
                     cluster.profile.gemm_efficiency.origin == Origin::kFitted;
  const Evidence fitted = known ? Evidence::kFitted : Evidence::kPartly;
  return GpuHalfWidth(run, parts, cluster.stack.usual ? Evidence::kNoStack : fitted);
}

/// What a stack keeps for the backward pass, against ours.
double ActivationShare(const RunConfig& run, const SoftwareStack& stack) {
  double share = stack.activations.value;
  if (run.model.moe.used()) share *= stack.expert_activations.value;
  // About half of it are inputs of products.
  constexpr double kInputsInEightBits = 0.75;
  return stack.fp8_layers ? share * kInputsInEightBits : share;
}

/// Tokens times layers whose rerun the fullest stage, the first, has before it at once.
double TokensToRunAgain(const RunConfig& run, int64_t tokens) {
  const ParallelConfig& layout = run.layout;
  const RecomputeConfig& plan = layout.recompute[0];
  if (plan.kind != RecomputeKind::kFull) return 0;
  const int64_t chunk = CeilDiv(run.model.num_layers, layout.pp * layout.vp);
  const int64_t layers = plan.num_layers < 0 ? chunk : std::min<int64_t>(plan.num_layers, chunk);
  const PipelineShape shape = {layout.pp, layout.vp, run.num_micro_batches()};
  return static_cast<double>(tokens * layers * RowOf(layout.schedule).max_in_flight(shape, 0));
}

}  // namespace

double StepSeconds(const Pricer& pricer, double parts_s) {
  return pricer.step_factor() * parts_s + pricer.step_s();
}

int64_t BytesBeyondOurs(const RunConfig& run, const SoftwareStack& stack,
                        const MemoryEstimate& memory) {
  const ParallelConfig& layout = run.layout;
  const int64_t tokens = layout.micro_batch * run.sequence_length / layout.cp;
  const int64_t vocabulary = run.model.padded_vocab_size(layout.tp);
  const auto logits =
      static_cast<double>(tokens * (stack.whole_logits ? vocabulary : vocabulary / layout.tp));
  double bytes = (ActivationShare(run, stack) - 1) * static_cast<double>(memory.activations) +
                 stack.logit_bytes.value * logits + stack.memory_bytes.value;
  if (stack.kept_bytes.value > 0) {
    bytes += stack.kept_bytes.value * TokensToRunAgain(run, tokens);
  }
  const TrainingTypes types = TypesOf(layout.numerics);
  // Gradients are whole where passes do not send them.
  const double parameters =
      static_cast<double>(memory.gradients) / static_cast<double>(SizeOf(types.gradients));
  constexpr double kSixteenBits = 2;
  if (stack.keeps_16_bit_gradients && types.gradients == DType::kF32) {
    bytes += kSixteenBits * parameters;
  }
  if (stack.fp8_weights && types.fp8 && layout.zero <= 1) bytes -= kSixteenBits * parameters;
  return static_cast<int64_t>(bytes);
}

double GpuHalfWidth(const RunConfig& run, const Breakdown& parts, Evidence evidence) {
  struct Widths {
    double working, waiting;
    double experts;  // whose kernels and recipes change most from release to release
  };
  constexpr std::array<Widths, 3> kWidths = {
      {{0.09, 0.19, 0.38}, {0.16, 0.25, 0.38}, {0.27, 0.45, 0.50}}};
  const Widths& widths = kWidths[static_cast<size_t>(evidence)];
  if (run.model.moe.used()) return widths.experts;
  const double works_s = parts.compute + parts.recompute + parts.optimizer;
  return works_s < kMostlyWorking * parts.total() ? widths.waiting : widths.working;
}

void FinishEstimate(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                    Estimate& estimate) {
  Breakdown& parts = estimate.breakdown_s;
  parts.overhead = 0;
  if (pricer.step_factor() > 1) {
    parts.overhead = (pricer.step_factor() - 1) * parts.total();
  } else {
    // Steps went faster than their ops one by one: no part is at fault more than another.
    Scale(parts, pricer.step_factor());
  }
  parts.overhead += pricer.step_s();
  estimate.step_time_s = parts.total();
  const bool calibrated = pricer.calibrated() && cluster.calibrated;
  estimate.trust = calibrated ? Trust::kCalibrated : Trust::kModelled;
  SetInterval(estimate, HalfWidthOf(run, cluster, pricer, parts, calibrated));
  estimate.memory.peak_total += BytesBeyondOurs(run, cluster.stack, estimate.memory);
  estimate.model_flops = ModelFlops(run);
  estimate.tokens = run.global_batch * run.sequence_length;
  estimate.ranks = run.layout.world_size();
  estimate.peak_flops_per_rank = pricer.peak_flops();
}

}  // namespace trimtab
