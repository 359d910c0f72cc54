// Problems as JSON: what a study stores of its problem, and reads again.
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/load_config.h"
#include "search/space/in_file.h"
#include "search/space/space.h"
#include "search/space/space_tree.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr const char* kEveryState = "auto";
constexpr double kMaxNumber = std::numeric_limits<double>::max();

/// Settings of a problem that are those of its runs, in the form of RUN.json.
constexpr const char* kRunKeys[] = {"model", "optimizer", "packing", "sequence_length",
                                    "seed",  "data",      "steps"};

/// Returns what makes two clusters the same: all but the prices of predictions, and what is known
/// of them. A new member does not compile until it is in the one group or the other.
auto IdentityOf(const Cluster& cluster) {
  [[maybe_unused]] const auto& [name, device, nodes, ranks_per_node, max_ranks, cores, memory_bytes,
                                price, power, reliability, profile, own_link, own_network, stack,
                                calibrated, caveat] = cluster;
  return std::tie(name, device, nodes, ranks_per_node, max_ranks, cores, memory_bytes, price, power,
                  reliability, stack);
}

std::string TextFrom(const nlohmann::json& json, const std::string& where) {
  if (json.is_string()) return json.get<std::string>();
  throw InputError(fmt::format("{}: expected a text, got {}", where, DescribeJson(json)));
}

std::vector<int64_t> CountsFrom(StrictObject& object, const std::string& key, int64_t most) {
  std::vector<int64_t> counts;
  object.Array(key, Need::kOptional, 1, [&](const nlohmann::json& json, const std::string& where) {
    const bool counts_something = json.is_number_integer() && json >= 1 && json <= most;
    if (!counts_something) {
      throw InputError(fmt::format("{}: expected an integer from 1 to {}, got {}", where, most,
                                   DescribeJson(json)));
    }
    counts.push_back(json.get<int64_t>());
  });
  return counts;
}

std::string OptimizerStateFrom(const nlohmann::json& json, const std::string& where) {
  std::string name = TextFrom(json, where);
  Numerics numerics;
  if (name != kEveryState) InFile(where, [&] { SetOptimizerState(name, numerics); });
  return name;
}

Reliability ReliabilityFrom(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  Reliability reliability;
  object.Number("gpu_mtbf_hours", reliability.gpu_mtbf_hours, 0, kMaxNumber, Need::kRequired);
  object.Number("restart_s", reliability.restart_s, 0, kMaxNumber, Need::kRequired);
  object.Number("checkpoint_bytes_per_s", reliability.checkpoint_bytes_per_s, 0, kMaxNumber,
                Need::kRequired);
  object.Finish();
  return reliability;
}

Cluster ClusterFrom(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  Cluster cluster;
  object.Line("name", cluster.name, Need::kRequired);
  object.Choice("device", cluster.device, kDeviceNames, Need::kRequired);
  object.Integer("nodes", cluster.nodes, 1, kMaxInt, Need::kRequired);
  object.Integer("ranks_per_node", cluster.ranks_per_node, 1, kMaxInt, Need::kRequired);
  object.Integer("max_ranks", cluster.max_ranks, 1, kMaxInt, Need::kRequired);
  object.Integer("cores", cluster.cores, 0, kMaxInt, Need::kRequired);
  object.Integer("memory_bytes", cluster.memory_bytes, 0, kMaxInt, Need::kRequired);
  object.Number("price_per_gpu_hour", cluster.price_per_gpu_hour, 0, kMaxNumber);
  object.Number("power_per_gpu_w", cluster.power_per_gpu_w, 0, kMaxNumber);
  if (const nlohmann::json* reliability = object.Find("reliability")) {
    cluster.reliability = ReliabilityFrom(*reliability, object.Where("reliability"));
  }
  if (const nlohmann::json* stack = object.Find("stack")) {
    cluster.stack = SoftwareStackFromJson(*stack, object.Where("stack"));
  }
  object.Finish();
  return cluster;
}

void ReadRunSettings(StrictObject& object, const std::string& where, Problem& problem) {
  nlohmann::json json = {{"global_batch", 1}};  // which a run needs
  for (const char* key : kRunKeys) json[key] = *object.Find(key, Need::kRequired);
  const RunConfig run = RunConfigFromJson(json, where);
  problem.model = run.model;
  problem.optimizer = run.optimizer;
  problem.packing = run.packing;
  problem.sequence_length = run.sequence_length;
  problem.seed = run.seed;
  problem.data = run.data;
  problem.steps = run.steps;
}

}  // namespace

bool operator==(const Problem& one, const Problem& other) {
  // A new member does not compile until it is here.
  const auto identity = [](const Problem& problem) {
    const auto& [model, cluster, global_batch, global_batches, sequence_length, precisions,
                 optimizer_states, memory_per_rank_bytes, max_ranks, gpus, max_micro_batch,
                 narrowings, requirements, optimizer, packing, seed, data, steps, tokens] = problem;
    return std::tuple_cat(
        std::tie(model, global_batch, global_batches, sequence_length, precisions, optimizer_states,
                 memory_per_rank_bytes, max_ranks, gpus, max_micro_batch, narrowings, requirements,
                 optimizer, packing, seed, data, steps, tokens),
        IdentityOf(cluster));
  };
  return identity(one) == identity(other);
}

nlohmann::json ToJson(const Cluster& cluster) {
  nlohmann::json json = {{"name", cluster.name},
                         {"device", Name(cluster.device)},
                         {"nodes", cluster.nodes},
                         {"ranks_per_node", cluster.ranks_per_node},
                         {"max_ranks", cluster.max_ranks},
                         {"cores", cluster.cores},
                         {"memory_bytes", cluster.memory_bytes}};
  if (const double price = cluster.price_per_gpu_hour; price > 0) {
    json["price_per_gpu_hour"] = price;
  }
  if (const double power = cluster.power_per_gpu_w; power > 0) json["power_per_gpu_w"] = power;
  if (const Reliability& reliability = cluster.reliability; reliability != Reliability()) {
    json["reliability"] = {{"gpu_mtbf_hours", reliability.gpu_mtbf_hours},
                           {"restart_s", reliability.restart_s},
                           {"checkpoint_bytes_per_s", reliability.checkpoint_bytes_per_s}};
  }
  if (cluster.stack != SoftwareStack()) json["stack"] = ToJson(cluster.stack);
  return json;
}

nlohmann::json ToJson(const Problem& problem) {
  nlohmann::json precisions = nlohmann::json::array();
  for (const Precision each : problem.precisions) precisions.push_back(Name(each));
  nlohmann::json json = {{"cluster", ToJson(problem.cluster)},
                         {"global_batch", problem.global_batch},
                         {"precisions", precisions},
                         {"optimizer_states", problem.optimizer_states},
                         {"memory_per_rank_bytes", problem.memory_per_rank_bytes},
                         {"max_ranks", problem.max_ranks},
                         {"max_micro_batch", problem.max_micro_batch}};
  const nlohmann::json run = ToJson(RootOf(problem));
  for (const char* key : kRunKeys) json[key] = run.at(key);
  if (!problem.global_batches.empty()) json["global_batches"] = problem.global_batches;
  if (!problem.gpus.empty()) json["gpus"] = problem.gpus;
  if (problem.tokens > 0) json["tokens"] = problem.tokens;
  for (const TrainingRequirement& each : problem.requirements) {
    json["requirements"].push_back(each.text);
  }
  if (!problem.narrowings.empty()) json["narrowings"] = ToJson(problem.narrowings);
  return json;
}

Cluster ClusterFromJson(const nlohmann::json& json, const std::string& where) {
  return ClusterFrom(json, where);
}

Problem ProblemFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  Problem problem;
  ReadRunSettings(object, where, problem);
  problem.cluster = ClusterFrom(*object.Find("cluster", Need::kRequired), object.Where("cluster"));
  problem.precisions.clear();
  object.Array("precisions", Need::kRequired, 1, [&](const auto& each, const std::string& at) {
    problem.precisions.push_back(InFile(at, [&] { return ParsePrecision(TextFrom(each, at)); }));
  });
  problem.optimizer_states.clear();
  object.Array("optimizer_states", Need::kRequired, 1,
               [&](const auto& each, const std::string& at) {
                 problem.optimizer_states.push_back(OptimizerStateFrom(each, at));
               });
  object.Integer("global_batch", problem.global_batch, 0, kMaxBatch, Need::kRequired);
  problem.global_batches = CountsFrom(object, "global_batches", kMaxBatch);
  problem.gpus = CountsFrom(object, "gpus", kMaxInt);
  object.Integer("memory_per_rank_bytes", problem.memory_per_rank_bytes, 0, kMaxInt,
                 Need::kRequired);
  object.Integer("max_ranks", problem.max_ranks, 0, kMaxInt, Need::kRequired);
  object.Integer("max_micro_batch", problem.max_micro_batch, 1, kMaxInt, Need::kRequired);
  object.Number("tokens", problem.tokens, 0, kMaxNumber);
  object.Array("requirements", Need::kOptional, 1, [&](const auto& each, const std::string& at) {
    const std::string text = TextFrom(each, at);
    const auto parsed = InFile(at, [&] { return ParseTrainingRequirements(text); });
    if (parsed.size() != 1) throw InputError(fmt::format("{}: expected one requirement", at));
    problem.requirements.push_back(parsed[0]);
  });
  object.Array("narrowings", Need::kOptional, 1, [&](const auto& each, const std::string& at) {
    problem.narrowings.push_back(NarrowingFromJson(each, at));
  });
  object.Finish();
  return problem;
}

}  // namespace trimtab
