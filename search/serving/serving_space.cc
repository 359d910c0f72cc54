#include "search/serving/serving_space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/text_values.h"
#include "engine/infer/serving_json.h"

namespace trimtab {
namespace {

constexpr int64_t kFewestTokens = 64;  // of a step; fewer only cut prompts to crumbs
constexpr int64_t kMostTokens = 16384;
constexpr int64_t kMostSequences = 1024;  // of a replica
constexpr int64_t kUsualSequences = 256;
constexpr int64_t kUsualTokens = 2048;
constexpr int64_t kMostValue = 1 << 24;
constexpr size_t kMostListed = 16;  // values in a message

std::vector<int64_t> UpTo(int64_t most) {
  std::vector<int64_t> values;
  for (int64_t value = 1; value <= most; ++value) values.push_back(value);
  return values;
}

/// Powers of two from `least`, up to the first that is no less than `enough`.
std::vector<int64_t> PowersOfTwo(int64_t least, int64_t most, int64_t enough) {
  std::vector<int64_t> values;
  for (int64_t value = least; value <= most; value *= 2) {
    values.push_back(value);
    if (value >= enough) break;
  }
  return values;
}

/// How many tokens may be proposed; none where nothing says how often they stand.
std::vector<int64_t> Proposed(bool any) {
  return any ? std::vector<int64_t>{0, 1, 2, 4, 8} : std::vector<int64_t>{0};
}

int64_t IndexOfCache(DType entries) {
  const std::vector<std::string>& names = CacheNames();
  return std::find(names.begin(), names.end(), CacheName(entries)) - names.begin();
}

const std::vector<std::string>& OffAndOn() {
  static const std::vector<std::string> names = {"off", "on"};
  return names;
}

using Problem = ServingProblem;
using Candidate = ServingCandidate;

const std::vector<ServingDimension> kDimensions = {
    {"tp", "ranks that share every layer",
     [](const Problem& p, const Candidate&) { return UpTo(p.ranks()); },
     [](Candidate& c, int64_t value) { c.config.layout.tp = value; },
     [](const Candidate& c) { return c.config.layout.tp; }, nullptr},
    {"pp", "pipeline stages",
     [](const Problem& p, const Candidate& c) {
       return UpTo(std::min(p.ranks() / c.config.layout.tp, p.model.num_layers));
     },
     [](Candidate& c, int64_t value) { c.config.layout.pp = value; },
     [](const Candidate& c) { return c.config.layout.pp; }, nullptr},
    {"ep", "ranks that the experts are spread over, whole ones; 1: a slice of each on every rank",
     [](const Problem& p, const Candidate& c) {
       const int64_t tp = c.config.layout.tp;
       return p.model.moe.used() && tp > 1 ? std::vector<int64_t>{1, tp} : std::vector<int64_t>{1};
     },
     [](Candidate& c, int64_t value) {
       ParallelConfig& layout = c.config.layout;
       layout.ep = value;
       layout.etp = c.config.model.moe.used() ? layout.tp / value : 1;
       layout.sequence_parallel = c.config.model.moe.used() && layout.tp > 1;
     },
     [](const Candidate& c) { return c.config.layout.ep; }, nullptr},
    {"weights", "what the weights of products are stored in",
     [](const Problem& p, const Candidate&) {
       std::vector<int64_t> values;
       for (const WeightFormat each : p.weights) values.push_back(static_cast<int64_t>(each));
       return values;
     },
     [](Candidate& c, int64_t value) { c.config.weights = static_cast<WeightFormat>(value); },
     [](const Candidate& c) { return static_cast<int64_t>(c.config.weights); }, WeightNames},
    {"cache", "what keys and values are stored in",
     [](const Problem& p, const Candidate&) {
       std::vector<int64_t> values;
       for (const DType each : p.caches) values.push_back(IndexOfCache(each));
       return values;
     },
     [](Candidate& c, int64_t value) {
       c.config.cache = CacheType(CacheNames()[static_cast<size_t>(value)]);
     },
     [](const Candidate& c) { return IndexOfCache(c.config.cache); }, CacheNames},
    {"prefix", "a cache of what prompts begin with; off only where they share something",
     [](const Problem& p, const Candidate&) {
       const bool either = p.load.shares() || p.Names("prefix");
       return either ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{1};
     },
     [](Candidate& c, int64_t value) { c.config.prefix_cache = value == 1; },
     [](const Candidate& c) { return int64_t{c.config.prefix_cache}; }, OffAndOn},
    {"lookup", "tokens of a sequence and step that looking up what stood before proposes",
     [](const Problem& p, const Candidate&) { return Proposed(p.lookup_acceptance.has_value()); },
     [](Candidate& c, int64_t value) { c.config.lookup_tokens = value; },
     [](const Candidate& c) { return c.config.lookup_tokens; }, nullptr, 0},
    {"draft",
     "tokens likewise that the model of --draft proposes, stored as the other's weights are",
     [](const Problem& p, const Candidate&) { return Proposed(p.draft.has_value()); },
     [](Candidate& c, int64_t value) {
       c.config.draft.tokens = value;
       c.config.draft.weights = c.config.weights;
     },
     [](const Candidate& c) { return c.config.draft.tokens; }, nullptr, 0},
    {"replicas", "engines that share the load; on cpu one, if left out",
     [](const Problem& p, const Candidate& c) {
       // The cores of a machine serve one engine best.
       const bool one = p.cluster.device == "cpu" && !p.Names("replicas");
       const int64_t most = one ? 1 : p.ranks() / c.config.layout.world_size();
       return UpTo(std::min(most, MostInFlight(p.load, 1)));
     },
     [](Candidate& c, int64_t value) { c.config.layout.dp = value; },
     [](const Candidate& c) { return c.config.layout.dp; }, nullptr},
    {"prefill",
     "of the replicas, those that compute prompts alone, for the others to go on with; none, if "
     "left out",
     [](const Problem& p, const Candidate& c) {
       // What moving caches takes was measured on no GPU, so it is not recommended unasked.
       std::vector<int64_t> values = {0};
       if (!p.Names("prefill")) return values;
       for (const int64_t each : UpTo(c.config.layout.dp)) values.push_back(each);
       return values;
     },
     [](Candidate& c, int64_t value) { c.config.prefill = value; },
     [](const Candidate& c) { return c.config.prefill; }, nullptr, 0},
    {"sequences", "that a replica works on at once",
     [](const Problem& p, const Candidate& c) {
       const int64_t answering = std::max<int64_t>(1, c.config.answering());
       return PowersOfTwo(1, kMostSequences, MostInFlight(p.load, answering));
     },
     [](Candidate& c, int64_t value) { c.config.limits.sequences = value; },
     [](const Candidate& c) { return c.config.limits.sequences; }, nullptr, 1, /*is_limit=*/true},
    {"tokens", "rows of a step at most: longer prompts are cut",
     [](const Problem&, const Candidate&) {
       return PowersOfTwo(kFewestTokens, kMostTokens, kMostTokens);
     },
     [](Candidate& c, int64_t value) { c.config.limits.tokens_per_step = value; },
     [](const Candidate& c) { return c.config.limits.tokens_per_step; }, nullptr, 1,
     /*is_limit=*/true},
};

const ServingDimension& DimensionCalled(const std::string& name) {
  const auto found = std::ranges::find_if(
      kDimensions, [&](const ServingDimension& each) { return name == each.name; });
  TRIMTAB_ASSERT(found != kDimensions.end(), "no dimension is called {}", name);
  return *found;
}

class DimensionKeys final : public NarrowingKeys {
 public:
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const ServingDimension& each : kDimensions) names.emplace_back(each.name);
    return names;
  }
  std::string Canonical(const std::string& key, const std::string& text,
                        const std::string& flag) const override {
    const ServingDimension& dimension = DimensionCalled(key);
    return dimension.Text(dimension.Parse(text, flag.c_str()));
  }
};

/// The dimensions from here on make the candidates of a branch: from the replicas on, or on cpu,
/// where these share the machine's cores, behind them.
size_t BranchDepth(const ServingProblem& problem) {
  const auto replicas = std::find_if(kDimensions.begin(), kDimensions.end(), [](const auto& each) {
    return std::string_view(each.name) == "replicas";
  });
  const auto above = static_cast<size_t>(replicas - kDimensions.begin());
  return problem.cluster.device == "cpu" ? above + 1 : above;
}

/// What all candidates have in common.
ServingCandidate Unbound(const ServingProblem& problem) {
  ServingCandidate candidate;
  ServingConfig& config = candidate.config;
  config.model = problem.model;
  if (problem.draft) config.draft.model = *problem.draft;
  config.device = problem.cluster.device;
  config.layout.precision = config.device == "cuda" ? Precision::kBf16 : Precision::kFp32;
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
    const ServingDimension& dimension = kDimensions[depth];
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
    if (depth == kDimensions.size()) {
      const std::vector<int64_t>& gpus = problem_.gpus;
      const bool asked = gpus.empty() || std::ranges::find(gpus, candidate.gpus()) != gpus.end();
      if (asked) all.push_back(candidate);
      return;
    }
    for (const int64_t value : ValuesOf(kDimensions[depth], candidate)) {
      ServingCandidate next = candidate;
      kDimensions[depth].bind(next, value);
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

int64_t MostInFlight(const ServiceLoad& load, int64_t replicas) {
  return CeilDiv(load.concurrency > 0 ? load.concurrency : std::ssize(load.requests), replicas);
}

const std::vector<ServingDimension>& ServingDimensions() { return kDimensions; }

const NarrowingKeys& ServingKeys() {
  static const DimensionKeys keys;
  return keys;
}

std::string ServingDimension::Text(int64_t of) const {
  return names == nullptr ? fmt::format("{}", of) : names()[static_cast<size_t>(of)];
}

int64_t ServingDimension::Parse(const std::string& text, const char* flag) const {
  if (names != nullptr) {
    const auto found = std::find(names().begin(), names().end(), text);
    if (found != names().end()) return found - names().begin();
    const std::string nearest = NearestName(text, names());
    throw UsageError(fmt::format("{}: {}: '{}'; expected one of {}{}", flag, name, text,
                                 fmt::join(names(), ", "),
                                 nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
  }
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= least &&
      number <= kMostValue) {
    return number;
  }
  throw UsageError(fmt::format("{}: {}: '{}'; expected a number from {} to {}", flag, name, text,
                               least, kMostValue));
}

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
  for (const ServingDimension& each : kDimensions) {
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

std::string ServingCandidate::Key() const {
  std::string key;
  for (const ServingDimension& each : kDimensions) {
    if (each.names == nullptr && each.value(*this) == 0) continue;
    key += fmt::format("{}{}={}", key.empty() ? "" : ",", each.name, each.Text(each.value(*this)));
  }
  return key;
}

ServingSpace WalkServingSpace(const ServingProblem& problem) { return Walker(problem).Walk(); }

SpaceDescription DescribeServingSpace(ServingProblem problem) {
  problem.requirements.clear();  // of quality, which nothing here says
  const ServingSpace space = WalkServingSpace(problem);
  SpaceDescription description;
  description.counts.enumerated = space.size;
  description.counts.pruned.assign(space.cut_by_rule.begin(), space.cut_by_rule.end());
  for (const ServingDimension& each : kDimensions) {
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
