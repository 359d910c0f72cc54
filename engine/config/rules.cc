#include "engine/config/rules.h"

#include <iterator>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/rule_parts.h"

namespace trimtab {
namespace {

// The order matters: the first rules make sure that those below divide by nothing that is zero.
//
// A rule whose id ends in -unsupported says what the engine does not do yet, and goes away with the
// code that does it. The others are properties of the mathematics.

std::string Sizes(std::initializer_list<std::pair<const char*, int64_t>> sizes, int64_t least) {
  std::string text;
  for (const auto& [name, value] : sizes) {
    if (value < least) text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", name, value);
  }
  return fmt::format("{}; must be at least {}", text, least);
}

/// An empty string, or what is wrong with the layers listed for each chunk.
std::string StagesFault(const RunConfig& run) {
  const StageLayers& stages = run.layout.stages;
  const int64_t chunks = run.layout.pp * run.layout.vp;
  if (stages.empty()) return "";
  if (stages.size() != chunks || stages.sum() != run.model.num_layers) {
    return fmt::format("stages={} lists {} chunks and {} layers; expected pp {} x vp {} and {}",
                       ToString(stages), stages.size(), stages.sum(), run.layout.pp, run.layout.vp,
                       run.model.num_layers);
  }
  for (int64_t i = 1; i + 1 < chunks; ++i) {
    if (stages[i] > 0) continue;
    return fmt::format(
        "stages={} leaves chunk {} empty; expected a layer in every chunk but the "
        "first and the last",
        ToString(stages), i);
  }
  return "";
}

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
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden_size", run.model.hidden_size},
      {"attention columns / tp", run.model.attention_size() / tp},
      {"query, key and value columns / tp", run.model.qkv_size() / tp},
      {"ffn_hidden_size / tp", run.model.ffn_hidden_size / tp},
      {"mbs x sequence_length / cp", LocalTokens(run)}};
  for (const auto& [name, size] : sizes) {
    if (size % 16 != 0) return fmt::format("fp8: {} is {}, no multiple of 16", name, size);
  }
  return "";
}

/// The first plan that recomputes layers which the model does not have, or nullptr.
const RecomputeConfig* ImpossiblePlan(const RunConfig& run) {
  for (const StageRecompute::Run& stages : run.layout.recompute.runs()) {
    const RecomputeConfig& plan = stages.plan;
    if (plan.kind == RecomputeKind::kNone || plan.num_layers == -1) continue;
    if (plan.num_layers < 1 || plan.num_layers > run.model.num_layers) return &plan;
  }
  return nullptr;
}

constexpr Rule kRules[] = {
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
       return run.layout.precision != Precision::kTf32 || run.device == "cuda";
     },
     [](const RunConfig& run) {
       return fmt::format("precision=tf32 on device {}; use fp32 there", run.device);
     }},
    {"remainder-requires-bf16-weights", "A 16-bit remainder extends a bf16 weight to fp32.",
     [](const RunConfig& run) {
       return run.layout.master != MasterWeights::kRemainder ||
              TypesOf(run.layout).weights == DType::kBf16;
     },
     [](const RunConfig& run) {
       return fmt::format("master=remainder needs precision bf16 or fp8, and it is {}",
                          Name(run.layout.precision));
     }},
    {"bf16-gradients-require-bf16-weights", "Gradients are fp32, or bf16 if the weights are bf16.",
     [](const RunConfig& run) {
       return run.layout.gradients != DType::kBf16 || TypesOf(run.layout).weights == DType::kBf16;
     },
     [](const RunConfig& run) {
       return fmt::format("grads=bf16 needs precision bf16 or fp8, and it is {}",
                          Name(run.layout.precision));
     }},

    {"schedule-requires-pp", "Schedules other than 1f1b order the micro batches of a pipeline.",
     [](const RunConfig& run) {
       return run.layout.schedule == Schedule::k1F1B || run.layout.pp > 1;
     },
     [](const RunConfig& run) {
       return fmt::format("schedule={} needs pp of at least 2, and pp is {}",
                          Name(run.layout.schedule), run.layout.pp);
     }},
    {"vp-with-interleaved-schedule",
     "The interleaved schedule, and no other, runs several model chunks per pipeline rank.",
     [](const RunConfig& run) {
       return (run.layout.vp > 1) == (run.layout.schedule == Schedule::kInterleaved1F1B);
     },
     [](const RunConfig& run) {
       return fmt::format("vp is {} and schedule {}; vp above 1 goes with interleaved-1f1b alone",
                          run.layout.vp, Name(run.layout.schedule));
     }},
    {"chunks-not-empty",
     "Every model chunk of a pipeline holds a layer, or the embedding, or the loss.",
     [](const RunConfig& run) { return run.layout.pp * run.layout.vp <= run.model.num_layers + 2; },
     [](const RunConfig& run) {
       return fmt::format(
           "pp {} x vp {} makes more chunks than {} layers, the embedding and the "
           "loss can fill",
           run.layout.pp, run.layout.vp, run.model.num_layers);
     }},
    {"stages-cover-model", "A list of layers per chunk has one entry for each and all layers.",
     [](const RunConfig& run) { return StagesFault(run).empty(); },
     [](const RunConfig& run) { return StagesFault(run); }},
    {"hidden-divisible-by-heads",
     "Heads divide the hidden size evenly, or have a size of their own.",
     [](const RunConfig& run) {
       return run.model.head_dim > 0 || run.model.hidden_size % run.model.num_heads == 0;
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
    {"qkv-clip-unsupported", "Queries, keys and values are not clamped.",
     [](const RunConfig& run) { return run.model.qkv_clip == 0; },
     [](const RunConfig& run) {
       return Unsupported("qkv_clip", run.model.qkv_clip, "qkv_clip=0 only");
     }},
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
    {"window-and-alibi-without-cp",
     "Blocks of keys that travel between context-parallel ranks have neither sliding windows nor "
     "ALiBi.",
     [](const RunConfig& run) {
       return run.layout.cp == 1 ||
              (run.model.sliding_window == 0 && run.model.position != PositionKind::kAlibi);
     },
     [](const RunConfig& run) {
       return fmt::format("cp is {}, and the model has {}; use cp=1", run.layout.cp,
                          run.model.sliding_window > 0 ? "a sliding window" : "ALiBi positions");
     }},
    {"sequence-within-positions", "The sequence is no longer than the learned positions.",
     [](const RunConfig& run) {
       return run.model.position != PositionKind::kLearned ||
              run.sequence_length <= run.model.max_sequence_length;
     },
     [](const RunConfig& run) {
       return fmt::format("sequence_length {} passes the {} learned positions of the model",
                          run.sequence_length, run.model.max_sequence_length);
     }},
    {"heads-divisible-by-tp", "Every tensor-parallel rank computes the same number of heads.",
     [](const RunConfig& run) { return run.model.num_heads % run.layout.tp == 0; },
     [](const RunConfig& run) {
       return NotDivisible("num_heads", run.model.num_heads, "tp", run.layout.tp);
     }},
    {"kv-heads-divisible-by-tp",
     "Every tensor-parallel rank holds the same number of key/value heads.",
     [](const RunConfig& run) { return run.model.num_kv_heads % run.layout.tp == 0; },
     [](const RunConfig& run) {
       return NotDivisible("num_kv_heads", run.model.num_kv_heads, "tp", run.layout.tp);
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
       return NotDivisible("sequence_length", run.sequence_length, "2 x cp", 2 * run.layout.cp);
     }},
    {"fp8-sizes-divisible-by-16", "The sizes of fp8 products are multiples of 16.",
     [](const RunConfig& run) { return !TypesOf(run.layout).fp8 || UnevenForFp8(run).empty(); },
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
       return run.layout.tp_overlap_chunks == 1 || !TypesOf(run.layout).fp8;
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
    {"resharding-requires-sharded-weights", "Only sharded weights are freed after a forward pass.",
     [](const RunConfig& run) { return run.layout.reshard_after_forward || run.layout.zero == 3; },
     [](const RunConfig& run) {
       return fmt::format("reshard_after_forward=0 goes with zero=3, and zero is {}",
                          run.layout.zero);
     }},
    {"zero-requires-dp", "What is sharded is so over the data- and context-parallel ranks.",
     [](const RunConfig& run) { return run.layout.zero == 0 || run.layout.dp * run.layout.cp > 1; },
     [](const RunConfig& run) {
       return fmt::format("zero={} needs dp x cp of at least 2, and dp is {}, cp {}",
                          run.layout.zero, run.layout.dp, run.layout.cp);
     }},
    {"shard-requires-zero", "The ranks that share a replica share what is sharded.",
     [](const RunConfig& run) { return run.layout.shard == 0 || run.layout.zero >= 1; },
     [](const RunConfig& run) {
       return fmt::format("shard={} needs zero of at least 1, and zero is 0", run.layout.shard);
     }},
    {"shard-divides-data-ranks", "Sharded replicas are of equal size, of two ranks or more.",
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return p.shard == 0 || (p.shard >= 2 && p.dp * p.cp % p.shard == 0);
     },
     [](const RunConfig& run) {
       return fmt::format("shard={} is no divisor of dp {} x cp {} that is at least 2",
                          run.layout.shard, run.layout.dp, run.layout.cp);
     }},
    {"param-gather-overlap-requires-whole-weights",
     "What is updated in shards and kept whole can be gathered beside the next forward pass; "
     "sharded weights always are gathered beside passes.",
     [](const RunConfig& run) {
       return !run.layout.overlap_param_gather || run.layout.zero == 1 || run.layout.zero == 2;
     },
     [](const RunConfig& run) {
       return fmt::format("overlap_param_gather=1 goes with zero=1 and zero=2, and zero is {}",
                          run.layout.zero);
     }},
    {"global-batch-divisible",
     "Every data-parallel rank runs the same number of whole micro batches.",
     [](const RunConfig& run) {
       return run.global_batch % (run.layout.micro_batch * run.layout.dp) == 0;
     },
     [](const RunConfig& run) {
       return fmt::format("global_batch {} is not divisible by mbs {} x dp {}", run.global_batch,
                          run.layout.micro_batch, run.layout.dp);
     }},
    {"micro-batches-divisible-by-pp",
     "The interleaved schedule takes micro batches in groups of the pipeline's size.",
     [](const RunConfig& run) {
       return run.layout.schedule != Schedule::kInterleaved1F1B ||
              run.num_micro_batches() % run.layout.pp == 0;
     },
     [](const RunConfig& run) {
       return fmt::format(
           "with schedule=interleaved-1f1b, {} micro batches are not divisible by "
           "pp {}",
           run.num_micro_batches(), run.layout.pp);
     }},
    {"recompute-plan-per-stage", "A list of recompute plans has one for every pipeline stage.",
     [](const RunConfig& run) {
       const int64_t stages = run.layout.recompute.size();
       return stages == 0 || stages == run.layout.pp;
     },
     [](const RunConfig& run) {
       return fmt::format("recompute={} lists {} stages, and pp is {}",
                          ToString(run.layout.recompute), run.layout.recompute.size(),
                          run.layout.pp);
     }},
    {"recompute-layers-within-model", "No more layers are recomputed than the model has.",
     [](const RunConfig& run) { return ImpossiblePlan(run) == nullptr; },
     [](const RunConfig& run) {
       return fmt::format("recompute of {} layers, and the model has {}",
                          ImpossiblePlan(run)->num_layers, run.model.num_layers);
     }},
};

}  // namespace

std::span<const Rule> LegalityRules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all(std::begin(kRules), std::end(kRules));
    all.insert(all.end(), ExpertRules().begin(), ExpertRules().end());
    return all;
  }();
  return rules;
}

const Rule* FirstBrokenRule(const RunConfig& run) {
  for (const Rule& rule : LegalityRules()) {
    if (!rule.holds(run)) return &rule;
  }
  return nullptr;
}

bool IsUnsupported(const Rule& rule) { return std::string_view(rule.id).ends_with("-unsupported"); }

void RequireLegal(const RunConfig& run) {
  const Rule* broken = FirstBrokenRule(run);
  if (broken == nullptr) return;
  throw InfeasibleError(fmt::format("{}: {}", broken->id, broken->message(run)));
}

std::string DescribeRules() {
  std::string text;
  for (const Rule& rule : LegalityRules())
    text += fmt::format("{:<32}{}\n", rule.id, rule.description);
  return text;
}

}  // namespace trimtab
