#include "engine/data/vocabulary/byte_pair_merger.h"

#include <queue>

namespace trimtab {
namespace {

uint64_t KeyOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// A token of the word, and its neighbours; -1 for none.
struct Symbol {
  int32_t token = 0;  // -1: joined to the one before it
  int32_t before = 0;
  int32_t after = 0;
};

/// A pair that may be joined, unless one of the two has changed since.
struct Proposal {
  int32_t rank = 0;
  int32_t place = 0;  // of the left symbol
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;

  bool operator>(const Proposal& other) const {
    return rank != other.rank ? rank > other.rank : place > other.place;
  }
};

}  // namespace

bool BytePairMerger::Add(int32_t left, int32_t right, int32_t merged) {
  const bool added = merges_.emplace(KeyOf(left, right), Rule{next_rank_, merged}).second;
  if (added) ++next_rank_;
  return added;
}

void BytePairMerger::RemoveThoseInto(const std::unordered_set<int32_t>& tokens) {
  std::erase_if(merges_, [&](const auto& each) { return tokens.contains(each.second.merged); });
}

const BytePairMerger::Rule* BytePairMerger::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(KeyOf(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairMerger::Merge(std::vector<int32_t>& tokens) const {
  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<Symbol> symbols(tokens.size());
  const auto at = [&](int32_t place) -> Symbol& { return symbols[static_cast<size_t>(place)]; };
  for (int32_t i = 0; i < count; ++i) {
    at(i) = {tokens[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Proposal, std::vector<Proposal>, std::greater<>> proposals;
  const auto propose = [&](int32_t place) {
    if (place < 0 || at(place).after < 0) return;
    const int32_t left = at(place).token;
    const int32_t right = at(at(place).after).token;
    const Rule* rule = Find(left, right);
    if (rule != nullptr) proposals.push({rule->rank, place, left, right, rule->merged});
  };
  for (int32_t i = 0; i < count; ++i) propose(i);
  while (!proposals.empty()) {
    const Proposal next = proposals.top();
    proposals.pop();
    Symbol& left = at(next.place);
    if (left.token != next.left || left.after < 0 || at(left.after).token != next.right) continue;
    Symbol& right = at(left.after);
    left.token = next.merged;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) at(left.after).before = next.place;
    propose(left.before);
    propose(next.place);
  }
  tokens.clear();
  for (const Symbol& symbol : symbols) {
    if (symbol.token >= 0) tokens.push_back(symbol.token);
  }
}

}  // namespace trimtab
