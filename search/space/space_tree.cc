#include "search/space/space_tree.h"

#include <algorithm>
#include <string_view>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/config/layout/layout_keys.h"

namespace trimtab {

namespace {

/// Depth below the first of `rows` called `name`, which there is.
size_t DepthBelow(const std::vector<SpaceRow>& rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &SpaceRow::name);
  TRIMTAB_ASSERT(found != rows.end(), "no row is called {}", name);
  return static_cast<size_t>(found - rows.begin()) + 1;
}

}  // namespace

std::string ValueInWords(const SpaceRow& row, const RunConfig& run) {
  const std::string_view name = row.name;
  if (name == "ranks") return std::to_string(run.layout.world_size());
  if (name == "gbs") return std::to_string(run.global_batch);
  if (name == "optimizer state") return OptimizerStateName(run.layout.numerics);
  return LayoutKeyCalled(name).print(run.layout);
}

RunConfig RootOf(const Problem& problem) {
  RunConfig run;
  run.model = problem.model;
  run.optimizer = problem.optimizer;
  run.packing = problem.packing;
  run.device = problem.cluster.device;
  run.global_batch = problem.global_batch;
  run.sequence_length = problem.sequence_length;
  run.steps = problem.steps;
  run.seed = problem.seed;
  run.data = problem.data;
  run.stack = problem.cluster.stack.name;
  return run;
}

size_t Choice::Hash::operator()(const Choice& choice) const {
  uint64_t hash = 0;
  for (const int32_t value : choice.values) {
    hash = (hash ^ static_cast<uint32_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

const Rule* FirstBroken(const std::vector<const Rule*>& rules, const RunConfig& run) {
  for (const Rule* rule : rules) {
    if (!rule->holds(run)) return rule;
  }
  return nullptr;
}

PrunedCounts ByRule(const std::map<const Rule*, int64_t>& pruned) {
  PrunedCounts counts;
  for (const Rule& rule : LegalityRules()) {
    const auto found = pruned.find(&rule);
    // A branch may hold no candidate.
    if (found == pruned.end() || found->second == 0) continue;
    counts.emplace_back(rule.id, found->second);
  }
  PrunedCounts of_stack;
  for (const auto& [rule, count] : pruned) {
    if (rule->holds == nullptr && count > 0) of_stack.emplace_back(rule->id, count);
  }
  std::ranges::sort(of_stack);
  counts.insert(counts.end(), of_stack.begin(), of_stack.end());
  return counts;
}

SpaceTree::SpaceTree(const Problem& problem)
    : problem_(problem),
      run_(RootOf(problem)),
      values_(rows_.size()),
      narrowings_(rows_.size()),
      stack_rules_(problem.cluster.stack),
      counts_(rows_.size()) {
  TRIMTAB_ASSERT(rows_.size() <= Choice::kMostRows, "{} rows", rows_.size());
  for (const Narrowing& each : problem.narrowings) {
    narrowings_[RowThatBinds(each.key)].push_back(&each);
  }
  for (const Rule& rule : LegalityRules()) {
    if (IsUnsupported(rule)) unsupported_.push_back(&rule);
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    const SpaceRow& row = rows_[i];
    if (row.readers == Readers::kLast) apart_ = i + 1;
    unread_below_.push_back(row.readers == Readers::kNone ? i + 1
                            : row.last_reader != nullptr  ? DepthBelow(rows_, row.last_reader)
                                                          : rows_.size());
  }
  for (const SpaceRow& row : rows_) {
    std::vector<const Rule*>& settled = settled_.emplace_back();
    for (const Rule& rule : LegalityRules()) {
      const auto is_rule = [&](const char* id) { return std::string_view(id) == rule.id; };
      if (std::any_of(row.settles.begin(), row.settles.end(), is_rule)) settled.push_back(&rule);
    }
  }
}

SpaceTree::Bound SpaceTree::CurrentlyBound() const {
  return {run_.layout, run_.global_batch, run_.threads_per_rank, run_.memory_per_rank_bytes};
}

void SpaceTree::Restore(const Bound& bound) {
  run_.layout = bound.layout;
  run_.global_batch = bound.global_batch;
  run_.threads_per_rank = bound.threads_per_rank;
  run_.memory_per_rank_bytes = bound.memory_per_rank_bytes;
}

void SpaceTree::Bind(const Choice& choice) {
  Restore({.global_batch = problem_.global_batch});
  choice_ = choice;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (choice.values[i] != Choice::kNone) rows_[i].bind(problem_, choice.values[i], run_);
  }
}

bool SpaceTree::Allows(size_t depth) const {
  const std::vector<const Narrowing*>& narrowings = narrowings_[depth];
  return std::all_of(narrowings.begin(), narrowings.end(),
                     [&](const Narrowing* each) { return each->Allows(run_.layout); });
}

bool SpaceTree::CollectValues(size_t depth, std::vector<std::vector<std::string>>& values) {
  if (depth == rows_.size()) return true;
  const bool last = depth + 1 == rows_.size();
  if (last && std::exchange(PlansHere().collected, true)) return !PlansBelow().empty();
  bool any = false;
  bool leads_on = false;  // of a row that no other looks at, every value does what the first does
  bool first = true;
  ForEachValue(depth, [&] {
    if (std::exchange(first, false) || rows_[depth].readers != Readers::kNone) {
      leads_on = CollectValues(depth + 1, values);
    }
    if (!leads_on) return;
    any = true;
    std::vector<std::string>& met = values[depth];
    std::string value = ValueInWords(rows_[depth], run_);
    if (std::find(met.begin(), met.end(), value) == met.end()) met.push_back(std::move(value));
  });
  return any;
}

std::vector<std::vector<std::string>> SpaceTree::ValuesByRow() {
  std::vector<std::vector<std::string>> values(rows_.size());
  Bind({});
  CollectValues(0, values);
  return values;
}

SpaceTree::Plans& SpaceTree::PlansHere() {
  const ParallelConfig& layout = run_.layout;
  const RecomputeConfig& bound = layout.recompute[0];
  const auto [known, is_new] = plans_.try_emplace({bound.kind, layout.pp * layout.vp});
  Plans& here = known->second;
  if (is_new) {
    ForEachValue(rows_.size() - 1, [&] {
      if (const Rule* broken = stack_rules_.Broken(rows_.size() - 1, run_.layout)) {
        here.rule = broken;
        ++here.lacking;
      } else {
        here.plans.push_back(run_.layout.recompute[0]);
      }
    });
  }
  return here;
}

void SpaceTree::CountLackingPlans() {
  const Plans& here = PlansHere();
  if (here.lacking > 0) pruned_[here.rule] += here.lacking;
}

int64_t SpaceTree::CountBelow(size_t depth) {
  if (depth == rows_.size()) return 1;
  return Count(depth) * (depth < apart_ ? 1 : std::ssize(PlansBelow()));
}

int64_t SpaceTree::Count(size_t depth) {
  if (depth + 1 == rows_.size()) return 1;
  const bool apart = depth >= apart_;
  Choice told_apart = choice_;
  for (size_t i = 0; i < depth; ++i) {
    const bool unread = depth >= unread_below_[i] || (apart && rows_[i].readers == Readers::kLast);
    if (unread) told_apart.values[i] = Choice::kNone;
  }
  if (const auto known = counts_[depth].find(told_apart); known != counts_[depth].end()) {
    return known->second;
  }
  int64_t count = 0;
  int64_t values = 0;
  const bool unread = rows_[depth].readers == Readers::kNone;
  ForEachValue(depth, [&] {
    if (values++ == 0 || !unread) count += apart ? Count(depth + 1) : CountBelow(depth + 1);
  });
  if (unread) count *= values;
  counts_[depth].emplace(told_apart, count);
  return count;
}

}  // namespace trimtab
