#include "search/serving/serving_problem.h"

#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/infer/serving_json.h"
#include "search/serving/serving_space.h"
#include "search/space/in_file.h"
#include "search/space/space.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr double kMaxNumber = std::numeric_limits<double>::max();

auto IdentityOf(const ServingProblem& problem) {
  // A new member does not compile until it is here.
  const auto& [model, cluster, load, workload, stack, weights, caches, draft, draft_acceptance,
               lookup_acceptance, requirements, quality, max_ranks, gpus, memory_bytes, narrowings,
               objective, rates, perplexity] = problem;
  std::vector<std::string> limits;
  for (const Requirement& each : requirements) limits.push_back(each.text());
  return std::tuple(model, ToJson(cluster), load, workload, stack, weights, caches, draft,
                    draft_acceptance, lookup_acceptance, limits, quality, max_ranks, gpus,
                    memory_bytes, narrowings);
}

nlohmann::json QualityJson(const ServingQuality& quality) {
  nlohmann::json rises = nlohmann::json::array();
  for (const auto& [stored, rise] : quality.rises) {
    rises.push_back(
        {{"weights", Name(stored.first)}, {"cache", CacheName(stored.second)}, {"rise", rise}});
  }
  return {{"of", quality.of}, {"rises", std::move(rises)}};
}

std::string FormatFrom(const nlohmann::json& json, const std::vector<std::string>& valid,
                       const std::string& where) {
  if (json.is_string()) {
    std::string name = json.get<std::string>();
    if (std::ranges::find(valid, name) != valid.end()) return name;
  }
  throw InputError(fmt::format("{}: expected one of {}, got {}", where, fmt::join(valid, ", "),
                               DescribeJson(json)));
}

ServingQuality QualityFrom(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ServingQuality quality;
  object.Text("of", quality.of, Need::kRequired);
  object.Array("rises", Need::kRequired, 0, [&](const auto& each, const std::string& at) {
    StrictObject rise(each, at);
    std::string weights, cache;
    rise.Choice("weights", weights, WeightNames(), Need::kRequired);
    rise.Choice("cache", cache, CacheNames(), Need::kRequired);
    rise.Number("rise", quality.rises[{WeightFormatOf(weights), CacheType(cache)}], 0, kMaxNumber,
                Need::kRequired);
    rise.Finish();
  });
  object.Finish();
  return quality;
}

}  // namespace

int64_t ServingProblem::joined_ranks() const {
  return std::max(cluster.ranks_per_node, cluster.profile.link_domain);
}

CopyRates ServingProblem::CopyOf(const ServingConfig& config) const {
  return CopyRatesOf(cluster.profile, config.layout.world_size() <= joined_ranks());
}

double ServingProblem::AcceptanceOf(const ServingConfig& config) const {
  return config.draft.tokens > 0 ? draft_acceptance : lookup_acceptance.value_or(0);
}

bool ServingProblem::limits_quality() const {
  return std::ranges::any_of(requirements, &Requirement::of_quality);
}

double ServingProblem::PerplexityRiseOf(const ServingConfig& config) const {
  return limits_quality() ? quality.rises.at({config.weights, config.cache}) : 1;
}

const Requirement* ServingProblem::MissedQuality(const ServingConfig& config) const {
  const LoadReport nothing_else;
  const Service service = {.report = nothing_else, .perplexity_rise = PerplexityRiseOf(config)};
  for (const Requirement& each : requirements) {
    if (each.of_quality() && each.Strain(service) >= 1) return &each;
  }
  return nullptr;
}

bool ServingProblem::Names(const std::string& dimension) const {
  return std::ranges::any_of(
      narrowings, [&](const Narrowing& each) { return each.key == dimension && !each.forbidden; });
}

bool operator==(const ServingProblem& one, const ServingProblem& other) {
  return IdentityOf(one) == IdentityOf(other);
}

nlohmann::json ToJson(const ServingProblem& problem) {
  nlohmann::json json = {{"model", ToJson(problem.model)},
                         {"cluster", ToJson(problem.cluster)},
                         {"load", ToJson(problem.load)},
                         {"workload", problem.workload},
                         {"stack", problem.stack},
                         {"max_ranks", problem.max_ranks},
                         {"memory_per_rank_bytes", problem.memory_bytes},
                         {"draft_acceptance", problem.draft_acceptance},
                         {"perplexity", QualityJson(problem.quality)},
                         {"weights", nlohmann::json::array()},
                         {"caches", nlohmann::json::array()},
                         {"requirements", nlohmann::json::array()}};
  for (const WeightFormat each : problem.weights) json["weights"].push_back(Name(each));
  for (const DType each : problem.caches) json["caches"].push_back(CacheName(each));
  for (const Requirement& each : problem.requirements) json["requirements"].push_back(each.text());
  if (problem.draft) json["draft"] = ToJson(*problem.draft);
  if (problem.lookup_acceptance) json["lookup_acceptance"] = *problem.lookup_acceptance;
  if (!problem.gpus.empty()) json["gpus"] = problem.gpus;
  if (!problem.narrowings.empty()) json["narrowings"] = ToJson(problem.narrowings);
  return json;
}

ServingProblem ServingProblemFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ServingProblem problem;
  const auto part = [&object](const std::string& key) -> const nlohmann::json& {
    return *object.Find(key, Need::kRequired);
  };
  problem.model = ModelConfigFromJson(part("model"), object.Where("model"));
  problem.cluster = ClusterFromJson(part("cluster"), object.Where("cluster"));
  problem.load = ServiceLoadFromJson(part("load"), object.Where("load"));
  object.Text("workload", problem.workload, Need::kRequired);
  object.Line("stack", problem.stack, Need::kRequired);
  object.Integer("max_ranks", problem.max_ranks, 0, kMaxInt, Need::kRequired);
  object.Integer("memory_per_rank_bytes", problem.memory_bytes, 0, kMaxInt, Need::kRequired);
  object.Number("draft_acceptance", problem.draft_acceptance, 0, 1, Need::kRequired);
  problem.quality = QualityFrom(part("perplexity"), object.Where("perplexity"));
  object.Array("weights", Need::kRequired, 1, [&](const auto& each, const std::string& at) {
    problem.weights.push_back(WeightFormatOf(FormatFrom(each, WeightNames(), at)));
  });
  object.Array("caches", Need::kRequired, 1, [&](const auto& each, const std::string& at) {
    problem.caches.push_back(CacheType(FormatFrom(each, CacheNames(), at)));
  });
  object.Array("requirements", Need::kRequired, 0, [&](const auto& each, const std::string& at) {
    if (!each.is_string()) {
      throw InputError(fmt::format("{}: expected a text, got {}", at, DescribeJson(each)));
    }
    InFile(at, [&] { problem.requirements.emplace_back(each.template get<std::string>()); });
  });
  if (const nlohmann::json* draft = object.Find("draft")) {
    problem.draft = ModelConfigFromJson(*draft, object.Where("draft"));
  }
  if (object.Find("lookup_acceptance") != nullptr) {
    object.Number("lookup_acceptance", problem.lookup_acceptance.emplace(), 0, 1);
  }
  object.Array("gpus", Need::kOptional, 1, [&](const auto& each, const std::string& at) {
    if (!each.is_number_integer() || each < 1) {
      throw InputError(fmt::format("{}: expected an integer from 1", at));
    }
    problem.gpus.push_back(each.template get<int64_t>());
  });
  object.Array("narrowings", Need::kOptional, 1, [&](const auto& each, const std::string& at) {
    problem.narrowings.push_back(NarrowingFromJson(each, at, ServingKeys()));
  });
  object.Finish();
  return problem;
}

}  // namespace trimtab
