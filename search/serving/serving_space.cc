#include "search/serving/serving_space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/json/text_values.h"
#include "engine/infer/serving_json.h"

namespace trimtab {
namespace {

constexpr int64_t kUsualSequences = 256;
constexpr int64_t kUsualTokens = 2048;
constexpr size_t kMostListed = 16;  // values in a message

/// The dimensions from here on make the candidates of a branch: from the replicas on, or on cpu,
/// where these share the machine's cores, behind them.
size_t BranchDepth(const ServingProblem& problem) {
  const auto replicas =
      std::find_if(ServingDimensions().begin(), ServingDimensions().end(),
                   [](const auto& each) { return std::string_view(each.name) == "replicas"; });
  const auto above = static_cast<size_t>(replicas - ServingDimensions().begin());
  return problem.cluster.device == DeviceKind::kCpu ? above + 1 : above;
}

/// What all candidates have in common.
ServingCandidate Unbound(const ServingProblem& problem) {
  ServingCandidate candidate;
  ServingConfig& config = candidate.config;
  config.model = problem.model;
  if (problem.draft) config.draft.model = *problem.draft;
  config.device = problem.cluster.device;
  config.layout.numerics.precision =
      config.device == DeviceKind::kCuda ? Precision::kBf16 : Precision::kFp32;
  config.memory_per_rank_bytes = problem.memory_bytes;
  config.limits.sequence_length = problem.load.longest();
  config.limits.waiting =
      std::max<int64_t>(config.limits.waiting, std::ssize(problem.load.requests));
  return candidate;
}

/// Throws InfeasibleError where all that is allowed needs more ranks than the cluster has.
void RequireRanks(const ServingProblem& problem) {
  int64_t ranks = 1;
  std::string key;
  for (const char* name : {"tp", "pp", "replicas"}) {
    for (const Narrowing& each : problem.narrowings) {
      if (each.key != name || each.forbidden) continue;
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const std::string& value : each.values) {
        least = std::min(least, DimensionCalled(name).Parse(value, "--allow"));
      }
      ranks *= least;
      key += fmt::format("{}{}={}", key.empty() ? "" : ",", name, least);
      // At once: a product of three may have more than 64 bits.
      if (ranks <= problem.ranks()) continue;
      throw InfeasibleError(
          fmt::format("{} needs {} ranks; the cluster has {}", key, ranks, problem.ranks()));
    }
  }
}

class Walker {
 public:
  explicit Walker(const ServingProblem& problem)
      : problem_(problem), branch_depth_(BranchDepth(problem)) {
    RequireRanks(problem);
  }

  ServingSpace Walk() {
    ServingCandidate candidate = Unbound(problem_);
    Descend(0, candidate);
    if (space_.size == 0 && !emptied_.empty()) throw UsageError(emptied_);
    if (space_.size == 0) {
      throw UsageError("--gpus: no candidate runs on as many GPUs as are asked for");
    }
    return std::move(space_);
  }

 private:
  std::vector<int64_t> ValuesOf(const ServingDimension& dimension, const ServingCandidate& bound) {
    std::vector<int64_t> values = dimension.values(problem_, bound);
    std::vector<int64_t> kept = values;
    for (const Narrowing& each : problem_.narrowings) {
      if (each.key != dimension.name) continue;
      std::erase_if(kept, [&](int64_t value) { return !each.Allows(dimension.Text(value)); });
      if (kept.empty() && emptied_.empty()) {
        emptied_ = fmt::format("{} {}={}: leaves none of {}",
                               each.forbidden ? "--forbid" : "--fix, --allow", each.key,
                               fmt::join(each.values, ","), ListOf(dimension, values));
      }
    }
    return kept;
  }

  /// The values as text; of many the ends alone.
  static std::string ListOf(const ServingDimension& dimension, const std::vector<int64_t>& values) {
    if (values.size() > kMostListed) {
      return fmt::format("{} to {}", dimension.Text(values.front()), dimension.Text(values.back()));
    }
    std::vector<std::string> texts;
    for (const int64_t value : values) texts.push_back(dimension.Text(value));
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  void Descend(size_t depth, ServingCandidate& candidate) {
    if (depth == branch_depth_) return AddBranch(candidate);
    const ServingDimension& dimension = ServingDimensions()[depth];
    for (const int64_t value : ValuesOf(dimension, candidate)) {
      ServingCandidate next = candidate;
      dimension.bind(next, value);
      Descend(depth + 1, next);
    }
  }

  void AddBranch(const ServingCandidate& candidate) {
    ServingBranch branch = {.config = candidate.config, .candidates = {}};
    Collect(branch_depth_, candidate, branch.candidates);
    const int64_t size = std::ssize(branch.candidates);
    space_.size += size;
    if (const std::string rule = BrokenRule(candidate.config); !rule.empty()) {
      space_.cut_by_rule[rule] += size;
      return;
    }
    RequireQuality(candidate);
    const auto cut = [&](const char* rule, bool (*breaks)(const ServingConfig& config)) {
      const auto broken = static_cast<int64_t>(std::erase_if(
          branch.candidates, [breaks](const auto& each) { return breaks(each.config); }));
      if (broken > 0) space_.cut_by_rule[rule] += broken;
    };
    cut(kPrefillRule, [](const ServingConfig& c) { return c.answering() < 1; });
    cut(kLimitsRule,
        [](const ServingConfig& c) { return c.limits.tokens_per_step < c.limits.sequences; });
    if (!branch.candidates.empty()) space_.branches.push_back(std::move(branch));
  }

  void Collect(size_t depth, const ServingCandidate& candidate,
               std::vector<ServingCandidate>& all) {
    if (depth == ServingDimensions().size()) {
      const std::vector<int64_t>& gpus = problem_.gpus;
      const bool asked = gpus.empty() || std::ranges::find(gpus, candidate.gpus()) != gpus.end();
      if (asked) all.push_back(candidate);
      return;
    }
    for (const int64_t value : ValuesOf(ServingDimensions()[depth], candidate)) {
      ServingCandidate next = candidate;
      ServingDimensions()[depth].bind(next, value);
      Collect(depth + 1, next, all);
    }
  }

  void RequireQuality(const ServingCandidate& candidate) const {
    const ServingConfig& config = candidate.config;
    if (!problem_.limits_quality() ||
        problem_.quality.rises.contains({config.weights, config.cache})) {
      return;
    }
    throw UsageError(
        fmt::format("--require: nothing says the perplexity with weights in {} and a cache in {}",
                    Name(config.weights), CacheName(config.cache)));
  }

  /// The id of the first rule that the configuration breaks, whatever its limits; empty if none.
  std::string BrokenRule(const ServingConfig& config) const {
    if (config.layout.tp > problem_.joined_ranks()) return kTensorRule;
    try {
      ResolveServing(config);
      return "";
    } catch (const InfeasibleError& error) {
      const std::string message = error.what();
      return message.substr(0, message.find(':'));
    }
  }

  const ServingProblem& problem_;
  size_t branch_depth_;
  std::string emptied_;  // why the first dimension without a value has none
  ServingSpace space_;
};

}  // namespace

namespace {

/// Throws UsageError where nothing says how often what is proposed stands.
void RequireAcceptance(const ServingProblem& problem, const ServingConfig& config) {
  if (config.draft.tokens > 0 && !problem.draft) {
    throw UsageError("--layout: draft: expected --draft, the model that proposes");
  }
  if (config.lookup_tokens > 0 && !problem.lookup_acceptance) {
    throw UsageError(
        "--layout: lookup needs --lookup-acceptance, the share of its tokens that are accepted");
  }
}

}  // namespace

ServingCandidate ParseServingCandidate(const ServingProblem& problem, const std::string& text) {
  std::map<std::string, std::string> given;
  const std::vector<std::string> words =
      text.empty() ? std::vector<std::string>() : Split(text, ',');
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    if (!given.emplace(word.substr(0, equals), word.substr(std::min(equals + 1, word.size())))
             .second) {
      throw UsageError(fmt::format("--layout: {} is given twice", word.substr(0, equals)));
    }
  }
  ServingCandidate candidate = Unbound(problem);
  candidate.config.weights = problem.weights.front();
  candidate.config.cache = problem.caches.front();
  const int64_t most = problem.load.concurrency > 0 ? problem.load.concurrency : kUsualSequences;
  candidate.config.limits.sequences = std::min(most, kMostSequences);
  candidate.config.limits.tokens_per_step = kUsualTokens;
  std::vector<std::string> names;
  for (const ServingDimension& each : ServingDimensions()) {
    names.emplace_back(each.name);
    const auto found = given.find(each.name);
    each.bind(candidate,
              found == given.end() ? each.value(candidate) : each.Parse(found->second, "--layout"));
    if (found != given.end()) given.erase(found);
  }
  if (!given.empty()) {
    const std::string& name = given.begin()->first;
    throw UsageError(fmt::format("--layout: no key '{}'{}", name, SuggestName(name, names)));
  }
  RequireAcceptance(problem, candidate.config);
  if (candidate.gpus() > problem.ranks()) {
    throw InfeasibleError(fmt::format("{} needs {} ranks; the cluster has {}", candidate.Key(),
                                      candidate.gpus(), problem.ranks()));
  }
  if (candidate.config.layout.tp > problem.joined_ranks()) {
    throw InfeasibleError(fmt::format("{}: tp={}, over a link that joins {} ranks", kTensorRule,
                                      candidate.config.layout.tp, problem.joined_ranks()));
  }
  ResolveServing(candidate.config);
  return candidate;
}

ServingSpace WalkServingSpace(const ServingProblem& problem) { return Walker(problem).Walk(); }

SpaceDescription DescribeServingSpace(ServingProblem problem) {
  problem.requirements.clear();  // of quality, which nothing here says
  const ServingSpace space = WalkServingSpace(problem);
  SpaceDescription description;
  description.counts.enumerated = space.size;
  description.counts.pruned.assign(space.cut_by_rule.begin(), space.cut_by_rule.end());
  for (const ServingDimension& each : ServingDimensions()) {
    std::set<int64_t> values;
    for (const ServingBranch& branch : space.branches) {
      for (const ServingCandidate& of : branch.candidates) values.insert(each.value(of));
    }
    auto& texts = description.dimensions.emplace_back();
    texts.name = each.name;
    for (const int64_t value : values) texts.values.push_back(each.Text(value));
  }
  for (const ServingBranch& branch : space.branches) {
    description.counts.legal += std::ssize(branch.candidates);
  }
  return description;
}

}  // namespace trimtab
