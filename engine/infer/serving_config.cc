#include "engine/infer/serving_config.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/ops/attention/paged_attention.h"
#include "engine/runtime/context.h"

namespace trimtab {
namespace {

bool IsFloatPrecision(Precision precision) {
  return precision == Precision::kFp32 || precision == Precision::kBf16 ||
         precision == Precision::kFp16;
}

/// Inputs of a matrix that is quantised, cut over so many ranks.
struct MatrixInputs {
  const char* name = "";
  int64_t size = 0;
  int64_t ranks = 1;
  const char* axis = "";  // which the ranks are of
};

/// The first inputs that int4's groups do not divide on every rank; nullopt where they all fit.
std::optional<MatrixInputs> Int4Misfit(const ServingConfig& config) {
  const ModelConfig& model = config.model;
  const int64_t tp = config.layout.tp;
  std::vector<MatrixInputs> all = {{"hidden_size", model.hidden_size},
                                   {"embedding size", model.embedding_size()},
                                   {"attention size", model.attention_size(), tp, "tp"}};
  if (model.has_dense_layers()) {
    all.push_back({"ffn_hidden_size", model.ffn_hidden_size, tp, "tp"});
  }
  if (model.latent.used()) {
    all.insert(all.end(), {{"kv_lora_rank", model.latent.kv_lora_rank},
                           {"q_lora_rank", model.latent.q_lora_rank},
                           {"qk_nope_head_dim", model.latent.qk_nope_head_dim}});
  }
  if (model.moe.used()) {
    const MoeConfig& moe = model.moe;
    all.insert(all.end(), {{"moe ffn_hidden_size", moe.ffn_hidden_size, config.layout.etp, "etp"},
                           {"moe shared_ffn_hidden_size", moe.shared_ffn_hidden_size, tp, "tp"}});
  }
  for (const MatrixInputs& each : all) {
    if (each.size % (each.ranks * kInt4Group) != 0) return each;
  }
  return std::nullopt;
}

/// Positions that a model can tell apart: those of its table, or the angles that it was trained on.
/// Training is free to go beyond the latter and so to teach others; an answer there makes no sense.
int64_t KnownPositions(const ModelConfig& model) {
  const bool limited =
      model.position == PositionKind::kLearned || model.position == PositionKind::kRope;
  if (!limited) return std::numeric_limits<int64_t>::max();
  const RopeScaling& scaling = model.rope_scaling;
  double scaled = 0;
  if (scaling.kind == RopeScalingKind::kLinear) {
    scaled = scaling.factor * static_cast<double>(model.max_sequence_length);
  } else if (scaling.kind == RopeScalingKind::kLlama3 || scaling.kind == RopeScalingKind::kYarn) {
    scaled = scaling.factor * static_cast<double>(scaling.original_length);
  }
  return std::max(model.max_sequence_length, static_cast<int64_t>(scaled));
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
     [](const ServingConfig& c) { return IsFloatPrecision(c.layout.numerics.precision); },
     [](const ServingConfig& c) {
       return fmt::format("precision {}; expected fp32, bf16 or fp16 (fp8 is a format of weights)",
                          Name(c.layout.numerics.precision));
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
     [](const ServingConfig& c) { return c.weights != WeightFormat::kInt4 || !Int4Misfit(c); },
     [](const ServingConfig& c) {
       const MatrixInputs misfit = Int4Misfit(c).value_or(MatrixInputs{});
       const std::string over =
           misfit.ranks > 1 ? fmt::format(" over {} {}", misfit.axis, misfit.ranks) : "";
       return fmt::format("{} is {}{}; expected a multiple of {}", misfit.name, misfit.size, over,
                          misfit.ranks * kInt4Group);
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
    {"serving-length", "a sequence has positions that the model knows",
     [](const ServingConfig& c) { return c.limits.sequence_length <= KnownPositions(c.model); },
     [](const ServingConfig& c) {
       return fmt::format("sequences of {} tokens; expected at most the model's {}",
                          c.limits.sequence_length, KnownPositions(c.model));
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
  RequireAll(ServingRules(), config);
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
  draft.layout.numerics.precision = config.layout.numerics.precision;
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
