// HardwareProfile: what one kind of machine can do, as data. Strict JSON; every number carries
// where it comes from.
//
// GPUs are described by a roofline: peak rates, bandwidths, efficiencies, latencies. A machine that
// was measured (`trimtab calibrate`) also has tables: seconds per op and per collective, one set
// for each way its ranks and threads share the machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/base/device_kind.h"
#include "engine/base/dtype.h"
#include "engine/device/record.h"

namespace trimtab {

/// Where a number comes from.
enum class Origin { kDatasheet, kPublished, kMeasured, kModelled, kFitted };
std::string_view Name(Origin origin);

/// One number and its provenance. `source` is a document, or how it was measured. `prior`: what was
/// expected of a fitted number before the fit; 0 = it is not one.
struct Quantity {
  double value = 0;
  Origin origin = Origin::kModelled;
  std::string source{};
  double prior = 0;

  bool operator==(const Quantity&) const = default;
};

/// How ranks share a machine: `ranks` of the whole run on it, each with `threads` threads. Ranks of
/// one cpu share cores, caches and memory bandwidth, so every price depends on it.
struct Mode {
  int ranks = 1;
  int threads = 1;

  auto operator<=>(const Mode&) const = default;
};
/// "2x1": ranks x threads.
std::string ToString(const Mode& mode);
/// "2 ranks x 1 thread".
std::string InWords(const Mode& mode);
/// Inverse of ToString. Throws UsageError naming `what`.
Mode ParseMode(const std::string& text, const std::string& what);

/// Median seconds of one product c [m, n] = a [m, k] b [k, n]. `accumulate` stands for the weight
/// gradient (both operands walked down their columns, c added to); without it for the forward pass
/// and the input gradient, half of each.
struct GemmPoint {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool accumulate = false;
  double seconds = 0;

  bool operator==(const GemmPoint&) const = default;
};

/// Median seconds of attention over `batch_heads` (B * H) heads of T tokens and D elements.
struct AttentionPoint {
  int64_t batch_heads = 0;
  int64_t sequence = 0;
  int64_t head_size = 0;
  double forward_s = 0;
  double backward_s = 0;

  bool operator==(const AttentionPoint&) const = default;
};

/// Median seconds against bytes: of an op's traffic (OpRecord::bytes), or of a message
/// (CommRecord::bytes).
struct BytesPoint {
  int64_t bytes = 0;
  double seconds = 0;

  bool operator==(const BytesPoint&) const = default;
};

/// What a precision costs on a cpu, which keeps values in fewer bits but computes in fp32: seconds
/// against fp32 at the same shape, conversions included.
struct PrecisionFactors {
  double gemm = 1;
  double attention = 1;
  double ops = 1;  // everything else

  bool operator==(const PrecisionFactors&) const = default;
};

/// What was measured with all ranks of a mode at work at once.
struct ModeTables {
  Mode mode;
  std::vector<GemmPoint> gemm;            // a full grid m x n x k, for each of both `accumulate`
  std::vector<AttentionPoint> attention;  // a full grid batch_heads x T x D
  std::map<OpKind, std::vector<BytesPoint>> ops;  // ascending bytes, at least two points
  /// By (collective, ranks of the group); groups of one mode work at the same time.
  std::map<std::pair<CollectiveKind, int>, std::vector<BytesPoint>> collectives;
  /// The tables are of fp32; others by name ("bf16", "fp16", "fp8").
  std::map<std::string, PrecisionFactors> precisions;
  /// What a step costs / the sum of its prices, from steps of a small reference model.
  double step_factor = 1;
  /// Seconds of one round of the reference probe at the speed that the tables are of; 0 = unknown.
  double probe_s = 0;
  /// How far off its ratio to the other modes' may be: a relative standard error.
  double probe_spread = 0;
  /// How far off a table may be, likewise, by its name: "gemm", "attention", "ops", "collectives",
  /// "step". Empty = unknown, in profiles of older versions.
  std::map<std::string, double> spread;
  std::string source;  // how all of this was measured

  bool operator==(const ModeTables&) const = default;
};
/// How far off a step priced by `tables` may be because of how they were measured, a relative
/// standard error: the worst table, the step factor and the probe, as independent errors add up.
double SpreadOf(const ModeTables& tables);

/// Efficiency at one size (share of peak): the smallest dimension of a product, or the sequence
/// length of attention.
struct EfficiencyPoint {
  int64_t size = 0;
  double efficiency = 0;

  bool operator==(const EfficiencyPoint&) const = default;
};

struct EfficiencyCurve {
  std::vector<EfficiencyPoint> points;  // ascending sizes, at least one
  Origin origin = Origin::kModelled;
  std::string source;
  double prior = 0;  // of the last point, as Quantity says

  bool operator==(const EfficiencyCurve&) const = default;
};

struct HardwareProfile {
  std::string name;
  std::vector<std::string> aliases;      // other names of the machine: "h100", "H100-SXM"
  std::string generation;                // of its kind: machines of one share efficiencies
  DeviceKind device = DeviceKind::kCpu;  // cpu | cuda
  int64_t multiprocessors = 0;  // of a GPU, over which products are cut into tiles; 0 = none
  int64_t link_domain = 0;      // GPUs that the link joins, over nodes; 0 = those of a node
  bool link_reduces = false;    // its switches add up what all-reduces send (NVLink SHARP)
  /// FLOP/s of a GPU or of a cpu core, dense, by what is multiplied: "fp32", "tf32", "bf16",
  /// "fp16", "fp8". A precision without a rate cannot be priced.
  std::map<std::string, Quantity> peak_flops;
  Quantity memory_bytes;            // of one GPU, or of the machine
  Quantity memory_bandwidth;        // bytes/s
  Quantity bandwidth_efficiency;    // share of it that streaming kernels reach
  EfficiencyCurve gemm_efficiency;  // by the smallest dimension
  /// For products whose curve is another one.
  std::map<std::string, EfficiencyCurve> gemm_efficiency_of;
  EfficiencyCurve attention_forward;  // share of peak, causal half counted, by sequence length
  EfficiencyCurve attention_backward;
  Quantity flash_attention_2{1};   // its speed against these curves
  Quantity launch_overhead_s;      // of one op
  Quantity link_latency_s;         // of one message within a node
  Quantity link_bandwidth;         // bytes/s per rank and direction within a node
  Quantity link_efficiency{1};     // share of it that collectives reach
  Quantity network_latency_s;      // of one message between nodes
  Quantity network_bandwidth;      // bytes/s per rank and direction between nodes
  Quantity network_efficiency{1};  // share of it that collectives reach
  Quantity shared_ports{1};        // of a node's: what a group gets of each but its first, where
                                   // others use them too
  Quantity power_w{0};             // of one GPU at full load, its board's limit; 0 = unknown
  std::vector<ModeTables> modes;   // empty: the roofline above is all there is
  std::string measured_on;         // processor and date of the measurement; may be empty

  bool operator==(const HardwareProfile&) const = default;
};

/// FLOP/s of products in 16 bits: bf16's, or fp16's where a GPU has no bf16; 0 = neither is known.
double PeakOf16Bits(const HardwareProfile& profile);

/// Bytes of a GPU's memory that its driver shows. Datasheets count in GiB and say GB, and
/// the driver keeps about 1 %: 85.0e9 of an "80 GB" H100, 150.1e9 of a "141 GB" H200.
double VisibleMemory(const HardwareProfile& profile);

/// Strict JSON. `where` prefixes error messages. Throws InputError.
HardwareProfile HardwareProfileFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const HardwareProfile& profile);

/// Reads a profile file. Throws InputError (unreadable, malformed).
HardwareProfile LoadHardwareProfile(const std::string& path);
/// Writes a profile file, whole or not at all. Throws StorageError.
void SaveHardwareProfile(const HardwareProfile& profile, const std::string& path);

/// Names of the profiles inside the program: "a100-80gb", "h100-sxm", "h200-sxm", "b200", "cpu",
/// ...
std::vector<std::string> BuiltinProfileNames();
/// Throws UsageError for a name that is not built in.
HardwareProfile BuiltinProfile(const std::string& name);
/// The built-in profiles, read once.
const std::vector<HardwareProfile>& BuiltinProfiles();
/// The built-in profile of that name or alias, whatever its case; nullptr if there is none.
const HardwareProfile* FindBuiltinProfile(const std::string& name_or_alias);

}  // namespace trimtab
