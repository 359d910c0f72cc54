// BytePairMerger: byte-pair encoding of one word.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace trimtab {

/// Joins pairs of neighbouring tokens in the order of their ranks (Sennrich et al., ACL 2016).
class BytePairMerger {
 public:
  /// The pair `left`, `right` becomes `merged`; lower ranks first. False when the pair is known.
  bool Add(int32_t left, int32_t right, int32_t merged);
  /// Forgets the pairs that become one of `tokens`.
  void RemoveThoseInto(const std::unordered_set<int32_t>& tokens);
  size_t size() const { return merges_.size(); }

  /// Joins the pair of the lowest rank, the first of several, until there is none. Takes
  /// n log n for n tokens.
  void Merge(std::vector<int32_t>& tokens) const;

 private:
  struct Rule {
    int32_t rank = 0;
    int32_t merged = 0;
  };
  const Rule* Find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> merges_;
  int32_t next_rank_ = 0;
};

}  // namespace trimtab
