// BlockPool: who has which block of a paged cache, and which hold what another sequence may begin
// with (a prefix cache).
//
// A block that is full can be registered under the tokens in it and the block before it, so that a
// chain of blocks stands for a prefix, exactly. Nobody's registered blocks stay as they are until
// their memory is needed; those that were given back first go first.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trimtab {

class BlockPool {
 public:
  /// What a chain of registered blocks is known by; 0 is the empty chain.
  using ChainId = int64_t;

  explicit BlockPool(int64_t blocks);

  int64_t total() const { return static_cast<int64_t>(blocks_.size()); }
  /// Blocks that somebody has.
  int64_t used() const { return used_; }
  /// Blocks that Allocate can give.
  int64_t available() const { return total() - used_; }

  /// A block for one owner; nullopt when all are used.
  std::optional<int32_t> Allocate();
  /// Gives back one owner's hold on a block.
  void Release(int32_t block);

  struct Found {
    int32_t block = 0;
    ChainId chain = 0;
  };
  /// The registered block that holds `tokens` behind `before`.
  std::optional<Found> Find(ChainId before, std::vector<int32_t> tokens) const;
  /// Returns true if the block still holds the tokens it was found for.
  bool Holds(const Found& found) const {
    return blocks_[static_cast<size_t>(found.block)].chain == found.chain;
  }
  /// Returns the number of blocks registered so far. While it is unchanged, Find finds nothing new.
  ChainId registrations() const { return last_chain_; }
  /// Calls of Find so far.
  int64_t lookups() const { return lookups_; }
  /// Another owner has a block that was found.
  void Take(int32_t block);
  /// How many have a block.
  int64_t owners(int32_t block) const { return blocks_[static_cast<size_t>(block)].owners; }
  /// Says that `block` holds `tokens` behind `before`. Where another block is known to hold the
  /// same, that stays so. Returns the chain's name either way.
  ChainId Register(int32_t block, ChainId before, std::vector<int32_t> tokens);

 private:
  using Key = std::pair<ChainId, std::vector<int32_t>>;
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Block {
    int64_t owners = 0;
    const Key* key = nullptr;           // where it is registered
    ChainId chain = 0;                  // as what; 0 where it is not
    std::list<int32_t>::iterator idle;  // in idle_, while nobody has it
  };
  struct Entry {
    int32_t block = 0;
    ChainId chain = 0;
  };

  std::vector<Block> blocks_;
  std::list<int32_t> idle_;  // nobody's: first what to use first
  std::unordered_map<Key, Entry, KeyHash> registered_;
  ChainId last_chain_ = 0;
  int64_t used_ = 0;
  mutable int64_t lookups_ = 0;
};

}  // namespace trimtab
