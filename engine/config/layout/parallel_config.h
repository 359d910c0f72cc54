// How one training step is laid out over ranks. Names follow Megatron-Core.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/config/layout/stage_layers.h"
#include "engine/config/layout/stage_recompute.h"

namespace trimtab {

/// The order in which a pipeline stage runs its micro batches.
enum class Schedule : uint8_t { k1F1B, kGpipe, kInterleaved1F1B, kZeroBubble };
/// "1f1b", "gpipe", "interleaved-1f1b", "zero-bubble".
std::string_view Name(Schedule schedule);

/// How context-parallel ranks reach each other's keys and values.
enum class CpCommType : uint8_t { kP2p, kAllGather };  // around a ring; all at once
/// "p2p", "all_gather".
std::string_view Name(CpCommType type);

/// How tokens reach the ranks that hold their experts.
enum class Dispatch : uint8_t { kAllToAll, kAllGather };  // each to its experts' ranks; all to all
/// "alltoall", "allgather".
std::string_view Name(Dispatch dispatch);

/// What a step stores and multiplies in: precision.h.
enum class Precision : uint8_t { kFp32, kTf32, kBf16, kFp16, kFp8 };
inline constexpr std::array kPrecisions = {Precision::kFp32, Precision::kTf32, Precision::kBf16,
                                           Precision::kFp16, Precision::kFp8};
/// "fp32", "tf32", "bf16", "fp16", "fp8".
std::string_view Name(Precision precision);

/// Master weights beside 16-bit ones: whole, or the 16 bits that a bf16 weight leaves out.
enum class MasterWeights : uint8_t { kFp32, kRemainder };
/// "fp32", "remainder".
std::string_view Name(MasterWeights master);

/// What a step stores and multiplies in, and what it keeps of each parameter between steps.
struct Numerics {
  Precision precision = Precision::kFp32;
  MasterWeights master = MasterWeights::kFp32;
  DType moments = DType::kF32;    // of the optimizer: fp32, bf16, fp16, int8
  DType gradients = DType::kF32;  // of the weights: fp32, bf16

  auto operator<=>(const Numerics&) const = default;
};

/// A layout. world = tp * cp * pp * dp; a pipeline stage's ranks are also etp * ep * edp, for its
/// experts. A small value: copied freely, compared member by member.
/// layout_keys.h has the key of each member, with its meaning and its range.
struct ParallelConfig {
  int64_t tp = 1;                  // tensor parallel size
  bool sequence_parallel = false;  // shard tokens outside attention and MLP (with tp)
  int64_t tp_overlap_chunks = 1;   // of each tp collective beside its products
  int64_t cp = 1;                  // context parallel size
  CpCommType cp_comm_type = CpCommType::kP2p;
  int64_t pp = 1;        // pipeline parallel size
  int64_t vp = 1;        // model chunks per pipeline rank
  StageLayers stages{};  // layers of each chunk
  int64_t ep = 1;        // expert parallel size
  int64_t etp = 1;       // tensor parallel size of the experts
  Dispatch dispatch = Dispatch::kAllToAll;
  int64_t dp = 1;                     // data parallel size
  int64_t zero = 0;                   // sharding stage 0..3
  int64_t shard = 0;                  // ranks a replica is sharded over; 0 = dp
  bool reshard_after_forward = true;  // with zero 3
  bool overlap_grad_reduce = true;    // gradient reduction beside the backward pass
  bool overlap_param_gather = false;  // parameter gather beside the forward pass
  Schedule schedule = Schedule::k1F1B;
  int64_t micro_batch = 1;  // sequences per micro batch and dp rank
  StageRecompute recompute{};
  Numerics numerics{};

  int64_t world_size() const { return tp * cp * pp * dp; }
  /// Ranks that hold the same expert weights: the expert data parallel size.
  int64_t edp() const { return tp * cp * dp / (etp * ep); }
  /// `shard` for expert weights: those of its ranks that hold the same ones, or 1; 0 = edp.
  int64_t expert_shard() const {
    if (shard == 0) return 0;
    return tp * shard > etp * ep ? tp * shard / (etp * ep) : 1;
  }
  bool operator==(const ParallelConfig&) const = default;
};
static_assert(std::is_trivially_copyable_v<ParallelConfig>);

/// "tp=2,sp=1,dp=1,zero=1,mbs=4": only what differs from the default, except that tp, dp and mbs
/// are always there. Stable: used as the key of a layout in a study.
std::string ToString(const ParallelConfig& layout);

/// Parses --layout "tp=8,pp=2,...". When the text has no dp, it is world_size / (tp*cp*pp);
/// world_size 0 means "derive nothing": dp defaults to 1. A schedule that is left out is the one
/// for several chunks on a rank, where vp is above 1. Throws UsageError naming the key and, for an
/// unknown key or value, the nearest valid one.
ParallelConfig ParseLayout(const std::string& text, int64_t world_size);

/// Strict JSON, as in RUN.json under $.layout. `where` prefixes error messages.
ParallelConfig ParallelConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const ParallelConfig& layout);

/// One line per key of a layout: its name, its values, what it means. For the command's help.
std::string DescribeLayoutKeys();

}  // namespace trimtab
