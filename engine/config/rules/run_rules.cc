#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

std::string Sizes(std::initializer_list<std::pair<const char*, int64_t>> sizes, int64_t least) {
  std::string text;
  for (const auto& [name, value] : sizes) {
    if (value < least) text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", name, value);
  }
  return fmt::format("{}; must be at least {}", text, least);
}

constexpr Rule kRunRules[] = {
    {"model-sizes-positive", "Every size of the model is at least 1.",
     [](const RunConfig& run) {
       const ModelConfig& m = run.model;
       return m.vocab_size >= 1 && m.hidden_size >= 1 && m.num_layers >= 1 && m.num_heads >= 1 &&
              m.num_kv_heads >= 1 && m.ffn_hidden_size >= 1 && m.max_sequence_length >= 1 &&
              m.make_vocab_size_divisible_by >= 1;
     },
     [](const RunConfig& run) {
       const ModelConfig& m = run.model;
       return Sizes({{"vocab_size", m.vocab_size},
                     {"hidden_size", m.hidden_size},
                     {"num_layers", m.num_layers},
                     {"num_heads", m.num_heads},
                     {"num_kv_heads", m.num_kv_heads},
                     {"ffn_hidden_size", m.ffn_hidden_size},
                     {"max_sequence_length", m.max_sequence_length},
                     {"make_vocab_size_divisible_by", m.make_vocab_size_divisible_by}},
                    1);
     }},
    {"layout-sizes-positive",
     "Every parallel size, the micro batch and the number of chunks are at least 1.",
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return p.tp >= 1 && p.cp >= 1 && p.pp >= 1 && p.vp >= 1 && p.ep >= 1 && p.etp >= 1 &&
              p.dp >= 1 && p.micro_batch >= 1 && p.tp_overlap_chunks >= 1;
     },
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return Sizes({{"tp", p.tp},
                     {"cp", p.cp},
                     {"pp", p.pp},
                     {"vp", p.vp},
                     {"ep", p.ep},
                     {"etp", p.etp},
                     {"dp", p.dp},
                     {"mbs", p.micro_batch},
                     {"tp_overlap_chunks", p.tp_overlap_chunks}},
                    1);
     }},
    {"run-sizes-positive", "The global batch and the sequence length are at least 1.",
     [](const RunConfig& run) { return run.global_batch >= 1 && run.sequence_length >= 1; },
     [](const RunConfig& run) {
       return Sizes({{"global_batch", run.global_batch}, {"sequence_length", run.sequence_length}},
                    1);
     }},
    {"run-limits-not-negative", "Steps, threads per rank and the memory limit are not negative.",
     [](const RunConfig& run) {
       return run.steps >= 0 && run.threads_per_rank >= 0 && run.memory_per_rank_bytes >= 0;
     },
     [](const RunConfig& run) {
       return Sizes({{"steps", run.steps},
                     {"threads_per_rank", run.threads_per_rank},
                     {"memory_per_rank_bytes", run.memory_per_rank_bytes}},
                    0);
     }},

    {"tf32-requires-cuda", "TF32 needs a GPU.",
     [](const RunConfig& run) {
       return run.layout.numerics.precision != Precision::kTf32 || run.device == DeviceKind::kCuda;
     },
     [](const RunConfig& run) {
       return fmt::format("precision=tf32 on device {}; use fp32 there", Name(run.device));
     }},
    {"remainder-requires-bf16-weights", "A 16-bit remainder extends a bf16 weight to fp32.",
     [](const RunConfig& run) {
       return run.layout.numerics.master != MasterWeights::kRemainder ||
              TypesOf(run.layout.numerics).weights == DType::kBf16;
     },
     [](const RunConfig& run) {
       return fmt::format("master=remainder needs precision bf16 or fp8, and it is {}",
                          Name(run.layout.numerics.precision));
     }},
    {"bf16-gradients-require-bf16-weights", "Gradients are fp32, or bf16 if the weights are bf16.",
     [](const RunConfig& run) {
       return run.layout.numerics.gradients != DType::kBf16 ||
              TypesOf(run.layout.numerics).weights == DType::kBf16;
     },
     [](const RunConfig& run) {
       return fmt::format("grads=bf16 needs precision bf16 or fp8, and it is {}",
                          Name(run.layout.numerics.precision));
     }},
};

}  // namespace

std::span<const Rule> RunRules() { return kRunRules; }

}  // namespace trimtab
