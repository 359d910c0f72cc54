// RuleAutomata: the rules of a grammar as finite automata over bytes and rules.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/grammar/grammar.h"

namespace trimtab {

/// Without empty edges, and without what no whole text needs: every state is on the way from the
/// start of a text to its end, so what an automaton can read is the beginning of a text.
class RuleAutomata {
 public:
  struct ByteEdge {
    int32_t set = 0;  // of sets()
    int32_t target = 0;
    auto operator<=>(const ByteEdge&) const = default;
  };
  struct RuleEdge {
    int32_t rule = 0;
    int32_t target = 0;
    bool tail = false;  // nothing follows the target: the rule's end is that of the one it is in
    auto operator<=>(const RuleEdge&) const = default;
  };
  struct State {
    std::vector<ByteEdge> bytes{};
    std::vector<RuleEdge> rules{};
    bool accepting = false;

    /// True if it waits for something that is not a tail.
    bool Waits() const;
    auto operator<=>(const State&) const = default;
  };

  /// Throws InputError if the automata become too large, or if no text at all fits the grammar.
  RuleAutomata(const Grammar& grammar, Grammar::Rule root);

  int32_t root() const { return root_; }
  int32_t start(int32_t rule) const { return starts_[static_cast<size_t>(rule)]; }
  /// Returns true if the rule describes the empty text.
  bool nullable(int32_t rule) const { return nullable_[static_cast<size_t>(rule)]; }
  const State& state(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  int64_t size() const { return std::ssize(states_); }

  /// Bytes of one class lead from every state to the same ones.
  int32_t classes() const { return static_cast<int32_t>(members_.size()); }
  int32_t class_of(uint8_t byte) const { return class_of_[byte]; }
  bool Contains(int32_t set, int32_t byte_class) const {
    return sets_[static_cast<size_t>(set)].test(members_[static_cast<size_t>(byte_class)]);
  }

 private:
  void Trim();
  void MergeEqual();
  void DropUnreachable();
  void FindNullable();
  void FindClasses();

  int32_t root_ = 0;
  std::vector<State> states_;
  std::vector<int32_t> starts_;  // by rule; -1 if it describes no text or is not reached
  std::vector<bool> nullable_;
  std::vector<ByteSet> sets_;
  std::array<int32_t, 256> class_of_{};
  std::vector<uint8_t> members_;  // one byte of each class
};

}  // namespace trimtab
