// Activation recomputation: what the forward pass does not keep, and the backward pass makes anew.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trimtab {

enum class RecomputeKind : uint8_t { kNone, kSelective, kFull };

/// Which layers of a stage `full` recomputes (Megatron-Core's recompute_method).
enum class RecomputeMethod : uint8_t {
  kBlock,    // the first num_layers, each on its own; the rest keep everything
  kUniform,  // all, in groups of num_layers: only the input of a group is kept
};

/// What `selective` recomputes.
enum class RecomputeModule : uint8_t {
  kCoreAttn,   // attention without its projections
  kLayerNorm,  // both norms of a layer
  kMlpAct,     // the activation function of the MLP
  kMlp,        // the whole MLP, its norm included
  kLogits,     // the output projection and the gradient of the loss
};
inline constexpr int kRecomputeModuleCount = 5;

/// "core_attn", "layernorm", "mlp_act", "mlp", "logits".
std::string_view Name(RecomputeModule module);

/// A set of modules.
struct RecomputeModules {
  uint8_t bits = 0;

  bool Has(RecomputeModule module) const { return (bits >> static_cast<int>(module) & 1) != 0; }
  void Add(RecomputeModule module) {
    bits = static_cast<uint8_t>(bits | 1 << static_cast<int>(module));
  }
  bool operator==(const RecomputeModules&) const = default;
};

/// A plan of recomputation. What its kind has no use for keeps its default, so that equal plans
/// compare equal.
struct RecomputeConfig {
  RecomputeKind kind = RecomputeKind::kNone;
  int32_t num_layers = -1;                           // with kFull; -1 = all, each on its own
  RecomputeMethod method = RecomputeMethod::kBlock;  // with kFull
  RecomputeModules modules{};                        // with kSelective

  bool operator==(const RecomputeConfig&) const = default;
};

/// Neighbouring layers of a stage whose backward passes begin together.
struct RecomputeGroup {
  int64_t first = 0;
  int64_t count = 1;
  bool recomputed = false;  // only the input of the first is kept, and all of them run again

  bool operator==(const RecomputeGroup&) const = default;
};
/// The group of layer `layer` (from 0) of a stage of `num_layers`. What is not recomputed as a
/// whole is a group of its own; the last group of full:uniform:N may be smaller.
RecomputeGroup RecomputeGroupOf(const RecomputeConfig& recompute, int64_t layer,
                                int64_t num_layers);
/// The plan that recomputes the first `count` (>= 1) of the layers of a chunk of at most `layers`,
/// each on its own: full:block:COUNT, or full where that is all of them.
RecomputeConfig FullOf(int64_t count, int64_t layers);
/// The plan that recomputes all layers of a chunk, `count` (>= 1) together: full:uniform:COUNT, or
/// full where each is on its own.
RecomputeConfig UniformOf(int64_t count);

/// The plan that does to layers [first, first + count) of a stage alone, whole groups of them, what
/// `recompute` does to them.
RecomputeConfig RecomputeWithin(const RecomputeConfig& recompute, int64_t first, int64_t count);

/// The forms that ParseRecompute reads.
inline constexpr char kRecomputeForms[] =
    "none, selective[:MODULE+MODULE...], full, full:uniform:N, full:block:N";

/// "none", "selective:core_attn+mlp_act", "full", "full:uniform:2", "full:block:3".
std::string ToString(const RecomputeConfig& recompute);

/// Inverse of ToString; "selective" alone stands for the attention core, and full:uniform:1 for
/// full. Throws UsageError naming `what`.
RecomputeConfig ParseRecompute(const std::string& text, const std::string& what);

}  // namespace trimtab
