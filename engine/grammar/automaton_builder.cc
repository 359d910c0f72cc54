#include "engine/grammar/automaton_builder.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr size_t kMostStates = 400'000;
constexpr size_t kMostEdges = 2'000'000;
constexpr int kMostInlined = 64;

}  // namespace

int32_t ByteSets::IndexOf(const ByteSet& set) {
  const auto [found, added] = indices_.emplace(set.to_string(), static_cast<int32_t>(sets_.size()));
  if (added) sets_.push_back(set);
  return found->second;
}

AutomatonBuilder::AutomatonBuilder(const Grammar& grammar, ByteSets& sets, bool inlines)
    : grammar_(grammar), sets_(sets), inlines_(inlines) {}

int32_t AutomatonBuilder::AddState() {
  if (states_.size() >= kMostStates) {
    throw InputError(fmt::format("too large: its automaton has more than {} states", kMostStates));
  }
  states_.emplace_back();
  return static_cast<int32_t>(states_.size() - 1);
}

AutomatonBuilder::Fragment AutomatonBuilder::Build(Grammar::Expr expr) {
  using Kind = Grammar::Node::Kind;
  const Grammar::Node& node = grammar_.node(expr);
  switch (node.kind) {
    case Kind::kBytes: {
      const int32_t start = AddState();
      int32_t end = start;
      for (const char c : node.bytes) {
        const int32_t next = AddState();
        const auto byte = static_cast<unsigned char>(c);
        At(end).bytes.push_back({sets_.IndexOf(ByteRange(byte, byte)), next});
        end = next;
      }
      return {start, end};
    }
    case Kind::kSet: {
      const Fragment made = {AddState(), AddState()};
      if (node.set.any()) At(made.start).bytes.push_back({sets_.IndexOf(node.set), made.end});
      return made;
    }
    case Kind::kSequence: {
      const int32_t start = AddState();
      int32_t end = start;
      for (const Grammar::Expr part : node.parts) {
        const Fragment next = Build(part);
        Join(end, next.start);
        end = next.end;
      }
      return {start, end};
    }
    case Kind::kChoice: {
      const Fragment made = {AddState(), AddState()};
      for (const Grammar::Expr part : node.parts) {
        const Fragment branch = Build(part);
        Join(made.start, branch.start);
        Join(branch.end, made.end);
      }
      return made;
    }
    case Kind::kRepeat:
      return BuildRepeat(node);
    case Kind::kIntersection:
      return BuildIntersection(node);
    case Kind::kRule:
      return BuildRule(node.rule);
  }
  return {};
}

AutomatonBuilder::Fragment AutomatonBuilder::BuildRepeat(const Grammar::Node& node) {
  const Grammar::Expr part = node.parts.front();
  const Fragment made = {AddState(), AddState()};
  int32_t last = made.start;
  for (int64_t i = 0; i < node.min; ++i) {
    const Fragment copy = Build(part);
    Join(last, copy.start);
    last = copy.end;
  }
  if (node.max == Grammar::kUnbounded) {
    const int32_t again = AddState();
    const Fragment copy = Build(part);
    Join(last, again);
    Join(again, copy.start);
    Join(copy.end, again);
    Join(again, made.end);
    return made;
  }
  for (int64_t i = node.min; i < node.max; ++i) {
    const Fragment copy = Build(part);
    Join(last, made.end);
    Join(last, copy.start);
    last = copy.end;
  }
  Join(last, made.end);
  return made;
}

AutomatonBuilder::Fragment AutomatonBuilder::BuildRule(Grammar::Rule rule) {
  if (!inlines_) {
    const Fragment made = {AddState(), AddState()};
    At(made.start).rules.push_back({.rule = rule, .target = made.end});
    return made;
  }
  if (grammar_.body(rule) < 0 || inlined_ == kMostInlined) {
    throw InputError("what is combined with another condition is nested too deeply");
  }
  ++inlined_;
  const Fragment made = Build(grammar_.body(rule));
  --inlined_;
  return made;
}

AutomatonBuilder::Fragment AutomatonBuilder::BuildIntersection(const Grammar::Node& node) {
  std::vector<RuleAutomata::State> sides[2];
  for (size_t i = 0; i < 2; ++i) {
    AutomatonBuilder side(grammar_, sets_, /*inlines=*/true);
    side.inlined_ = inlined_;
    const Fragment whole = side.Build(node.parts[i]);
    sides[i] = side.WithoutEmptyEdges(whole);
  }
  const Fragment made = {AddState(), AddState()};
  std::map<std::pair<int32_t, int32_t>, int32_t> known = {{{0, 0}, made.start}};
  std::vector<std::pair<int32_t, int32_t>> open = {{0, 0}};
  while (!open.empty()) {
    const auto pair = open.back();
    open.pop_back();
    const int32_t from = known.at(pair);
    const RuleAutomata::State& a = sides[0][static_cast<size_t>(pair.first)];
    const RuleAutomata::State& b = sides[1][static_cast<size_t>(pair.second)];
    if (a.accepting && b.accepting) Join(from, made.end);
    for (const RuleAutomata::ByteEdge& left : a.bytes) {
      for (const RuleAutomata::ByteEdge& right : b.bytes) {
        const ByteSet both = sets_.sets()[static_cast<size_t>(left.set)] &
                             sets_.sets()[static_cast<size_t>(right.set)];
        if (both.none()) continue;
        const std::pair<int32_t, int32_t> next = {left.target, right.target};
        auto found = known.find(next);
        if (found == known.end()) {
          found = known.emplace(next, AddState()).first;
          open.push_back(next);
        }
        At(from).bytes.push_back({sets_.IndexOf(both), found->second});
      }
    }
  }
  return made;
}

std::vector<RuleAutomata::State> AutomatonBuilder::WithoutEmptyEdges(Fragment whole) const {
  std::vector<int32_t> number(states_.size(), -1);
  std::vector<int32_t> order = {whole.start};
  number[static_cast<size_t>(whole.start)] = 0;
  const auto number_of = [&](int32_t state) {
    int32_t& found = number[static_cast<size_t>(state)];
    if (found < 0) {
      found = static_cast<int32_t>(order.size());
      order.push_back(state);
    }
    return found;
  };
  std::vector<RuleAutomata::State> made;
  std::vector<int32_t> seen(states_.size(), -1);  // by which of the new states
  std::vector<int32_t> open;
  size_t edges = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    RuleAutomata::State state;
    open = {order[i]};
    seen[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    while (!open.empty()) {
      const int32_t old = open.back();
      open.pop_back();
      const State& from = states_[static_cast<size_t>(old)];
      if (old == whole.end) state.accepting = true;
      for (const RuleAutomata::ByteEdge& edge : from.bytes) {
        state.bytes.push_back({edge.set, number_of(edge.target)});
      }
      for (const RuleAutomata::RuleEdge& edge : from.rules) {
        state.rules.push_back({.rule = edge.rule, .target = number_of(edge.target)});
      }
      for (const int32_t next : from.empty) {
        if (seen[static_cast<size_t>(next)] == static_cast<int32_t>(i)) continue;
        seen[static_cast<size_t>(next)] = static_cast<int32_t>(i);
        open.push_back(next);
      }
      edges += from.empty.size();
    }
    edges += state.bytes.size() + state.rules.size();
    if (edges > kMostEdges) {
      throw InputError(fmt::format("too large: its automaton has more than {} edges", kMostEdges));
    }
    made.push_back(std::move(state));
  }
  return made;
}

}  // namespace trimtab
