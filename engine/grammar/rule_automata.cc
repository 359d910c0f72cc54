#include "engine/grammar/rule_automata.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/grammar/automaton_builder.h"

namespace trimtab {
namespace {

constexpr int32_t kNoState = -1;

template <typename Value>
void SortUnique(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// Marks states from which a marked one can be reached: over bytes if `over_bytes`, and over rules
/// whose start is marked.
std::vector<bool> MarkBackwards(const std::vector<RuleAutomata::State>& states,
                                const std::vector<int32_t>& starts, bool over_bytes) {
  struct Incoming {
    int32_t source;
    int32_t rule;  // -1: a byte
  };
  std::vector<std::vector<Incoming>> incoming(states.size());
  std::vector<std::vector<int32_t>> started(states.size());  // rules, by where they start
  for (size_t rule = 0; rule < starts.size(); ++rule) {
    if (starts[rule] == kNoState) continue;
    started[static_cast<size_t>(starts[rule])].push_back(static_cast<int32_t>(rule));
  }
  std::vector<bool> marked(states.size());
  std::vector<int32_t> open;
  const auto mark = [&](int32_t state) {
    if (marked[static_cast<size_t>(state)]) return;
    marked[static_cast<size_t>(state)] = true;
    open.push_back(state);
  };
  for (size_t i = 0; i < states.size(); ++i) {
    const auto source = static_cast<int32_t>(i);
    for (const auto& edge : states[i].bytes) {
      if (over_bytes) incoming[static_cast<size_t>(edge.target)].push_back({source, -1});
    }
    for (const auto& edge : states[i].rules) {
      incoming[static_cast<size_t>(edge.target)].push_back({source, edge.rule});
    }
    if (states[i].accepting) mark(source);
  }
  std::vector<bool> done(starts.size());  // rules whose start is marked
  std::vector<std::vector<int32_t>> pending(starts.size());
  while (!open.empty()) {
    const auto state = static_cast<size_t>(open.back());
    open.pop_back();
    for (const int32_t rule : started[state]) {
      done[static_cast<size_t>(rule)] = true;
      for (const int32_t source : pending[static_cast<size_t>(rule)]) mark(source);
    }
    for (const Incoming& each : incoming[state]) {
      if (each.rule < 0 || done[static_cast<size_t>(each.rule)]) {
        mark(each.source);
      } else {
        pending[static_cast<size_t>(each.rule)].push_back(each.source);
      }
    }
  }
  return marked;
}

}  // namespace

bool RuleAutomata::State::Waits() const {
  return std::ranges::any_of(rules, [](const RuleEdge& edge) { return !edge.tail; });
}

RuleAutomata::RuleAutomata(const Grammar& grammar, Grammar::Rule root) : root_(root) {
  ByteSets sets;
  for (Grammar::Rule rule = 0; rule < grammar.rules(); ++rule) {
    starts_.push_back(kNoState);
    if (grammar.body(rule) < 0) continue;
    AutomatonBuilder builder(grammar, sets, /*inlines=*/false);
    const AutomatonBuilder::Fragment whole = builder.Build(grammar.body(rule));
    const auto first = static_cast<int32_t>(states_.size());
    starts_.back() = first;
    for (State& state : builder.WithoutEmptyEdges(whole)) {
      for (ByteEdge& edge : state.bytes) edge.target += first;
      for (RuleEdge& edge : state.rules) edge.target += first;
      states_.push_back(std::move(state));
    }
    constexpr size_t kMostStates = 400'000;
    if (states_.size() > kMostStates) {
      throw InputError(
          fmt::format("too large: its automata have more than {} states", kMostStates));
    }
  }
  sets_ = sets.sets();
  Trim();
  if (start(root_) == kNoState) throw InputError("no text fits");
  MergeEqual();
  DropUnreachable();
  FindNullable();
  FindClasses();
}

void RuleAutomata::Trim() {
  const std::vector<bool> useful = MarkBackwards(states_, starts_, /*over_bytes=*/true);
  for (int32_t& start : starts_) {
    if (start != kNoState && !useful[static_cast<size_t>(start)]) start = kNoState;
  }
  for (State& state : states_) {
    std::erase_if(state.bytes,
                  [&](const ByteEdge& edge) { return !useful[static_cast<size_t>(edge.target)]; });
    std::erase_if(state.rules, [&](const RuleEdge& edge) {
      return !useful[static_cast<size_t>(edge.target)] || start(edge.rule) == kNoState;
    });
  }
}

void RuleAutomata::MergeEqual() {
  // States with equal edges are one. Targets have higher numbers than sources as a rule, so going
  // backwards finds chains of them at once.
  constexpr int kRounds = 4;
  std::vector<int32_t> same(states_.size());
  for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<int32_t>(i);
  for (int round = 0; round < kRounds; ++round) {
    bool merged = false;
    std::map<State, int32_t> known;
    for (size_t i = states_.size(); i-- > 0;) {
      if (same[i] != static_cast<int32_t>(i)) continue;
      State& state = states_[i];
      const auto representative = [&](int32_t target) {
        while (same[static_cast<size_t>(target)] != target)
          target = same[static_cast<size_t>(target)];
        return target;
      };
      for (ByteEdge& edge : state.bytes) edge.target = representative(edge.target);
      for (RuleEdge& edge : state.rules) edge.target = representative(edge.target);
      SortUnique(state.bytes);
      SortUnique(state.rules);
      const auto [found, added] = known.emplace(state, static_cast<int32_t>(i));
      if (added) continue;
      same[i] = found->second;
      merged = true;
    }
    for (int32_t& start : starts_) {
      while (start != kNoState && same[static_cast<size_t>(start)] != start) {
        start = same[static_cast<size_t>(start)];
      }
    }
    if (!merged) break;
  }
  const auto representative = [&](int32_t target) {
    while (same[static_cast<size_t>(target)] != target) target = same[static_cast<size_t>(target)];
    return target;
  };
  for (State& state : states_) {
    for (ByteEdge& edge : state.bytes) edge.target = representative(edge.target);
    for (RuleEdge& edge : state.rules) edge.target = representative(edge.target);
    SortUnique(state.bytes);
    SortUnique(state.rules);
  }
}

void RuleAutomata::DropUnreachable() {
  std::vector<int32_t> number(states_.size(), kNoState);
  std::vector<int32_t> order;
  const auto reach = [&](int32_t state) {
    int32_t& found = number[static_cast<size_t>(state)];
    if (found == kNoState) {
      found = static_cast<int32_t>(order.size());
      order.push_back(state);
    }
    return found;
  };
  std::vector<int32_t> starts(starts_.size(), kNoState);
  std::vector<State> states;
  starts[static_cast<size_t>(root_)] = reach(start(root_));
  for (size_t i = 0; i < order.size(); ++i) {
    State state = std::move(states_[static_cast<size_t>(order[i])]);
    for (ByteEdge& edge : state.bytes) edge.target = reach(edge.target);
    for (RuleEdge& edge : state.rules) {
      edge.target = reach(edge.target);
      starts[static_cast<size_t>(edge.rule)] = reach(start(edge.rule));
    }
    states.push_back(std::move(state));
  }
  states_ = std::move(states);
  starts_ = std::move(starts);
  for (State& state : states_) {
    for (RuleEdge& edge : state.rules) {
      const State& target = this->state(edge.target);
      edge.tail = target.accepting && target.bytes.empty() && target.rules.empty();
    }
  }
}

void RuleAutomata::FindNullable() {
  const std::vector<bool> empty = MarkBackwards(states_, starts_, /*over_bytes=*/false);
  for (const int32_t start : starts_) {
    nullable_.push_back(start != kNoState && empty[static_cast<size_t>(start)]);
  }
}

void RuleAutomata::FindClasses() {
  std::set<int32_t> used;
  for (const State& state : states_) {
    for (const ByteEdge& edge : state.bytes) used.insert(edge.set);
  }
  std::map<std::vector<bool>, int32_t> known;
  for (size_t byte = 0; byte < class_of_.size(); ++byte) {
    std::vector<bool> in;
    for (const int32_t set : used) in.push_back(sets_[static_cast<size_t>(set)].test(byte));
    const auto [found, added] = known.emplace(std::move(in), static_cast<int32_t>(members_.size()));
    if (added) members_.push_back(static_cast<uint8_t>(byte));
    class_of_[byte] = found->second;
  }
}

}  // namespace trimtab
