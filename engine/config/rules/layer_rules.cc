#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

/// Tokens of a micro batch on one context-parallel rank.
int64_t LocalTokens(const RunConfig& run) {
  return run.layout.micro_batch * run.sequence_length / run.layout.cp;
}

/// Rows of the residual stream on one rank.
int64_t RowsPerRank(const RunConfig& run) {
  return run.layout.sequence_parallel ? LocalTokens(run) / run.layout.tp : LocalTokens(run);
}

/// An empty string, or which size of an fp8 product on one rank is no multiple of 16.
std::string UnevenForFp8(const RunConfig& run) {
  const int64_t tp = run.layout.tp;
  const ModelConfig& model = run.model;
  const LatentConfig& latent = model.latent;
  const MoeConfig& moe = model.moe;
  const int64_t heads = model.num_heads;
  // What a model does not have is 0.
  const int64_t qkv = (heads / tp + 2 * model.kv_heads_of_rank(tp)) * model.head_size();
  const int64_t queries = latent.used() ? heads * model.head_size() : 0;
  const int64_t keys_values = heads * (latent.qk_nope_head_dim + latent.v_head_dim);
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden_size", model.hidden_size},
      {"attention columns / tp", model.attention_size() / tp},
      {"query, key and value columns / tp", latent.used() ? 0 : qkv},
      {"latent_attention.q_lora_rank", latent.q_lora_rank},
      {"latent_attention.kv_lora_rank", latent.kv_lora_rank},
      {"query columns / tp", queries / tp},
      {"key and value columns / tp", keys_values / tp},
      {"ffn_hidden_size / tp", model.has_dense_layers() ? model.ffn_hidden_size / tp : 0},
      {"moe.ffn_hidden_size / etp", moe.used() ? moe.ffn_hidden_size / run.layout.etp : 0},
      {"moe.shared_ffn_hidden_size / tp", moe.shared_ffn_hidden_size / tp},
      {"mbs x sequence_length / cp", LocalTokens(run)}};
  for (const auto& [name, size] : sizes) {
    if (size % 16 != 0) return fmt::format("fp8: {} is {}, no multiple of 16", name, size);
  }
  return "";
}

constexpr Rule kLayerRules[] = {
    {"heads-divisible-by-tp", "Every tensor-parallel rank computes the same number of heads.",
     [](const RunConfig& run) { return run.model.num_heads % run.layout.tp == 0; },
     [](const RunConfig& run) {
       return NotDivisible("num_heads", run.model.num_heads, "tp", run.layout.tp);
     }},
    {"kv-heads-divisible-by-tp",
     "Every tensor-parallel rank holds the same number of key/value heads, or equally many ranks "
     "share each.",
     [](const RunConfig& run) {
       const int64_t heads = run.model.num_kv_heads;
       return heads % run.layout.tp == 0 || run.layout.tp % heads == 0;
     },
     [](const RunConfig& run) {
       return fmt::format("neither of num_kv_heads {} and tp {} is divisible by the other",
                          run.model.num_kv_heads, run.layout.tp);
     }},
    {"ffn-divisible-by-tp", "Every tensor-parallel rank computes the same number of MLP columns.",
     [](const RunConfig& run) { return run.model.ffn_hidden_size % run.layout.tp == 0; },
     [](const RunConfig& run) {
       return NotDivisible("ffn_hidden_size", run.model.ffn_hidden_size, "tp", run.layout.tp);
     }},
    {"cp-comm-type-requires-cp",
     "Only context-parallel ranks have a way to reach each other's keys and values.",
     [](const RunConfig& run) {
       return run.layout.cp_comm_type == CpCommType::kP2p || run.layout.cp > 1;
     },
     [](const RunConfig& run) {
       return fmt::format("cp_comm_type={} needs cp of at least 2, and cp is {}",
                          Name(run.layout.cp_comm_type), run.layout.cp);
     }},
    {"sequence-divisible-by-2cp",
     "Every context-parallel rank has two runs of a sequence, all of one length.",
     [](const RunConfig& run) {
       return run.layout.cp == 1 || run.sequence_length % (2 * run.layout.cp) == 0;
     },
     [](const RunConfig& run) {
       return NotDivisible("sequence_length", run.sequence_length, "2 x cp =", 2 * run.layout.cp);
     }},
    {"fp8-sizes-divisible-by-16", "The sizes of fp8 products are multiples of 16.",
     [](const RunConfig& run) {
       return !TypesOf(run.layout.numerics).fp8 || UnevenForFp8(run).empty();
     },
     [](const RunConfig& run) { return UnevenForFp8(run); }},
    {"sp-requires-tp", "Sequence parallelism shards over the tensor-parallel ranks.",
     [](const RunConfig& run) { return !run.layout.sequence_parallel || run.layout.tp > 1; },
     [](const RunConfig& run) {
       return fmt::format("sp=1 needs tp of at least 2, and tp is {}", run.layout.tp);
     }},
    {"tokens-divisible-by-tp-with-sp", "Sequence parallelism splits a micro batch's tokens evenly.",
     [](const RunConfig& run) {
       return !run.layout.sequence_parallel || LocalTokens(run) % run.layout.tp == 0;
     },
     [](const RunConfig& run) {
       return fmt::format(
           "with sp=1, mbs {} x sequence_length {} / cp {} is not divisible by tp {}",
           run.layout.micro_batch, run.sequence_length, run.layout.cp, run.layout.tp);
     }},
    {"tp-overlap-requires-tp", "What overlaps is messages of tensor-parallel ranks.",
     [](const RunConfig& run) { return run.layout.tp_overlap_chunks == 1 || run.layout.tp > 1; },
     [](const RunConfig& run) {
       return fmt::format("tp_overlap_chunks={} needs tp of at least 2, and tp is {}",
                          run.layout.tp_overlap_chunks, run.layout.tp);
     }},
    {"tp-overlap-without-fp8", "fp8 quantises as a whole what overlapped products take in chunks.",
     [](const RunConfig& run) {
       return run.layout.tp_overlap_chunks == 1 || !TypesOf(run.layout.numerics).fp8;
     },
     [](const RunConfig& run) {
       return fmt::format("tp_overlap_chunks={} goes with every precision but fp8",
                          run.layout.tp_overlap_chunks);
     }},
    {"rows-divisible-by-tp-overlap-chunks",
     "Chunks of overlapped products have the same number of each rank's rows.",
     [](const RunConfig& run) { return RowsPerRank(run) % run.layout.tp_overlap_chunks == 0; },
     [](const RunConfig& run) {
       return NotDivisible("rows per rank", RowsPerRank(run), "tp_overlap_chunks",
                           run.layout.tp_overlap_chunks);
     }},
};

}  // namespace

std::span<const Rule> LayerRules() { return kLayerRules; }

}  // namespace trimtab
