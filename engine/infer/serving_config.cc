#include "engine/infer/serving_config.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/ops/paged_attention.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

bool IsFloatPrecision(Precision precision) {
  return precision == Precision::kFp32 || precision == Precision::kBf16 ||
         precision == Precision::kFp16;
}

/// The narrowest input of a matrix that is quantised, on one rank.
bool Int4GroupsFit(const ServingConfig& config) {
  const ModelConfig& model = config.model;
  const int64_t tp = config.layout.tp;
  bool fit = model.hidden_size % kInt4Group == 0 && model.embedding_size() % kInt4Group == 0 &&
             model.attention_size() % (tp * kInt4Group) == 0 &&
             model.ffn_hidden_size % (tp * kInt4Group) == 0;
  if (model.latent.used()) {
    fit = fit && model.latent.kv_lora_rank % kInt4Group == 0 &&
          model.latent.q_lora_rank % kInt4Group == 0 &&
          model.latent.qk_nope_head_dim % kInt4Group == 0;
  }
  if (model.moe.used()) {
    fit = fit && model.moe.ffn_hidden_size % (config.layout.etp * kInt4Group) == 0 &&
          model.moe.shared_ffn_hidden_size % (tp * kInt4Group) == 0;
  }
  return fit;
}

constexpr ServingRule kRules[] = {
    {"serving-layout", "serving is laid out over tp (with sp), pp, ep, etp, and replicas (dp)",
     [](const ServingConfig& c) {
       const ParallelConfig& l = c.layout;
       return l.cp == 1 && l.vp == 1 && l.zero == 0 && l.tp_overlap_chunks == 1;
     },
     [](const ServingConfig& c) {
       return fmt::format(
           "layout {}; expected cp, vp, zero and tp_overlap_chunks at their defaults",
           ToString(c.layout));
     }},
    {"serving-prefill", "where some replicas compute prompts alone, others go on with them",
     [](const ServingConfig& c) { return c.prefill == 0 || c.prefill < c.layout.dp; },
     [](const ServingConfig& c) {
       return fmt::format("{} of {} replicas compute prompts alone; expected fewer", c.prefill,
                          c.layout.dp);
     }},
    {"serving-precision", "activations of serving are fp32, bf16 or fp16",
     [](const ServingConfig& c) { return IsFloatPrecision(c.layout.precision); },
     [](const ServingConfig& c) {
       return fmt::format("precision {}; expected fp32, bf16 or fp16 (fp8 is a format of weights)",
                          Name(c.layout.precision));
     }},
    {"serving-routing", "experts are chosen token by token, without a capacity",
     [](const ServingConfig& c) {
       return !c.model.moe.used() ||
              (c.model.moe.capacity_factor == 0 && c.model.moe.router != RouterKind::kSinkhorn);
     },
     [](const ServingConfig& c) {
       return fmt::format("a router of {}; expected one that looks at no other token",
                          c.model.moe.capacity_factor > 0 ? "limited capacity" : "kind sinkhorn");
     }},
    {"serving-int4-groups", "int4 weights have a scale for every 32 inputs",
     [](const ServingConfig& c) { return c.weights != WeightFormat::kInt4 || Int4GroupsFit(c); },
     [](const ServingConfig& c) {
       return fmt::format(
           "hidden size {}, attention {}, ffn {} over tp {}; expected multiples of {} "
           "on every rank",
           c.model.hidden_size, c.model.attention_size(), c.model.ffn_hidden_size, c.layout.tp,
           kInt4Group);
     }},
    {"serving-limits", "a step has room for one token of every sequence",
     [](const ServingConfig& c) {
       const EngineLimits& l = c.limits;
       return l.sequences > 0 && l.tokens_per_step >= l.sequences && l.waiting >= 0 &&
              c.block_size > 0 && c.lookup_tokens >= 0 && c.draft.tokens >= 0;
     },
     [](const ServingConfig& c) {
       return fmt::format(
           "{} sequences, {} tokens per step, {} waiting, blocks of {}, {} looked-up "
           "tokens; expected at least one sequence and as many tokens",
           c.limits.sequences, c.limits.tokens_per_step, c.limits.waiting, c.block_size,
           c.lookup_tokens);
     }},
    {"serving-speculation", "either look-up or a draft model proposes a few tokens",
     [](const ServingConfig& c) {
       return std::min(c.lookup_tokens, c.draft.tokens) == 0 &&
              std::max(c.lookup_tokens, c.draft.tokens) <= kMostProposed;
     },
     [](const ServingConfig& c) {
       return fmt::format(
           "{} looked-up tokens and {} of a draft model; expected one of both, up to {}",
           c.lookup_tokens, c.draft.tokens, kMostProposed);
     }},
    {"serving-draft", "a draft model has the vocabulary of the model that serves",
     [](const ServingConfig& c) {
       return c.draft.tokens == 0 || c.draft.model.vocab_size == c.model.vocab_size;
     },
     [](const ServingConfig& c) {
       return fmt::format("a draft model with a vocabulary of {}; expected the {} of '{}'",
                          c.draft.model.vocab_size, c.model.vocab_size, c.model.name);
     }},
    {"serving-length", "a sequence has a place in the position table",
     [](const ServingConfig& c) {
       return c.model.position != PositionKind::kLearned ||
              c.limits.sequence_length <= c.model.max_sequence_length;
     },
     [](const ServingConfig& c) {
       return fmt::format("sequences of {} tokens; expected at most the model's {}",
                          c.limits.sequence_length, c.model.max_sequence_length);
     }},
    {"serving-cache", "the cache holds a sequence of the full length",
     [](const ServingConfig& c) {
       return c.cache_blocks == 0 ||
              c.cache_blocks >= CeilDiv(c.limits.sequence_length, c.block_size);
     },
     [](const ServingConfig& c) {
       return fmt::format(
           "{} blocks of {} tokens; expected {} for a sequence of {}", c.cache_blocks, c.block_size,
           CeilDiv(c.limits.sequence_length, c.block_size), c.limits.sequence_length);
     }},
};

}  // namespace

std::span<const ServingRule> ServingRules() { return kRules; }

ServingConfig ResolveServing(ServingConfig config) {
  if (config.limits.sequence_length == 0) {
    config.limits.sequence_length = config.model.max_sequence_length;
    if (config.cache_blocks > 0) {
      config.limits.sequence_length =
          std::min(config.limits.sequence_length, config.cache_blocks * config.block_size);
    }
  }
  for (const ServingRule& rule : kRules) {
    if (rule.holds(config)) continue;
    throw InfeasibleError(fmt::format("{}: {}", rule.id, rule.message(config)));
  }
  RequireLegal(RunOf(config));
  if (config.draft.tokens > 0) DraftServing(config);
  if (config.cache_blocks == 0) {
    config.cache_blocks =
        config.limits.sequences * CeilDiv(config.limits.sequence_length, config.block_size);
  }
  return config;
}

ServingConfig ReplicaOf(ServingConfig config) {
  if (config.layout.dp > 1 && config.threads_per_rank == 0) {
    RunConfig all;
    all.layout = config.layout;
    config.threads_per_rank = ThreadsPerRank(all);
  }
  config.layout.dp = 1;
  config.prefill = 0;
  return config;
}

ServingConfig DraftServing(const ServingConfig& config) {
  ServingConfig draft = ReplicaOf(config);
  draft.model = config.draft.model;
  draft.layout = {};
  draft.layout.precision = config.layout.precision;
  draft.weights = config.draft.weights;
  draft.lookup_tokens = 0;
  draft.draft = {};
  draft.cache_blocks = 0;
  try {
    return ResolveServing(std::move(draft));
  } catch (const InfeasibleError& error) {
    throw InfeasibleError(fmt::format("serving-draft: {}", error.what()));
  }
}

RunConfig RunOf(const ServingConfig& all) {
  const ServingConfig config = ReplicaOf(all);
  RunConfig run;
  // Steps have ever other numbers of rows: to time algorithms for each would cost more than it
  // gains.
  run.deterministic = true;
  run.model = config.model;
  run.layout = config.layout;
  run.device = config.device;
  run.threads_per_rank = config.threads_per_rank;
  run.memory_per_rank_bytes = config.memory_per_rank_bytes;
  // Of what training needs beside these, the least.
  run.layout.micro_batch = 1;
  run.global_batch = run.layout.pp;
  run.sequence_length = run.layout.tp;
  run.steps = 1;
  return run;
}

}  // namespace trimtab
