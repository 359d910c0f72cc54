#include "engine/grammar/lazy_automaton.h"

#include <algorithm>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/mix.h"

namespace trimtab {
namespace {

constexpr size_t kMostItems = 4096;  // of one set

}  // namespace

/// Items in the order in which they were added, each once.
class LazyAutomaton::ItemList {
 public:
  void Add(const Item& item) {
    if (items_.size() < kFew) {
      if (std::find(items_.begin(), items_.end(), item) != items_.end()) return;
    } else {
      if (index_.empty()) index_.insert(items_.begin(), items_.end());
      if (!index_.insert(item).second) return;
    }
    items_.push_back(item);
  }
  const std::vector<Item>& items() const { return items_; }
  bool full() const { return items_.size() > kMostItems; }

 private:
  static constexpr size_t kFew = 16;
  struct Hash {
    size_t operator()(const Item& item) const {
      return MixBits(
          MixBits(MixBits(static_cast<uint64_t>(item.state)) + static_cast<uint64_t>(item.origin)) +
          static_cast<uint64_t>(item.rule));
    }
  };

  std::vector<Item> items_;
  std::unordered_set<Item, Hash> index_;  // once there are more than a few
};

LazyAutomaton::LazyAutomaton(std::shared_ptr<const RuleAutomata> rules) : rules_(std::move(rules)) {
  const int32_t root = rules_->root();
  start_ = Reach({{.state = rules_->start(root), .origin = kText, .rule = root}});
  TRIMTAB_ASSERT(start_ != kDead, "a grammar begins with more than {} items", kMostItems);
}

int32_t LazyAutomaton::Compute(int32_t state, int32_t byte_class) {
  std::vector<Item> seeds;
  for (const Item& item : sets_[static_cast<size_t>(state)]->scans) {
    for (const RuleAutomata::ByteEdge& edge : rules_->state(item.state).bytes) {
      if (!rules_->Contains(edge.set, byte_class)) continue;
      const int32_t origin = item.origin == kSelf ? state : item.origin;
      seeds.push_back({.state = edge.target, .origin = origin, .rule = item.rule});
    }
  }
  const int32_t next = seeds.empty() ? kDead : Reach(std::move(seeds));
  sets_[static_cast<size_t>(state)]->next[static_cast<size_t>(byte_class)] = next;
  return next;
}

/// The set of what was read up to here: completes the rules that end, and those around them.
int32_t LazyAutomaton::Reach(std::vector<Item> seeds) {
  ItemList list;
  ItemList completed;  // rules and their origins; the state is 0
  for (const Item& seed : seeds) list.Add(seed);
  bool can_end = false;
  for (size_t i = 0; i < list.items().size(); ++i) {
    if (list.full()) return kDead;
    const Item item = list.items()[i];
    const RuleAutomata::State& state = rules_->state(item.state);
    for (const RuleAutomata::RuleEdge& edge : state.rules) {
      if (edge.tail) {
        list.Add({rules_->start(edge.rule), item.origin, item.rule});
      } else if (rules_->nullable(edge.rule)) {
        list.Add({edge.target, item.origin, item.rule});
      }
    }
    if (!state.accepting) continue;
    if (item.origin == kText) {
      can_end = true;
      continue;
    }
    const size_t before = completed.items().size();
    completed.Add({0, item.origin, item.rule});
    if (completed.items().size() == before) continue;
    const auto& waiting = sets_[static_cast<size_t>(item.origin)]->waiting;
    const auto by_rule = [](const auto& entry, int32_t rule) { return entry.first < rule; };
    for (auto each = std::lower_bound(waiting.begin(), waiting.end(), item.rule, by_rule);
         each != waiting.end() && each->first == item.rule; ++each) {
      Item next = each->second;
      if (next.origin == kSelf) next.origin = item.origin;
      list.Add(next);
    }
  }
  std::vector<Item> kernel;
  for (const Item& item : list.items()) {
    const RuleAutomata::State& state = rules_->state(item.state);
    if (!state.bytes.empty() || state.Waits()) kernel.push_back(item);
  }
  std::sort(kernel.begin(), kernel.end());
  return Intern(std::move(kernel), can_end);
}

int32_t LazyAutomaton::Intern(std::vector<Item> kernel, bool can_end) {
  uint64_t hash = can_end ? 1 : 0;
  for (const Item& item : kernel) {
    for (const int32_t part : {item.state, item.origin, item.rule}) {
      hash = MixBits(hash + static_cast<uint64_t>(static_cast<uint32_t>(part)));
    }
  }
  const auto [first, last] = known_.equal_range(hash);
  for (auto each = first; each != last; ++each) {
    const Set& set = *sets_[static_cast<size_t>(each->second)];
    if (set.can_end == can_end && set.kernel == kernel) return each->second;
  }
  auto set = std::make_unique<Set>();
  set->kernel = std::move(kernel);
  set->can_end = can_end;
  set->next.assign(static_cast<size_t>(rules_->classes()), kUnknown);
  Predict(*set);
  const auto id = static_cast<int32_t>(sets_.size());
  bytes_ += static_cast<int64_t>(
      sizeof(Set) + 64 + (set->kernel.size() + set->scans.size()) * sizeof(Item) +
      set->waiting.size() * sizeof(set->waiting[0]) + set->next.size() * sizeof(int32_t));
  sets_.push_back(std::move(set));
  known_.emplace(hash, id);
  return id;
}

void LazyAutomaton::Predict(Set& set) const {
  ItemList list;
  for (const Item& item : set.kernel) list.Add(item);
  std::vector<std::pair<int32_t, Item>> waiting;
  for (size_t i = 0; i < list.items().size(); ++i) {
    const Item item = list.items()[i];
    const RuleAutomata::State& state = rules_->state(item.state);
    if (!state.bytes.empty()) set.scans.push_back(item);
    for (const RuleAutomata::RuleEdge& edge : state.rules) {
      if (edge.tail) {
        // Items of the kernel are in it already.
        list.Add({rules_->start(edge.rule), item.origin, item.rule});
        continue;
      }
      const Item after = {edge.target, item.origin, item.rule};
      waiting.emplace_back(edge.rule, after);
      list.Add({rules_->start(edge.rule), kSelf, edge.rule});
      if (rules_->nullable(edge.rule)) list.Add(after);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  waiting.erase(std::unique(waiting.begin(), waiting.end()), waiting.end());
  set.waiting = std::move(waiting);
}

int32_t LazyAutomaton::Import(const LazyAutomaton& other, int32_t state) {
  std::vector<int32_t> needed = {state};
  std::unordered_map<int32_t, int32_t> made = {{state, kDead}};
  for (size_t i = 0; i < needed.size(); ++i) {
    for (const Item& item : other.sets_[static_cast<size_t>(needed[i])]->kernel) {
      if (item.origin >= 0 && made.emplace(item.origin, kDead).second) {
        needed.push_back(item.origin);
      }
    }
  }
  // A set's origins are older than it.
  std::sort(needed.begin(), needed.end());
  for (const int32_t each : needed) {
    const Set& set = *other.sets_[static_cast<size_t>(each)];
    std::vector<Item> kernel = set.kernel;
    for (Item& item : kernel) {
      if (item.origin >= 0) item.origin = made.at(item.origin);
    }
    std::sort(kernel.begin(), kernel.end());
    made[each] = Intern(std::move(kernel), set.can_end);
  }
  return made.at(state);
}

}  // namespace trimtab
