#include "cost_model/serving/serving_work.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cost_model/serving/serving_layer.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/layers/attention/layer_cache.h"

namespace trimtab {
namespace {

/// The model without experts: where a layer has some, with the smallest MLP in their place, to see
/// what the rest of it does.
ModelConfig WithoutExperts(const ModelConfig& model, int64_t tp, const LayerSpec& spec) {
  ModelConfig dense = model;
  dense.moe = {};
  if (spec.has_experts()) dense.ffn_hidden_size = tp;
  return dense;
}

bool IsNorm(const OpRecord& op) {
  return op.kind == OpKind::kLayerNormForward || op.kind == OpKind::kRmsNormForward;
}

/// Where the second half of a layer begins: at the norm behind that of the first half and those
/// within its attention.
size_t SecondHalf(const ModelConfig& model, const std::vector<OpRecord>& ops) {
  const LatentConfig& latent = model.latent;
  int64_t before = 1 + (latent.used() ? 1 : 0) + (latent.q_lora_rank > 0 ? 1 : 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (IsNorm(ops[i]) && before-- == 0) return i;
  }
  TRIMTAB_ASSERT(false, "a layer of {} ops without a second norm", ops.size());
}

/// Whether a parameter projects to or from what latent attention keeps.
bool IsLatentProjection(const Parameter& parameter) {
  const std::string_view name = parameter.spec.name.view();
  return name.find(".linear_q_") != name.npos || name.find(".linear_kv_") != name.npos;
}

/// Kernels of a layer, but those for experts, in engines that fuse what is small: two norms,
/// products and attention with what stands between them, sums over ranks. Norms of queries and
/// keys, and the projections of latent attention, come to that.
double KernelsOf(const ModelConfig& model) {
  constexpr double kLayer = 12, kQueryKeyNorms = 3, kLatent = 8;
  return kLayer + (model.query_key_norm ? kQueryKeyNorms : 0) + (model.latent.used() ? kLatent : 0);
}

/// Scores of rows of prompts, and of those that fill up, each of one head.
double PromptScores(const ServingStep& step, int64_t filled) {
  PagedSegments rows;
  rows.segments.assign(1, {.rows = step.prompt_tokens, .first_position = step.prompt_position});
  PagedSegments more;
  more.segments.assign(1, {.rows = filled});
  return static_cast<double>(step.prompts * rows.visible_scores({}) + more.visible_scores({}));
}

/// Layers that are alike.
struct LayerGroup {
  LayerSpec spec;
  double count = 0;
  std::unique_ptr<ServingLayer> layer{};    // in the layout
  std::unique_ptr<ServingLayer> experts{};  // on one rank, where that one has an MLP in their place
};

}  // namespace

struct ServingRecorder::State {
  ModelConfig model;
  ServingLayout layout;
  std::vector<LayerGroup> groups;
  ServingFootprint footprint;

  void AddProduct(ServingProduct::Kind kind, const OpRecord& op, double count, double share,
                  ServingWork& work) const {
    const bool grouped = op.kind == OpKind::kGroupedGemm || op.kind == OpKind::kGroupedPackedGemm;
    const int64_t products = grouped ? op.dims[3] : 1;
    const bool layer = kind != ServingProduct::Kind::kHead || layout.packs_head;
    const bool low = kind == ServingProduct::Kind::kExperts || !layout.only_experts;
    work.products.push_back(
        {.kind = kind,
         .low_precision = layer && low,
         .weights = static_cast<double>(products * op.dims[1] * op.dims[2]) * share,
         .flops = static_cast<double>(op.flops) * share,
         .count = count});
  }

  /// `share`: of products that the ranks of the layout divide among them.
  void AddOp(const OpRecord& op, ServingProduct::Kind kind, double count, double share,
             const ServingStep& step, ServingWork& work) const {
    work.ops += count;
    // Packed products leave to ops of their own what others do beside their work; so do engines.
    if (op.fused.bytes > 0) {
      work.ops += count;
      work.other_bytes += count * static_cast<double>(op.fused.bytes);
    }
    switch (op.kind) {
      case OpKind::kGemm:
      case OpKind::kGroupedPackedGemm:  // of heads
        return AddProduct(kind, op, count, share, work);
      case OpKind::kGroupedGemm: {
        AddProduct(ServingProduct::Kind::kExperts, op, count, share, work);
        work.products.back().weights /= static_cast<double>(layout.dp);
        return;
      }
      case OpKind::kPagedAttention:
        return AddAttention(op, count, step, work);
      default:
        work.other_bytes += count * static_cast<double>(op.bytes - op.fused.beside) *
                            (op.kind == OpKind::kGatedActivationForward ? share : 1);
    }
  }

  void AddAttention(const OpRecord& op, double count, const ServingStep& step,
                    ServingWork& work) const {
    const LatentConfig& latent = model.latent;
    const int64_t value_size = latent.used() ? latent.kv_lora_rank : op.dims[2];
    const int64_t own = op.dims[0] * op.dims[1] * (op.dims[2] + value_size) * SizeOf(op.dtype);
    work.kv_values += count * static_cast<double>(op.bytes - own) / SizeOf(op.dtype);
    const auto decoded = static_cast<double>(step.sequences) / static_cast<double>(op.dims[0]);
    // What rows of prompts share of the queries and results goes with the other traffic.
    work.other_bytes += count * static_cast<double>(own) * (1 - decoded);
    const auto flops = static_cast<double>(op.flops);
    if (!latent.used()) {
      work.attention_flops += step.prompts > 0 ? count * flops : 0;
      return;
    }
    const double prompts = PromptScores(step, op.dims[0] - step.tokens());
    const auto decodes = static_cast<double>(step.sequences * (step.context + 1));
    const double whole = static_cast<double>(model.head_size() + latent.v_head_dim) /
                         static_cast<double>(op.dims[2] + latent.kv_lora_rank);
    work.decode_flops += count * flops * decodes / (prompts + decodes);
    work.attention_flops +=
        count * flops * prompts / (prompts + decodes) * (layout.expands_prompts ? whole : 1);
  }

  void AddMessages(const ServingPiece& piece, double count, ServingWork& work) const {
    for (const CommRecord& message : piece.messages) {
      work.messages.push_back({.kind = message.kind,
                               .ranks = message.ranks,
                               .bytes = static_cast<double>(message.bytes),
                               .count = count});
    }
  }

  void AddPiece(const ServingPiece& piece, size_t begin, size_t end, double count, double share,
                const ServingStep& step, ServingWork& work) const {
    const auto kind = piece.piece.kind == PieceKind::kHead ? ServingProduct::Kind::kHead
                                                           : ServingProduct::Kind::kDense;
    for (size_t i = begin; i < end; ++i) AddOp(piece.ops[i], kind, count, share, step, work);
  }

  void AddLayer(const LayerGroup& group, const ServingPiece& layer, const ServingStep& step,
                ServingWork& work) const {
    AddMessages(layer, group.count, work);
    work.layers += group.count;
    work.expert_layers += group.spec.has_experts() ? group.count : 0;
    work.kernels += group.count * KernelsOf(model);
    const bool halves = group.experts != nullptr || layout.wide_latent;
    const size_t half = halves ? SecondHalf(model, layer.ops) : layer.ops.size();
    const size_t first = work.products.size();
    AddPiece(layer, 0, half, group.count, 1, step, work);
    if (layout.wide_latent) {  // all but the output's projection
      for (size_t i = first; i + 1 < work.products.size(); ++i) {
        work.products[i].low_precision = false;
      }
    }
    if (!group.experts) return AddPiece(layer, half, layer.ops.size(), group.count, 1, step, work);
    const ServingPiece experts = group.experts->Record(step).at(1);
    AddPiece(experts, SecondHalf(model, experts.ops), experts.ops.size(), group.count,
             1.0 / static_cast<double>(layout.tp), step, work);
    if (layout.dp == 1) return;
    // Every rank's tokens go to those who hold their experts, and come back.
    const int64_t bytes = layout.dp * step.tokens() * model.hidden_size * SizeOf(DType::kBf16);
    work.messages.push_back({.ranks = layout.tp * layout.dp,
                             .bytes = static_cast<double>(bytes),
                             .count = group.count});
  }

  /// Bytes of a parameter's elements.
  double BytesOf(const Parameter& parameter) const {
    const bool experts = parameter.spec.grid == ParallelGrid::kExperts;
    const bool low = parameter.spec.multiplied > 0 && (experts || !layout.only_experts) &&
                     !(layout.wide_latent && IsLatentProjection(parameter));
    return static_cast<double>(parameter.numel()) *
           BytesPerWeight(low ? layout.weights : ServingPrecision::k16Bit);
  }

  /// Bytes of the weights of a layer on this rank.
  double LayerBytes(const LayerGroup& group) const {
    double bytes = 0;
    for (const Parameter* each : group.layer->store().parameters()) {
      if (each->spec.name.view().starts_with("decoder.layers.")) bytes += BytesOf(*each);
    }
    if (!group.experts) return bytes;
    for (const Parameter* each : group.experts->store().parameters()) {
      if (each->spec.name.view().find(".mlp.") == std::string_view::npos) continue;
      const bool experts = each->spec.grid == ParallelGrid::kExperts;
      bytes += BytesOf(*each) / static_cast<double>(layout.tp * (experts ? layout.dp : 1));
    }
    return bytes;
  }

  void Measure() {
    double layers = 0;
    for (const LayerGroup& group : groups) {
      const double bytes = LayerBytes(group);
      layers += group.count * bytes;
      footprint.windows |= group.spec.attention().window > 0;
    }
    const double tables = model.tied_embeddings ? 1 : 2;
    const auto table = static_cast<double>(model.padded_vocab_size(layout.tp) / layout.tp *
                                           model.embedding_size() * SizeOf(DType::kBf16));
    const auto pp = static_cast<double>(layout.pp);
    footprint.weight_bytes = layers / pp + (layout.pp == 1 ? tables : 1) * table;
    footprint.kv_bytes_per_token =
        static_cast<double>(model.num_layers * LayerCacheValues(model.layer(0).mixer, layout.tp)) *
        layout.kv_bytes / pp;
  }
};

std::string_view Name(ServingPrecision precision) {
  static constexpr std::array<std::string_view, 7> kNames = {"bf16", "fp8",  "nvfp4", "mxfp4",
                                                             "int4", "int8", "fp32"};
  return kNames[static_cast<size_t>(precision)];
}

double BytesPerWeight(ServingPrecision precision) {
  static constexpr std::array<double, 7> kBytes = {
      2, 1, 0.5 + 1.0 / 16, 0.5 + 1.0 / 32, 0.5 + 2.0 / 32, 1, 4};
  return kBytes[static_cast<size_t>(precision)];
}

ServingRecorder::ServingRecorder(const ModelConfig& model, const ServingLayout& layout)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.model = model;
  state.layout = layout;
  if (model.latent.used() && model.sliding_window > 0) {
    throw InfeasibleError("latent attention with windows is not predicted");
  }
  if (layout.wide_latent && !model.latent.used()) {
    throw UsageError("projections of latent attention in 16 bits, and the model has none");
  }
  if (model.num_heads % layout.tp != 0) {
    throw InfeasibleError(
        fmt::format("tp is {}, and the model has {} heads", layout.tp, model.num_heads));
  }
  if (model.moe.used() && model.block != BlockKind::kSequential) {
    throw InfeasibleError("experts in blocks that are not sequential");
  }
  if (layout.pp > model.num_layers) {
    throw InfeasibleError(
        fmt::format("pp is {}, and the model has {} layers", layout.pp, model.num_layers));
  }
  ParallelConfig stage;
  stage.tp = layout.tp;
  stage.sequence_parallel = layout.sequence_parallel;
  stage.ep = layout.ep;
  stage.etp = layout.etp;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerSpec spec = model.layer(layer);
    const auto found = std::find_if(state.groups.begin(), state.groups.end(),
                                    [&](const LayerGroup& each) { return each.spec == spec; });
    if (found != state.groups.end()) {
      ++found->count;
      continue;
    }
    LayerGroup& group = state.groups.emplace_back();
    group.spec = spec;
    group.count = 1;
    if (layout.sequence_parallel) {
      group.layer = std::make_unique<ServingLayer>(model, stage, layer);
      continue;
    }
    group.layer =
        std::make_unique<ServingLayer>(WithoutExperts(model, layout.tp, spec), stage, layer);
    if (spec.has_experts())
      group.experts = std::make_unique<ServingLayer>(model, ParallelConfig{}, layer);
  }
  state.Measure();
}

ServingRecorder::~ServingRecorder() = default;

ServingWork ServingRecorder::Record(const ServingStep& step) {
  const State& state = *state_;
  ServingWork work;
  const auto ranks = static_cast<double>(state.layout.dp);
  work.all_tokens =
      ranks * static_cast<double>(RoundUp(step.tokens(), state.layout.row_multiple()));
  work.sequences = ranks * static_cast<double>(step.sequences + step.prompts);
  work.prompt_tokens = static_cast<double>(step.prompts * step.prompt_tokens);
  if (state.model.moe.used()) {
    work.routed_share = static_cast<double>(state.model.moe.router_topk) /
                        static_cast<double>(state.model.moe.num_experts);
  }
  for (const LayerGroup& group : state.groups) {
    const std::vector<ServingPiece> pieces = group.layer->Record(step);
    TRIMTAB_ASSERT(pieces.size() == 3, "{} pieces of embedding, layer, head", pieces.size());
    state.AddLayer(group, pieces[1], step, work);
    if (&group != &state.groups.front()) continue;
    for (const size_t end : {size_t{0}, size_t{2}}) {
      state.AddMessages(pieces[end], 1, work);
      state.AddPiece(pieces[end], 0, pieces[end].ops.size(), 1, 1, step, work);
    }
  }
  return work;
}

const ServingFootprint& ServingRecorder::footprint() const { return state_->footprint; }

}  // namespace trimtab
