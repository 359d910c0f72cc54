// How one training step is laid out over ranks. Names follow Megatron-Core.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

enum class RecomputeKind { kNone, kFull };

/// Activation recomputation. `full` with method `block`: the first `num_layers` layers of the
/// stage keep only their input and run Forward again in the backward pass.
struct RecomputeConfig {
  RecomputeKind kind = RecomputeKind::kNone;
  int64_t num_layers = -1;  // with kFull: layers recomputed per stage; -1 = all of them

  bool operator==(const RecomputeConfig&) const = default;
};

/// A layout. world = tp * cp * pp * dp.
struct ParallelConfig {
  int64_t tp = 1;                  // tensor parallel size
  bool sequence_parallel = false;  // shard the token dimension outside attention and MLP (with tp)
  int64_t cp = 1;                  // context parallel size
  int64_t pp = 1;                  // pipeline parallel size
  int64_t vp = 1;                  // model chunks per pipeline rank
  int64_t ep = 1;                  // expert parallel size
  int64_t etp = 1;                 // tensor parallel size of the experts
  int64_t dp = 1;                  // data parallel size
  int64_t zero = 0;                // sharding stage 0..3
  std::string schedule = "1f1b";
  int64_t micro_batch = 1;  // sequences per micro batch and data-parallel rank
  RecomputeConfig recompute{};
  std::string precision = "fp32";  // fp32, tf32, bf16, fp16, fp8: see precision.h
  std::string master = "fp32";     // master weights beside 16-bit ones: fp32, remainder
  std::string moments = "fp32";    // of the optimizer: fp32, bf16, fp16
  std::string gradients = "fp32";  // of the weights: fp32, bf16

  int64_t world_size() const { return tp * cp * pp * dp; }
  bool operator==(const ParallelConfig&) const = default;
};

/// What the plan comes to for one layer of a stage: none, or full.
RecomputeConfig RecomputeOfLayer(const RecomputeConfig& recompute, int64_t layer);

/// "none", "full", "full:block:3".
std::string ToString(const RecomputeConfig& recompute);
/// Inverse of ToString. Throws UsageError naming `what`.
RecomputeConfig ParseRecompute(const std::string& text, const std::string& what);

/// "tp=2,sp=1,dp=1,zero=0,mbs=4,recompute=none": only what differs from the default, except that
/// tp, dp and mbs are always there. Stable: used as the key of a layout in a study.
std::string ToString(const ParallelConfig& layout);

/// Parses --layout "tp=8,pp=2,...". When the text has no dp, it is world_size / (tp*cp*pp);
/// world_size 0 means "derive nothing": dp defaults to 1.
/// Throws UsageError naming the key and, for an unknown key, the nearest valid one.
ParallelConfig ParseLayout(const std::string& text, int64_t world_size);

/// Strict JSON, as in RUN.json under $.layout. `where` prefixes error messages.
ParallelConfig ParallelConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const ParallelConfig& layout);

}  // namespace trimtab
