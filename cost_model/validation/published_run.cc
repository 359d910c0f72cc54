#include "cost_model/validation/published_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>

#include "cost_model/validation/published_flops.h"
#include "cost_model/validation/published_words.h"
#include "cost_model/validation/row_object.h"
#include "engine/base/error.h"
#include "engine/base/plain_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

constexpr int64_t kMostGpus = 1 << 20;
constexpr int64_t kLargestSize = int64_t{1} << 31;
constexpr int64_t kLongestSequence = int64_t{1} << 24;
constexpr double kLargestRate = 1e12;

/// Facts of a layout without which nobody can simulate it.
std::vector<std::string> NeededOfLayout(const PublishedRun& run) {
  std::vector<std::string> needed = {"tp", "pp"};
  if (run.layout.pp > 1) needed.emplace_back("vp");
  if (run.layout.tp > 1) needed.emplace_back("sp");
  if (run.layout.dp * run.layout.cp > 1) needed.emplace_back("zero_stage");
  return needed;
}

void ReadModel(const nlohmann::json& json, const std::string& where, PublishedModel& model,
               RowFindings& findings) {
  RowObject object(json, where, "model.", findings);
  object.Text("name", model.name, Need::kRequired);
  object.Integer("layers", model.layers, 1, 1 << 16);
  object.Integer("hidden", model.hidden, 1, kLargestSize);
  object.Integer("heads", model.heads, 1, 1 << 16);
  object.Integer("kv_heads", model.kv_heads, 1, 1 << 16);
  object.Integer("head_dim", model.head_dim, 1, 1 << 16);
  object.Integer("ffn", model.ffn, 1, kLargestSize);
  object.Word("ffn_kind", model.ffn_kind, kMlpWords);
  object.Text("activation", model.activation);
  if (model.activation.empty() && object.Tells("ffn_kind")) {
    const auto kind = json.at("ffn_kind").get<std::string>();
    if (kind != model.ffn_kind) model.activation = kind;
  }
  object.Integer("vocab", model.vocab, 1, kLargestSize);
  object.Integer("seq", model.sequence, 1, kLongestSequence);
  object.Boolean("tied_embeddings", model.tied_embeddings);
  if (!object.Tells("tied_embeddings"))
    findings.assumed.emplace_back("embeddings that are not tied");
  object.Integer("experts", model.experts, 0, 1 << 16);
  object.Integer("topk", model.topk, 0, 1 << 16);
  object.Integer("moe_ffn", model.moe_ffn, 0, kLargestSize);
  object.Integer("shared_expert_ffn", model.shared_expert_ffn, 0, kLargestSize);
  object.Integer("first_dense_layers", model.first_dense_layers, 0, 1 << 16);
  object.Text("attention", model.attention);
  object.Integer("q_lora_rank", model.q_lora_rank, 0, kLargestSize);
  object.Integer("kv_lora_rank", model.kv_lora_rank, 0, kLargestSize);
  object.Integer("qk_head_dim", model.qk_head_dim, 0, kLargestSize);
  object.Integer("qk_rope_head_dim", model.qk_rope_head_dim, 0, kLargestSize);
  object.Integer("v_head_dim", model.v_head_dim, 0, kLargestSize);
  object.Number("capacity_factor", model.capacity_factor, kLargestRate);
  if (!object.Tells("kv_heads") && model.kv_lora_rank == 0) {
    findings.assumed.emplace_back("as many kv_heads as heads");
  }
  object.ForPeople({"n_params", "vocab_note", "dims_note"});
  object.Finish();
}

void ReadHardware(const nlohmann::json& json, const std::string& where, PublishedHardware& hardware,
                  RowFindings& findings) {
  RowObject object(json, where, "hardware.", findings);
  object.Text("gpu", hardware.gpu);
  object.Integer("gpus", hardware.gpus, 1, kMostGpus);
  object.Integer("gpus_per_node", hardware.gpus_per_node, 1, kMostGpus);
  if (!object.Tells("gpus_per_node")) {
    findings.assumed.push_back(fmt::format("{} GPUs a node", hardware.gpus_per_node));
  }
  object.Integer("nvlink_domain", hardware.nvlink_domain, 0, kMostGpus);
  object.Number("inter_gbit_s_per_gpu", hardware.network_gbit_per_s, kLargestRate);
  double memory_gb = 0;
  object.Number("mem_gb", memory_gb, kLargestRate);
  hardware.memory_bytes = 1e9 * memory_gb;
  object.ForPeople({"intra", "inter", "power_w", "hbm"});
  object.Finish();
}

void ReadLayout(const nlohmann::json& json, const std::string& where, PublishedLayout& layout,
                RowFindings& findings) {
  RowObject object(json, where, "layout.", findings);
  object.Integer("tp", layout.tp, 1, kMostGpus);
  object.Integer("pp", layout.pp, 1, kMostGpus);
  object.Integer("vp", layout.vp, 0, kMostGpus);
  object.Integer("cp", layout.cp, 1, kMostGpus);
  object.Integer("ep", layout.ep, 1, kMostGpus);
  object.Integer("dp", layout.dp, 1, kMostGpus);
  object.Boolean("sp", layout.sequence_parallel);
  bool shards_optimizer = false;
  object.Boolean("dist_optimizer", shards_optimizer);
  layout.zero_stage = shards_optimizer ? 1 : 0;
  object.Integer("zero_stage", layout.zero_stage, 0, 3);
  object.Integer("zero_group", layout.shard, 0, kMostGpus);
  object.Integer("fsdp", layout.shard, 0, kMostGpus);
  object.Text("schedule", layout.schedule);
  layout.vp = std::max<int64_t>(layout.vp, 1);  // 0: nothing is interleaved
  object.Finish();
}

void ReadMeasurement(const nlohmann::json& json, const std::string& where,
                     PublishedMeasurement& measured, RowFindings& findings) {
  RowObject object(json, where, "measured.", findings);
  object.Number("tokens_per_s_per_gpu", measured.tokens_per_s_per_gpu, kLargestRate);
  object.Number("step_time_s", measured.step_time_s, kLargestRate);
  object.Number("samples_per_s", measured.samples_per_s, kLargestRate);
  object.Number("tflops_per_gpu", measured.tflops_per_gpu, kLargestRate);
  object.Number("mfu", measured.mfu, 2);
  object.Number("peak_used", measured.peak_tflops, kLargestRate);
  std::string convention;
  object.Word("flops_convention", convention, kFlopsWords);
  measured.hardware_flops = convention == "hardware";
  std::string attention;
  object.Word("attention_flops", attention, kAttentionFlopsWords);
  if (!attention.empty()) measured.causal_attention = attention == "causal";
  double memory_gb = 0;
  object.Number("peak_mem_gb", memory_gb, kLargestRate);
  measured.peak_mem_bytes = 1e9 * memory_gb;
  object.Number("hfu", measured.hfu, 2);
  object.Text("mem_kind", measured.mem_kind);
  std::string outcome;
  object.Text("outcome", outcome);
  measured.out_of_memory = outcome == "OOM";
  object.ForPeople({"tflops_consistent", "peak_mem_reserved_gb", "per_rank_max_allocated_mib"});
  object.Finish();
}

/// Also what a plan says beside its kind: "selective:core_attn", "full:block:3".
void ReadRecompute(RowObject& row, PublishedRun& run) {
  row.Word("recompute", run.recompute, kRecomputeWords);
  row.Integer("recompute_layers", run.recompute_layers, 0, 1 << 16);
  row.Text("recompute_detail", run.recompute_detail);
  row.Texts("recompute_modules", run.recompute_modules);
  const nlohmann::json* said = row.Find("recompute");
  if (said == nullptr || !said->is_string()) return;
  const std::vector<std::string> parts = Split(said->get<std::string>(), ':');
  if (parts.size() < 2) return;
  if (run.recompute == "selective" && run.recompute_modules.empty()) {
    run.recompute_modules = Split(parts[1], '+');
  } else if (run.recompute == "block" && run.recompute_layers == 0) {
    ParseInteger(parts.back(), run.recompute_layers);
  }
}

void ReadPrecision(RowObject& row, PublishedRun& run) {
  row.Text("precision", run.precision);
  row.Text("precision_detail", run.precision_detail);
  const std::string said = run.precision;
  run.precision = MeaningOf(said, kPrecisionWords).value_or(said);
  if (run.precision_detail.empty() && said != run.precision) run.precision_detail = said;
  row.Text("grad_accum_dtype", run.gradient_type);
  row.Integer("param_state_bytes", run.state_bytes, 0, 64);
  std::string mixed_precision;
  row.Word("mp_mode", mixed_precision, kMixedPrecisionWords);
  if (mixed_precision == "pure") run.gradient_type = "bf16";
}

/// That a run trains something else than all of a model on text.
void ReadTraining(RowObject& row, PublishedRun& run) {
  std::string mode;
  row.Text("training_mode", mode);
  const bool told = !mode.empty();
  const std::optional<std::string> kind =
      MeaningOf(told ? mode : run.framework + " " + run.notes, kTrainingWords);
  if (kind.has_value() ? !kind->empty() : told) {
    run.unusable.push_back("training mode " + (told ? mode : *kind));
  }
}

PublishedRun ReadRow(const nlohmann::json& json, const std::string& where,
                     std::set<std::string>& unknown) {
  PublishedRun run;
  RowFindings findings = {unknown, run.unusable, run.assumed};
  RowObject row(json, where, "", findings);
  row.Text("id", run.id, Need::kRequired);
  row.Text("family", run.family);
  row.Text("framework", run.framework);
  row.Year("year", run.year);
  {
    RowObject source(*row.Find("source", Need::kRequired), row.Where("source"), "source.",
                     findings);
    source.Text("key", run.source, Need::kRequired);
    source.ForPeople({"title", "where"});
    source.Finish();
  }
  ReadModel(*row.Find("model", Need::kRequired), row.Where("model"), run.model, findings);
  ReadHardware(*row.Find("hardware", Need::kRequired), row.Where("hardware"), run.hardware,
               findings);
  ReadLayout(*row.Find("layout", Need::kRequired), row.Where("layout"), run.layout, findings);
  const nlohmann::json& layout = json.at("layout");
  const auto tells = [&](const std::string& key) {
    return layout.contains(key) && !layout.at(key).is_null();
  };
  if (!tells("dp")) {
    const int64_t others = run.layout.tp * run.layout.pp * run.layout.cp;
    run.layout.dp = std::max<int64_t>(1, run.hardware.gpus / others);
  }
  ReadMeasurement(*row.Find("measured", Need::kRequired), row.Where("measured"), run.measured,
                  findings);
  row.Integer("mbs", run.micro_batch, 1, kLargestSize);
  row.Integer("gbs", run.global_batch, 1, kLargestSize);
  ReadRecompute(row, run);
  ReadPrecision(row, run);
  bool hybrid = false;  // sharded within a node
  row.Boolean("hsdp", hybrid);
  if (hybrid) run.layout.shard = run.hardware.gpus_per_node;
  row.Text("cuda_graph_impl", run.cuda_graphs);
  row.Text("moe_flex_dispatcher_backend", run.token_dispatcher);
  row.Boolean("moe_a2a_overlap", run.experts_overlapped);
  row.Texts("missing", run.missing);
  const std::vector<std::string> needed = NeededOfLayout(run);
  std::erase_if(run.missing, [&](const std::string& each) {  // what follows from others
    return (each == "layout.vp" && std::ranges::find(needed, "vp") == needed.end()) ||
           (each == "layout.zero_stage" && tells("dist_optimizer"));
  });
  for (const std::string& key : needed) {
    const std::string name = "layout." + key;
    if (tells(key) || (key == "zero_stage" && tells("dist_optimizer"))) continue;
    if (std::ranges::find(run.missing, name) == run.missing.end()) run.missing.push_back(name);
  }
  row.Texts("blockers", run.blockers);
  row.Text("notes", run.notes);
  ReadTraining(row, run);
  row.ForPeople(
      {"vocab_note", "complete", "usable_for", "simulatable", "partition", "cross_entropy"});
  row.Finish();
  return run;
}

}  // namespace

bool PublishedModel::gated() const {
  return ffn_kind == "swiglu" || PlainName(activation).find("glu") != std::string::npos;
}

double PublishedRun::Release() const {
  static const std::regex kRelease("\\bv?(2[0-9])\\.(0[1-9]|1[0-2])\\b");
  std::smatch found;
  if (!std::regex_search(framework, found, kRelease)) {
    return year > 0 ? static_cast<double>(year) + 0.5 : 0;
  }
  return 2000 + std::stod(found[1]) + (std::stod(found[2]) - 0.5) / 12;
}

std::string PublishedRun::Incomplete() const {
  if (!unusable.empty()) return unusable.front();
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
