#include "engine/config/model/rope_scaling.h"
#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

constexpr Rule kModelRules[] = {
    {"hidden-divisible-by-heads",
     "Heads divide the hidden size evenly, or have a size of their own.",
     [](const RunConfig& run) {
       const ModelConfig& model = run.model;
       return model.latent.used() || model.head_dim > 0 || model.hidden_size % model.num_heads == 0;
     },
     [](const RunConfig& run) {
       return NotDivisible("hidden_size", run.model.hidden_size, "num_heads", run.model.num_heads);
     }},
    {"heads-divisible-by-kv-heads", "Every key/value head serves the same number of query heads.",
     [](const RunConfig& run) { return run.model.num_heads % run.model.num_kv_heads == 0; },
     [](const RunConfig& run) {
       return NotDivisible("num_heads", run.model.num_heads, "num_kv_heads",
                           run.model.num_kv_heads);
     }},
    {"latent-attention-consistent", "What the model says of its latent attention fits together.",
     [](const RunConfig& run) { return LatentFault(run.model).empty(); },
     [](const RunConfig& run) { return "latent_attention: " + LatentFault(run.model); }},
    {"query-key-norm-whole-consistent", "Norms over all queries and all keys are norms of them.",
     [](const RunConfig& run) {
       return run.model.query_key_norm || !run.model.query_key_norm_whole;
     },
     [](const RunConfig&) {
       return std::string("query_key_norm_whole is true, and query_key_norm is false");
     }},
    {"head-size-even-with-rope", "Rotary positions turn a head's elements in pairs, at least one.",
     [](const RunConfig& run) {
       const int64_t size = run.model.rotary_size();
       return run.model.position != PositionKind::kRope || (size >= 2 && size % 2 == 0);
     },
     [](const RunConfig& run) {
       return fmt::format(
           "head size {} x rotary_fraction {} makes {} elements that turn; expected an even number "
           "of at least 2",
           run.model.head_size(), run.model.rotary_fraction, run.model.rotary_size());
     }},
    {"rotary-size-unsupported", "Kernels hold the angles of so many elements of a head at most.",
     [](const RunConfig& run) {
       return run.model.position != PositionKind::kRope ||
              run.model.rotary_size() <= kMaxRotarySize;
     },
     [](const RunConfig& run) {
       const std::string only = fmt::format("at most {}", kMaxRotarySize);
       return Unsupported("the rotary size of a head", run.model.rotary_size(), only.c_str());
     }},
    {"moe-consistent", "What the model says of its experts fits together.",
     [](const RunConfig& run) { return FaultOf(run.model.moe).empty(); },
     [](const RunConfig& run) { return FaultOf(run.model.moe); }},
    {"rope-scaling-original-length",
     "llama3 and yarn scale rotary positions by the length that the model was first trained on.",
     [](const RunConfig& run) {
       const RopeScaling& scaling = run.model.rope_scaling;
       const bool needs_one =
           scaling.kind == RopeScalingKind::kLlama3 || scaling.kind == RopeScalingKind::kYarn;
       return !needs_one || scaling.original_length >= 1;
     },
     [](const RunConfig&) {
       return std::string("rope_scaling needs an original_length of at least 1");
     }},
    {"sequence-within-positions", "The sequence is no longer than the learned positions.",
     [](const RunConfig& run) {
       return run.model.position != PositionKind::kLearned ||
              run.sequence_length <= run.model.max_sequence_length;
     },
     [](const RunConfig& run) {
       return fmt::format("sequence_length {} exceeds the model's {} positions",
                          run.sequence_length, run.model.max_sequence_length);
     }},
};

}  // namespace

std::span<const Rule> ModelRules() { return kModelRules; }

}  // namespace trimtab
