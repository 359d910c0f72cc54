// Estimate: what a prediction of one training step says, whichever tier made it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/device/memory.h"
#include "engine/device/record.h"

namespace trimtab {

struct RunConfig;
struct Cluster;

/// How far a number can be trusted: from a roofline, from tables measured on this machine, or the
/// step itself was measured.
enum class Trust { kModelled, kCalibrated, kMeasured };
/// "modelled", "calibrated", "measured".
std::string_view Name(Trust trust);
/// Returns the inverse of Name. Throws InputError for any other name.
Trust ParseTrust(std::string_view name);

/// Seconds of one step by what they are spent on; they add up to the step time.
struct Breakdown {
  double compute = 0;     // forward and backward of the micro batches
  double exposed_tp = 0;  // waiting for tensor-parallel messages
  double exposed_cp = 0;  // for context-parallel ones
  double exposed_ep = 0;  // for those that carry tokens to experts and back
  double exposed_dp = 0;  // for data-parallel and world ones
  double exposed_pp = 0;  // for those between pipeline stages
  double bubble = 0;      // waiting for other pipeline stages to have something to send
  double recompute = 0;   // what backward passes run again
  double host = 0;        // waiting for the host to launch ops
  double optimizer = 0;   // clipping and AdamW
  double overhead = 0;    // what a step costs beyond its ops and messages

  double total() const;
  /// The part that messages of `group` are waited for in.
  double& exposed(GroupKind group);
};

/// A part of a step: its key in JSON, its words in a table and in a chart, the end of a sentence "4
/// % of the step is ...", and its member.
struct BreakdownPart {
  const char* key;
  const char* words;
  const char* label;
  const char* in_sentence;
  double Breakdown::*seconds;
};
inline constexpr std::array kBreakdownParts = {
    BreakdownPart{"compute", "compute", "compute", "compute", &Breakdown::compute},
    BreakdownPart{"recompute", "recompute", "recompute", "recomputing activations",
                  &Breakdown::recompute},
    BreakdownPart{"exposed_tp", "exposed tp", "tensor-parallel messages",
                  "tensor-parallel messages that compute does not hide", &Breakdown::exposed_tp},
    BreakdownPart{"exposed_cp", "exposed cp", "context-parallel messages",
                  "context-parallel messages that compute does not hide", &Breakdown::exposed_cp},
    BreakdownPart{"exposed_ep", "exposed ep", "messages to and from experts",
                  "messages to and from experts that compute does not hide",
                  &Breakdown::exposed_ep},
    BreakdownPart{"exposed_dp", "exposed dp", "data-parallel messages",
                  "data-parallel messages that compute does not hide", &Breakdown::exposed_dp},
    BreakdownPart{"exposed_pp", "exposed pp", "messages between stages",
                  "messages between pipeline stages that compute does not hide",
                  &Breakdown::exposed_pp},
    BreakdownPart{"bubble", "pipeline bubble", "pipeline bubble", "the pipeline's bubble",
                  &Breakdown::bubble},
    BreakdownPart{"host", "waiting for the host", "waiting for the host", "waiting for the host",
                  &Breakdown::host},
    BreakdownPart{"optimizer", "optimizer", "optimizer", "the optimizer", &Breakdown::optimizer},
    BreakdownPart{"overhead", "overhead", "overhead", "the framework's overhead",
                  &Breakdown::overhead},
};

/// Multiplies every part by `factor`.
void Scale(Breakdown& parts, double factor);

/// Messages of one kind in one group in one step of one rank.
struct CommTotal {
  int64_t count = 0;
  int64_t bytes = 0;  // sum of CommRecord::bytes

  bool operator==(const CommTotal&) const = default;
};

/// Indexed [collective][group].
struct CommTotals {
  std::array<std::array<CommTotal, kGroupKindCount>, kCollectiveKindCount> totals{};

  CommTotal& at(CollectiveKind kind, GroupKind group) {
    return totals[static_cast<size_t>(kind)][static_cast<size_t>(group)];
  }
  const CommTotal& at(CollectiveKind kind, GroupKind group) const {
    return totals[static_cast<size_t>(kind)][static_cast<size_t>(group)];
  }
  bool operator==(const CommTotals&) const = default;
};

/// Bytes of one rank. The first three stay for the whole run.
struct MemoryEstimate {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;  // peak of that tag
  int64_t peak_total = 0;   // peak of everything together, within a step

  int64_t persistent() const { return weights + gradients + optimizer; }
  /// Of the peak, at least: gathered weights, gradients on their way, buffers, and what the
  /// software keeps besides.
  int64_t other() const { return std::max<int64_t>(0, peak_total - persistent() - activations); }
  bool operator==(const MemoryEstimate&) const = default;
};

/// One step. Times, FLOPs, ops and messages are of a rank of the slowest pipeline stage, memory is
/// of the fullest rank.
struct Estimate {
  double step_time_s = 0;
  double step_time_low_s = 0;  // the interval the step time is expected in
  double step_time_high_s = 0;
  Breakdown breakdown_s;
  Trust trust = Trust::kModelled;

  int64_t hardware_flops = 0;  // of one rank: everything it multiplies, recompute included
  int64_t op_count = 0;        // of one rank
  CommTotals comm;             // of one rank
  MemoryEstimate memory;       // of the fullest rank

  /// Of the whole step, all ranks, by NVIDIA's convention: 6 per matrix weight and token, attention
  /// counted as the full square (of a layer with a window, as twice what its queries see), no
  /// embedding look-up, no recompute.
  double model_flops = 0;
  int64_t tokens = 0;  // of the whole step
  int64_t ranks = 1;
  double peak_flops_per_rank = 0;  // of the run's precision; 0 = the profile has none

  double tokens_per_s() const { return static_cast<double>(tokens) / step_time_s; }
  double tokens_per_s_per_gpu() const { return tokens_per_s() / static_cast<double>(ranks); }
  double model_tflops_per_gpu() const {
    return model_flops / step_time_s / static_cast<double>(ranks) / 1e12;
  }
  /// Model FLOPs utilisation; 0 when the profile has no peak.
  double mfu() const {
    return peak_flops_per_rank > 0 ? model_tflops_per_gpu() * 1e12 / peak_flops_per_rank : 0;
  }
};

/// Model FLOPs of one whole step by NVIDIA's convention (see Estimate::model_flops; Narayanan et
/// al., arXiv:2104.04473, section 5.1, without the recompute term).
double ModelFlops(const RunConfig& run);

/// The part of ModelFlops that multiplies weights: 6 per weight and token, without attention.
double WeightFlops(const RunConfig& run);

/// Sets the interval to the step time +- `half_width` of it (low: divided by 1 + half_width).
void SetInterval(Estimate& estimate, double half_width);

/// The fields of an estimate under the names of the command line's contract.
nlohmann::json ToJson(const Estimate& estimate);

}  // namespace trimtab
