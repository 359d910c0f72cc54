// Prices: seconds of one op or one message on a profile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/hardware_profile.h"
#include "cost_model/interpolate.h"
#include "cost_model/software_stack.h"
#include "engine/config/parallel_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// Share of its rate that so many products of m rows and n columns reach because they are cut into
/// tiles, which fill whole waves of `multiprocessors` only: of the tile shapes that libraries have,
/// the best one's. In (0, 1].
double TileShare(int64_t m, int64_t n, int64_t products, int64_t multiprocessors);

/// Distance in ranks between neighbours of a group in `layout`.
int64_t StrideOf(GroupKind group, const ParallelConfig& layout);

/// Prices ops and messages in one mode of one profile. Made once, then tens of nanoseconds per
/// price; holds no reference to the profile. A const Pricer may be used by many threads.
///
/// With tables of the mode: interpolation in log space between measured points, and at the edges
/// the rate of the nearest point. With tables of other modes only: the nearest mode's, scaled by
/// the share of the cores a rank gets. Without tables: a roofline, max(FLOPs / rate, bytes /
/// bandwidth) + launch overhead, and ring collectives (latency and bandwidth per step). The latter
/// as a software stack does it, which may be another than ours.
///
/// Products and attention go by the type of their operands: a GPU has a rate for each; a cpu's
/// tables are of fp32, with a factor for each other type (PrecisionFactors).
class Pricer {
 public:
  /// `ranks_per_node`: messages within so many neighbouring ranks use the link, others the network.
  /// `cores`: of the machine, for scaling between modes on a cpu; 0 = unknown.
  /// `precision` of the run: under tf32, fp32 products go by that rate; and its peak counts.
  /// Throws UsageError when the profile cannot price it (Unpriceable in numerics.h).
  Pricer(const HardwareProfile& profile, const Mode& mode, int64_t ranks_per_node, int64_t cores,
         Precision precision = Precision::kFp32, const SoftwareStack& stack = {});

  double Seconds(const OpRecord& op) const;
  /// The same of an op of a layer, which a stack may do in fp8 where the record has 16 bits.
  double SecondsInLayer(const OpRecord& op) const;
  /// `stride`: StrideOf the message's group. Of a tensor-parallel message that ops wait for, the
  /// part that the stack hides nothing of.
  double Seconds(const CommRecord& message, int64_t stride) const;
  /// What a forward pass of one layer takes the host to launch under `layout`.
  double HostSeconds(const ParallelConfig& layout) const;
  /// Whether the host waits for each op, so that its time and the device's add up.
  bool blocking_launches() const { return blocking_launches_; }
  /// Share of data-parallel messages beside passes that is exposed all the same.
  double dp_exposed() const { return dp_exposed_; }
  /// Seconds that ops lose per second of message beside them.
  double slowdown() const { return slowdown_; }
  /// Share of what is recomputed that does run again.
  double recompute() const { return recompute_; }
  /// Of a step beyond its ops and messages.
  double step_s() const { return step_s_; }

  /// Whether asynchronous messages run beside ops. On a cpu the ranks' own threads carry them.
  bool overlaps() const { return overlaps_; }
  /// FLOP/s of one rank in the run's precision.
  double peak_flops() const { return rates_[static_cast<size_t>(run_rate_)].peak; }
  /// FLOP/s of one rank in the type of the op's operands.
  double peak_flops_of(const OpRecord& op) const {
    return rates_[static_cast<size_t>(RateOf(op))].peak;
  }
  /// The tables were measured in exactly this mode.
  bool calibrated() const { return calibrated_; }
  /// Multiplies the sum of prices of a step (ModeTables::step_factor).
  double step_factor() const { return step_factor_; }
  /// How far off the tables may be (SpreadOf); 0 without tables, or when it is not known.
  double spread() const { return spread_; }

 private:
  /// What products are told apart by: the precision that they are the products of.
  static constexpr size_t kRateCount = 5;
  Precision RateOf(const OpRecord& op) const;

  struct RateTable {
    double peak = 0;   // FLOP/s of one rank; 0 = the profile has none
    double speed = 0;  // the same as the stack's products count
    LogCurve efficiency;
    PrecisionFactors factors;  // against the fp32 tables
  };

  double Roofline(const OpRecord& op) const;
  double Attention(const OpRecord& op) const;
  double UnfusedAttention(const OpRecord& op) const;
  double Ring(const CommRecord& message, int64_t stride) const;

  bool overlaps_ = false;
  bool has_tables_ = false;
  bool calibrated_ = false;
  double scale_ = 1;  // seconds in this mode / seconds in the mode of the tables
  double step_factor_ = 1;
  double spread_ = 0;
  std::array<LogGrid3, 2> gemm_;       // seconds per FLOP, by accumulate
  std::array<LogGrid3, 2> attention_;  // seconds per FLOP, forward and backward
  std::array<LogCurve, kOpKindCount> ops_;
  std::array<std::vector<LogCurve>, kCollectiveKindCount> collectives_;  // by ranks of the group

  std::array<RateTable, kRateCount> rates_;
  Precision run_rate_ = Precision::kFp32;
  LogCurve attention_forward_;
  LogCurve attention_backward_;
  double bandwidth_ = 0;
  double launch_overhead_s_ = 0;
  double link_latency_s_ = 0;
  double link_bandwidth_ = 0;
  double network_latency_s_ = 0;
  double network_bandwidth_ = 0;
  int64_t link_domain_ = 1;  // neighbouring ranks that the link joins
  int64_t multiprocessors_ = 0;

  AttentionKernel attention_kernel_ = AttentionKernel::kCudnn;
  double attention_speed_ = 1;
  double memory_traffic_ = 1;
  double host_layer_s_ = 0;
  double host_tp_growth_ = 0;
  bool blocking_launches_ = false;
  bool fp8_layers_ = false;
  double dispatch_s_ = 0;
  double tp_exposed_ = 1;
  double dp_exposed_ = 0;
  double slowdown_ = 0;
  double recompute_ = 1;
  double step_s_ = 0;
};

}  // namespace trimtab
