// Training runs that others measured and published, in the format of the table that collects them:
// a JSON list of rows, each a configuration, what was measured, and where it was read. What a
// source does not tell is null.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trimtab {

struct PublishedModel {
  std::string name{};
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  std::string ffn_kind{};    // "gelu": two matrices; "swiglu": three
  std::string activation{};  // in words, where it is another than ffn_kind says
  int64_t vocab = 0;
  int64_t sequence = 0;
  bool tied_embeddings = false;
  int64_t experts = 0;  // 0 = dense
  int64_t topk = 0;
  int64_t moe_ffn = 0;
  int64_t shared_expert_ffn = 0;
  int64_t first_dense_layers = 0;
  double capacity_factor = 0;  // of experts that are padded to it; 0 = not told
  std::string attention{};     // in words, where it is not grouped-query attention over everything
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;

  /// Whether the MLP's activation is multiplied by a gate, of a matrix of its own.
  bool gated() const;
  // What the model has where a row does not tell it.
  int64_t KvHeads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t HeadSize() const {
    return head_dim > 0 ? head_dim : hidden / std::max<int64_t>(heads, 1);
  }
  int64_t MoeFfn() const { return moe_ffn > 0 ? moe_ffn : ffn; }
};

struct PublishedHardware {
  std::string gpu{};
  int64_t gpus = 0;
  int64_t gpus_per_node = 8;
  int64_t nvlink_domain = 0;      // GPUs that NVLink connects; 0 = those of a node
  double network_gbit_per_s = 0;  // of one GPU; 0 = not told
  double memory_bytes = 0;        // of one GPU; 0 = not told
};

struct PublishedLayout {
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t vp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t dp = 1;  // GPUs / (tp * pp * cp)
  bool sequence_parallel = false;
  int64_t zero_stage = 0;
  int64_t shard = 0;  // ranks that share what is sharded; 0 = all data-parallel ones
  std::string schedule{};
};

/// Of what is measured, 0 = not told. `peak_mem_bytes` in bytes of one GPU.
struct PublishedMeasurement {
  double tokens_per_s_per_gpu = 0;
  double step_time_s = 0;
  double samples_per_s = 0;
  double tflops_per_gpu = 0;
  bool hardware_flops = false;             // recomputation counts
  std::optional<bool> causal_attention{};  // half of the square counts; not told: all of it
  double mfu = 0;
  double peak_tflops = 0;  // that `mfu` is of
  double hfu = 0;          // with what is recomputed
  double peak_mem_bytes = 0;
  std::string mem_kind{};
  bool out_of_memory = false;
};

struct PublishedRun {
  std::string id{};
  std::string family{};
  std::string source{};
  std::string framework{};
  int64_t year = 0;
  PublishedModel model;
  PublishedHardware hardware;
  PublishedLayout layout;
  int64_t micro_batch = 0;
  int64_t global_batch = 0;
  std::string recompute{};       // none, selective, full, block
  int64_t recompute_layers = 0;  // with block
  std::string recompute_detail{};
  std::vector<std::string> recompute_modules{};
  std::string precision{};         // bf16, fp16, fp8, nvfp4
  std::string precision_detail{};  // the recipe
  std::string gradient_type{};     // that gradients are added up in; empty = the framework's usual
  int64_t state_bytes = 0;         // of a parameter, weight and gradient included; 0 = the usual
  std::string cuda_graphs{};
  std::string token_dispatcher{};   // "deepep", "hybridep"; empty = all-to-all messages
  bool experts_overlapped = false;  // tokens travel beside another micro batch's passes
  PublishedMeasurement measured;
  std::vector<std::string> unusable{};  // values that no run can have, or that nobody knows
  std::vector<std::string> assumed{};   // in the place of null fields
  std::vector<std::string> missing{};   // null fields that a simulation needs
  std::vector<std::string> blockers{};  // what keeps the row out of a plain simulation
  std::string notes{};

  /// When the software was released, 2024.5 = mid 2024: from a release such as "24.07" in the
  /// framework's name, else the year of the row; 0 where neither is told.
  double Release() const;
  /// Why nobody could simulate the run from what is told; empty if one can. What is `unusable`
  /// comes first.
  std::string Incomplete() const;
  /// Tokens/s and GPU, from whichever measure is told, by the FLOPs that the source counts; 0 if
  /// none is. `peak_flops`: that a utilisation is of, where the source does not say.
  double TokensPerSecondPerGpu(double peak_flops) const;
};

struct PublishedRuns {
  std::vector<PublishedRun> runs;
  std::vector<std::string> unknown_fields{};  // "layout.foo": met in some row, and not used
};

/// Reads the file. Throws InputError naming row and path of a field that must be there and is not,
/// that is of a wrong type, or that looks like a misspelt one. Values out of range and words that
/// nobody knows make their row `unusable`, and say nothing about the others.
PublishedRuns ReadPublishedRuns(const std::string& path);

}  // namespace trimtab
