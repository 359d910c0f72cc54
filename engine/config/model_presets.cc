#include "engine/config/model_presets.h"

namespace trimtab {
namespace {

struct Gpt {
  const char* name;
  int64_t vocab, hidden, layers, heads, max_sequence;
};

// GPT-2: Radford et al. 2019, table 2. GPT-3: Brown et al. 2020, table 2.1, with the head counts
// that make hidden = heads * head size. MT-NLG: Smith et al., arXiv:2201.11990, section 2, with a
// vocabulary rounded up for tensor parallelism. The small ones take bytes: 256 and one end-of-text
// id.
constexpr Gpt kGpt[] = {
    {"gpt2-tiny", 257, 64, 2, 4, 128},
    {"gpt2-10m", 257, 384, 6, 8, 256},
    {"gpt2-25m", 257, 512, 8, 8, 512},
    {"gpt2-124m", 50257, 768, 12, 12, 1024},
    {"gpt2-355m", 50257, 1024, 24, 16, 1024},
    {"gpt2-774m", 50257, 1280, 36, 20, 1024},
    {"gpt2-1.5b", 50257, 1600, 48, 25, 1024},
    {"gpt3-1.3b", 50257, 2048, 24, 16, 2048},
    {"gpt3-2.7b", 50257, 2560, 32, 32, 2048},
    {"gpt3-6.7b", 50257, 4096, 32, 32, 2048},
    {"gpt3-13b", 50257, 5120, 40, 40, 2048},
    {"gpt3-175b", 50257, 12288, 96, 96, 2048},
    {"mt-nlg-530b", 51200, 20480, 105, 128, 2048},
};

struct Llama {
  const char* name;
  int64_t vocab, hidden, layers, heads, kv_heads, ffn, max_sequence;
  double rope_theta;
};

// The config.json that Meta and the TinyLlama project publish with the weights.
constexpr Llama kLlama[] = {
    {"llama-tiny", 257, 64, 2, 4, 2, 192, 128, 10000.0},
    {"llama-15m", 257, 384, 8, 8, 4, 1280, 512, 10000.0},
    {"tinyllama-1.1b", 32000, 2048, 22, 32, 4, 5632, 2048, 10000.0},
    {"llama2-7b", 32000, 4096, 32, 32, 32, 11008, 4096, 10000.0},
    {"llama2-13b", 32000, 5120, 40, 40, 40, 13824, 4096, 10000.0},
    {"llama2-70b", 32000, 8192, 80, 64, 8, 28672, 4096, 10000.0},
    {"llama3-8b", 128256, 4096, 32, 32, 8, 14336, 8192, 500000.0},
    {"llama3-70b", 128256, 8192, 80, 64, 8, 28672, 8192, 500000.0},
    {"llama3-405b", 128256, 16384, 126, 128, 8, 53248, 8192, 500000.0},
};

ModelConfig MakeGpt(const Gpt& row) {
  return {.name = row.name,
          .vocab_size = row.vocab,
          .hidden_size = row.hidden,
          .num_layers = row.layers,
          .num_heads = row.heads,
          .num_kv_heads = row.heads,
          .ffn_hidden_size = 4 * row.hidden,
          .max_sequence_length = row.max_sequence};
}

ModelConfig MakeLlama(const Llama& row) {
  return {.name = row.name,
          .vocab_size = row.vocab,
          .hidden_size = row.hidden,
          .num_layers = row.layers,
          .num_heads = row.heads,
          .num_kv_heads = row.kv_heads,
          .ffn_hidden_size = row.ffn,
          .max_sequence_length = row.max_sequence,
          .norm = NormKind::kRmsNorm,
          .activation = ActivationKind::kSwiGlu,
          .position = PositionKind::kRope,
          .rope_theta = row.rope_theta,
          .bias = false,
          .tied_embeddings = false};
}

}  // namespace

std::span<const ModelConfig> ModelPresets() {
  static const std::vector<ModelConfig> presets = [] {
    std::vector<ModelConfig> models;
    for (const Gpt& row : kGpt) models.push_back(MakeGpt(row));
    for (const Llama& row : kLlama) models.push_back(MakeLlama(row));
    return models;
  }();
  return presets;
}

}  // namespace trimtab
