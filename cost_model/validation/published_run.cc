#include "cost_model/validation/published_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cost_model/validation/published_flops.h"
#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/plain_name.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kMostGpus = 1 << 20;
constexpr int64_t kLargestSize = int64_t{1} << 31;
constexpr int64_t kLongestSequence = int64_t{1} << 24;
constexpr double kLargestRate = 1e12;

/// Facts of a layout without which nobody can simulate it, of those that `json` does not tell.
std::vector<std::string> UntoldOfLayout(const nlohmann::json& json, const PublishedRun& run) {
  std::vector<std::string> needed = {"tp", "pp", "vp"};
  if (run.layout.tp > 1) needed.emplace_back("sp");
  if (run.layout.dp * run.layout.cp > 1) needed.emplace_back("zero_stage");
  std::vector<std::string> untold;
  for (const std::string& key : needed) {
    if (!json.contains(key) || json.at(key).is_null()) untold.push_back("layout." + key);
  }
  return untold;
}

/// One object of a row. A null value is as good as none.
class RowObject {
 public:
  RowObject(const nlohmann::json& json, const std::string& where, const std::string& section)
      : told_(Told(json)), object_(told_.is_object() ? told_ : json, where), section_(section) {}

  void Integer(const char* key, int64_t& value, int64_t min, int64_t max,
               Need need = Need::kOptional) {
    known_.emplace_back(key);
    object_.Integer(key, value, min, max, need);
  }
  void Number(const char* key, double& value, double max = kLargestRate) {
    known_.emplace_back(key);
    object_.Number(key, value, 0, max);
  }
  void Boolean(const char* key, bool& value) {
    known_.emplace_back(key);
    object_.Boolean(key, value);
  }
  void Text(const char* key, std::string& value, Need need = Need::kOptional) {
    known_.emplace_back(key);
    object_.Text(key, value, need);
  }
  void Choice(const char* key, std::string& value, const std::vector<std::string>& valid) {
    known_.emplace_back(key);
    object_.Choice(key, value, valid);
  }
  void Texts(const char* key, std::vector<std::string>& values) {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array()) object_.Refuse(key, "a list of strings");
    for (const nlohmann::json& each : *list) {
      if (!each.is_string()) object_.Refuse(key, "a list of strings");
      values.push_back(each.get<std::string>());
    }
  }
  /// The value itself, or nullptr.
  const nlohmann::json* Find(const char* key, Need need = Need::kOptional) {
    known_.emplace_back(key);
    return object_.Find(key, need);
  }
  /// Fields that say more to people than to a simulation.
  void ForPeople(std::initializer_list<const char*> keys) {
    for (const char* key : keys) known_.emplace_back(key);
  }
  std::string Where(const char* key) const { return object_.Where(key); }

  /// Notes unknown fields; refuses one that is nearly a known field which is not there.
  void Finish(std::set<std::string>& unknown) const {
    for (const auto& [key, value] : told_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string nearest = NearestName(key, known_);
      if (!nearest.empty() && !told_.contains(nearest) && EditDistance(key, nearest) <= 2) {
        object_.Refuse(key, fmt::format("a known field, such as \"{}\"", nearest));
      }
      unknown.insert(section_ + key);
    }
  }

 private:
  static nlohmann::json Told(const nlohmann::json& json) {
    if (!json.is_object()) return {};
    nlohmann::json told = nlohmann::json::object();
    for (const auto& [key, value] : json.items()) {
      if (!value.is_null()) told[key] = value;
    }
    return told;
  }

  nlohmann::json told_;
  StrictObject object_;
  std::string section_;
  std::vector<std::string> known_;
};

void ReadModel(const nlohmann::json& json, const std::string& where, PublishedModel& model,
               std::set<std::string>& unknown) {
  RowObject object(json, where, "model.");
  object.Text("name", model.name, Need::kRequired);
  object.Integer("layers", model.layers, 1, 1 << 16);
  object.Integer("hidden", model.hidden, 1, kLargestSize);
  object.Integer("heads", model.heads, 1, 1 << 16);
  object.Integer("kv_heads", model.kv_heads, 1, 1 << 16);
  object.Integer("head_dim", model.head_dim, 1, 1 << 16);
  object.Integer("ffn", model.ffn, 1, kLargestSize);
  object.Choice("ffn_kind", model.ffn_kind, {"gelu", "swiglu"});
  object.Text("activation", model.activation);
  object.Integer("vocab", model.vocab, 1, kLargestSize);
  object.Integer("seq", model.sequence, 1, kLongestSequence);
  object.Boolean("tied_embeddings", model.tied_embeddings);
  object.Integer("experts", model.experts, 1, 1 << 16);
  object.Integer("topk", model.topk, 1, 1 << 16);
  object.Integer("moe_ffn", model.moe_ffn, 1, kLargestSize);
  object.Integer("shared_expert_ffn", model.shared_expert_ffn, 1, kLargestSize);
  object.Integer("first_dense_layers", model.first_dense_layers, 0, 1 << 16);
  object.Text("attention", model.attention);
  object.Integer("q_lora_rank", model.q_lora_rank, 1, kLargestSize);
  object.Integer("kv_lora_rank", model.kv_lora_rank, 1, kLargestSize);
  object.Integer("qk_head_dim", model.qk_head_dim, 1, kLargestSize);
  object.Integer("qk_rope_head_dim", model.qk_rope_head_dim, 1, kLargestSize);
  object.Integer("v_head_dim", model.v_head_dim, 1, kLargestSize);
  object.Number("capacity_factor", model.capacity_factor);
  object.ForPeople({"n_params", "vocab_note", "dims_note"});
  object.Finish(unknown);
}

void ReadHardware(const nlohmann::json& json, const std::string& where, PublishedHardware& hardware,
                  std::set<std::string>& unknown) {
  RowObject object(json, where, "hardware.");
  object.Text("gpu", hardware.gpu, Need::kRequired);
  object.Integer("gpus", hardware.gpus, 1, kMostGpus);
  object.Integer("gpus_per_node", hardware.gpus_per_node, 1, kMostGpus);
  object.Integer("nvlink_domain", hardware.nvlink_domain, 1, kMostGpus);
  object.Number("inter_gbit_s_per_gpu", hardware.network_gbit_per_s);
  double memory_gb = 0;
  object.Number("mem_gb", memory_gb);
  hardware.memory_bytes = 1e9 * memory_gb;
  object.ForPeople({"intra", "inter", "power_w", "hbm"});
  object.Finish(unknown);
}

void ReadLayout(const nlohmann::json& json, const std::string& where, PublishedLayout& layout,
                std::set<std::string>& unknown) {
  RowObject object(json, where, "layout.");
  object.Integer("tp", layout.tp, 1, kMostGpus);
  object.Integer("pp", layout.pp, 1, kMostGpus);
  object.Integer("vp", layout.vp, 1, kMostGpus);
  object.Integer("cp", layout.cp, 1, kMostGpus);
  object.Integer("ep", layout.ep, 1, kMostGpus);
  object.Integer("dp", layout.dp, 1, kMostGpus);
  object.Boolean("sp", layout.sequence_parallel);
  object.Integer("zero_stage", layout.zero_stage, 0, 3);
  object.Integer("zero_group", layout.shard, 1, kMostGpus);
  object.Integer("fsdp", layout.shard, 1, kMostGpus);
  object.Text("schedule", layout.schedule);
  object.ForPeople({"dist_optimizer"});
  object.Finish(unknown);
}

void ReadMeasurement(const nlohmann::json& json, const std::string& where,
                     PublishedMeasurement& measured, std::set<std::string>& unknown) {
  RowObject object(json, where, "measured.");
  object.Number("tokens_per_s_per_gpu", measured.tokens_per_s_per_gpu);
  object.Number("step_time_s", measured.step_time_s);
  object.Number("samples_per_s", measured.samples_per_s);
  object.Number("tflops_per_gpu", measured.tflops_per_gpu);
  object.Number("mfu", measured.mfu, 2);
  object.Number("peak_used", measured.peak_tflops);
  std::string convention = "model";
  object.Choice("flops_convention", convention, {"model", "hardware"});
  measured.hardware_flops = convention == "hardware";
  std::string attention;
  object.Choice("attention_flops", attention, {"full", "causal"});
  if (!attention.empty()) measured.causal_attention = attention == "causal";
  double memory_gb = 0;
  object.Number("peak_mem_gb", memory_gb);
  measured.peak_mem_bytes = 1e9 * memory_gb;
  object.Number("hfu", measured.hfu, 2);
  object.Text("mem_kind", measured.mem_kind);
  std::string outcome;
  object.Text("outcome", outcome);
  measured.out_of_memory = outcome == "OOM";
  object.ForPeople({"tflops_consistent", "peak_mem_reserved_gb", "per_rank_max_allocated_mib"});
  object.Finish(unknown);
}

PublishedRun ReadRow(const nlohmann::json& json, const std::string& where,
                     std::set<std::string>& unknown) {
  PublishedRun run;
  RowObject row(json, where, "");
  row.Text("id", run.id, Need::kRequired);
  row.Text("family", run.family);
  row.Text("framework", run.framework);
  row.Integer("year", run.year, 1990, 2100);
  {
    RowObject source(*row.Find("source", Need::kRequired), row.Where("source"), "source.");
    source.Text("key", run.source, Need::kRequired);
    source.ForPeople({"title", "where"});
    source.Finish(unknown);
  }
  ReadModel(*row.Find("model", Need::kRequired), row.Where("model"), run.model, unknown);
  ReadHardware(*row.Find("hardware", Need::kRequired), row.Where("hardware"), run.hardware,
               unknown);
  ReadLayout(*row.Find("layout", Need::kRequired), row.Where("layout"), run.layout, unknown);
  if (json.at("layout").value("dp", nlohmann::json()).is_null()) {
    const PublishedLayout& layout = run.layout;
    run.layout.dp = std::max<int64_t>(1, run.hardware.gpus / (layout.tp * layout.pp * layout.cp));
  }
  ReadMeasurement(*row.Find("measured", Need::kRequired), row.Where("measured"), run.measured,
                  unknown);
  row.Integer("mbs", run.micro_batch, 1, kLargestSize);
  row.Integer("gbs", run.global_batch, 1, kLargestSize);
  row.Choice("recompute", run.recompute, {"none", "selective", "full", "block"});
  row.Integer("recompute_layers", run.recompute_layers, 1, 1 << 16);
  row.Text("recompute_detail", run.recompute_detail);
  row.Texts("recompute_modules", run.recompute_modules);
  row.Text("precision", run.precision);
  row.Text("precision_detail", run.precision_detail);
  row.Text("grad_accum_dtype", run.gradient_type);
  bool hybrid = false;  // sharded within a node
  row.Boolean("hsdp", hybrid);
  if (hybrid) run.layout.shard = run.hardware.gpus_per_node;
  row.Integer("param_state_bytes", run.state_bytes, 1, 64);
  std::string mixed_precision;
  row.Choice("mp_mode", mixed_precision, {"DEFAULT", "PURE"});
  if (mixed_precision == "PURE") run.gradient_type = "bf16";
  row.Text("cuda_graph_impl", run.cuda_graphs);
  row.Text("moe_flex_dispatcher_backend", run.token_dispatcher);
  row.Boolean("moe_a2a_overlap", run.experts_overlapped);
  row.Texts("missing", run.missing);
  for (std::string& each : UntoldOfLayout(json.at("layout"), run)) {
    if (std::ranges::find(run.missing, each) == run.missing.end()) {
      run.missing.push_back(std::move(each));
    }
  }
  row.Texts("blockers", run.blockers);
  row.Boolean("simulatable", run.simulatable);
  row.Text("notes", run.notes);
  row.ForPeople(
      {"training_mode", "vocab_note", "complete", "usable_for", "partition", "cross_entropy"});
  row.Finish(unknown);
  return run;
}

}  // namespace

bool PublishedModel::gated() const {
  return ffn_kind == "swiglu" || PlainName(activation).find("glu") != std::string::npos;
}

double PublishedRun::Release() const {
  static const std::regex kRelease("\\bv?(2[0-9])\\.(0[1-9]|1[0-2])\\b");
  std::smatch found;
  if (!std::regex_search(framework, found, kRelease)) return static_cast<double>(year) + 0.5;
  return 2000 + std::stod(found[1]) + (std::stod(found[2]) - 0.5) / 12;
}

std::string PublishedRun::Incomplete() const {
  if (!missing.empty()) {
    std::string list;
    for (const std::string& each : missing) list += (list.empty() ? "" : ", ") + each;
    return "not told: " + list;
  }
  if (!blockers.empty()) {
    std::string list;
    for (const std::string& each : blockers) list += (list.empty() ? "" : "; ") + each;
    return list;
  }
  const std::pair<const char*, int64_t> sizes[] = {{"model.layers", model.layers},
                                                   {"model.hidden", model.hidden},
                                                   {"model.heads", model.heads},
                                                   {"model.ffn", model.ffn},
                                                   {"model.vocab", model.vocab},
                                                   {"model.seq", model.sequence},
                                                   {"hardware.gpus", hardware.gpus},
                                                   {"mbs", micro_batch},
                                                   {"gbs", global_batch}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return fmt::format("not told: {}", name);
  }
  if (precision.empty()) return "not told: precision";
  if (recompute == "block" && recompute_layers < 1) return "not told: recompute_layers";
  if (recompute.empty()) return "not told: recompute";
  return "";
}

PublishedRuns ReadPublishedRuns(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  if (!json.is_array() || json.empty()) {
    throw InputError(fmt::format("{}: $: expected a list of at least one published run, got {}",
                                 path, DescribeJson(json)));
  }
  PublishedRuns runs;
  std::set<std::string> unknown;
  for (size_t i = 0; i < json.size(); ++i) {
    std::string where = fmt::format("{}: $[{}]", path, i);
    if (json[i].is_object() && json[i].contains("id") && json[i]["id"].is_string()) {
      where = fmt::format("{}: {}: $[{}]", path, json[i]["id"].get<std::string>(), i);
    }
    runs.runs.push_back(ReadRow(json[i], where, unknown));
  }
  FindAttentionConventions(runs.runs);
  runs.unknown_fields.assign(unknown.begin(), unknown.end());
  return runs;
}

}  // namespace trimtab
