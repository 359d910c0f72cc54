#include "cost_model/estimate.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/name_table.h"
#include "engine/config/run/run_config.h"

namespace trimtab {
namespace {

constexpr std::array<Named<Trust>, 3> kTrustNames = {{{Trust::kModelled, "modelled"},
                                                      {Trust::kCalibrated, "calibrated"},
                                                      {Trust::kMeasured, "measured"}}};

/// Keys that model FLOPs count for a token: of the full square all T, though a causal layer sees
/// half of them; through a window of W, likewise twice what it sees in the mean, 2 W - W^2 / T.
double KeysCounted(int64_t window, int64_t sequence_length) {
  const auto keys = static_cast<double>(sequence_length);
  if (window == 0 || window >= sequence_length) return keys;
  const auto seen = static_cast<double>(window);
  return 2 * seen - seen * seen / keys;
}

}  // namespace

std::string_view Name(Trust trust) { return NameIn(kTrustNames, trust); }

Trust ParseTrust(std::string_view name) {
  if (const auto trust = FindNamed(kTrustNames, name)) return *trust;
  throw InputError(
      fmt::format("\"{}\" is no trust; expected modelled, calibrated or measured", name));
}

double WeightFlops(const RunConfig& run) {
  const ModelConfig& model = run.model;
  const int64_t weights = model.num_layers * model.attention_weights() +
                          model.active_mlp_weights() + model.end_weights();
  // A step of a large cluster has more than 64 bits count.
  return static_cast<double>(run.global_batch * run.sequence_length) *
         static_cast<double>(6 * weights);
}

double ModelFlops(const RunConfig& run) {
  const ModelConfig& model = run.model;
  const int64_t tokens = run.global_batch * run.sequence_length;
  // Scores and values: for each key and token, products of 2 * H * D and 2 * H * Dv forward, twice
  // that backward.
  const auto each_key =
      static_cast<double>(6 * model.num_heads * (model.head_size() + model.value_size()));
  // Of a token, in all layers. Searches ask for millions of runs, most of them without a window.
  double keys = static_cast<double>(model.num_layers * run.sequence_length);
  if (model.sliding_window > 0) {
    keys = 0;
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      keys += KeysCounted(model.window(layer), run.sequence_length);
    }
  }
  return WeightFlops(run) + static_cast<double>(tokens) * each_key * keys;
}

double& Breakdown::exposed(GroupKind group) {
  switch (group) {
    case GroupKind::kTensor:
    case GroupKind::kKeyValue:
      return exposed_tp;
    case GroupKind::kContext:
      return exposed_cp;
    case GroupKind::kExpert:
    case GroupKind::kExpertTensor:
    case GroupKind::kExpertModel:
      return exposed_ep;
    case GroupKind::kPipeline:
    case GroupKind::kEmbedding:
      return exposed_pp;
    case GroupKind::kData:
    case GroupKind::kShard:
    case GroupKind::kReplica:
    case GroupKind::kExpertData:
    case GroupKind::kExpertShard:
    case GroupKind::kExpertReplica:
    case GroupKind::kWorld:
      break;
  }
  return exposed_dp;
}

double Breakdown::total() const {
  double sum = 0;
  for (const BreakdownPart& part : kBreakdownParts) sum += this->*part.seconds;
  return sum;
}

void Scale(Breakdown& parts, double factor) {
  for (const BreakdownPart& part : kBreakdownParts) parts.*part.seconds *= factor;
}

void SetInterval(Estimate& estimate, double half_width) {
  estimate.step_time_low_s = estimate.step_time_s / (1 + half_width);
  estimate.step_time_high_s = estimate.step_time_s * (1 + half_width);
}

nlohmann::json ToJson(const Estimate& estimate) {
  nlohmann::json messages = nlohmann::json::array();
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    for (int group = 0; group < kGroupKindCount; ++group) {
      const CommTotal& total =
          estimate.comm.at(static_cast<CollectiveKind>(kind), static_cast<GroupKind>(group));
      if (total.count == 0) continue;
      messages.push_back({{"collective", Name(static_cast<CollectiveKind>(kind))},
                          {"group", Name(static_cast<GroupKind>(group))},
                          {"count", total.count},
                          {"bytes", total.bytes}});
    }
  }
  nlohmann::json breakdown = nlohmann::json::object();
  for (const BreakdownPart& part : kBreakdownParts) {
    breakdown[part.key] = estimate.breakdown_s.*part.seconds;
  }
  const MemoryEstimate& memory = estimate.memory;
  nlohmann::json json = {
      {"step_time_s", estimate.step_time_s},
      {"step_time_interval_s", {estimate.step_time_low_s, estimate.step_time_high_s}},
      {"trust", Name(estimate.trust)},
      {"tokens_per_s", estimate.tokens_per_s()},
      {"tokens_per_s_per_gpu", estimate.tokens_per_s_per_gpu()},
      {"model_tflops_per_gpu", estimate.model_tflops_per_gpu()},
      {"model_flops", estimate.model_flops},
      {"model_flops_convention",
       "NVIDIA: 6 per matrix weight and token, full-square attention (twice what is seen through a "
       "window), no embedding look-up, no recompute"},
      {"hardware_flops_per_rank", estimate.hardware_flops},
      {"ops_per_rank", estimate.op_count},
      {"peak_mem_bytes", memory.peak_total},
      {"memory_bytes",
       {{"weights", memory.weights},
        {"gradients", memory.gradients},
        {"optimizer", memory.optimizer},
        {"activations", memory.activations},
        {"other", memory.other()},
        {"peak_total", memory.peak_total}}},
      {"breakdown_s", breakdown},
      {"messages", messages}};
  json["mfu"] =
      estimate.peak_flops_per_rank > 0 ? nlohmann::json(estimate.mfu()) : nlohmann::json(nullptr);
  return json;
}

}  // namespace trimtab
