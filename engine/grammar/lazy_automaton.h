// LazyAutomaton: a recogniser of a grammar whose states are made when they are first reached.
//
// A state is a set of Earley's items (Earley, CACM 13(2), 1970) over RuleAutomata: states of rules,
// each with the state in which its rule began. Equal sets are one state, so texts that may go on in
// the same way lead to the same state, however they came there, and what is known of a state (its
// successors, a mask of tokens) is found again. A call at the end of a rule takes the place of that
// rule, so lists written with recursion at their end repeat their states too.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/rule_automata.h"

namespace trimtab {

/// Not safe to use from several threads.
class LazyAutomaton {
 public:
  static constexpr int32_t kDead = -1;  // no text of the grammar begins so

  explicit LazyAutomaton(std::shared_ptr<const RuleAutomata> rules);

  int32_t start() const { return start_; }
  /// The state after `state` and `byte`; kDead if there is none, or if it has more items than a
  /// state may have.
  int32_t Next(int32_t state, uint8_t byte) {
    const Set& from = *sets_[static_cast<size_t>(state)];
    const int32_t byte_class = rules_->class_of(byte);
    const int32_t next = from.next[static_cast<size_t>(byte_class)];
    return next != kUnknown ? next : Compute(state, byte_class);
  }
  /// Returns true if the text so far is a whole text of the grammar.
  bool CanEnd(int32_t state) const { return sets_[static_cast<size_t>(state)]->can_end; }
  /// Returns true if no byte may follow.
  bool Finished(int32_t state) const { return sets_[static_cast<size_t>(state)]->scans.empty(); }

  /// Returns this automaton's state for a state of `other`, an automaton of the same rules.
  int32_t Import(const LazyAutomaton& other, int32_t state);

  int64_t size() const { return std::ssize(sets_); }
  /// Memory that its states take, about.
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr int32_t kText = -1;  // origin of the whole text
  static constexpr int32_t kSelf = -2;  // origin: the set that the item is in

  struct Item {
    int32_t state = 0;   // of the rules
    int32_t origin = 0;  // the set in which `rule` began
    int32_t rule = 0;    // that ends when `state` accepts
    auto operator<=>(const Item&) const = default;
  };
  struct Set {
    std::vector<Item> kernel{};  // what makes it this set: items that began before it, sorted
    bool can_end = false;
    std::vector<Item> scans{};  // items that read a byte
    /// By rule, sorted: items as they are once that rule, which begins here, has ended.
    std::vector<std::pair<int32_t, Item>> waiting{};
    std::vector<int32_t> next{};  // by class of bytes
  };
  class ItemList;

  int32_t Compute(int32_t state, int32_t byte_class);
  int32_t Reach(std::vector<Item> seeds);
  int32_t Intern(std::vector<Item> kernel, bool can_end);
  void Predict(Set& set) const;

  std::shared_ptr<const RuleAutomata> rules_;
  std::vector<std::unique_ptr<Set>> sets_;
  std::unordered_multimap<uint64_t, int32_t> known_;  // by the hash of what makes them
  int64_t bytes_ = 0;
  int32_t start_ = 0;
};

}  // namespace trimtab
