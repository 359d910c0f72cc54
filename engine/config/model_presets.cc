#include "engine/config/model_presets.h"

#include <cmath>

#include "engine/config/model_families.h"

namespace trimtab {
namespace {

// Sizes and what else a model has of its own; the rest is its family's.
struct Row {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, max_sequence;
  bool tied;
  double epsilon = 1e-5;
  double rope_theta = 10000.0;
  int64_t head_size = 0;  // 0 = hidden / heads
};

// GPT-2: Radford et al. 2019, table 2. The small ones take bytes: 256 and one end-of-text id.
constexpr Row kGpt2[] = {
    {"gpt2-tiny", 2, 64, 4, 4, 256, 257, 128, true},
    {"gpt2-10m", 6, 384, 8, 8, 1536, 257, 256, true},
    {"gpt2-25m", 8, 512, 8, 8, 2048, 257, 512, true},
    {"gpt2-124m", 12, 768, 12, 12, 3072, 50257, 1024, true},
    {"gpt2-355m", 24, 1024, 16, 16, 4096, 50257, 1024, true},
    {"gpt2-774m", 36, 1280, 20, 20, 5120, 50257, 1024, true},
    {"gpt2-1.5b", 48, 1600, 25, 25, 6400, 50257, 1024, true},
};

// GPT-3: Brown et al. 2020, table 2.1, with the head counts that make hidden = heads * head size.
// MT-NLG: Smith et al., arXiv:2201.11990, section 2, with a vocabulary rounded up for tensor
// parallelism.
constexpr Row kGpt3[] = {
    {"gpt3-1.3b", 24, 2048, 16, 16, 8192, 50257, 2048, true},
    {"gpt3-2.7b", 32, 2560, 32, 32, 10240, 50257, 2048, true},
    {"gpt3-6.7b", 32, 4096, 32, 32, 16384, 50257, 2048, true},
    {"gpt3-13b", 40, 5120, 40, 40, 20480, 50257, 2048, true},
    {"gpt3-175b", 96, 12288, 96, 96, 49152, 50257, 2048, true},
    {"mt-nlg-530b", 105, 20480, 128, 128, 81920, 51200, 2048, true},
};

// From here on: the config.json published with the weights.

constexpr Row kOpt125m[] = {{"opt-125m", 12, 768, 12, 12, 3072, 50272, 2048, true}};
// Its norms come after attention and MLP, and its embedding is narrower than its layers.
constexpr Row kOpt350m[] = {{"opt-350m", 24, 1024, 16, 16, 4096, 50272, 2048, true}};
constexpr Row kOpt[] = {
    {"opt-1.3b", 24, 2048, 32, 32, 8192, 50272, 2048, true},
    {"opt-2.7b", 32, 2560, 32, 32, 10240, 50272, 2048, true},
    {"opt-6.7b", 32, 4096, 32, 32, 16384, 50272, 2048, true},
    {"opt-13b", 40, 5120, 40, 40, 20480, 50272, 2048, true},
    {"opt-30b", 48, 7168, 56, 56, 28672, 50272, 2048, true},
    {"opt-66b", 64, 9216, 72, 72, 36864, 50272, 2048, true},
    {"opt-175b", 96, 12288, 96, 96, 49152, 50272, 2048, true},
};

constexpr Row kBloom[] = {
    {"bloom-560m", 24, 1024, 16, 16, 4096, 250880, 2048, true},
    {"bloom-1b1", 24, 1536, 16, 16, 6144, 250880, 2048, true},
    {"bloom-1b7", 24, 2048, 16, 16, 8192, 250880, 2048, true},
    {"bloom-3b", 30, 2560, 32, 32, 10240, 250880, 2048, true},
    {"bloom-7b1", 30, 4096, 32, 32, 16384, 250880, 2048, true},
    {"bloom-176b", 70, 14336, 112, 112, 57344, 250880, 2048, true},
};

constexpr Row kMpt[] = {
    {"mpt-7b", 32, 4096, 32, 32, 16384, 50432, 2048, true},
    {"mpt-30b", 48, 7168, 64, 64, 28672, 50432, 8192, true},
};

constexpr Row kGptJ[] = {{"gpt-j-6b", 28, 4096, 16, 16, 16384, 50400, 2048, false}};

constexpr Row kPythia[] = {
    {"pythia-14m", 6, 128, 4, 4, 512, 50304, 2048, false},
    {"pythia-31m", 6, 256, 8, 8, 1024, 50304, 2048, false},
    {"pythia-70m", 6, 512, 8, 8, 2048, 50304, 2048, false},
    {"pythia-160m", 12, 768, 12, 12, 3072, 50304, 2048, false},
    {"pythia-410m", 24, 1024, 16, 16, 4096, 50304, 2048, false},
    {"pythia-1b", 16, 2048, 8, 8, 8192, 50304, 2048, false},
    {"pythia-1.4b", 24, 2048, 16, 16, 8192, 50304, 2048, false},
    {"pythia-2.8b", 32, 2560, 32, 32, 10240, 50304, 2048, false},
    {"pythia-6.9b", 32, 4096, 32, 32, 16384, 50432, 2048, false},
    {"pythia-12b", 36, 5120, 40, 40, 20480, 50688, 2048, false},
};
constexpr Row kGptNeox20b[] = {{"gpt-neox-20b", 44, 6144, 64, 64, 24576, 50432, 2048, false}};

constexpr Row kFalcon7b[] = {{"falcon-7b", 32, 4544, 71, 1, 18176, 65024, 2048, true}};
constexpr Row kFalcon[] = {
    {"falcon-40b", 60, 8192, 128, 8, 32768, 65024, 2048, true},
    {"falcon-180b", 80, 14848, 232, 8, 59392, 65024, 2048, true},
};

constexpr Row kNemotron[] = {
    {"minitron-4b", 32, 3072, 24, 8, 9216, 256000, 4096, false, 1e-5, 10000.0, 128},
    {"nemotron-3-8b", 32, 4096, 32, 32, 16384, 256000, 4096, false},
    {"nemotron-3-22b", 40, 6144, 48, 48, 24576, 256000, 4096, false},
    {"nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, 4096, false},
    {"nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, 4096, false},
};

constexpr Row kLlama[] = {
    {"llama-tiny", 2, 64, 4, 2, 192, 257, 128, false},
    {"llama-15m", 8, 384, 8, 4, 1280, 257, 512, false},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 5632, 32000, 2048, false},
    {"llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, false},
    {"llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, false},
    {"llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, false},
    {"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, false, 1e-5, 500000.0},
    {"llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, false, 1e-5, 500000.0},
    {"llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, false, 1e-5, 500000.0},
};
constexpr Row kLlama31[] = {
    {"llama3.1-8b", 32, 4096, 32, 8, 14336, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.1-70b", 80, 8192, 64, 8, 28672, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.1-405b", 126, 16384, 128, 8, 53248, 128256, 131072, false, 1e-5, 500000.0},
    {"llama3.3-70b", 80, 8192, 64, 8, 28672, 128256, 131072, false, 1e-5, 500000.0},
};
constexpr Row kLlama32[] = {
    {"llama3.2-1b", 16, 2048, 32, 8, 8192, 128256, 131072, true, 1e-5, 500000.0},
    {"llama3.2-3b", 28, 3072, 24, 8, 8192, 128256, 131072, true, 1e-5, 500000.0},
};

// Version 0.1 sees 4096 tokens, 0.3 all.
constexpr Row kMistral1[] = {
    {"mistral-7b-v0.1", 32, 4096, 32, 8, 14336, 32000, 32768, false},
};
constexpr Row kMistral3[] = {
    {"mistral-7b-v0.3", 32, 4096, 32, 8, 14336, 32768, 32768, false, 1e-5, 1e6},
};

// Qwen2 has the same shapes.
constexpr Row kQwen2[] = {
    {"qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, 32768, true, 1e-6, 1e6},
    {"qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, 131072, true, 1e-6, 1e6},
    {"qwen2.5-3b", 36, 2048, 16, 2, 11008, 151936, 32768, true, 1e-6, 1e6},
    {"qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, 131072, false, 1e-6, 1e6},
    {"qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064, 131072, false, 1e-5, 1e6},
    {"qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, 131072, false, 1e-5, 1e6},
    {"qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, 131072, false, 1e-5, 1e6},
};

constexpr Row kQwen3[] = {
    {"qwen3-0.6b", 28, 1024, 16, 8, 3072, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-1.7b", 28, 2048, 16, 8, 6144, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-4b", 36, 2560, 32, 8, 9728, 151936, 40960, true, 1e-6, 1e6, 128},
    {"qwen3-8b", 36, 4096, 32, 8, 12288, 151936, 40960, false, 1e-6, 1e6, 128},
    {"qwen3-14b", 40, 5120, 40, 8, 17408, 151936, 40960, false, 1e-6, 1e6, 128},
    {"qwen3-32b", 64, 5120, 64, 8, 25600, 151936, 40960, false, 1e-6, 1e6, 128},
};

constexpr Row kGemma2[] = {
    {"gemma2-2b", 26, 2304, 8, 4, 9216, 256000, 8192, true, 1e-6, 10000.0, 256},
    {"gemma2-9b", 42, 3584, 16, 8, 14336, 256000, 8192, true, 1e-6, 10000.0, 256},
};
// Its scores are scaled by hidden / heads, not by the head size.
constexpr Row kGemma2Largest[] = {
    {"gemma2-27b", 46, 4608, 32, 16, 36864, 256000, 8192, true, 1e-6, 10000.0, 128},
};

constexpr Row kGlm4Biased[] = {
    {"glm-4-9b-0414", 40, 4096, 32, 2, 13696, 151552, 32768, false, 1e-5, 10000.0, 128},
};
constexpr Row kGlm4[] = {
    {"glm-4-32b-0414", 61, 6144, 48, 2, 23040, 151552, 32768, false, 1e-5, 10000.0, 128},
};

constexpr Row kGlm130b[] = {
    {"glm-130b", 70, 12288, 96, 96, 32768, 150528, 2048, true},
};

// Their experts: how many, how many a token takes, how wide each is, and the weight of the loss
// that balances them.
struct Experts {
  int64_t count, chosen, ffn;
  double aux_loss = 0.001;
};
struct MoeRow {
  Row row;
  Experts experts;
};

constexpr MoeRow kMixtral[] = {
    {{"mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, false, 1e-5, 1e6}, {8, 2, 14336, 0.02}},
    {{"mixtral-8x22b", 56, 6144, 48, 8, 16384, 32000, 65536, false, 1e-5, 1e6}, {8, 2, 16384}},
};
constexpr MoeRow kQwen3Moe[] = {
    {{"qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936, 40960, false, 1e-6, 1e6, 128}, {128, 8, 768}},
    {{"qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 151936, 40960, false, 1e-6, 1e6, 128},
     {128, 8, 1536}},
};
constexpr MoeRow kQwen2Moe[] = {
    {{"qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 5632, 151936, 8192, false, 1e-6, 1e6}, {60, 4, 1408}},
    {{"qwen2-57b-a14b", 28, 3584, 28, 4, 18944, 151936, 131072, false, 1e-6, 1e6}, {64, 8, 2560}},
};
constexpr MoeRow kDeepSeekV2Lite[] = {
    {{"deepseek-v2-lite", 27, 2048, 16, 16, 10944, 102400, 163840, false, 1e-6}, {64, 6, 1408}},
};
constexpr MoeRow kDeepSeekV2[] = {
    {{"deepseek-v2", 60, 5120, 128, 128, 12288, 102400, 163840, false, 1e-6}, {160, 6, 1536}},
};
constexpr MoeRow kDeepSeekV3[] = {
    {{"deepseek-v3", 61, 7168, 128, 128, 18432, 129280, 163840, false, 1e-6},
     {256, 8, 2048, 0.0001}},
    {{"deepseek-r1", 61, 7168, 128, 128, 18432, 129280, 163840, false, 1e-6},
     {256, 8, 2048, 0.0001}},
};
constexpr MoeRow kGptOss[] = {
    {{"gpt-oss-20b", 24, 2880, 64, 8, 2880, 201088, 131072, false, 1e-5, 150000.0, 64},
     {32, 4, 2880, 0.9}},
    {{"gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, 131072, false, 1e-5, 150000.0, 64},
     {128, 4, 2880, 0.9}},
};
constexpr MoeRow kDbrx[] = {
    {{"dbrx-132b", 40, 6144, 48, 8, 10752, 100352, 32768, false, 1e-5, 500000.0},
     {16, 4, 10752, 0.05}},
};
constexpr MoeRow kGrok[] = {
    {{"grok-1", 64, 6144, 48, 8, 32768, 131072, 8192, true}, {8, 2, 32768, 0}},
};

/// Rows of one family; `change` makes what else they share of it.
void Append(
    std::span<const Row> rows, const ModelConfig& family, std::vector<ModelConfig>& models,
    void (*change)(ModelConfig&) = [](ModelConfig&) {}) {
  for (const Row& row : rows) {
    ModelConfig& model = models.emplace_back(family);
    model.name = row.name;
    model.vocab_size = row.vocab;
    model.hidden_size = row.hidden;
    model.num_layers = row.layers;
    model.num_heads = row.heads;
    model.num_kv_heads = row.kv_heads;
    model.ffn_hidden_size = row.ffn;
    model.max_sequence_length = row.max_sequence;
    model.tied_embeddings = row.tied;
    model.norm_epsilon = row.epsilon;
    model.rope_theta = row.rope_theta;
    model.head_dim = row.head_size;
    change(model);
    Simplify(model);
  }
}

void Append(
    std::span<const MoeRow> rows, const ModelConfig& family, std::vector<ModelConfig>& models,
    void (*change)(ModelConfig&) = [](ModelConfig&) {}) {
  for (const auto& [row, experts] : rows) {
    ModelConfig with_experts = family;
    with_experts.moe.num_experts = experts.count;
    with_experts.moe.router_topk = experts.chosen;
    with_experts.moe.ffn_hidden_size = experts.ffn;
    with_experts.moe.aux_loss_coeff = experts.aux_loss;
    Append({&row, 1}, with_experts, models, change);
  }
}

void ScaleByHiddenSize(ModelConfig& model) {
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
}

/// What the models of DeepSeek have in common beside their families.
void MakeLatent(int64_t query_rank, double scale_exponent, ModelConfig& model) {
  model.latent = {.q_lora_rank = query_rank,
                  .kv_lora_rank = 512,
                  .qk_nope_head_dim = 128,
                  .qk_rope_head_dim = 64,
                  .v_head_dim = 128};
  model.rope_scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 40, .original_length = 4096, .attention_factor = 1};
  model.attention_scale = LatentAttentionScale(model, scale_exponent);
}

std::vector<ModelConfig> MakePresets() {
  std::vector<ModelConfig> models;
  Append(kGpt2, Gpt2Family(), models);
  Append(kGpt3, Gpt2Family(), models);
  Append(kOpt125m, OptFamily(), models);
  Append(kOpt350m, OptFamily(), models, [](ModelConfig& model) {
    model.block = BlockKind::kPostNorm;
    model.final_norm = false;
    model.embedding_dim = 512;
  });
  Append(kOpt, OptFamily(), models);
  Append(kBloom, BloomFamily(), models);
  Append(kMpt, MptFamily(), models);
  Append(kGptJ, GptJFamily(), models);
  Append(kGptNeox20b, GptNeoxFamily(), models,
         [](ModelConfig& model) { model.activation = ActivationKind::kGelu; });
  Append(kPythia, GptNeoxFamily(), models);
  Append(kFalcon7b, FalconFamily(), models);
  Append(kFalcon, FalconFamily(), models,
         [](ModelConfig& model) { model.block = BlockKind::kParallel; });
  Append(kNemotron, NemotronFamily(), models);
  Append(kLlama, LlamaFamily(), models);
  Append(kLlama31, LlamaFamily(), models,
         [](ModelConfig& model) { model.rope_scaling = Llama3Scaling(8); });
  Append(kLlama32, LlamaFamily(), models,
         [](ModelConfig& model) { model.rope_scaling = Llama3Scaling(32); });
  Append(kMistral1, MistralFamily(), models);
  Append(kMistral3, MistralFamily(), models, [](ModelConfig& model) { model.sliding_window = 0; });
  Append(kQwen2, Qwen2Family(), models);
  Append(kQwen3, Qwen3Family(), models);
  Append(kQwen3Moe, Qwen3MoeFamily(), models,
         [](ModelConfig& model) { model.moe.norm_topk = true; });
  Append(kGemma2, Gemma2Family(), models, ScaleByHiddenSize);
  Append(kGemma2Largest, Gemma2Family(), models, [](ModelConfig& model) {
    ScaleByHiddenSize(model);
    model.attention_scale = 1.0 / 12.0;
  });
  Append(kGlm130b, Glm130bFamily(), models);
  Append(kGlm4Biased, Glm4Family(), models);
  Append(kGlm4, Glm4Family(), models, [](ModelConfig& model) { model.qkv_bias = false; });
  Append(kMixtral, MixtralFamily(), models);
  Append(kQwen2Moe, Qwen2MoeFamily(), models, [](ModelConfig& model) {
    model.moe.shared_ffn_hidden_size = model.moe.ffn_hidden_size * (model.num_layers == 24 ? 4 : 8);
  });
  Append(kDeepSeekV2Lite, DeepSeekV2Family(), models, [](ModelConfig& model) {
    MakeLatent(0, 0.707, model);
    model.moe.shared_ffn_hidden_size = 2 * model.moe.ffn_hidden_size;
    model.moe.first_k_dense = 1;
  });
  Append(kDeepSeekV2, DeepSeekV2Family(), models, [](ModelConfig& model) {
    MakeLatent(1536, 0.707, model);
    model.moe.shared_ffn_hidden_size = 2 * model.moe.ffn_hidden_size;
    model.moe.first_k_dense = 1;
    model.moe.num_groups = 8;
    model.moe.group_topk = 3;
    model.moe.topk_scaling_factor = 16;
  });
  Append(kDeepSeekV3, DeepSeekV3Family(), models, [](ModelConfig& model) {
    MakeLatent(1536, 1, model);
    model.moe.shared_ffn_hidden_size = model.moe.ffn_hidden_size;
    model.mtp_modules = 1;
  });
  Append(kGptOss, GptOssFamily(), models);
  Append(kDbrx, DbrxFamily(), models, [](ModelConfig& model) { model.qkv_clip = 8; });
  Append(kGrok, GrokFamily(), models, [](ModelConfig& model) {
    ScaleByHiddenSize(model);
    model.logit_scale = 1.0 / std::sqrt(3.0);
  });
  return models;
}

}  // namespace

std::span<const ModelConfig> ModelPresets() {
  static const std::vector<ModelConfig> presets = MakePresets();
  return presets;
}

}  // namespace trimtab
