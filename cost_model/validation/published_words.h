// Words of published rows that mean the same, as tables: a row may say "BF16", "bfloat16" or
// "bf16-mixed".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trimtab {

/// A way to say something, as a plain name (engine/base/plain_name.h), and the word that it means.
struct Meaning {
  std::string_view said;
  std::string_view means;
};

/// What `text` means: by the first of `meanings` that is among its words; nullopt where none is.
std::optional<std::string> MeaningOf(std::string_view text, std::span<const Meaning> meanings);

// By field. A word that means nothing ("") is as good as null.

inline constexpr Meaning kPrecisionWords[] = {
    {"nvfp4", "nvfp4"}, {"mxfp8", "fp8"},    {"fp8", "fp8"},
    {"float8", "fp8"},  {"bf16", "bf16"},    {"bfloat16", "bf16"},
    {"fp16", "fp16"},   {"float16", "fp16"}, {"half", "fp16"},
};

inline constexpr Meaning kRecomputeWords[] = {
    {"unknown", ""},
    {"nottold", ""},
    {"block", "block"},
    {"selective", "selective"},
    {"partial", "selective"},
    {"full", "full"},
    {"uniform", "full"},
    {"none", "none"},
    {"no", "none"},
    {"off", "none"},
    {"false", "none"},
    {"disabled", "none"},
    {"all", "full"},
    {"yes", "full"},
    {"true", "full"},
    {"on", "full"},
    {"checkpointing", "full"},
};

/// Modules that are recomputed selectively.
inline constexpr Meaning kModuleWords[] = {
    {"coreattn", "core_attn"},
    {"coreattention", "core_attn"},
    {"mlpactivation", "mlp_act"},
    {"mlpact", "mlp_act"},
    {"moeact", "mlp_act"},
    {"activationfunction", "mlp_act"},
    {"norm", "layernorm"},
    {"layernorm", "layernorm"},
    {"rmsnorm", "layernorm"},
    {"mlp", "mlp"},
    {"moe", "moe"},
    {"experts", "moe"},
};

inline constexpr Meaning kFlopsWords[] = {
    {"unknown", ""},  {"nottold", ""},          {"none", ""},        {"model", "model"},
    {"mfu", "model"}, {"hardware", "hardware"}, {"hfu", "hardware"},
};

inline constexpr Meaning kAttentionFlopsWords[] = {
    {"unknown", ""},      {"nottold", ""},    {"none", ""},     {"noncausal", "full"},
    {"causal", "causal"}, {"half", "causal"}, {"full", "full"}, {"square", "full"},
};

inline constexpr Meaning kMixedPrecisionWords[] = {{"default", "default"}, {"pure", "pure"}};

/// Two matrices of an MLP, or three.
inline constexpr Meaning kMlpWords[] = {
    {"notgated", "gelu"}, {"ungated", "gelu"}, {"nongated", "gelu"}, {"swiglu", "swiglu"},
    {"geglu", "swiglu"},  {"reglu", "swiglu"}, {"glu", "swiglu"},    {"gated", "swiglu"},
    {"gelu", "gelu"},     {"relu", "gelu"},    {"relu2", "gelu"},    {"squaredrelu", "gelu"},
    {"silu", "gelu"},     {"swish", "gelu"},   {"mlp", "gelu"},
};

/// Whether what is trained is all of a model, on text: "" if so, else what it is instead.
inline constexpr Meaning kTrainingWords[] = {
    {"lora", "lora"},    {"qlora", "lora"},     {"peft", "lora"},     {"sft", "sft"},
    {"finetune", "sft"}, {"finetuning", "sft"}, {"finetuned", "sft"}, {"rlhf", "rlhf"},
    {"dpo", "dpo"},      {"pretrain", ""},      {"pretraining", ""},  {"scratch", ""},
    {"training", ""},
};

}  // namespace trimtab
