// What an engine that serves is made of: the model, how it lies on the ranks, what its weights and
// its cache are stored in, and what it takes at most.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/config/rules/legality_rule.h"
#include "engine/config/run/run_config.h"
#include "engine/infer/api/engine.h"
#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

/// Tokens that may be proposed per sequence and step.
inline constexpr int64_t kMostProposed = 64;

/// A smaller model of the same vocabulary that proposes tokens.
struct DraftConfig {
  ModelConfig model{};
  WeightFormat weights = WeightFormat::kF32;  // of what is multiplied
  int64_t tokens = 0;                         // proposed per sequence and step; 0 = there is none
};

struct ServingConfig {
  ModelConfig model{};
  /// tp, pp, ep, etp, stages, precision (fp32, bf16, fp16) count; and dp: so many replicas.
  ParallelConfig layout{};
  int64_t prefill = 0;  // replicas that compute prompts alone, and hand them over; 0 = all do both
  DeviceKind device = DeviceKind::kCpu;
  int64_t threads_per_rank = 0;               // as in RunConfig
  int64_t memory_per_rank_bytes = 0;          // likewise
  WeightFormat weights = WeightFormat::kF32;  // of what is multiplied
  DType cache = DType::kF32;                  // fp32, bf16, fp16, e4m3, int8
  int64_t block_size = 16;                    // tokens of the cache
  int64_t cache_blocks = 0;  // 0 = for as many sequences of the full length as limits.sequences
  bool prefix_cache = true;
  int64_t lookup_tokens = 0;  // proposed by n-gram look-up, per sequence and step
  DraftConfig draft{};
  EngineLimits limits{};

  /// Replicas that bring answers on.
  int64_t answering() const { return layout.dp - prefill; }
  /// Tokens that are proposed per sequence and step, by whomever.
  int64_t proposed_tokens() const { return draft.tokens > 0 ? draft.tokens : lookup_tokens; }
};

using ServingRule = LegalityRule<ServingConfig>;

/// Returns the rules of serving, beside those of training (engine/config/rules/rules.h).
std::span<const ServingRule> ServingRules();

/// The configuration with what it leaves open filled in: the longest sequence, the cache's blocks.
/// Throws InfeasibleError "rule-id: message" if it breaks a rule.
ServingConfig ResolveServing(ServingConfig config);

/// One of the replicas of a configuration, as what serves by itself, with its share of this
/// machine's cores.
ServingConfig ReplicaOf(ServingConfig config);

/// The draft model of a configuration, which has one and whose longest sequence is known, as what
/// serves by itself: on one rank, with a cache for the longest text of every sequence. Resolved.
/// Throws InfeasibleError "serving-draft: ...".
ServingConfig DraftServing(const ServingConfig& config);

/// The ranks of one replica of a resolved configuration, as a run.
RunConfig RunOf(const ServingConfig& all);

}  // namespace trimtab
