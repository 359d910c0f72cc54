#include "search/serving/serving_dimensions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/infer/serving_json.h"

namespace trimtab {
namespace {

constexpr int64_t kFewestTokens = 64;  // of a step; fewer only cut prompts to crumbs
constexpr int64_t kMostTokens = 16384;
constexpr int64_t kMostValue = 1 << 24;

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

using Candidate = ServingCandidate;

const std::vector<ServingDimension> kDimensions = {
    {"tp", "ranks that share every layer",
     [](const ServingProblem& p, const Candidate&) { return UpTo(p.ranks()); },
     [](Candidate& c, int64_t value) { c.config.layout.tp = value; },
     [](const Candidate& c) { return c.config.layout.tp; }, nullptr},
    {"pp", "pipeline stages",
     [](const ServingProblem& p, const Candidate& c) {
       return UpTo(std::min(p.ranks() / c.config.layout.tp, p.model.num_layers));
     },
     [](Candidate& c, int64_t value) { c.config.layout.pp = value; },
     [](const Candidate& c) { return c.config.layout.pp; }, nullptr},
    {"ep", "ranks that the experts are spread over, whole ones; 1: a slice of each on every rank",
     [](const ServingProblem& p, const Candidate& c) {
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
     [](const ServingProblem& p, const Candidate&) {
       std::vector<int64_t> values;
       for (const WeightFormat each : p.weights) values.push_back(static_cast<int64_t>(each));
       return values;
     },
     [](Candidate& c, int64_t value) { c.config.weights = static_cast<WeightFormat>(value); },
     [](const Candidate& c) { return static_cast<int64_t>(c.config.weights); }, WeightNames},
    {"cache", "what keys and values are stored in",
     [](const ServingProblem& p, const Candidate&) {
       std::vector<int64_t> values;
       for (const DType each : p.caches) values.push_back(IndexOfCache(each));
       return values;
     },
     [](Candidate& c, int64_t value) {
       c.config.cache = CacheType(CacheNames()[static_cast<size_t>(value)]);
     },
     [](const Candidate& c) { return IndexOfCache(c.config.cache); }, CacheNames},
    {"prefix", "a cache of what prompts begin with; off only where they share something",
     [](const ServingProblem& p, const Candidate&) {
       const bool either = p.load.shares() || p.Names("prefix");
       return either ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{1};
     },
     [](Candidate& c, int64_t value) { c.config.prefix_cache = value == 1; },
     [](const Candidate& c) { return int64_t{c.config.prefix_cache}; }, OffAndOn},
    {"lookup", "tokens of a sequence and step that looking up what stood before proposes",
     [](const ServingProblem& p, const Candidate&) {
       return Proposed(p.lookup_acceptance.has_value());
     },
     [](Candidate& c, int64_t value) { c.config.lookup_tokens = value; },
     [](const Candidate& c) { return c.config.lookup_tokens; }, nullptr, 0},
    {"draft",
     "tokens likewise that the model of --draft proposes, stored as the other's weights are",
     [](const ServingProblem& p, const Candidate&) { return Proposed(p.draft.has_value()); },
     [](Candidate& c, int64_t value) {
       c.config.draft.tokens = value;
       c.config.draft.weights = c.config.weights;
     },
     [](const Candidate& c) { return c.config.draft.tokens; }, nullptr, 0},
    {"replicas", "engines that share the load; on cpu one, if left out",
     [](const ServingProblem& p, const Candidate& c) {
       // The cores of a machine serve one engine best.
       const bool one = p.cluster.device == DeviceKind::kCpu && !p.Names("replicas");
       const int64_t most = one ? 1 : p.ranks() / c.config.layout.world_size();
       return UpTo(std::min(most, MostInFlight(p.load, 1)));
     },
     [](Candidate& c, int64_t value) { c.config.layout.dp = value; },
     [](const Candidate& c) { return c.config.layout.dp; }, nullptr},
    {"prefill",
     "of the replicas, those that compute prompts alone, for the others to go on with; none, if "
     "left out",
     [](const ServingProblem& p, const Candidate& c) {
       // What moving caches takes was measured on no GPU, so it is not recommended unasked.
       std::vector<int64_t> values = {0};
       if (!p.Names("prefill")) return values;
       for (const int64_t each : UpTo(c.config.layout.dp)) values.push_back(each);
       return values;
     },
     [](Candidate& c, int64_t value) { c.config.prefill = value; },
     [](const Candidate& c) { return c.config.prefill; }, nullptr, 0},
    {"sequences", "that a replica works on at once",
     [](const ServingProblem& p, const Candidate& c) {
       const int64_t answering = std::max<int64_t>(1, c.config.answering());
       return PowersOfTwo(1, kMostSequences, MostInFlight(p.load, answering));
     },
     [](Candidate& c, int64_t value) { c.config.limits.sequences = value; },
     [](const Candidate& c) { return c.config.limits.sequences; }, nullptr, 1, /*is_limit=*/true},
    {"tokens", "rows of a step at most: longer prompts are cut",
     [](const ServingProblem&, const Candidate&) {
       return PowersOfTwo(kFewestTokens, kMostTokens, kMostTokens);
     },
     [](Candidate& c, int64_t value) { c.config.limits.tokens_per_step = value; },
     [](const Candidate& c) { return c.config.limits.tokens_per_step; }, nullptr, 1,
     /*is_limit=*/true},
};

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

}  // namespace

const ServingDimension& DimensionCalled(const std::string& name) {
  const auto found = std::ranges::find_if(
      kDimensions, [&](const ServingDimension& each) { return name == each.name; });
  TRIMTAB_ASSERT(found != kDimensions.end(), "no dimension is called {}", name);
  return *found;
}

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

std::string ServingCandidate::Key() const {
  std::string key;
  for (const ServingDimension& each : kDimensions) {
    if (each.names == nullptr && each.value(*this) == 0) continue;
    key += fmt::format("{}{}={}", key.empty() ? "" : ",", each.name, each.Text(each.value(*this)));
  }
  return key;
}

}  // namespace trimtab
