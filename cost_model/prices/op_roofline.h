// Prices of ops from what a machine can do at best: rates, bandwidths and efficiencies.
#pragma once

#include <array>
#include <cstdint>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/hardware/software_stack.h"
#include "cost_model/prices/interpolate.h"
#include "cost_model/prices/price_tables.h"

namespace trimtab {

/// FLOPs / rate beside bytes / bandwidth, + launch overhead, as a software stack does the op.
class OpRoofline {
 public:
  OpRoofline(const HardwareProfile& profile, const Mode& mode, int64_t cores,
             const SoftwareStack& stack);

  /// `run`: the precision of the run.
  double Seconds(const OpRecord& op, Precision run) const;
  /// Of writing in 8 bits, before a product, what it multiplies and is in 16.
  double CastSeconds(const OpRecord& product) const;
  /// FLOP/s of one rank in a precision; 0 = the profile has none.
  double peak_flops(Precision precision) const {
    return rates_[static_cast<size_t>(precision)].peak;
  }

 private:
  struct Rate {
    double peak = 0;   // FLOP/s of one rank
    double speed = 0;  // the same as the stack's products count
    LogCurve efficiency;
  };

  const Rate& RateFor(const OpRecord& op, Precision run) const;
  /// Of the op as it is, whatever the stack fuses.
  double Alone(const OpRecord& op, Precision run) const;
  double Product(const OpRecord& op, const Rate& rate) const;
  /// Bytes that the stack's loss moves beyond ours.
  double LossBytes(const OpRecord& op) const;
  double FusedAttention(const OpRecord& op, const Rate& rate) const;
  double UnfusedAttention(const OpRecord& op, const Rate& rate) const;

  std::array<Rate, kPrecisions.size()> rates_;
  LogCurve attention_forward_;
  LogCurve attention_backward_;
  bool fused_ops_;
  AttentionKernel attention_kernel_;
  double attention_speed_;
  double bandwidth_;
  double memory_traffic_;
  double loss_bytes_;
  double dispatch_s_;
  double chunk_s_;
  double launch_overhead_s_;
  int64_t multiprocessors_;
};

}  // namespace trimtab
