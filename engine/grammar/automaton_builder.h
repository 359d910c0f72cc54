// AutomatonBuilder: expressions of a grammar as automata with empty edges (Thompson's
// construction).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/rule_automata.h"

namespace trimtab {

/// Sets of bytes, each once.
class ByteSets {
 public:
  int32_t IndexOf(const ByteSet& set);
  const std::vector<ByteSet>& sets() const { return sets_; }

 private:
  std::vector<ByteSet> sets_;
  std::map<std::string, int32_t> indices_;
};

class AutomatonBuilder {
 public:
  struct Fragment {
    int32_t start = 0;
    int32_t end = 0;
  };

  /// `inlines`: rules that are called are copied instead. Both arguments must outlive it.
  AutomatonBuilder(const Grammar& grammar, ByteSets& sets, bool inlines);

  /// Adds the automaton of `expr`. Throws InputError when there are too many states.
  Fragment Build(Grammar::Expr expr);
  /// The states that `start` reaches, without empty edges; `start` is the first of them.
  std::vector<RuleAutomata::State> WithoutEmptyEdges(Fragment whole) const;

 private:
  struct State {
    std::vector<int32_t> empty{};
    std::vector<RuleAutomata::ByteEdge> bytes{};
    std::vector<RuleAutomata::RuleEdge> rules{};
  };

  State& At(int32_t state) { return states_[static_cast<size_t>(state)]; }
  int32_t AddState();
  void Join(int32_t from, int32_t to) { At(from).empty.push_back(to); }
  Fragment BuildRepeat(const Grammar::Node& node);
  Fragment BuildIntersection(const Grammar::Node& node);
  Fragment BuildRule(Grammar::Rule rule);

  const Grammar& grammar_;
  ByteSets& sets_;
  bool inlines_;
  int inlined_ = 0;  // calls around this one
  std::vector<State> states_;
};

}  // namespace trimtab
