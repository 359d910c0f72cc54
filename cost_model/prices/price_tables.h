// Prices of ops and messages from what was measured on a machine (ModeTables).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/prices/interpolate.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// Whether an op multiplies matrices, one or a group of them.
bool IsProduct(const OpRecord& op);
/// How many products of its dimensions an op is.
int64_t ProductsOf(const OpRecord& op);
/// What an op's rate is of: the precision of its operands; under tf32, fp32 products go by that.
Precision RateOf(const OpRecord& op, Precision run);

/// Cores a rank has to itself when `mode` runs on `cores` (0 = unknown: as many as it asks for).
double CoresPerRank(const Mode& mode, int64_t cores);

/// Interpolation in log space between measured points, and at the edges the rate of the nearest
/// one. Tables of the mode itself; or the nearest mode's, scaled by the share of the cores a rank
/// gets. Products and attention go by the type of their operands: tables are of fp32, with a factor
/// for each other type (PrecisionFactors).
class PriceTables {
 public:
  /// Without any tables.
  PriceTables() = default;
  PriceTables(const HardwareProfile& profile, const Mode& mode, int64_t cores);

  /// 0 = there is no table of such ops. `run`: the precision of the run.
  double Seconds(const OpRecord& op, Precision run) const;
  /// 0 = there is no table of such messages. The largest group measured stands for larger ones.
  double Seconds(const CommRecord& message) const;

  /// The tables were measured in exactly the mode that was asked for.
  bool calibrated() const { return calibrated_; }
  /// Multiplies the sum of prices of a step (ModeTables::step_factor).
  double step_factor() const { return step_factor_; }
  /// How far off the tables may be (SpreadOf); 0 without tables, or when it is not known.
  double spread() const { return spread_; }

 private:
  /// Seconds of the work fused into `op` that takes a cpu more than to read a matrix, such as an
  /// activation or the sum of a bias; 0 for any other. What adds to its output has tables of its
  /// own.
  double FusedSeconds(const OpRecord& op) const;

  bool has_tables_ = false;
  bool calibrated_ = false;
  double scale_ = 1;  // seconds in this mode / seconds in the mode of the tables
  int threads_ = 1;   // of a rank
  double step_factor_ = 1;
  double spread_ = 0;
  std::array<PrecisionFactors, kPrecisions.size()> factors_;
  std::array<LogGrid3, 2> gemm_;       // seconds per FLOP, by accumulate
  std::array<LogGrid3, 2> attention_;  // seconds per FLOP, forward and backward
  std::array<LogCurve, kOpKindCount> ops_;
  std::array<std::vector<LogCurve>, kCollectiveKindCount> collectives_;  // by ranks of the group
};

}  // namespace trimtab
