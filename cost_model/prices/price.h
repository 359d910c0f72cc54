// Prices: seconds of one op or one message on a profile.
#pragma once

#include <cstdint>

#include "cost_model/hardware/cluster.h"
#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/hardware/software_stack.h"
#include "cost_model/prices/message_price.h"
#include "cost_model/prices/op_roofline.h"
#include "cost_model/prices/price_tables.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/config/model/moe_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// What a pass through a layer asks of the host.
struct Launches {
  double passes = 0;     // as many as so many forward passes
  int64_t products = 0;  // of groups, that are launched one by one
};

/// Whether messages of `group` are of data-parallel ranks: what moves among them are weights and
/// gradients, whatever runs again.
bool IsOfDataRanks(GroupKind group);
/// Whether a message goes from one pipeline stage to the next, rather than to all of them.
bool GoesBetweenStages(const CommRecord& message);

/// Prices ops and messages in one mode of one profile. Made once, then tens of nanoseconds per
/// price; holds no reference to the profile. A const Pricer may be used by many threads.
///
/// What the machine was measured to take (PriceTables); else a roofline, and for collectives the
/// fastest of a ring, a tree and the link's switches, as a software stack does them, which may be
/// another than ours.
class Pricer {
 public:
  /// `ranks_per_node`: messages within so many neighbouring ranks use the link, others the network.
  /// `cores`: of the machine, for scaling between modes on a cpu; 0 = unknown.
  /// `precision` of the run: under tf32, fp32 products go by that rate; and its peak counts.
  /// `moe` of its model. Throws UsageError when the profile cannot price it (Unpriceable in
  /// numerics.h).
  Pricer(const HardwareProfile& profile, const Mode& mode, int64_t ranks_per_node, int64_t cores,
         Precision precision = Precision::kFp32, const SoftwareStack& stack = {},
         const MoeConfig& moe = {});

  double Seconds(const OpRecord& op) const;
  /// The same of an op of a layer, which a stack may do in fp8 where the record has 16 bits.
  double SecondsInLayer(const OpRecord& op) const;
  /// What an op takes in a step, as part of `piece`.
  double SecondsIn(const PieceRecord& piece, const OpRecord& op) const {
    const bool in_layer = piece.kind == PieceKind::kLayer;
    return ShareRun(piece) * (in_layer ? SecondsInLayer(op) : Seconds(op));
  }
  /// `stride`: StrideOf the message's group. Only what ops wait for: see Exposed.
  double Seconds(const CommRecord& message, int64_t stride) const;
  /// Share of a message that the stack does not hide behind ops, of those that ours waits for.
  double Exposed(const CommRecord& message) const;
  /// See MessagePrice.
  double BetweenStages(const CommRecord& message, const ParallelConfig& layout) const;
  /// What a message takes in a step in `layout`, as part of `piece`. `stride` as above.
  double SecondsIn(const PieceRecord& piece, const CommRecord& message,
                   const ParallelConfig& layout, int64_t stride) const;
  /// What a pass of `device_s` through layers waits for the host. It takes no less than the host
  /// does to launch it. The host is ahead of the device at times, so the larger of both times is a
  /// smooth one; a host that waits for each op adds its own.
  double HostWait(const ParallelConfig& layout, const Launches& launches, double device_s) const;
  /// Share of data-parallel messages beside passes that is exposed all the same.
  double dp_exposed() const { return stack_.dp_exposed.value; }
  /// Seconds that ops lose per second of message beside them.
  double slowdown() const { return overlaps_ ? stack_.slowdown.value : 0; }
  /// Share of what a piece does that runs: a stack may leave out some of what is recomputed.
  double ShareRun(const PieceRecord& piece) const {
    return piece.pass == PassKind::kRecompute ? stack_.recompute.value : 1;
  }
  /// Of a step beyond its ops and messages.
  double step_s() const { return stack_.step_s.value; }

  /// Whether asynchronous messages run beside ops. On a cpu the ranks' own threads carry them.
  bool overlaps() const { return overlaps_; }
  /// FLOP/s of one rank in the run's precision.
  double peak_flops() const { return roofline_.peak_flops(precision_); }
  /// FLOP/s of one rank in the type that an op of `piece` multiplies.
  double PeakFlopsIn(const PieceRecord& piece, const OpRecord& op) const {
    const bool in_fp8 = piece.kind == PieceKind::kLayer && InFp8(op);
    return roofline_.peak_flops(in_fp8 ? Precision::kFp8 : RateOf(op, precision_));
  }
  bool calibrated() const { return tables_.calibrated(); }
  /// Whether such ops, or messages of this kind, were measured on the machine.
  bool measured(const OpRecord& op) const { return tables_.Seconds(op, precision_) > 0; }
  bool measured(const CommRecord& message) const { return tables_.Seconds(message) > 0; }
  double step_factor() const { return tables_.step_factor(); }
  double spread() const { return tables_.spread(); }

 private:
  /// Whether the stack multiplies in fp8 what this op of a layer has in 16 bits.
  bool InFp8(const OpRecord& op) const;

  bool overlaps_ = false;
  Precision precision_;
  SoftwareStack stack_;
  OpRoofline roofline_;
  MessagePrice messages_;
  PriceTables tables_;
};

/// Of ranks of `cluster` in `mode`. Throws as Pricer does.
Pricer PricerOf(const Cluster& cluster, const Mode& mode, Precision precision,
                const MoeConfig& moe);

}  // namespace trimtab
