#include "cost_model/serving/validation/published_serving.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kMostGpus = 1 << 16;
constexpr int64_t kLargestSize = int64_t{1} << 31;
constexpr double kLargestNumber = 1e12;
constexpr const char* kEverySecond = "every second layer, starting with the first";

const std::vector<std::string>& KindNames() {
  static const std::vector<std::string> names = {"served", "saturated", "static_batch"};
  return names;
}

/// The row without what is null: as good as not there.
nlohmann::json Told(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) {
    throw InputError(fmt::format("{}: expected an object, got {}", where, DescribeJson(json)));
  }
  nlohmann::json told = nlohmann::json::object();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) told[key] = value;
  }
  return told;
}

void ReadExperts(StrictObject& object, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  object.Integer("num_experts", moe.num_experts, 0, 1 << 16, Need::kRequired);
  object.Integer("experts_per_token", moe.router_topk, 0, 1 << 16, Need::kRequired);
  object.Integer("expert_ffn_hidden_size", moe.ffn_hidden_size, 1, kLargestSize);
  object.Integer("first_dense_layers", moe.first_k_dense, 0, 1 << 16);
  int64_t shared = 0;
  object.Integer("num_shared_experts", shared, 0, 1 << 16);
  if (!moe.used()) {
    moe = {};
    return;
  }
  if (moe.router_topk < 1 || moe.router_topk > moe.num_experts) {
    object.Refuse("experts_per_token", "1 to num_experts");
  }
  if (moe.ffn_hidden_size == 0) object.Refuse("expert_ffn_hidden_size", "a size");
  moe.shared_ffn_hidden_size = shared * moe.ffn_hidden_size;
}

/// What latent attention has beside heads. Returns whether the model has it.
bool ReadLatentAttention(StrictObject& object, LatentConfig& latent) {
  std::string attention;
  object.Choice("attention", attention, std::vector<std::string>{"mla"});
  if (attention.empty()) return false;
  object.Integer("q_lora_rank", latent.q_lora_rank, 0, kLargestSize);
  object.Integer("kv_lora_rank", latent.kv_lora_rank, 1, kLargestSize, Need::kRequired);
  object.Integer("qk_nope_head_size", latent.qk_nope_head_dim, 1, kLargestSize, Need::kRequired);
  object.Integer("qk_rope_head_size", latent.qk_rope_head_dim, 1, kLargestSize, Need::kRequired);
  object.Integer("v_head_size", latent.v_head_dim, 1, kLargestSize, Need::kRequired);
  return true;
}

void ReadModel(const nlohmann::json& json, const std::string& where, PublishedServing& row) {
  const nlohmann::json told = Told(json, where);
  StrictObject object(told, where);
  ModelConfig& model = row.model;
  model.name = row.model_name;
  object.Integer("hidden_size", model.hidden_size, 1, kLargestSize, Need::kRequired);
  object.Integer("num_layers", model.num_layers, 1, 1 << 16, Need::kRequired);
  object.Integer("num_heads", model.num_heads, 1, 1 << 16, Need::kRequired);
  object.Integer("num_kv_heads", model.num_kv_heads, 1, 1 << 16, Need::kRequired);
  object.Integer("vocab_size", model.vocab_size, 1, kLargestSize, Need::kRequired);
  object.Boolean("tied_embeddings", model.tied_embeddings, Need::kRequired);
  const bool latent = ReadLatentAttention(object, model.latent);
  // Latent attention has heads of its parts, each with a key of its own, whatever is told.
  int64_t head_size = 0;
  object.Integer("head_size", head_size, 1, 1 << 16, latent ? Need::kOptional : Need::kRequired);
  (latent ? model.num_kv_heads : model.head_dim) = latent ? model.num_heads : head_size;
  ReadExperts(object, model);
  const bool all_experts = model.moe.used() && model.moe.first_k_dense == 0;
  object.Integer("ffn_hidden_size", model.ffn_hidden_size, 1, kLargestSize,
                 all_experts ? Need::kOptional : Need::kRequired);
  if (all_experts) model.ffn_hidden_size = model.moe.ffn_hidden_size;  // no layer uses it
  std::string activation;
  object.Choice("activation", activation, std::vector<std::string>{"swiglu", "gelu"},
                Need::kRequired);
  model.activation = activation == "swiglu" ? ActivationKind::kSwiGlu : ActivationKind::kGelu;
  std::string norm = "rmsnorm";
  object.Choice("norm", norm, std::vector<std::string>{"rmsnorm", "layernorm"});
  model.norm = norm == "layernorm" ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  model.position = PositionKind::kRope;
  model.bias = false;
  bool attention_bias = false;
  object.Boolean("attention_bias", attention_bias);
  model.qkv_bias = attention_bias;
  object.Boolean("qk_norm", model.query_key_norm);
  bool parallel = false;
  object.Boolean("parallel_attention_ffn", parallel);
  if (parallel) model.block = BlockKind::kParallelShared;
  int64_t rotary = 0;
  object.Integer("rotary_size", rotary, 1, 1 << 16);
  if (rotary > 0 && !latent) {
    if (rotary > model.head_dim) object.Refuse("rotary_size", "at most head_size");
    model.rotary_fraction = static_cast<double>(rotary) / static_cast<double>(model.head_dim);
  }
  object.Integer("sliding_window", model.sliding_window, 1, kLargestSize);
  std::string windowed;
  object.Choice("sliding_window_layers", windowed, std::vector<std::string>{kEverySecond});
  if (!windowed.empty()) {
    if (model.sliding_window == 0) object.Refuse("sliding_window", "a size");
    model.full_attention_period = 2;
  }
  row.unsupported = LatentFault(model);
  object.Finish();
}

void ReadMetrics(const nlohmann::json& json, const std::string& where, PublishedServing& row) {
  const nlohmann::json told = Told(json, where);
  StrictObject object(told, where);
  constexpr double kLeast = 1e-9;
  double tpot_ms = 0;
  double ttft_ms = 0;
  double per_gpu = 0;
  const bool first_token = row.kind == ServingKind::kStaticBatch && row.output_tokens == 1;
  const auto need = [](bool needed) { return needed ? Need::kRequired : Need::kOptional; };
  object.Number("tpot_ms_mean", tpot_ms, kLeast, kLargestNumber,
                need(row.kind == ServingKind::kServed));
  object.Number("ttft_ms", ttft_ms, kLeast, kLargestNumber, need(first_token));
  object.Number("output_tokens_per_s_total", row.output_tokens_per_s, kLeast, kLargestNumber,
                need(row.kind == ServingKind::kSaturated));
  object.Number("output_tokens_per_s_per_gpu", per_gpu, kLeast, kLargestNumber,
                need(row.kind == ServingKind::kStaticBatch && !first_token));
  row.tpot_s = tpot_ms / 1000;
  row.ttft_s = ttft_ms / 1000;
  if (per_gpu > 0) row.output_tokens_per_s = per_gpu * static_cast<double>(row.gpus);
  object.Finish();
}

/// What a note says in a form of words that the table uses throughout.
void ReadNotes(PublishedServing& row) {
  static const std::regex kLengths(R"(lengths uniform in (0\.\d+)\.\.(\d+\.\d+) of nominal)");
  static const std::regex kRequests(R"((\d+) requests issued at once)");
  static const std::regex kExperts(R"(experts only|experts; attention in bf16)");
  static const std::regex kLatent(R"(MLA down and up projections in bf16)");
  std::smatch found;
  if (std::regex_search(row.notes, found, kLengths)) {
    row.mean_length = (std::stod(found[1]) + std::stod(found[2])) / 2;
  }
  if (row.kind == ServingKind::kSaturated && std::regex_search(row.notes, found, kRequests)) {
    row.requests = std::stoll(found[1]);
  }
  row.only_experts = row.model.moe.used() && std::regex_search(row.notes, kExperts);
  row.wide_latent = row.model.latent.used() && std::regex_search(row.notes, kLatent);
}

PublishedServing ReadRow(const nlohmann::json& json, const std::string& where) {
  PublishedServing row;
  const nlohmann::json told = Told(json, where);
  StrictObject object(told, where);
  object.Text("id", row.id, Need::kRequired);
  object.Text("source", row.source, Need::kRequired);
  std::string kind;
  object.Choice("kind", kind, KindNames(), Need::kRequired);
  row.kind = static_cast<ServingKind>(std::find(KindNames().begin(), KindNames().end(), kind) -
                                      KindNames().begin());
  object.Text("engine", row.engine, Need::kRequired);
  object.Text("engine_version", row.engine_version);
  object.Text("model", row.model_name, Need::kRequired);
  object.Text("gpu", row.gpu, Need::kRequired);
  object.Integer("gpus_per_instance", row.gpus, 1, kMostGpus, Need::kRequired);
  object.Integer("tp", row.tp, 1, kMostGpus, Need::kRequired);
  object.Integer("pp", row.pp, 1, kMostGpus, Need::kRequired);
  object.Integer("ep", row.ep, 1, kMostGpus);
  object.Integer("dp", row.dp, 1, kMostGpus);
  if (row.tp * row.pp * row.dp != row.gpus) {
    object.Refuse("gpus_per_instance", fmt::format("tp x pp x dp = {}", row.tp * row.pp * row.dp));
  }
  if (row.gpus % row.ep != 0) object.Refuse("ep", "a divisor of gpus_per_instance");
  object.Choice("weight_precision", row.weight_precision,
                std::vector<std::string>{"bf16", "fp16", "fp8", "nvfp4", "mxfp4", "int4"},
                Need::kRequired);
  object.Choice("kv_precision", row.kv_precision, std::vector<std::string>{"bf16", "fp16", "fp8"});
  object.Integer("input_tokens", row.input_tokens, 1, 1 << 22, Need::kRequired);
  object.Integer("output_tokens", row.output_tokens, 1, 1 << 22, Need::kRequired);
  const auto need = [](bool needed) { return needed ? Need::kRequired : Need::kOptional; };
  object.Integer("batch", row.batch, 1, 1 << 20, need(row.kind == ServingKind::kStaticBatch));
  object.Integer("concurrency", row.concurrency, 1, 1 << 20,
                 need(row.kind == ServingKind::kServed));
  object.Text("notes", row.notes);
  ReadModel(*object.Find("model_config", Need::kRequired), object.Where("model_config"), row);
  row.model.max_sequence_length = row.input_tokens + row.output_tokens;
  ReadMetrics(*object.Find("metrics", Need::kRequired), object.Where("metrics"), row);
  object.Finish();
  ReadNotes(row);
  return row;
}

}  // namespace

std::string_view Name(ServingKind kind) { return KindNames()[static_cast<size_t>(kind)]; }

std::string PublishedServing::Group() const {
  return fmt::format("{} {} {} x{}", model_name, engine, gpu, gpus);
}

bool IsPublishedServing(const nlohmann::json& rows) {
  return rows.is_array() && !rows.empty() && rows.front().is_object() &&
         rows.front().contains("kind");
}

std::vector<PublishedServing> ReadPublishedServing(const nlohmann::json& rows,
                                                   const std::string& path) {
  std::vector<PublishedServing> all;
  std::set<std::string> ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string where = fmt::format("{}: $[{}]", path, i);
    if (rows[i].is_object() && rows[i].contains("id") && rows[i]["id"].is_string()) {
      where = fmt::format("{}: {}: $[{}]", path, rows[i]["id"].get<std::string>(), i);
    }
    all.push_back(ReadRow(rows[i], where));
    if (!ids.insert(all.back().id).second) {
      throw InputError(fmt::format("{}: two rows are called {}", path, all.back().id));
    }
  }
  return all;
}

}  // namespace trimtab
