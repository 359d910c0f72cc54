#include "tests/engine/train/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

using Values = std::vector<std::string>;

template <int kFrom, int kTo>
Values Numbers(const RunConfig&) {
  Values values;
  for (int i = kFrom; i <= kTo; ++i) values.push_back(std::to_string(i));
  return values;
}

// Models with experts have many layouts: of what experts have no part in, some values will do.

Values MicroBatches(const RunConfig& bound) {
  // Larger ones go the same ways.
  return bound.model.moe.used() ? Numbers<1, 2>(bound) : Numbers<1, 3>(bound);
}

/// What is not there cannot overlap.
Values GradReduce(const RunConfig& bound) {
  if (bound.layout.dp * bound.layout.cp == 1 || bound.model.moe.used()) return {"1"};
  return {"1", "0"};
}

/// Balanced; most layers on the first chunk; an empty first chunk, and most on the last.
Values Stages(const RunConfig& bound) {
  const int64_t chunks = bound.layout.pp * bound.layout.vp;
  const int64_t layers = bound.model.num_layers;
  Values values = {"auto"};
  if (chunks == 1 || chunks > layers || bound.model.moe.used()) return values;
  std::vector<int64_t> counts(static_cast<size_t>(chunks), 1);
  counts.front() = layers - (chunks - 1);
  values.push_back(ToString(StageLayers(counts)));
  counts.front() = 0;
  counts.back() = layers - (chunks - 2);
  values.push_back(ToString(StageLayers(counts)));
  return values;
}

/// Each module alone and all of them, each form of `full`; and in a pipeline, plans by stage.
Values Plans(const RunConfig& bound) {
  Values values = {"none", "full", "full:uniform:2", "full:block:1"};
  RecomputeConfig all = {.kind = RecomputeKind::kSelective};
  for (int i = 0; i < kRecomputeModuleCount; ++i) {
    RecomputeConfig one = {.kind = RecomputeKind::kSelective};
    one.modules.Add(static_cast<RecomputeModule>(i));
    all.modules.Add(static_cast<RecomputeModule>(i));
    values.push_back(ToString(one));
  }
  values.push_back(ToString(all));
  if (bound.model.moe.used()) return {"none", "full", "selective:mlp", ToString(all)};
  if (bound.layout.pp == 1) return values;
  constexpr const char* kMixed[] = {"full", "selective:core_attn+logits", "none", "full:uniform:2"};
  std::string by_stage = kMixed[0];
  for (int64_t stage = 1; stage < bound.layout.pp; ++stage) {
    by_stage += fmt::format("/{}", kMixed[stage % 4]);
  }
  values.push_back(by_stage);
  return values;
}

/// A key and its values, given what the rows above have bound.
struct Row {
  const char* key;
  Values (*values)(const RunConfig& bound) = nullptr;  // none: those that the key lists
  bool with_next = false;  // legal in company of the next key only: no rule is asked in between
};

/// In such an order that a layout is legal only if it is so with the default of every key below.
/// Every value of each is walked with every value of the others...
constexpr Row kCrossed[] = {
    {"pp", Numbers<1, 8>},    {"schedule", nullptr, /*with_next=*/true},
    {"vp", Numbers<1, 4>},    {"sp", nullptr, /*with_next=*/true},
    {"tp", Numbers<1, 8>},    {"cp", Numbers<1, 8>},
    {"dp", Numbers<1, 8>},    {"ep", Numbers<1, 8>},
    {"etp", Numbers<1, 8>},   {"zero"},
    {"shard", Numbers<0, 8>},
};
/// ... and with every value of each of these, which are walked side by side: all their products
/// would be twenty times as many layouts, of which few tell anything new.
constexpr Row kAlongside[] = {
    {"mbs", MicroBatches},
    {"cp_comm_type"},
    {"dispatch"},
    {"reshard_after_forward"},
    {"overlap_grad_reduce", GradReduce},
    {"overlap_param_gather"},
    {"tp_overlap_chunks", Numbers<1, 2>},
    {"stages", Stages},
    {"recompute", Plans},
};
constexpr size_t kCrossedCount = std::size(kCrossed);
constexpr size_t kRowCount = kCrossedCount + std::size(kAlongside);
static_assert(kRowCount <= LayoutSpace::kMaxKeys);

const Row& RowAt(size_t i) {
  return i < kCrossedCount ? kCrossed[i] : kAlongside[i - kCrossedCount];
}

Values ValuesOf(const Row& row, const RunConfig& bound) {
  return row.values != nullptr ? row.values(bound) : ListedValues(LayoutKeyCalled(row.key));
}

/// Keys that are not walked.
constexpr std::string_view kNumerics[] = {"precision", "master", "moments", "grads"};

/// A new key of a layout needs a row.
void RequireEveryKey() {
  for (const LayoutKey& key : LayoutKeys()) {
    const std::string_view name = key.name;
    bool walked = false;
    for (size_t i = 0; i < kRowCount; ++i) walked = walked || name == RowAt(i).key;
    const bool numeric =
        std::find(std::begin(kNumerics), std::end(kNumerics), name) != std::end(kNumerics);
    TRIMTAB_ASSERT(walked != numeric, "key {} is walked: {}", name, walked);
  }
}

}  // namespace

std::vector<std::string> ListedValues(const LayoutKey& key) {
  const std::string text = key.values();
  Values values;
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    for (int i = std::stoi(text); i <= std::stoi(text.substr(dots + 2)); ++i) {
      values.push_back(std::to_string(i));
    }
    return values;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(" | ", begin), text.size());
    values.push_back(text.substr(begin, end - begin));
    begin = end + 3;
  }
  return values;
}

LayoutSpace::LayoutSpace(RunConfig base, int64_t most_ranks) : base_(std::move(base)) {
  RequireEveryKey();
  RunConfig run = base_;
  for (size_t i = 0; i < kRowCount; ++i) {
    const LayoutKey& key = LayoutKeyCalled(RowAt(i).key);
    key.parse(key.print(ParallelConfig()), key.name, run.layout);
  }
  Choices choices{};
  Descend(0, most_ranks, run, choices);
}

void LayoutSpace::Descend(size_t depth, int64_t most_ranks, RunConfig& run, Choices& choices) {
  if (depth == kCrossedCount) return AddAlongside(run, choices);
  const Row& row = kCrossed[depth];
  const LayoutKey& key = LayoutKeyCalled(row.key);
  const Values values = ValuesOf(row, run);
  const ParallelConfig before = run.layout;
  for (size_t i = 0; i < values.size(); ++i) {
    key.parse(values[i], row.key, run.layout);
    choices[depth] = static_cast<uint8_t>(i);
    const bool fits = run.layout.world_size() <= most_ranks;
    if (fits && (row.with_next || FirstBrokenRule(run) == nullptr)) {
      Descend(depth + 1, most_ranks, run, choices);
    }
    run.layout = before;
  }
}

void LayoutSpace::AddAlongside(const RunConfig& crossed, Choices choices) {
  constexpr size_t kCount = std::size(kAlongside);
  std::array<Values, kCount> values;
  std::array<size_t, kCount> starts{};
  size_t most_values = 0;
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = ValuesOf(kAlongside[i], crossed);
    starts[i] = random_() % values[i].size();  // so that all pairs of values meet somewhere
    most_values = std::max(most_values, values[i].size());
  }
  const size_t first = layouts_.size();
  const auto begin = [first](auto& list) {
    return list.begin() + static_cast<std::ptrdiff_t>(first);
  };
  const auto add = [&](const ParallelConfig& layout) {
    if (std::find(begin(layouts_), layouts_.end(), layout) != layouts_.end()) return;
    for (size_t i = 0; i < kCount; ++i) {
      const std::string value = LayoutKeyCalled(kAlongside[i].key).print(layout);
      const auto found = std::find(values[i].begin(), values[i].end(), value);
      TRIMTAB_ASSERT(found != values[i].end(), "{} is no value of {}", value, kAlongside[i].key);
      choices[kCrossedCount + i] = static_cast<uint8_t>(found - values[i].begin());
    }
    layouts_.push_back(layout);
    choices_.push_back(choices);
  };
  // Gives a key one of its values, unless that breaks a rule.
  const auto set = [&](size_t key, size_t value, RunConfig& run) {
    const ParallelConfig before = run.layout;
    LayoutKeyCalled(kAlongside[key].key).parse(values[key][value], kAlongside[key].key, run.layout);
    if (FirstBrokenRule(run) != nullptr) run.layout = before;
  };
  for (size_t turn = 0; turn < most_values; ++turn) {
    RunConfig run = crossed;
    for (size_t i = 0; i < kCount; ++i) set(i, (starts[i] + turn) % values[i].size(), run);
    add(run.layout);
  }
  // What met only values that forbid it stands alone.
  for (size_t i = 0; i < kCount; ++i) {
    for (size_t value = 0; value < values[i].size(); ++value) {
      const bool met = std::any_of(begin(choices_), choices_.end(), [&](const Choices& other) {
        return other[kCrossedCount + i] == value;
      });
      if (met) continue;
      RunConfig run = crossed;
      set(i, value, run);
      add(run.layout);
    }
  }
}

RunConfig LayoutSpace::operator[](size_t index) const {
  RunConfig run = base_;
  run.layout = layouts_[index];
  return run;
}

int LayoutSpace::Differences(size_t left, size_t right) const {
  int differences = 0;
  for (size_t i = 0; i < kRowCount; ++i) {
    differences += choices_[left][i] != choices_[right][i] ? 1 : 0;
  }
  return differences;
}

std::vector<size_t> LayoutSpace::Sample(size_t count, uint32_t seed) const {
  constexpr size_t kValues = 16;  // of a key, at most
  constexpr size_t kAll = kRowCount * kValues;
  std::vector<bool> seen(kAll * kAll);
  std::vector<bool> taken(size());
  std::vector<size_t> sample;
  // How many pairs layout `index` has that were not seen yet; with `take`, they are seen then.
  const auto news = [&](size_t index, bool take) {
    size_t found = 0;
    for (size_t i = 0; i < kRowCount; ++i) {
      for (size_t j = i + 1; j < kRowCount; ++j) {
        TRIMTAB_ASSERT(choices_[index][i] < kValues, "{} has more values", RowAt(i).key);
        const size_t left = i * kValues + choices_[index][i];
        const size_t pair = left * kAll + j * kValues + choices_[index][j];
        if (seen[pair]) continue;
        ++found;
        if (take) seen[pair] = true;
      }
    }
    return found;
  };
  std::vector<size_t> order(size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  // First those with many new pairs, so that few are needed; with 0 anything, to fill up.
  for (const size_t least : {32, 16, 8, 4, 2, 1, 0}) {
    for (const size_t index : order) {
      if (least == 0 && sample.size() >= count) break;
      if (taken[index] || news(index, false) < least) continue;
      news(index, true);
      taken[index] = true;
      sample.push_back(index);
    }
  }
  std::sort(sample.begin(), sample.end());
  return sample;
}

std::vector<std::string> LayoutSpace::AlongsideKeys() {
  std::vector<std::string> names;
  for (const Row& row : kAlongside) names.emplace_back(row.key);
  return names;
}

const LayoutSpace& SpaceToLayOut(SmallModel model) {
  static std::map<SmallModel, LayoutSpace> spaces;
  const auto found = spaces.find(model);
  if (found != spaces.end()) return found->second;
  return spaces.try_emplace(model, RunToLayOut(model)).first->second;
}

std::string TestName(const ParallelConfig& layout) {
  std::string name = ToString(layout);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace trimtab
